#![doc = include_str!("../README.md")]

mod accepted;
mod adopt;
mod background;
mod boot;
mod claim;
mod claim_status;
mod claims;
#[cfg(feature = "rustls-tls")]
mod client;
mod config;
mod digest;
mod error;
mod fault;
mod file_limit;
mod file_threads;
mod handle;
mod health;
mod held;
mod lock;
pub mod metadata;
mod mutex;
mod names;
mod node_events;
mod one_line;
mod operations;
mod options;
mod own_thread;
mod pace;
mod paths;
mod plugin;
mod prepared;
mod publishing;
mod registration;
mod regular_file;
mod server;
pub mod signals;
mod socket;
mod start;
pub mod state;
mod stop;
mod tasks;
mod untrusted;
#[cfg(feature = "wire")]
pub mod wire;
#[cfg(not(feature = "wire"))]
mod wire;

pub use dra_cdi::{self as cdi, ContainerEdits, DeviceNode, ForeignFile, Hook, HookName, Mount};
pub use dra_resourceslice::{
    self as resourceslice, AttributeValue, Device, DeviceTaints, DriverResources, Pool, Quantity,
    SliceStatus, Taint, TaintEffect, Ticket, Wishes,
};
pub use {k8s_openapi, kube, prometheus_client};

#[cfg(feature = "rustls-tls")]
pub use crate::client::{ClientError, client, client_from};
pub use crate::{
    adopt::{Adopt, AdoptedClaim, AdoptedDevice},
    claim::{AllocatedClaim, AllocatedDevice, ClaimError, ClaimRef, DeviceRef},
    claim_status::{DeviceStatus, InvalidStatus},
    claims::StoreError,
    config::{ConfigError, ConfigSource, DeviceConfig, OpaqueConfig, parse_parameters},
    error::{BackgroundError, RunError, StartError},
    file_limit::{raise_file_limit, with_former_file_limit},
    handle::Handle,
    health::{DeviceHealth, HealthReporter, HealthStatus, HealthTaints, HealthVersion},
    held::{HeldClaim, HeldDevice, UnprepareReason},
    metadata::DeviceMetadata,
    names::{ClaimUid, DeviceName, DriverName, InvalidName, InvalidUid, NodeName, PoolName, QualifiedName},
    operations::{NotLive, Readiness},
    options::Options,
    paths::PathError,
    plugin::{DriverPlugin, PluginError, PrepareContext},
    prepared::Prepared,
    registration::Registration,
    start::start,
};

/// Compiles the driver of the repository's README.
#[cfg(all(doctest, feature = "rustls-tls"))]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadme;
