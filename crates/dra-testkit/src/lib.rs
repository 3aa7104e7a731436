#![doc = include_str!("../README.md")]

pub mod api;
mod compat;
pub mod kubelet;
pub mod runtime;
pub mod scheduler;
mod temp_node;

pub use temp_node::TempNode;
