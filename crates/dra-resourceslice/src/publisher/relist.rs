//! A list in front of the first plan after another publisher has had the turn: the watch may be late.

use tokio::time::Instant;

use super::{retry::Retry, task::Task};
use crate::PublishError;

/// Whether a list is still to be made.
#[derive(Debug, Default)]
pub(super) struct Relist {
    /// When to list; nothing is planned before that has worked.
    pub(super) due: Option<Instant>,
    /// Why it has not worked so far.
    pub(super) error: Option<PublishError>,
    retry: Retry,
}

impl Task {
    /// Makes the list if it is due. Returns whether plans can be made.
    pub(super) async fn lists_before_plans(&mut self) -> bool {
        let Some(due) = self.relist.due else { return true };
        if due > Instant::now() {
            return false;
        }
        match self.list().await {
            Ok(()) => {
                self.relist = Relist::default();
                true
            }
            Err(error) => {
                self.report(&error);
                self.relist.due = Some(self.relist.retry.failed(&error, Instant::now()));
                self.relist.error = Some(error);
                false
            }
        }
    }

    /// Makes the cache what the API server has.
    pub(super) async fn list(&mut self) -> Result<(), PublishError> {
        // Without the pool's name, which older API servers refuse; the cache takes only what is in scope.
        let listed = self.api.list(&self.api.scope().field_selector(false)).await?;
        self.cache.replace(listed);
        self.find_unwished();
        Ok(())
    }
}
