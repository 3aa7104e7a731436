//! What users can say of their scratch folder.

use std::path::{Component, Path};

use dra_kubeletplugin::{ConfigError, DeviceConfig};
use serde::Deserialize;

/// In claims: `apiVersion: scratch.example.com/v1`, `kind: ScratchConfig`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScratchConfig {
    /// Where the folder is in containers.
    #[serde(default = "mount_path")]
    pub(crate) mount_path: String,
    /// Containers cannot write.
    #[serde(default)]
    pub(crate) read_only: bool,
}

fn mount_path() -> String {
    "/scratch".to_owned()
}

impl Default for ScratchConfig {
    fn default() -> Self {
        Self { mount_path: mount_path(), read_only: false }
    }
}

impl DeviceConfig for ScratchConfig {
    const API_VERSION: &'static str = "scratch.example.com/v1";
    const KIND: &'static str = "ScratchConfig";
}

impl ScratchConfig {
    /// What its fields may not say though they have the right type.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let path = Path::new(&self.mount_path);
        if !path.is_absolute() || path.parent().is_none() {
            return Err(ConfigError::new("mountPath", "must be an absolute path, and not /"));
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(ConfigError::new("mountPath", "must not have `..` in it"));
        }
        Ok(())
    }
}
