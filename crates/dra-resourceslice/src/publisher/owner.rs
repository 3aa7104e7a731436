//! The node that owns the slices: its UID, looked up when it is needed and again when it may have changed.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::time::Instant;

use super::api::SliceApi;
use crate::PublishError;

/// How long a refusal holds. A driver that may not read its node would ask for ever.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the owner.
#[derive(Debug, Default)]
pub(super) struct Owner {
    uid: Option<String>,
    /// The UID was read and nothing has happened since that could have changed it.
    fresh: bool,
    /// After a refusal: when to ask again.
    ask_again: Option<Instant>,
    /// A refusal has been told.
    told: bool,
    /// The node is not there. A slice that was made now would stay for ever: the garbage collector deletes the slices
    /// of a node when it goes, and of one that is gone already it knows nothing.
    missing: bool,
}

/// What a look-up has brought.
pub(super) enum Lookup {
    Known,
    /// The node may not be read; slices are published without an owner for now. Reported once.
    Refused(Option<PublishError>),
    /// It can be tried again.
    Failed(PublishError),
}

impl Owner {
    /// The node may have been made anew.
    pub(super) fn suspect(&mut self) {
        self.fresh = false;
        self.ask_again = None;
    }

    /// When to ask again, after a refusal.
    pub(super) fn ask_again(&self) -> Option<Instant> {
        self.ask_again
    }

    /// The owner reference, if it is known and the scope has one.
    pub(super) fn reference(&self, api: &SliceApi) -> Option<OwnerReference> {
        api.scope().owner(self.uid.as_deref()?)
    }

    /// Whether the node is not there, so that no slices may be made.
    pub(super) fn is_missing(&self) -> bool {
        self.missing
    }

    /// Makes sure that the UID is right.
    pub(super) async fn look_up(&mut self, api: &SliceApi) -> Lookup {
        let Some(node) = api.scope().node_name() else { return Lookup::Known };
        if self.fresh || self.ask_again.is_some_and(|at| at > Instant::now()) {
            return Lookup::Known;
        }
        match api.node_uid(node.as_str()).await {
            Ok(uid) => {
                self.uid = (!uid.is_empty()).then_some(uid);
                self.fresh = true;
                self.ask_again = None;
                self.told = false;
                self.missing = false;
                Lookup::Known
            }
            Err(error) if error.http_status() == Some(404) => {
                self.uid = None;
                self.missing = true;
                Lookup::Known
            }
            // The driver may never be allowed to read it.
            Err(error) if error.http_status() == Some(403) => {
                self.uid = None;
                self.missing = false;
                self.ask_again = Some(Instant::now() + ASK_AGAIN);
                Lookup::Refused((!std::mem::replace(&mut self.told, true)).then_some(error))
            }
            Err(error) => Lookup::Failed(error),
        }
    }
}
