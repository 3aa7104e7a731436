//! Asking the API server by dry runs before a plan does harm: what it would refuse in the middle would leave the pool
//! incomplete, and a device whose exclusivity it would drop must not be there even for a moment.

use super::{learned::Learned, pool_task::PoolTask, sync::Round, task::Task};
use crate::{
    PoolName, PublishError, Write, features,
    observed::ObservedSlice,
    plan::{Draft, Sketch, Step},
};

impl Task {
    /// Asks what has to be asked. Returns what to do instead of the plan: it would be refused, or there is news that
    /// make it another one.
    pub(super) async fn preflight(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        plan: &Draft,
    ) -> Option<Round> {
        for step in &plan.steps {
            let (Step::Create(sketch) | Step::Update(sketch)) = step else { continue };
            if !(plan.hides_pool && sketch.is_new || asks(sketch, &self.learned)) {
                continue;
            }
            if self.interrupted() {
                return Some(Round::Again);
            }
            let write = step.write();
            let (Write::Create(slice) | Write::Update(slice)) = &write else { continue };
            match self.api.dry_run(slice).await.map(ObservedSlice::of) {
                Ok(stored) => {
                    if self.learn(name, pool, slice, &sketch.before, &stored) {
                        return Some(Round::Again);
                    }
                }
                // It says nothing about the write.
                Err(error) if is_no_answer(&error) => return None,
                Err(error) => return Some(self.failed(name, pool, &write, error).await),
            }
        }
        None
    }
}

/// Whether it is not known if the API server drops a feature that the write would bring: a write that only shows that it
/// does would have to be corrected, and a restart would write. What a slice has already is kept.
fn asks(sketch: &Sketch, learned: &Learned) -> bool {
    (&features::used(&sketch.slice().spec) - &sketch.before).iter().any(|feature| !learned.is_known(*feature))
}

/// Whether a dry run was refused as such: an admission webhook has side effects and would be asked. The text is that of
/// `NewDryRunUnsupportedErr` in `k8s.io/apiserver/pkg/admission/plugin/webhook/errors`.
fn is_no_answer(error: &PublishError) -> bool {
    error.http_status() == Some(400) && error.to_string().contains("does not support dry run")
}
