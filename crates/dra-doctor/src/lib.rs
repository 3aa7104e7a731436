#![doc = include_str!("../README.md")]

mod checks;
mod finding;
pub mod gather;
mod grpc;
mod kind;
mod report;
mod snapshot;

pub use checks::examine;
pub use dra_allocator::{ObstacleKind, TaintRule};
pub use finding::{Device, Finding, Reason, Verdict};
pub use kind::FindingKind;
pub use report::{Examined, Report};
pub use snapshot::{
    Access, Answer, CdiFolder, Event, Kubelet, Looked, NotAName, ObjectName, PluginInfo, RegistrationSocket,
    Runtime, Snapshot, UnixSocket,
};
