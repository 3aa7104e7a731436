#![doc = include_str!("../README.md")]

mod check;
mod dir;
mod edits;
mod encode;
mod error;
mod fault;
mod file_id;
mod file_name;
mod folder;
mod name;
mod parse;
mod resolve;
mod spec;
mod temp;
mod version;

pub use check::InvalidSpec;
pub use dir::{Directory, Ensured, FileOwner, FoundFile};
pub use edits::{
    ContainerEdits, DeviceNode, DeviceType, EnvVar, Hook, HookName, IntelRdt, Mount, NetDevice, Permissions,
};
pub use error::Error;
/// For the crates of this workspace, whose own points are counted with these.
#[cfg(feature = "__fault")]
#[doc(hidden)]
pub use fault::point as __fault_point;
pub use file_id::{FileId, ForeignFile};
pub use name::{Class, DeviceName, InvalidName, Kind, QualifiedName, Vendor};
pub use parse::ParseError;
pub use resolve::{ResolveError, resolve_host_paths};
pub use spec::{Device, Spec};
pub use version::Version;
