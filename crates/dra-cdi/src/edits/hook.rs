//! A hook: a program that the runtime starts at one point of a container's life.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::env::EnvVar;
use super::tidy;

/// A program of the host that the runtime starts, with the runtime's rights and outside the container's file system unless
/// [`HookName`] says otherwise.
///
/// ```
/// use dra_cdi::{Hook, HookName};
/// let hook = Hook::new(HookName::CreateContainer, "/usr/local/bin/gpu-hook").args(["gpu-hook", "update-ldcache"]);
/// # assert_eq!(hook.args.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Hook {
    /// When it runs.
    pub hook_name: HookName,
    /// The program.
    pub path: PathBuf,
    /// The arguments; the first is the program's own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its whole environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Seconds after which the runtime gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<NonZeroU32>,
}

impl Hook {
    /// A hook without arguments, environment and time-out.
    #[must_use]
    pub fn new(hook_name: HookName, path: impl Into<PathBuf>) -> Self {
        Self { hook_name, path: tidy(&path.into()), args: Vec::new(), env: Vec::new(), timeout: None }
    }

    /// Takes these arguments in place of all so far. The first is the program's own name (`argv[0]`).
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a variable to the hook's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push(EnvVar { name: name.into(), value: value.into() });
        self
    }

    /// Lets the runtime give up after so many seconds.
    #[must_use]
    pub fn timeout(mut self, seconds: NonZeroU32) -> Self {
        self.timeout = Some(seconds);
        self
    }
}

/// When a hook runs, in the terms of the OCI runtime specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum HookName {
    /// After the namespaces are made, before the container's program runs; deprecated by OCI.
    Prestart,
    /// After the namespaces are made, in the runtime's namespace.
    CreateRuntime,
    /// After the namespaces are made, in the container's namespace, before its root is switched.
    CreateContainer,
    /// Inside the container, before its program runs.
    StartContainer,
    /// After the container's program was started.
    Poststart,
    /// After the container was deleted.
    Poststop,
}
