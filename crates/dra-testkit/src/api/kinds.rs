//! The kinds that the stand-in serves, and what differs between them.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::events::v1::Event as EventsEvent;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How a kind treats `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// The kind has none.
    None,
    /// Subresource; what a create says about it is dropped.
    DroppedOnCreate,
    /// Subresource; a create may set it, as the kubelet does for its node.
    KeptOnCreate,
}

/// One served kind.
#[derive(Debug)]
#[allow(clippy::struct_field_names, reason = "`kind` is the API's own word for it")]
pub(crate) struct Kind {
    /// API group, empty for the core group.
    pub(crate) group: &'static str,
    /// Name in paths.
    pub(crate) plural: &'static str,
    /// Name in objects.
    pub(crate) kind: &'static str,
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// What happens to `status`.
    pub(crate) status: StatusRule,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) counts_generation: bool,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: &'static [&'static str],
    /// Reads an object as its type and writes it again: wrong types are refused, unknown fields dropped.
    pub(crate) retype: fn(Value) -> Result<Value, serde_json::Error>,
}

/// Version of every served group.
pub(crate) const VERSION: &str = "v1";

/// Group of the DRA kinds.
pub(crate) const RESOURCE_GROUP: &str = "resource.k8s.io";

/// All served kinds.
pub(crate) static KINDS: [Kind; 8] = [
    Kind {
        group: RESOURCE_GROUP,
        plural: "resourceslices",
        kind: "ResourceSlice",
        namespaced: false,
        status: StatusRule::None,
        counts_generation: true,
        selectable: &["spec.driver", "spec.nodeName", "spec.pool.name"],
        retype: retype::<ResourceSlice>,
    },
    Kind {
        group: RESOURCE_GROUP,
        plural: "resourceclaims",
        kind: "ResourceClaim",
        namespaced: true,
        status: StatusRule::DroppedOnCreate,
        counts_generation: false,
        selectable: &[],
        retype: retype::<ResourceClaim>,
    },
    Kind {
        group: RESOURCE_GROUP,
        plural: "resourceclaimtemplates",
        kind: "ResourceClaimTemplate",
        namespaced: true,
        status: StatusRule::None,
        counts_generation: false,
        selectable: &[],
        retype: retype::<ResourceClaimTemplate>,
    },
    Kind {
        group: RESOURCE_GROUP,
        plural: "deviceclasses",
        kind: "DeviceClass",
        namespaced: false,
        status: StatusRule::None,
        counts_generation: true,
        selectable: &[],
        retype: retype::<DeviceClass>,
    },
    Kind {
        group: "",
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        status: StatusRule::KeptOnCreate,
        counts_generation: false,
        selectable: &["spec.unschedulable"],
        retype: retype::<Node>,
    },
    Kind {
        group: "",
        plural: "pods",
        kind: "Pod",
        namespaced: true,
        status: StatusRule::DroppedOnCreate,
        counts_generation: true,
        selectable: &["spec.nodeName", "spec.serviceAccountName", "status.phase"],
        retype: retype::<Pod>,
    },
    Kind {
        group: "",
        plural: "events",
        kind: "Event",
        namespaced: true,
        status: StatusRule::None,
        counts_generation: false,
        selectable: &["involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"],
        retype: retype::<Event>,
    },
    Kind {
        group: "events.k8s.io",
        plural: "events",
        kind: "Event",
        namespaced: true,
        status: StatusRule::None,
        counts_generation: false,
        selectable: &["reason", "regarding.kind", "regarding.name", "regarding.uid", "type"],
        retype: retype::<EventsEvent>,
    },
];

impl Kind {
    /// `v1` or `group/v1`, as objects say it.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { VERSION.into() } else { format!("{}/{VERSION}", self.group) }
    }

    /// `nodes` or `resourceslices.resource.k8s.io`, as messages say it.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether the kind has the `status` subresource.
    pub(crate) fn has_status(&self) -> bool {
        self.status != StatusRule::None
    }
}

/// The served kind of this group and plural name.
pub(crate) fn by_plural(group: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.group == group && kind.plural == plural)
}

/// The served kind with this `apiVersion` and `kind`.
pub(crate) fn by_type(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name && kind.api_version() == api_version)
}

fn retype<K: DeserializeOwned + Serialize>(object: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<K>(object)?)
}
