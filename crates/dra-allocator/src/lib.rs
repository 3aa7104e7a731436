#![doc = include_str!("../README.md")]

mod allocate;
mod capacity;
mod constraints;
mod counters;
mod error;
mod explain;
mod implicit;
mod model;
mod nodes;
mod obstacle;
mod pools;
pub mod quantity;
mod requests;
mod result;
mod search;
mod taints;

pub use allocate::{Known, allocate};
pub use error::AllocationError;
pub use explain::{DeviceExplanation, Explanation, RequestExplanation, explain};
pub use implicit::{asks_for_extended_resources, implicit_claim};
pub use nodes::selects;
pub use obstacle::{Obstacle, ObstacleKind};
pub use taints::TaintRule;
