#![doc = include_str!("../README.md")]

mod checks;
mod finding;
pub mod gather;
mod grpc;
mod report;
mod snapshot;

pub use checks::examine;
pub use finding::{Device, Finding, Verdict};
pub use report::{Examined, Report};
pub use snapshot::{
    Access, Answer, CdiFolder, Event, Kubelet, Looked, NotAName, ObjectName, PluginInfo, RegistrationSocket,
    Runtime, Snapshot, UnixSocket,
};
