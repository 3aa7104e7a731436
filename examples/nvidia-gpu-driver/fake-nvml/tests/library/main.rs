//! The shared library, through the real loader.

#![allow(clippy::expect_used, reason = "helpers of tests fail like tests")]

mod devices;
mod events;
mod faults;
mod mig;
mod refusals;
mod support;
mod symbols;
