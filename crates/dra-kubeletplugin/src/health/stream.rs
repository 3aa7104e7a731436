//! When a kubelet is told what.

use std::{collections::VecDeque, time::Duration};

use futures::stream::{self, Stream};
use tokio::{sync::watch, time::Instant};

use super::{HealthReporter, Report};

/// How many devices go into one message: 16384 of them, which is what the kubelet keeps for a driver, would not fit
/// into the 4 MiB that it takes.
const IN_ONE_MESSAGE: usize = 500;

/// How often to look at the other instances.
const LOOK: Duration = Duration::from_secs(1);

/// For how long to say all each second after an instance has gone: the kubelet may notice later than we.
const AFTER_A_DEATH: Duration = Duration::from_secs(5);

/// The other instances of the driver, as they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// Whether there are any.
    pub(crate) any: bool,
    /// How many instances have ever started.
    pub(crate) starts: u64,
}

/// The messages for one kubelet, without end: all that was reported, then each change at once, and all again before a
/// lease ends. While another instance lives, and shortly after, all is said each second: when its stream ends, the
/// kubelet forgets what any instance has said (kubelet 1.34 to 1.37).
pub(crate) fn reports(
    reporter: HealthReporter,
    neighbours: impl Fn() -> Neighbours + Send + Sync + 'static,
) -> impl Stream<Item = Vec<Report>> + Send {
    let changes = reporter.changes();
    let state = Told { reporter, changes, schedule: Schedule::default(), version: 0, queue: VecDeque::new() };
    stream::unfold((state, neighbours), |(mut state, neighbours)| async move {
        let message = state.next(&neighbours).await;
        Some((message, (state, neighbours)))
    })
}

/// One kubelet, and what it has been told.
struct Told {
    reporter: HealthReporter,
    changes: watch::Receiver<u64>,
    schedule: Schedule,
    version: u64,
    /// To be sent, in order.
    queue: VecDeque<Vec<Report>>,
}

impl Told {
    async fn next(&mut self, neighbours: &(impl Fn() -> Neighbours + Sync)) -> Vec<Report> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return message;
            }
            let now = Instant::now();
            self.changes.mark_unchanged();
            let reports = {
                let board = self.reporter.board();
                let all = self.schedule.is_due(now, board.repeat_after(), neighbours());
                let reports = if all { board.all() } else { board.since(self.version) };
                self.version = board.version();
                reports
            };
            if !reports.is_empty() {
                self.queue = reports.chunks(IN_ONE_MESSAGE).map(<[Report]>::to_vec).collect();
                continue;
            }
            tokio::select! {
                // The reporter is ours, so the channel stays open.
                _ = self.changes.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// When all is to be said again. Pure: time is given.
#[derive(Debug, Default)]
struct Schedule {
    said: Option<Instant>,
    neighbours: Option<Neighbours>,
    /// When another instance was last seen to live, or to have been there.
    neighbour_seen: Option<Instant>,
}

impl Schedule {
    /// Whether all is to be said now; it then counts as said.
    fn is_due(&mut self, now: Instant, repeat_after: Duration, neighbours: Neighbours) -> bool {
        let came_and_went = self.neighbours.is_some_and(|known| known.starts != neighbours.starts);
        if neighbours.any || came_and_went {
            self.neighbour_seen = Some(now);
        }
        self.neighbours = Some(neighbours);
        let watchful = self.neighbour_seen.is_some_and(|seen| now - seen <= AFTER_A_DEATH);
        let after = if watchful { repeat_after.min(LOOK) } else { repeat_after };
        let due = self.said.is_none_or(|said| now - said >= after);
        if due {
            self.said = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;
    use crate::{claim::DeviceRef, health::DeviceHealth};

    fn gpu(number: usize) -> DeviceRef {
        DeviceRef::new("node-1".parse().unwrap(), format!("gpu-{number}").parse().unwrap())
    }

    fn names(message: &[Report]) -> Vec<&str> {
        message.iter().map(|report| report.device.device.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_hears_all_then_changes_then_all_again() {
        let reporter = HealthReporter::new();
        reporter.report(gpu(0), DeviceHealth::healthy());
        let start = Instant::now();
        let mut stream = Box::pin(reports(reporter.clone(), Neighbours::default));
        assert_eq!(names(&stream.next().await.unwrap()), ["gpu-0"]);
        reporter.report(gpu(1), DeviceHealth::healthy());
        assert_eq!(names(&stream.next().await.unwrap()), ["gpu-1"]);
        assert!(start.elapsed() < Duration::from_secs(1), "at once");
        for round in 1..4 {
            assert_eq!(names(&stream.next().await.unwrap()), ["gpu-0", "gpu-1"]);
            let at = Duration::from_secs(10 * round);
            assert!(start.elapsed() >= at && start.elapsed() <= at + LOOK, "{:?}", start.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_nobody_reads_is_said_once_and_as_it_is_last() {
        let reporter = HealthReporter::new();
        reporter.report(gpu(0), DeviceHealth::healthy());
        let mut stream = Box::pin(reports(reporter.clone(), Neighbours::default));
        stream.next().await.unwrap();
        for number in 0..1000 {
            reporter.report(gpu(0), DeviceHealth::unhealthy(format!("{number} errors")));
        }
        let message = stream.next().await.unwrap();
        assert_eq!(message.len(), 1);
        assert_eq!(message[0].health.message.as_deref(), Some("999 errors"));
    }

    #[tokio::test(start_paused = true)]
    async fn many_devices_go_in_several_messages() {
        let reporter = HealthReporter::new();
        reporter.report_all((0..1200).map(|number| (gpu(number), DeviceHealth::healthy())));
        let mut stream = Box::pin(reports(reporter, Neighbours::default));
        let sizes = [stream.next().await, stream.next().await, stream.next().await];
        assert_eq!(sizes.map(|message| message.unwrap().len()), [500, 500, 200]);
    }

    #[test]
    fn beside_another_instance_all_is_said_each_second_and_for_a_while_after() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let lease = Duration::from_secs(10);
        let alone = |starts| Neighbours { any: false, starts };
        let beside = |starts| Neighbours { any: true, starts };
        let mut schedule = Schedule::default();
        let table = [
            (0, alone(1), true, "the first word"),
            (1000, alone(1), false, "alone"),
            (2000, beside(2), true, "another one came"),
            (2500, beside(2), false, "said half a second ago"),
            (3000, beside(2), true, "a second later"),
            (4000, alone(2), true, "it went"),
            (8000, alone(2), true, "not long ago"),
            (9000, alone(2), false, "long ago"),
            (17_999, alone(2), false, "not yet"),
            (18_000, alone(2), true, "a third of the lease"),
            (19_000, alone(3), true, "one came and went unseen"),
        ];
        for (ms, neighbours, expected, why) in table {
            assert_eq!(schedule.is_due(at(ms), lease, neighbours), expected, "{ms} ms: {why}");
        }
    }
}
