#![doc = include_str!("../README.md")]

mod compat;
mod convert;
mod device;
mod equal;
mod error;
mod features;
mod layout;
pub mod limits;
mod names;
mod observed;
mod plan;
mod pool;
mod problem;
mod publisher;
mod quantity;
mod scope;
mod slice_name;
mod split;
pub mod sysfs;
#[cfg(test)]
mod test_api;
mod validate;
mod wish;

pub use convert::UnreadableDevice;
pub use device::*;
pub use error::{Action, ErrorClass, PublishError};
pub use features::{Feature, IfDropped};
pub use names::{DeviceName, DriverName, InvalidName, NodeName, PoolName, QualifiedName};
pub use plan::{Plan, Write, plan};
pub use pool::{DriverResources, NodeOperation, Placement, Pool, Slice};
pub use problem::{Consequence, Fault, Problem, Subject};
pub use publisher::{
    DeviceTaints, Gate, PoolState, PoolStatus, Published, Publisher, SliceStatus, SliceWrites, Ticket, Wishes,
};
pub use quantity::{InvalidQuantity, Quantity};
pub use scope::Scope;
pub use validate::validate;
pub use wish::PoolWish;
pub use {k8s_openapi, kube};
