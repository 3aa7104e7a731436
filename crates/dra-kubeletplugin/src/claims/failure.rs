//! Why a claim could not be prepared or unprepared: the text goes to the kubelet and from there into a pod event.

use std::time::Duration;

use super::{cdi::BadAnswer, index::Held, lookup::LookupError, store::StoreError};
use crate::{
    claim::{ClaimRef, DeviceRef},
    config::ConfigError,
    lock::LockError,
    names::InvalidUid,
    plugin::PluginError,
};

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
    #[error("what an earlier boot left of this claim could not be undone: {0}")]
    OlderBoot(#[source] Box<Self>),
    #[error("{call} is still running since {} s", since.as_secs())]
    StillRunning { call: &'static str, since: Duration },
    #[error("another call for this claim is still at work")]
    Busy,
    #[error("the driver is still at work on device {device} for {}", names(holders))]
    DeviceBusy { device: DeviceRef, holders: Vec<ClaimRef> },
    #[error("the driver is busy with {calls} other calls, as many as it takes at once")]
    NoPlace { calls: usize },
    #[error("the driver has not answered {call} within {} s", after.as_secs())]
    NoAnswer { call: &'static str, after: Duration },
    #[error("not done within {} s; its devices stay held", .0.as_secs())]
    NotUndoneWithin(Duration),
    #[error("given up: the caller waits no more")]
    Abandoned,
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
    #[error(
        "it is not known yet which devices are held by claims of the program before this one (adopt: {last})"
    )]
    Adopting { last: String },
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
            Self::Driver(_) | Self::NoAnswer { .. } => "driver",
            Self::Panic { .. } => "panic",
            Self::Answer(_) => "answer",
            Self::Rollback { .. } => "rollback",
            Self::Undo(_) | Self::OlderBoot(_) | Self::NotUndoneWithin(_) => "undo",
            Self::Superseded | Self::Abandoned => "superseded",
            Self::StillRunning { .. } | Self::Busy | Self::DeviceBusy { .. } | Self::NoPlace { .. } => "busy",
            Self::Newer { .. } => "newer",
            Self::Damaged { .. } => "damaged",
            Self::Recovering | Self::Adopting { .. } => "recovering",
            Self::Stopping => "stopping",
            Self::Internal(_) => "internal",
        }
    }
}

fn names(holders: &[ClaimRef]) -> String {
    match holders {
        [] => "another claim".to_owned(),
        holders => holders.iter().map(|claim| format!("claim {claim}")).collect::<Vec<_>>().join(", "),
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
