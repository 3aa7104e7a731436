//! Scenarios that the runners of several clusters share: each takes the next one that no other has taken.

use std::{cmp::Reverse, fs::File, io::ErrorKind, path::PathBuf, time::Duration, vec};

use anyhow::{Context as _, Result};

use crate::scenario::{Scenario, Tier};

/// What one runner takes at once: a scenario, or all that share a release, so that the release is installed once.
pub(crate) type Batch = Vec<Scenario>;

/// The batches that a runner has not looked at yet.
pub(crate) struct Queue {
    batches: vec::IntoIter<Batch>,
    /// Holds a file for each batch that a runner has taken.
    taken: Option<PathBuf>,
}

impl Queue {
    /// All scenarios, in their order, for one runner.
    pub(crate) fn alone(scenarios: Vec<Scenario>) -> Self {
        Self { batches: batches(scenarios).into_iter(), taken: None }
    }

    /// The scenarios that this runner and others with the same folder share. The ones that may take longest come first, so
    /// that the runners end at about the same time, and the smoke test before them.
    pub(crate) fn shared(scenarios: Vec<Scenario>, taken: PathBuf) -> Self {
        let mut batches = batches(scenarios);
        batches
            .sort_by_key(|batch| (batch.iter().all(|one| one.tier != Tier::Smoke), Reverse(longest(batch))));
        Self { batches: batches.into_iter(), taken: Some(taken) }
    }

    /// Takes the next batch; `None` once all are taken.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(crate) fn take(&mut self) -> Result<Option<Batch>> {
        for batch in self.batches.by_ref() {
            let (Some(taken), Some(first)) = (&self.taken, batch.first()) else { return Ok(Some(batch)) };
            let path = taken.join(first.name);
            match File::create_new(&path) {
                Ok(_) => return Ok(Some(batch)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("taking {}", path.display())),
            }
        }
        Ok(None)
    }
}

/// Neighbours with the same release stay together.
fn batches(scenarios: Vec<Scenario>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for scenario in scenarios {
        match batches.last_mut() {
            Some(batch) if scenario.release.is_some() && batch[0].release == scenario.release => {
                batch.push(scenario);
            }
            _ => batches.push(vec![scenario]),
        }
    }
    batches
}

fn longest(batch: &Batch) -> Duration {
    batch.iter().map(|scenario| scenario.deadline).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &'static str, seconds: u64) -> Scenario {
        Scenario::new(name, |_| Box::pin(async { Ok(()) })).within(Duration::from_secs(seconds))
    }

    fn some() -> Vec<Scenario> {
        const ONE: &[&str] = &["one"];
        const OTHER: &[&str] = &["other"];
        vec![
            scenario("short", 10),
            scenario("smoke", 10).tier(Tier::Smoke),
            scenario("release_a", 20).on_chart(ONE),
            scenario("release_b", 20).on_chart(ONE),
            scenario("other_release", 20).on_chart(OTHER),
            scenario("long", 30),
        ]
    }

    fn names(batch: &Batch) -> Vec<&'static str> {
        batch.iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn one_runner_keeps_the_order() {
        let mut queue = Queue::alone(some());
        let mut order = Vec::new();
        while let Some(batch) = queue.take().unwrap() {
            order.extend(names(&batch));
        }
        assert_eq!(order, some().iter().map(|scenario| scenario.name).collect::<Vec<_>>());
    }

    #[test]
    fn runners_share_the_longest_batches_first_and_each_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut runners = [(); 2].map(|()| Queue::shared(some(), folder.path().into()));
        let mut taken = Vec::new();
        for turn in [0, 0, 1, 0, 1, 1, 0] {
            taken.push(runners[turn].take().unwrap().map(|batch| names(&batch)));
        }
        let expected: [&[&str]; 5] =
            [&["smoke"], &["release_a", "release_b"], &["long"], &["other_release"], &["short"]];
        let shown: Vec<_> = taken.iter().flatten().collect();
        assert_eq!(shown, expected);
        assert_eq!(taken[5..], [None, None]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error_and_not_the_end() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Queue::shared(some(), folder.path().join("missing")).take().is_err());
    }
}
