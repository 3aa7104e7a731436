//! All scenarios, in the order in which they run.

mod api_server;
mod books;
mod cdi;
mod claims;
mod cluster;
mod footprint;
mod go_driver;
mod gpu;
mod hello;
mod operations;
mod pods;
mod registration;
mod restart;
mod slices;
mod take_over;
mod turns;
mod undone;

use crate::scenario::Scenario;

/// One list for each file in `scenarios/`.
pub(crate) fn all() -> Vec<Scenario> {
    let lists = [
        cluster::scenarios(),
        pods::scenarios(),
        claims::scenarios(),
        hello::scenarios(),
        operations::scenarios(),
        registration::scenarios(),
        restart::scenarios(),
        books::scenarios(),
        take_over::scenarios(),
        turns::scenarios(),
        undone::scenarios(),
        api_server::scenarios(),
        cdi::scenarios(),
        footprint::scenarios(),
        slices::scenarios(),
    ];
    lists.into_iter().flatten().collect()
}
