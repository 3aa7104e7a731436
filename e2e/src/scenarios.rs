//! All scenarios, in the order in which they run.

mod api_server;
mod beside_go;
mod books;
mod cdi;
mod claims;
mod cluster;
mod footprint;
mod go_driver;
mod gpu;
mod hello;
mod pods;
mod registration;
mod restart;
mod take_over;
mod wiped_slices;

use crate::scenario::Scenario;

/// One list for each file in `scenarios/`.
pub(crate) fn all() -> Vec<Scenario> {
    let lists = [
        cluster::scenarios(),
        pods::scenarios(),
        claims::scenarios(),
        hello::scenarios(),
        registration::scenarios(),
        restart::scenarios(),
        books::scenarios(),
        take_over::scenarios(),
        wiped_slices::scenarios(),
        beside_go::scenarios(),
        api_server::scenarios(),
        cdi::scenarios(),
        footprint::scenarios(),
    ];
    lists.into_iter().flatten().collect()
}
