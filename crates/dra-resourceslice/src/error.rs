//! Why publishing failed, and what becomes of it.

use std::{sync::Arc, time::Duration};

use crate::{DeviceName, Feature, NodeName, PoolName, Problem};

/// What went wrong while publishing.
///
/// A publisher reports these to its `on_error` callback and in its status; it goes on by itself with what can be
/// tried again. [`PublishError::class`] tells what happens next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A part of the wish breaks a rule of the API and is left out.
    #[error("{0}")]
    Invalid(Problem),

    /// A request to the API server failed.
    #[error("{action} {object}: {}{}", said(.source), hint(.source))]
    #[non_exhaustive]
    Api {
        /// What was tried.
        action: Action,
        /// On which object.
        object: String,
        /// What the client or the API server said.
        source: Arc<kube::Error>,
    },

    /// The API server did not answer in time.
    #[error("{action} {object}: no answer within {after:?}; check that the API server can be reached")]
    #[non_exhaustive]
    Timeout {
        /// What was tried.
        action: Action,
        /// On which object.
        object: String,
        /// How long it was waited for.
        after: Duration,
    },

    /// The API server stored a slice without some of its fields, because feature gates are off.
    #[error(
        "pool {:?}: the API server drops fields that need the feature gates {}; \
         enable them, or do without these fields{}", .pool.as_str(), list(.features), without(.left_out)
    )]
    #[non_exhaustive]
    DroppedFields {
        /// The pool.
        pool: PoolName,
        /// The features whose fields were dropped.
        features: Vec<Feature>,
        /// The devices that are left out, because they must not be published without these fields.
        left_out: Vec<DeviceName>,
    },

    /// The API server stored a slice with another content than it was sent, and no feature gate explains it. It is
    /// left as it is.
    #[error(
        "pool {:?}: the API server stores slice {slice:?} with another content than it was sent; \
         look for a mutating admission webhook or policy that changes ResourceSlices", .pool.as_str()
    )]
    #[non_exhaustive]
    StoredDifferently {
        /// The pool.
        pool: PoolName,
        /// The first slice that was seen to be changed.
        slice: String,
    },

    /// The node that should own the slices is not in the API.
    #[error(
        "node {:?} is not in the API, so its slices are not created: they would stay for ever. \
         Wait for the node, or check the driver's node name", .node.as_str()
    )]
    #[non_exhaustive]
    NoNode {
        /// The node.
        node: NodeName,
    },

    /// Another object has the name that a slice would have.
    #[error("pool {:?}: slice {name:?} belongs to somebody else; another name is used", .pool.as_str())]
    #[non_exhaustive]
    NameTaken {
        /// The pool.
        pool: PoolName,
        /// The name.
        name: String,
    },

    /// The slices of a pool keep vanishing.
    #[error(
        "pool {:?}: somebody else deletes our slices; they are created again at most every {every:?} \
         until the driver registers again. Look for another publisher or a clean-up job", .pool.as_str()
    )]
    #[non_exhaustive]
    DeletedByOthers {
        /// The pool.
        pool: PoolName,
        /// The distance between attempts from now on.
        every: Duration,
    },

    /// The slices of a pool keep changing.
    #[error(
        "pool {:?}: somebody else changes our slices; they are corrected at most every {every:?}. \
         Look for another publisher of this driver and node", .pool.as_str()
    )]
    #[non_exhaustive]
    ChangedByOthers {
        /// The pool.
        pool: PoolName,
        /// The distance between attempts from now on.
        every: Duration,
    },

    /// Slices wait for the driver's registration.
    #[error(
        "slices are not created, because the kubelet has not registered the driver for {waited:?}; \
         check the registration socket and the kubelet's log"
    )]
    #[non_exhaustive]
    NotRegistered {
        /// How long they have been waiting.
        waited: Duration,
    },

    /// A later wish has taken the place of the one that was waited for.
    #[error("a later wish has replaced this one before it was published")]
    Superseded,

    /// The publisher was stopped.
    #[error("the publisher has stopped")]
    Stopped,
}

/// What happens after a [`PublishError`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// It is tried again by itself, after a while.
    Retryable,
    /// The API server refuses the content. It is tried again by itself, at most 5 minutes apart, because what refuses it
    /// may be an admission webhook or policy that comes and goes; another content is tried at once.
    Refused,
    /// It is not tried again.
    Permanent,
    /// Nothing more will happen: a part of the wish was left out or dropped, the rest is published.
    Reduced,
}

/// What a request was to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Read one object.
    Get,
    /// List slices.
    List,
    /// Watch slices.
    Watch,
    /// Create a slice.
    Create,
    /// Replace a slice.
    Update,
    /// Delete a slice.
    Delete,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        })
    }
}

impl PublishError {
    /// What happens next.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid(_) | Self::DroppedFields { .. } | Self::StoredDifferently { .. } => {
                ErrorClass::Reduced
            }
            Self::Api { action, source, .. } => api_class(*action, source),
            Self::Superseded | Self::Stopped => ErrorClass::Permanent,
            Self::Timeout { .. }
            | Self::NoNode { .. }
            | Self::NameTaken { .. }
            | Self::DeletedByOthers { .. }
            | Self::ChangedByOthers { .. }
            | Self::NotRegistered { .. } => ErrorClass::Retryable,
        }
    }

    /// Whether something else undoes what is published.
    pub(crate) fn is_by_others(&self) -> bool {
        matches!(self, Self::DeletedByOthers { .. } | Self::ChangedByOthers { .. })
    }

    /// The HTTP status of the API server's answer, if there was one.
    #[must_use]
    pub fn http_status(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => status(source).map(|status| status.code),
            _ => None,
        }
    }

    /// How long the API server asked to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Api { source, .. } = self else { return None };
        let seconds = status(source)?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
}

fn api_class(action: Action, error: &kube::Error) -> ErrorClass {
    let writes = matches!(action, Action::Create | Action::Update);
    match status(error).map(|status| status.code) {
        Some(400 | 413 | 422) if writes => ErrorClass::Refused,
        _ => ErrorClass::Retryable,
    }
}

fn status(error: &kube::Error) -> Option<&kube::core::Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The answer in words; the client's own text has the whole answer twice.
fn said(error: &kube::Error) -> String {
    match status(error) {
        Some(status) => format!("{} ({})", status.message, status.code),
        None => error.to_string(),
    }
}

/// What to do about an answer, where that is known.
fn hint(error: &kube::Error) -> &'static str {
    match status(error).map(|status| (status.code, status.details.as_ref())) {
        Some((401, _)) => " (check the driver's service account token)",
        Some((403, _)) => {
            " (give the driver's service account get, list, watch, create, update and delete on \
             resourceslices.resource.k8s.io, and get on nodes)"
        }
        Some((404, details)) if details.is_none_or(|details| details.name.is_empty()) => {
            " (does the cluster serve resource.k8s.io/v1? it needs Kubernetes 1.34 or later)"
        }
        _ => "",
    }
}

fn list(features: &[Feature]) -> String {
    features.iter().map(|feature| feature.gate()).collect::<Vec<_>>().join(", ")
}

fn without(devices: &[DeviceName]) -> String {
    match devices {
        [] => String::new(),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            format!(". Left out, as they must not be published without: {first}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{Status, response::StatusDetails};

    fn api(action: Action, code: u16) -> PublishError {
        let status = Status { code, message: "told so".into(), ..Status::default() };
        let source = Arc::new(kube::Error::Api(status.boxed()));
        PublishError::Api { action, object: "slice \"x\"".into(), source }
    }

    #[test]
    fn answers_are_classed_by_status_and_action() {
        let table = [
            (Action::Create, 400, ErrorClass::Refused),
            (Action::Create, 401, ErrorClass::Retryable),
            (Action::Create, 403, ErrorClass::Retryable),
            (Action::Create, 404, ErrorClass::Retryable),
            (Action::Create, 409, ErrorClass::Retryable),
            (Action::Update, 410, ErrorClass::Retryable),
            (Action::Update, 413, ErrorClass::Refused),
            (Action::Update, 422, ErrorClass::Refused),
            (Action::Update, 429, ErrorClass::Retryable),
            (Action::Update, 500, ErrorClass::Retryable),
            (Action::List, 400, ErrorClass::Retryable),
            (Action::Delete, 422, ErrorClass::Retryable),
        ];
        for (action, code, expected) in table {
            assert_eq!(api(action, code).class(), expected, "{action} {code}");
            assert_eq!(api(action, code).http_status(), Some(code));
        }
    }

    #[test]
    fn messages_say_what_was_tried_and_what_to_do() {
        let forbidden = api(Action::Create, 403).to_string();
        assert!(
            forbidden.starts_with("create slice \"x\": told so (403) ")
                && forbidden.contains("service account"),
            "{forbidden}"
        );
        let missing = api(Action::List, 404).to_string();
        assert!(missing.contains("resource.k8s.io/v1"), "{missing}");
        let pool = PoolName::new("p").unwrap();
        let features = vec![Feature::DeviceTaints, Feature::ListTypeAttributes];
        let left_out = ["a", "b"].map(|name| DeviceName::new(name).unwrap()).to_vec();
        let dropped = PublishError::DroppedFields { pool, features, left_out }.to_string();
        assert!(dropped.contains("\"p\"") && dropped.contains("DRADeviceTaints, DRAList"), "{dropped}");
        assert!(dropped.ends_with(": a and 1 more"), "{dropped}");
    }

    #[test]
    fn the_wait_that_the_server_asks_for_is_read() {
        let details: StatusDetails = serde_json::from_str("{\"retryAfterSeconds\": 7}").unwrap();
        let status = Status { code: 429, details: Some(details), ..Status::default() };
        let source = Arc::new(kube::Error::Api(status.boxed()));
        let error = PublishError::Api { action: Action::Create, object: String::new(), source };
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(api(Action::Create, 429).retry_after(), None);
    }
}
