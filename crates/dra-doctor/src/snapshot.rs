//! What was seen of a node and of a cluster. Checks are functions of this.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use dra_allocator::TaintRule;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};

use crate::finding::{Finding, Verdict};

/// Reason of Events of kubelets that cannot prepare the devices of a pod.
pub(crate) const NOT_PREPARED: &str = "FailedPrepareDynamicResources";
/// Reason of Events of the controller manager when it cannot make the claim of a pod.
pub(crate) const CLAIM_NOT_MADE: &str = "FailedResourceClaimCreation";

/// All that the checks know. Parts that were not looked at say so.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// See [`Report::left_out`](crate::Report::left_out).
    pub left_out: Vec<String>,
    /// Only this driver is of interest.
    pub driver: Option<String>,
    /// Name of the node that the program runs on.
    pub node: Option<String>,
    /// The drivers that have published devices of this node.
    pub drivers_here: Looked<BTreeSet<String>>,
    /// Of the drivers with a socket here, those that have published something that may be for this node.
    pub published: Looked<BTreeSet<String>>,
    /// The kubelet root that the driver was told.
    pub kubelet_root: PathBuf,
    /// The same with symbolic links followed.
    pub real_kubelet_root: PathBuf,
    /// The kubelets that run here.
    pub kubelets: Looked<Vec<Kubelet>>,
    /// The UNIX sockets of all network namespaces that have a path.
    pub unix_sockets: Looked<Vec<UnixSocket>>,
    /// The sockets in the folder that the kubelet watches.
    pub registry: Looked<Vec<RegistrationSocket>>,
    /// The container runtime.
    pub runtime: Looked<Runtime>,
    /// The folder that the driver writes CDI files to.
    pub cdi: Looked<CdiFolder>,
    /// The versions of the API group `resource.k8s.io` that the API server serves.
    pub versions: Looked<Vec<String>>,
    /// What the driver's account may do.
    pub access: Looked<Vec<Access>>,
    /// ResourceSlices.
    pub slices: Looked<Vec<ResourceSlice>>,
    /// Device classes.
    pub classes: Looked<Vec<DeviceClass>>,
    /// DeviceTaintRules.
    pub taint_rules: Looked<Vec<TaintRule>>,
    /// ResourceClaims of all namespaces.
    pub claims: Looked<Vec<ResourceClaim>>,
    /// Templates of claims: those of the pods that are examined, or of all namespaces.
    pub templates: Looked<Vec<ResourceClaimTemplate>>,
    /// Nodes.
    pub nodes: Looked<Vec<Node>>,
    /// The pods that are examined: those that are pending, or the one that was named.
    pub pods: Looked<Vec<Pod>>,
    /// Pods for which claims are reserved, as far as they matter for the ones that are examined.
    pub holders: Looked<Vec<Pod>>,
    /// The claim that was named, if one was.
    pub claim: Option<ObjectName>,
    /// What drivers say in Events about nodes.
    pub node_events: Looked<Vec<Event>>,
    /// What is said in Events about pods whose claims cannot be made, or whose devices cannot be prepared.
    pub pod_events: Looked<Vec<Event>>,
}

/// A part of the snapshot.
#[derive(Debug, Clone)]
#[allow(clippy::exhaustive_enums, reason = "there is no fourth way to look")]
pub enum Looked<T> {
    /// It was seen.
    At(T),
    /// It could not be seen: why.
    CouldNot(String),
    /// Nobody asked for it: how to ask.
    NotAsked(String),
}

impl<T> Default for Looked<T> {
    fn default() -> Self {
        Self::NotAsked("not part of this command".into())
    }
}

impl<T> Looked<T> {
    /// What was seen, or the error.
    pub(crate) fn from_result<E: fmt::Display>(seen: Result<T, E>, what: &str) -> Self {
        match seen {
            Ok(seen) => Self::At(seen),
            Err(error) => Self::CouldNot(format!("{what}: {error}")),
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Looked<U> {
        match self {
            Self::At(seen) => Looked::At(change(seen)),
            Self::CouldNot(why) => Looked::CouldNot(why),
            Self::NotAsked(how) => Looked::NotAsked(how),
        }
    }

    /// What was seen, if it was.
    pub(crate) fn seen(&self) -> Option<&T> {
        match self {
            Self::At(seen) => Some(seen),
            Self::CouldNot(_) | Self::NotAsked(_) => None,
        }
    }

    /// What a check says of it, or that it could not look.
    pub(crate) fn check(&self, look: impl FnOnce(&T) -> Vec<Finding>) -> Verdict {
        self.verdict(|seen| Verdict::Looked(look(seen)))
    }

    /// Like [`Looked::check`], for checks that need another part too.
    pub(crate) fn verdict(&self, look: impl FnOnce(&T) -> Verdict) -> Verdict {
        match self {
            Self::At(seen) => look(seen),
            Self::CouldNot(why) => Verdict::CouldNot(why.clone()),
            Self::NotAsked(how) => Verdict::NotAsked(how.clone()),
        }
    }
}

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Both parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a text is not `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not NAMESPACE/NAME")]
#[non_exhaustive]
pub struct NotAName {
    text: String,
}

impl std::str::FromStr for ObjectName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::new(namespace, name))
            }
            _ => Err(NotAName { text: text.to_owned() }),
        }
    }
}

/// A kubelet that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kubelet {
    /// Its process.
    pub pid: u32,
    /// Its root folder, by its command line.
    pub root: PathBuf,
    /// The same with symbolic links followed.
    pub real_root: PathBuf,
}

/// A UNIX socket with a path, as `/proc/net/unix` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnixSocket {
    /// The path that it was bound to, in its process's view. It may have been renamed since.
    pub path: PathBuf,
    /// Whether it takes connections. Else it is the server's end of one.
    pub is_listening: bool,
}

/// A socket in the folder that the kubelet watches.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationSocket {
    /// Its path.
    pub path: PathBuf,
    /// What it answers when it is dialled as the kubelet dials it.
    pub answer: Answer<PluginInfo>,
    /// Whether the socket of the plugin's service takes connections; for those that answer.
    pub service: Answer<()>,
}

/// What came of dialling a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<T> {
    /// It answered.
    Good(T),
    /// Nobody listens.
    Refused,
    /// There is no such file.
    Missing,
    /// The server resets a call with the name of the socket as authority, as the kubelet has it.
    CannotBeDialled,
    /// It did not answer in time.
    Silent,
    /// Something else.
    Failed(String),
}

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginInfo {
    /// Such as `DRAPlugin`.
    pub kind: String,
    /// Name of the driver.
    pub name: String,
    /// Path of the socket of its service.
    pub endpoint: PathBuf,
    /// Names of the services.
    pub versions: Vec<String>,
}

/// What a container runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Runtime {
    /// The socket that was asked.
    pub endpoint: PathBuf,
    /// Whether it applies CDI, if it says so.
    pub enable_cdi: Option<bool>,
    /// The folders that it reads CDI files from, if it says so; symbolic links are followed.
    pub cdi_folders: Option<Vec<PathBuf>>,
}

/// A folder for CDI files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CdiFolder {
    /// As the driver was told.
    pub path: PathBuf,
    /// With symbolic links followed.
    pub real: PathBuf,
}

/// Whether an account may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// The account.
    pub account: String,
    /// Such as `patch` or `associated-node:patch`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// Such as `resourceclaims/status`.
    pub resource: String,
    /// What a driver needs it for.
    pub needed_for: String,
    /// The answer.
    pub is_allowed: bool,
}

/// What somebody says in an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The object that it is about. Nodes are in no namespace, so theirs is empty.
    pub about: ObjectName,
    /// Such as `DRADriverRefused`.
    pub reason: String,
    /// The text.
    pub note: String,
    /// When it was said last, in nanoseconds since 1970.
    pub when: i128,
}
