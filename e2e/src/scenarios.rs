//! All scenarios, in the order in which they run.

mod api_server;
mod books;
mod cdi;
mod claims;
mod cluster;
mod footprint;
mod gpu;
mod hello;
mod pods;
mod registration;
mod restart;
mod slice_client;
mod slices;

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
        api_server::scenarios(),
        cdi::scenarios(),
        footprint::scenarios(),
        slices::scenarios(),
        slice_client::scenarios(),
    ];
    lists.into_iter().flatten().collect()
}
