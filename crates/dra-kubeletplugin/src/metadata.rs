//! Device metadata (KEP-5304): files in containers that say what their devices are, such as a UUID or a PCI address.
//!
//! A driver gives [`DeviceMetadata`] with [`Prepared::metadata`](crate::Prepared::metadata); the SDK writes it and mounts
//! it. A workload, or a tool in its container, calls [`read`]; that needs neither a cluster nor a driver.
//!
//! There is a file for each driver and request, in the folder of the request:
//!
//! ```text
//! /var/run/kubernetes.io/dra-device-attributes/resourceclaims/<claim>/<request>/<driver>-metadata.json
//! /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/<claim in the pod>/<request>/<driver>-metadata.json
//! ```
//!
//! the second for claims that are made from a template. It holds the same object in one or more versions of
//! `metadata.resource.k8s.io`, one JSON text after the other; this SDK writes v1beta1 (Kubernetes 1.37) and reads it
//! and v1alpha1 (1.36), which have the same fields.

mod device;
mod file;
mod path;
mod read;

pub use device::{DeviceMetadata, InvalidMetadata};
pub use file::{ClaimMetadata, DescribedDevice, MalformedMetadata, RequestMetadata};
pub use path::{PodClaim, ROOT};
pub use read::{ReadError, read, read_below};

pub(crate) use path::container_path;
