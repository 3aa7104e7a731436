//! Whole drivers against the test kit: real sockets, real files, a kubelet and an API server that are stand-ins.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod support;

mod adopt;
mod api_outage;
mod background_errors;
mod bad_claims;
mod blocked_worker;
mod claim_status;
mod current;
mod damage;
mod descriptors;
mod exclusivity;
mod formats;
mod go_faults;
mod health;
mod metadata;
mod node_events;
mod operations;
mod overlapping_calls;
mod prepare;
mod publishing_turns;
mod reallocated;
mod registration;
mod release;
mod restart;
mod roll_back;
mod several_instances;
mod shares;
mod show;
mod slices;
mod start;
mod stop;
mod two_drivers;
mod two_processes;
mod unprepare;
