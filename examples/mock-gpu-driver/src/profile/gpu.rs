//! GPUs.

pub(crate) mod config;
