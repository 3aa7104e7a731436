//! tmp
pub mod api;
pub mod kubelet;
pub mod runtime;
mod temp_node;
pub use temp_node::TempNode;
