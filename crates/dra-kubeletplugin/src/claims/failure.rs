//! Why a claim could not be prepared or unprepared: the text goes to the kubelet and from there into a pod event.

use std::time::Duration;

use super::{cdi::BadAnswer, index::Held, lookup::LookupError, store::StoreError};
use crate::{config::ConfigError, lock::LockError, names::InvalidUid, plugin::PluginError};

/// A failure that belongs to one claim.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Uid(#[from] InvalidUid),
    #[error(transparent)]
    Lookup(Box<LookupError>),
    #[error(transparent)]
    Held(Box<Held>),
    #[error("{held}; its claim object is gone since {} s: it is freed by the kubelet, or after {} s", gone_for.as_secs(), limit.as_secs())]
    HeldByGone { held: Box<Held>, gone_for: Duration, limit: Duration },
    #[error("configuration {index} for this driver: {error}")]
    Config { index: usize, error: ConfigError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("CDI file: {0}")]
    Cdi(Box<dra_cdi::Error>),
    #[error("{0}")]
    Driver(PluginError),
    #[error("the driver panicked in {call}: {message}")]
    Panic { call: &'static str, message: String },
    #[error(transparent)]
    Answer(Box<BadAnswer>),
    #[error("{first}; undoing it failed too ({rollback}): the devices stay held until a later try succeeds")]
    Rollback { first: Box<Self>, rollback: Box<Self> },
    #[error("an earlier prepare of this claim could not be undone: {0}")]
    Undo(#[source] Box<Self>),
    #[error("given up: the claim is to be unprepared")]
    Superseded,
    #[error("prepare is still running since {} s", .0.as_secs())]
    StillRunning(Duration),
    #[error("another call for this claim is still at work")]
    Busy,
    #[error(
        "the record of this claim has format {format}, this version knows formats up to {known}: a newer version of the driver has prepared it"
    )]
    Newer { format: u32, known: u32 },
    #[error(
        "record {record} cannot be read, so it is not known which devices are free: delete its pods so that the kubelet unprepares it, or run `state repair` once nothing uses its devices"
    )]
    Damaged { record: String },
    #[error("claims of the boot before are still being undone")]
    Recovering,
    #[error("the driver is stopping")]
    Stopping,
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    /// What kind of failure it is, for metrics: `docs/operations.md` has the list.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Uid(_) => "request",
            Self::Lookup(error) => error.class(),
            Self::Held(_) | Self::HeldByGone { .. } => "held",
            Self::Config { .. } => "config",
            Self::Store(_) => "store",
            Self::Lock(_) => "lock",
            Self::Cdi(_) => "cdi",
            Self::Driver(_) => "driver",
            Self::Panic { .. } => "panic",
            Self::Answer(_) => "answer",
            Self::Rollback { .. } => "rollback",
            Self::Undo(_) => "undo",
            Self::Superseded => "superseded",
            Self::StillRunning(_) | Self::Busy => "busy",
            Self::Newer { .. } => "newer",
            Self::Damaged { .. } => "damaged",
            Self::Recovering => "recovering",
            Self::Stopping => "stopping",
            Self::Internal(_) => "internal",
        }
    }
}

// Boxed, as failures are rare and every step returns one.

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        Self::Lookup(Box::new(error))
    }
}

impl From<Held> for Failure {
    fn from(held: Held) -> Self {
        Self::Held(Box::new(held))
    }
}

impl From<dra_cdi::Error> for Failure {
    fn from(error: dra_cdi::Error) -> Self {
        Self::Cdi(Box::new(error))
    }
}

impl From<BadAnswer> for Failure {
    fn from(error: BadAnswer) -> Self {
        Self::Answer(Box::new(error))
    }
}
