//! What can go wrong at start, while running, and in the background.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use crate::{claim::ClaimRef, claims::StoreError, paths::PathError};

/// Why [`start`](crate::start) failed. Nothing is left running, and no socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No usable socket paths.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The kubelet's folders are not there.
    #[error(
        "{} is missing: is the kubelet's root folder right, has the kubelet run on this machine, and is the folder \
         mounted into the driver's container?",
        path.display()
    )]
    KubeletFolder {
        /// The missing folder.
        path: PathBuf,
    },
    /// The driver's own folder cannot be made.
    #[error("creating the driver's folder {}: {source}{}", path.display(), advice(source))]
    DataFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The CDI folder cannot be used.
    #[error("CDI folder: {0}")]
    Cdi(#[from] dra_cdi::Error),
    /// The driver's name makes no CDI kind.
    #[error("driver name makes no CDI kind: {0}")]
    CdiKind(#[from] dra_cdi::InvalidName),
    /// The records of earlier claims cannot be used.
    #[error("claim records: {0}")]
    Store(#[from] StoreError),
    /// Another instance of this driver is running and rolling updates are off.
    #[error(
        "another instance of this driver runs on this node ({other}): stop it first, or turn rolling updates on by \
         giving both the UID of their pods"
    )]
    SecondInstance {
        /// What the other instance wrote about itself.
        other: String,
    },
    /// A lock file of the driver cannot be locked; the text says which and why.
    #[error("{0}")]
    Lock(String),
    /// The kernel does not tell which boot this is, so old records cannot be told from new ones.
    #[error("reading the boot id from {}: {source}", path.display())]
    BootId {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An address of [`Options::operations`](crate::Options::operations) cannot be served.
    #[error("serving metrics and probes on {address}: {source}")]
    Operations {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A socket cannot be made.
    #[error("making socket {}: {source}{}", path.display(), advice(source))]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a running plugin ended by itself: the process should end too, with a code that is not 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A gRPC server has stopped serving.
    #[error("the {server} server on {} has ended: {reason}", path.display())]
    Server {
        /// Which one.
        server: &'static str,
        /// Its socket.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// A task of the SDK panicked; that is a bug in the SDK.
    #[error("a task of the SDK panicked: {0}")]
    Panic(String),
}

/// Trouble that belongs to no call. See [`DriverPlugin::on_background_error`](crate::DriverPlugin::on_background_error).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackgroundError {
    /// Publishing ResourceSlices does not go as it should.
    #[error("publishing ResourceSlices")]
    Publish(#[source] dra_resourceslice::PublishError),
    /// Whether this instance or another one publishes cannot be told; it stays as it is, and is tried again.
    #[error("whether another instance of this driver publishes: {message}")]
    PublishLock {
        /// Which lock file, and what the system said.
        message: String,
    },
    /// The kubelet has not registered the plugin for a while.
    #[error("not registered by the kubelet for {} s: {what}; registration socket: {}", since.as_secs(), socket.display())]
    NotRegistered {
        /// For how long.
        since: Duration,
        /// What the kubelet did or did not do.
        what: String,
        /// Where it should look.
        socket: PathBuf,
    },
    /// A claim's status could not be written: it was refused, or the API server has been away for 30 s; told once. It is
    /// tried again.
    #[error("status of claim {claim}: {message}")]
    ClaimStatus {
        /// The claim.
        claim: ClaimRef,
        /// What the API server said, and what to do.
        message: String,
    },
    /// Something that an earlier process left could not be put right.
    #[error("recovery: {message}")]
    Recovery {
        /// What and why.
        message: String,
    },
    /// The node's Events could not be written; told once until it works again. See
    /// [`Options::node_events`](crate::Options::node_events).
    #[error("event on the node: {message}")]
    NodeEvent {
        /// What the API server said, and what to do.
        message: String,
    },
}

impl BackgroundError {
    /// Every class, as metrics name them.
    pub(crate) const CLASSES: [&str; 6] =
        ["publish", "publish_lock", "registration", "claim_status", "recovery", "node_event"];

    /// Whether the SDK goes on with what is possible, so that nobody has to act at once.
    pub(crate) fn is_mended(&self) -> bool {
        matches!(self, Self::Publish(dra_resourceslice::PublishError::DroppedFields { .. }))
    }

    /// Which kind of trouble it is: the label `class` of the metric `background_errors`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Publish(_) => "publish",
            Self::PublishLock { .. } => "publish_lock",
            Self::NotRegistered { .. } => "registration",
            Self::ClaimStatus { .. } => "claim_status",
            Self::Recovery { .. } => "recovery",
            Self::NodeEvent { .. } => "node_event",
        }
    }
}

/// What to do about an error of the system on a file below the kubelet's root, as the end of its text.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (free space on the kubelet's disk)",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            " (the driver needs the kubelet's folders plugins and plugins_registry as writable hostPath volumes)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::lock::LockError;

    #[test]
    fn folders_that_cannot_be_written_are_told_with_what_the_driver_needs() {
        let path = || PathBuf::from("/var/lib/kubelet/plugins/gpu.example.com");
        for errno in [Errno::EROFS, Errno::EACCES] {
            let texts = [
                StartError::DataFolder { path: path(), source: errno.into() }.to_string(),
                StartError::Socket { path: path(), source: errno.into() }.to_string(),
                LockError::Io { path: path(), source: errno.into() }.to_string(),
                StoreError { operation: "writing record", path: path(), source: errno.into() }.to_string(),
            ];
            for text in texts {
                let what = errno.desc();
                assert!(text.contains("plugins/gpu.example.com") && text.contains(what), "{text}");
                assert!(text.contains("as writable hostPath volumes"), "{text}");
            }
        }
        assert_eq!(advice(&Errno::EIO.into()), "", "nothing that helps is known");
    }
}
