//! Which claims' statuses are still to be written. Pure: time is given.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    claim::ClaimRef,
    names::ClaimUid,
    pace::{Chance, Pace},
};

/// Trouble that has lasted for so long is told. An API server that starts again, or closes its connections to spread them, is
/// back sooner, and there is nothing to be done.
const WORTH_TELLING: Duration = Duration::from_secs(30);

/// The claims whose status is ours to write.
#[derive(Debug, Default)]
pub(super) struct Queue {
    claims: HashMap<ClaimUid, Entry>,
}

#[derive(Debug)]
struct Entry {
    claim: ClaimRef,
    /// The entries of our devices; none to take them back.
    wanted: Value,
    /// Which wish this is: what a write tells of an earlier one does not count.
    version: u64,
    /// When to write; `None` if that is done, or of no use.
    due: Option<Instant>,
    failures: u32,
    /// When it failed first.
    failing_since: Option<Instant>,
    told: bool,
}

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) claim: ClaimRef,
    pub(super) devices: Value,
    version: u64,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// The claim is not there any more.
    Gone,
    /// The API server could not be asked, or was busy; how long it asks to wait.
    Failed(Option<Duration>),
    /// The API server, or a webhook or policy, has something against it.
    Refused,
}

impl Queue {
    /// The claim's status is to say this.
    pub(super) fn set(&mut self, claim: ClaimRef, devices: Value, now: Instant) {
        let known = self.claims.get(&claim.uid);
        if known.is_some_and(|entry| entry.wanted == devices) {
            return;
        }
        let version = known.map_or(0, |entry| entry.version + 1);
        let uid = claim.uid.clone();
        let entry = Entry {
            claim,
            wanted: devices,
            version,
            due: Some(now),
            failures: 0,
            failing_since: None,
            told: false,
        };
        self.claims.insert(uid, entry);
    }

    /// The claim's status is to say nothing any more.
    pub(super) fn clear(&mut self, claim: &ClaimUid, now: Instant) {
        if let Some(entry) = self.claims.get(claim) {
            self.set(entry.claim.clone(), Value::Array(Vec::new()), now);
        }
    }

    /// What is to be written now.
    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<Job> {
        let due = self.claims.values().filter(|entry| entry.due.is_some_and(|due| due <= now));
        due.take(most)
            .map(|entry| Job {
                claim: entry.claim.clone(),
                devices: entry.wanted.clone(),
                version: entry.version,
            })
            .collect()
    }

    /// When there is something to write next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.claims.values().filter_map(|entry| entry.due).min()
    }

    /// Takes note of a write. Gives whether a failure is worth telling: a refusal at once, trouble that lasts; each once.
    pub(super) fn finish(&mut self, job: &Job, outcome: Outcome, now: Instant, chance: Chance) -> bool {
        let uid = &job.claim.uid;
        let Some(entry) = self.claims.get_mut(uid).filter(|entry| entry.version == job.version) else {
            return false;
        };
        let pace = match outcome {
            Outcome::Gone => {
                self.claims.remove(uid);
                return false;
            }
            Outcome::Written if entry.wanted.as_array().is_some_and(Vec::is_empty) => {
                self.claims.remove(uid);
                return false;
            }
            Outcome::Written => {
                entry.due = None;
                return false;
            }
            Outcome::Failed(_) => Pace::TROUBLE,
            Outcome::Refused => Pace::REFUSAL,
        };
        let asked = match outcome {
            Outcome::Failed(Some(asked)) => asked.min(Pace::REFUSAL.longest),
            _ => Duration::ZERO,
        };
        entry.due = Some(now + pace.pause(entry.failures, chance).max(asked));
        entry.failures += 1;
        let since = *entry.failing_since.get_or_insert(now);
        let worth_telling = outcome == Outcome::Refused || now.duration_since(since) >= WORTH_TELLING;
        worth_telling && !std::mem::replace(&mut entry.told, true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str) -> ClaimRef {
        ClaimRef::new("ns", name, format!("uid-{name}").parse().unwrap())
    }

    #[test]
    fn a_status_is_written_once_and_taken_back_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.set(claim("a"), json!([1]), now);
        let [job] = &queue.due(now, 4)[..] else { panic!("one") };
        assert!(!queue.finish(job, Outcome::Written, now, Chance::ALL));
        queue.set(claim("a"), json!([1]), now);
        assert_eq!((queue.due(now, 4), queue.next_due()), (vec![], None), "it says so already");
        queue.clear(&claim("a").uid, now);
        let [job] = &queue.due(now, 4)[..] else { panic!("one") };
        assert_eq!(job.devices, json!([]));
        queue.finish(job, Outcome::Written, now, Chance::ALL);
        assert!(queue.claims.is_empty());
        queue.clear(&claim("unknown").uid, now);
        assert!(queue.claims.is_empty());
    }

    #[test]
    fn failures_are_tried_again_after_longer_and_longer_pauses_and_told_once() {
        let asked = |seconds| Outcome::Failed(Some(Duration::from_secs(seconds)));
        let table = [
            (Outcome::Failed(None), [1, 2, 4, 8, 16, 32, 60, 60], 5),
            (asked(30), [30, 30, 30, 30, 30, 32, 60, 60], 1),
            (asked(3600), [300; 8], 1),
            (Outcome::Refused, [10, 20, 40, 80, 160, 300, 300, 300], 0),
        ];
        for (outcome, expected, told_at) in table {
            let (mut queue, start) = (Queue::default(), Instant::now());
            queue.set(claim("a"), json!([1]), start);
            let (mut now, mut pauses, mut told) = (start, Vec::new(), Vec::new());
            for round in 0..8 {
                let [job] = &queue.due(now, 4)[..] else { panic!("due") };
                told.extend(queue.finish(job, outcome, now, Chance::ALL).then_some(round));
                let next = queue.next_due().unwrap();
                pauses.push((next - now).as_secs());
                now = next;
            }
            assert_eq!((pauses, told), (expected.to_vec(), vec![told_at]), "{outcome:?}");
        }
    }

    #[test]
    fn what_changed_during_a_write_is_written_again() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.set(claim("a"), json!([1]), now);
        let job = queue.due(now, 4).remove(0);
        queue.clear(&claim("a").uid, now);
        queue.finish(&job, Outcome::Written, now, Chance::ALL);
        assert_eq!(queue.due(now, 4)[0].devices, json!([]));
    }

    #[test]
    fn a_claim_that_is_gone_ends_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.set(claim("a"), json!([1]), now);
        let job = queue.due(now, 4).remove(0);
        assert!(!queue.finish(&job, Outcome::Gone, now, Chance::ALL));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn at_most_so_many_are_written_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..10 {
            queue.set(claim(&number.to_string()), json!([number]), now);
        }
        assert_eq!(queue.due(now, 4).len(), 4);
    }
}
