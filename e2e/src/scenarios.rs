//! All scenarios, in the order in which they run.

mod adoption;
mod allocator;
mod api_server;
mod bad_prepares;
mod behind_proxy;
mod beside_go;
mod books;
mod cdi;
mod chart_rights;
mod claim_status;
mod claims;
mod cluster;
mod crash_loop;
mod demos;
mod disks;
mod doctor;
mod footprint;
mod go_driver;
mod go_faults;
pub(crate) mod gpu;
mod gpu_health;
mod health;
mod health_ends;
mod health_taints;
mod hello;
mod helm;
mod helm_options;
mod kubelet_away;
mod long_name;
mod lost_calls;
mod lost_drivers;
mod manifests;
mod metadata;
mod nvidia;
mod nvidia_mps;
mod operations;
mod pods;
mod profiles;
mod reboot;
mod refusal;
mod registration;
mod request_counts;
mod restart;
mod retries;
mod selectors;
mod shares;
mod slice_client;
mod slice_denials;
mod slices;
mod soak;
mod state;
mod stop;
mod take_over;
mod turns;
mod two_drivers;
mod undone;
mod unreadable_record;
pub(crate) mod updates;
mod webhook;
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
        refusal::scenarios(),
        state::scenarios(),
        webhook::scenarios(),
        stop::scenarios(),
        restart::scenarios(),
        books::scenarios(),
        reboot::scenarios(),
        unreadable_record::scenarios(),
        kubelet_away::scenarios(),
        bad_prepares::scenarios(),
        lost_calls::scenarios(),
        retries::scenarios(),
        lost_drivers::scenarios(),
        two_drivers::scenarios(),
        shares::scenarios(),
        disks::scenarios(),
        take_over::scenarios(),
        adoption::scenarios(),
        turns::scenarios(),
        undone::scenarios(),
        request_counts::scenarios(),
        updates::scenarios(),
        long_name::scenarios(),
        crash_loop::scenarios(),
        wiped_slices::scenarios(),
        beside_go::scenarios(),
        go_faults::scenarios(),
        api_server::scenarios(),
        cdi::scenarios(),
        selectors::scenarios(),
        allocator::scenarios(),
        metadata::scenarios(),
        health::scenarios(),
        health_ends::scenarios(),
        health_taints::scenarios(),
        claim_status::scenarios(),
        doctor::scenarios(),
        profiles::scenarios(),
        nvidia::scenarios(),
        nvidia_mps::scenarios(),
        footprint::scenarios(),
        slices::scenarios(),
        slice_client::scenarios(),
        slice_denials::scenarios(),
        helm::scenarios(),
        helm_options::scenarios(),
        demos::scenarios(),
        manifests::scenarios(),
        chart_rights::scenarios(),
        soak::scenarios(),
    ];
    lists.into_iter().flatten().collect()
}
