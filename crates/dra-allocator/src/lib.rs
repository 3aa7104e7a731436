#![doc = include_str!("../README.md")]

mod allocate;
mod capacity;
mod constraints;
mod counters;
mod error;
mod explain;
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
pub use nodes::selects;
pub use obstacle::{Obstacle, ObstacleKind};
