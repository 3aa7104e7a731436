//! All scenarios, in the order in which they run.

mod allocator;
mod api_server;
mod bad_prepares;
mod beside_go;
mod books;
mod cdi;
mod claims;
mod cluster;
mod disks;
mod footprint;
mod go_driver;
mod gpu;
mod hello;
mod kubelet_away;
mod metadata;
mod operations;
mod pods;
mod registration;
mod restart;
mod selectors;
mod slice_client;
mod slices;
mod take_over;
mod turns;
mod undone;
mod wiped_slices;

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
        kubelet_away::scenarios(),
        bad_prepares::scenarios(),
        disks::scenarios(),
        take_over::scenarios(),
        turns::scenarios(),
        undone::scenarios(),
        wiped_slices::scenarios(),
        beside_go::scenarios(),
        api_server::scenarios(),
        cdi::scenarios(),
        selectors::scenarios(),
        allocator::scenarios(),
        metadata::scenarios(),
        footprint::scenarios(),
        slices::scenarios(),
        slice_client::scenarios(),
    ];
    lists.into_iter().flatten().collect()
}
