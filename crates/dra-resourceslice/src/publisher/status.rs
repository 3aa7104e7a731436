//! What a publisher tells about itself.

use std::{collections::BTreeMap, time::Instant};

use crate::{Feature, PoolName, Problem, PublishError, Write};

/// What is published, and what is in the way.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SliceStatus {
    /// How many wishes there have been; 0 before the first.
    pub wish: u64,
    /// Whether the slices in the API have been seen at all, and afresh if another publisher has written until now.
    pub listed: bool,
    /// Whether slices may be created.
    pub gate_open: bool,
    /// Since when nothing is written because another publisher has the turn, or because none was given yet; `None`
    /// while this one writes.
    pub standby_since: Option<Instant>,
    /// The pools of the wish, and those that are still to be deleted.
    pub pools: BTreeMap<PoolName, PoolStatus>,
    /// How many writes there have been since the start.
    pub writes: SliceWrites,
    /// The last failure to list or watch, until that works again.
    pub last_error: Option<PublishError>,
}

/// Counts of writes to the API server, since the publisher's start. Dry runs do not count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SliceWrites {
    /// Slices that were created.
    pub created: u64,
    /// Slices that were updated.
    pub updated: u64,
    /// Slices that were deleted.
    pub deleted: u64,
    /// Writes that the API server refused or did not answer in time.
    pub failed: u64,
}

/// The state of one pool.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Where the pool stands now.
    pub state: PoolState,
    /// Whether this wish has been seen whole in the API at least once.
    pub published: bool,
    /// The generation in the API; 0 when there is none.
    pub generation: i64,
    /// How many slices of that generation are in the API.
    pub slices: usize,
    /// What was left out, also because the API server drops what it needs.
    pub problems: Vec<Problem>,
    /// The features whose fields are missing in the API, because the API server drops them.
    pub dropped: Vec<Feature>,
    /// The last failure, until the pool is published; if others keep breaking it, for a minute longer.
    pub last_error: Option<PublishError>,
}

/// Where a pool stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum PoolState {
    /// There is something to write.
    #[default]
    Pending,
    /// The API has what is wished.
    Published,
    /// It breaks a rule of the API, or the API server refuses it. The latter is tried again, at most 5 minutes apart.
    Refused,
    /// The pool is not wished for and still to be deleted.
    Removing,
}

impl SliceWrites {
    pub(super) fn count(&mut self, write: &Write, succeeded: bool) {
        let count = match write {
            _ if !succeeded => &mut self.failed,
            Write::Create(_) => &mut self.created,
            Write::Update(_) => &mut self.updated,
            Write::Delete { .. } => &mut self.deleted,
        };
        *count += 1;
    }
}

impl SliceStatus {
    /// Whether every pool of the last wish has been published or refused, and all others are gone.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.wish > 0 && self.is_decided(self.wish)
    }

    pub(super) fn is_decided(&self, wish: u64) -> bool {
        self.wish == wish
            && self.listed
            && self.pools.values().all(|pool| pool.published || pool.state == PoolState::Refused)
    }
}
