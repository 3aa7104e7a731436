//! The `Status` object with which a request is refused.

use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal as the API server sends it: an HTTP code, a machine-readable reason and a message.
///
/// Used for the faults of a test and as the error of the stand-in's own helpers.
///
/// ```
/// use dra_testkit::api::ApiStatus;
/// assert_eq!(ApiStatus::unavailable().code, 503);
/// assert_eq!(ApiStatus::new(418, "Teapot", "short and stout").reason, "Teapot");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code} {reason})")]
#[non_exhaustive]
pub struct ApiStatus {
    /// HTTP status code.
    pub code: u16,
    /// Reason in one word, for example `NotFound` or `Conflict`.
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// The fields that were refused, for reason `Invalid`.
    pub causes: Vec<Cause>,
    /// After how long the client may try again: sent as header and in the details.
    pub retry_after: Option<Duration>,
}

/// One refused field.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// Path of the field, for example `spec.devices[3].name`.
    pub field: String,
    /// Reason in one word, for example `FieldValueInvalid`.
    pub reason: String,
    /// What is wrong.
    pub message: String,
}

impl ApiStatus {
    /// Any refusal.
    #[must_use]
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), causes: Vec::new(), retry_after: None }
    }

    /// 400: the request itself makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the credentials are not accepted.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "the credentials of the request are not accepted")
    }

    /// 403: the caller may not do this.
    #[must_use]
    pub fn forbidden() -> Self {
        Self::new(403, "Forbidden", "the caller has no permission for this request")
    }

    /// 409 on an update: the object is newer than what the update started from.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 410: the resource version is older than the kept history.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 429: asks the client to come back after `retry_after`.
    #[must_use]
    pub fn too_many_requests(retry_after: Duration) -> Self {
        let mut status = Self::new(429, "TooManyRequests", "too many requests, try again later");
        status.retry_after = Some(retry_after);
        status
    }

    /// 500: the server failed.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(500, "InternalError", "the server failed")
    }

    /// 503: the server cannot answer now.
    #[must_use]
    pub fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable", "the server cannot answer now")
    }

    /// 504: the server gave up waiting for its store.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new(504, "Timeout", "the server gave up waiting")
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.resource()))
    }

    pub(crate) fn no_such_path(path: &str) -> Self {
        Self::new(404, "NotFound", format!("the stand-in serves nothing at {path}"))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.resource()))
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        let list: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let message = format!("{} {name:?} is invalid: {}", kind.kind, list.join("; "));
        Self { causes, ..Self::new(422, "Invalid", message) }
    }

    /// The JSON of the refusal.
    pub(crate) fn to_json(&self) -> Value {
        let causes: Vec<Value> = self
            .causes
            .iter()
            .map(|c| json!({"field": c.field, "reason": c.reason, "message": c.message}))
            .collect();
        let mut details = json!({});
        if !causes.is_empty() {
            details["causes"] = causes.into();
        }
        if let Some(wait) = self.retry_after {
            details["retryAfterSeconds"] = wait.as_secs().into();
        }
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "details": details, "code": self.code,
        })
    }
}

impl Cause {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of("FieldValueInvalid", field, message)
    }

    pub(crate) fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of("FieldValueRequired", field, message)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self::of("FieldValueDuplicate", field, format!("{value:?} is there twice"))
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        Self::of("FieldValueTooMany", field, format!("{actual} entries, the limit is {limit}"))
    }

    fn of(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into(), message: message.into() }
    }
}
