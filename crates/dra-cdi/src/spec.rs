//! A CDI spec: the content of one file, always valid.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::{self, InvalidSpec};
use crate::edits::ContainerEdits;
use crate::encode;
use crate::name::{DeviceName, Kind, QualifiedName};
use crate::parse::{self, ParseError};
use crate::version::{self, Version};

/// The content of a CDI file: devices of one kind and what each edits.
///
/// A `Spec` is valid from its construction on: every runtime that knows its [`version`](Self::version) accepts it.
///
/// ```
/// use dra_cdi::{ContainerEdits, DeviceNode, Kind, Spec, Version};
///
/// let kind = Kind::for_driver("gpu.example.com")?;
/// let gpu = ContainerEdits::new().device_node(DeviceNode::new("/dev/gpu0"));
/// let spec = Spec::new(kind, ContainerEdits::new().env("GPU_DRIVER", "1.0.0"), [("gpu-0".parse()?, gpu)])?;
///
/// assert_eq!(spec.version(), Version::V0_3_0);
/// assert_eq!(spec.device_ids().next().unwrap().to_string(), "k8s.gpu.example.com/claim=gpu-0");
/// assert_eq!(Spec::parse(&spec.encode())?, spec);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    kind: Kind,
    annotations: BTreeMap<String, String>,
    edits: ContainerEdits,
    devices: Vec<Device>,
}

/// A device of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    name: DeviceName,
    container_edits: ContainerEdits,
}

impl Device {
    /// The name within the kind.
    #[must_use]
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// What the device edits.
    #[must_use]
    pub fn edits(&self) -> &ContainerEdits {
        &self.container_edits
    }
}

impl Spec {
    /// Puts a spec together. `common_edits` are done once in a container that uses any of the devices, before the devices' own.
    ///
    /// The devices are kept in the order of their names, so that the same content gives the same bytes.
    ///
    /// # Errors
    /// [`InvalidSpec`] naming the field, its value and the rule that it breaks: no device, two of one name, a device
    /// without edits (leave it out, and do not return its ID), or edits that a runtime would refuse or misread.
    pub fn new(
        kind: Kind,
        common_edits: ContainerEdits,
        devices: impl IntoIterator<Item = (DeviceName, ContainerEdits)>,
    ) -> Result<Self, InvalidSpec> {
        let mut devices: Vec<Device> =
            devices.into_iter().map(|(name, container_edits)| Device { name, container_edits }).collect();
        check::devices(&devices)?;
        check::edits("containerEdits", &common_edits)?;
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { kind, annotations: BTreeMap::new(), edits: common_edits, devices })
    }

    /// The spec with these annotations in place of all so far. They describe the file, not the container.
    ///
    /// # Errors
    /// [`InvalidSpec`] when a key is not a Kubernetes qualified name (`[<DNS subdomain>/]<name>`), a value holds NUL, or all
    /// together exceed 256 KiB.
    pub fn with_annotations(
        mut self,
        annotations: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self, InvalidSpec> {
        self.annotations = annotations.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        check::annotations(&self.annotations)?;
        Ok(self)
    }

    /// Reads a file that this crate wrote. Unknown fields, and a version other than that of the content, are refused.
    ///
    /// # Errors
    /// [`ParseError`] when `bytes` is not JSON of this form, or its content breaks a rule of [`Spec::new`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        parse::parse(bytes)
    }

    /// The bytes of the CDI file: JSON on one line that a YAML parser reads the same. Equal specs give equal bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// The lowest CDI version that the content needs, which is the one that the file says.
    #[must_use]
    pub fn version(&self) -> Version {
        version::minimum(self)
    }

    /// The kind of the devices.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The annotations of the file.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// The edits that come with any of the devices.
    #[must_use]
    pub fn edits(&self) -> &ContainerEdits {
        &self.edits
    }

    /// The devices, in the order of their names.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The qualified names of the devices, in the order of [`devices`](Self::devices).
    pub fn device_ids(&self) -> impl Iterator<Item = QualifiedName> + '_ {
        self.devices.iter().map(|device| self.kind.device(device.name.clone()))
    }
}
