//! The whole driver as a process, on a stand-in for NVML that the real loader loads, with stand-ins for kubelet, API
//! server, scheduler and runtime.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod crashes;
mod gpus;
mod hardware;
mod health;
mod mig;
mod mps;
mod replay;
mod rig;
mod smoke;
mod taken;
