//! The program as it is run: the demo, and what it says to bad input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod bad_input;
mod binding;
mod calls;
mod demo;
mod go_books;
mod instance;
mod profiles;
mod program;
mod release;
mod show;
mod stop;
mod strangers;
mod two_processes;
mod webhook;
