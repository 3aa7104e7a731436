//! What the kubelet made of this plugin, derived from what it did.

use std::time::Duration;

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::surroundings::{Progress, Surroundings};
use crate::operations::Metrics;

/// Where the registration stands. Watch it with [`Handle::registration`](crate::Handle::registration).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Registration {
    /// The kubelet has not told an outcome yet.
    Waiting {
        /// Whether it has called `GetInfo`, that is, found the registration socket.
        asked: bool,
    },
    /// The kubelet has taken the plugin and is connected to its DRA socket.
    #[non_exhaustive]
    Registered {
        /// Counts registrations; a kubelet that was started anew registers anew.
        epoch: u64,
    },
    /// The kubelet does not want the plugin, and tries again later.
    Refused {
        /// What the kubelet said.
        reason: String,
    },
    /// The kubelet had taken the plugin and has been gone for more than 5 s. It registers anew when it is back.
    Lost,
    /// For 30 s the kubelet has neither taken nor refused the plugin, or it was lost for so long.
    #[non_exhaustive]
    Overdue {
        /// What has been done for it, and how far the kubelet has come: paths included, in words for people.
        tried: String,
    },
}

impl Registration {
    /// Whether the kubelet can call now.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered { .. })
    }

    /// Why the kubelet cannot call now, if it cannot; about "it", the kubelet.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Registered { .. } => None,
            Self::Waiting { asked: false } => {
                Some("it has not called GetInfo: is it running, and does it watch this folder?".to_owned())
            }
            Self::Waiting { asked: true } => Some("it has called GetInfo and told no outcome".to_owned()),
            Self::Refused { reason } => Some(format!("it refused the plugin: {reason}")),
            Self::Lost => Some("it had registered the plugin and is gone".to_owned()),
            Self::Overdue { tried } => Some(tried.clone()),
        }
    }
}

/// What the kubelet did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection to the registration socket.
    Dialled,
    /// `GetInfo`.
    Asked,
    /// `NotifyRegistrationStatus`; the error holds the reason of a refusal.
    Notified(Result<(), String>),
    /// A connection to the DRA socket was opened.
    Connected,
    /// A connection to the DRA socket has ended.
    Disconnected,
}

pub(crate) type Events = mpsc::UnboundedSender<Event>;

/// The kubelet holds its connection all the time; it reconnects at once when gRPC closed an idle one.
const GAP: Duration = Duration::from_secs(5);

/// Registration usually takes a second: the kubelet looks every second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// All that is known of the kubelet.
#[derive(Debug, Default)]
struct Seen {
    dialled: bool,
    asked: bool,
    notified: Option<Result<u64, String>>,
    registrations: u64,
    connections: usize,
    /// When the last connection ended.
    alone_since: Option<Instant>,
}

impl Seen {
    fn apply(&mut self, event: Event, now: Instant) {
        match event {
            Event::Dialled => self.dialled = true,
            Event::Asked => self.asked = true,
            Event::Notified(Ok(())) => {
                self.registrations += 1;
                self.notified = Some(Ok(self.registrations));
            }
            Event::Notified(Err(reason)) => self.notified = Some(Err(reason)),
            Event::Connected => {
                self.connections += 1;
                self.alone_since = None;
            }
            Event::Disconnected => {
                self.connections = self.connections.saturating_sub(1);
                if self.connections == 0 {
                    self.alone_since = Some(now);
                }
            }
        }
    }

    fn view(&self, now: Instant) -> Registration {
        match &self.notified {
            None => Registration::Waiting { asked: self.asked },
            Some(Err(reason)) => Registration::Refused { reason: reason.clone() },
            Some(Ok(epoch)) => match self.alone_since {
                Some(since) if now.duration_since(since) >= GAP => Registration::Lost,
                // Told that all is well, but never connected: the kubelet's connection is about to come.
                None if self.connections == 0 => Registration::Waiting { asked: true },
                _ => Registration::Registered { epoch: *epoch },
            },
        }
    }

    /// How far the kubelet has come.
    fn progress(&self, lost: bool) -> Progress {
        match self {
            _ if lost => Progress::Lost,
            Self { asked: true, .. } => Progress::Asked,
            Self { dialled: true, .. } => Progress::Dialled,
            _ => Progress::Nothing,
        }
    }

    /// When the view changes by itself.
    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.alone_since.map(|since| since + GAP).filter(|at| *at > now)
    }
}

/// Turns events into states until all senders are gone. `look` sees what there is on the disk once the kubelet is overdue.
pub(crate) async fn follow(
    mut events: mpsc::UnboundedReceiver<Event>,
    state: watch::Sender<Registration>,
    look: impl Fn() -> Surroundings,
    metrics: Metrics,
) {
    let mut seen = Seen::default();
    let mut delay = Delay::new(Instant::now());
    loop {
        let now = Instant::now();
        let view = delay.apply(seen.view(now), now, |lost| look().tried(seen.progress(lost)));
        state.send_if_modified(|old| {
            let changed = *old != view;
            if changed {
                log(&view);
                *old = view;
            }
            changed
        });
        let change = seen.next_change(now).into_iter().chain(delay.next_change(now)).min();
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => {
                    if let Event::Notified(outcome) = &event {
                        metrics.registration(outcome.is_ok());
                    }
                    seen.apply(event, Instant::now());
                }
                None => return,
            },
            () = sleep_until(change) => {}
        }
    }
}

/// How long the kubelet has been missing.
#[derive(Debug)]
struct Delay {
    /// Since when, if it is.
    since: Option<Instant>,
    /// What was found out for a state that is overdue.
    told: Option<(Registration, String)>,
}

impl Delay {
    fn new(now: Instant) -> Self {
        Self { since: Some(now), told: None }
    }

    /// The state, or that the kubelet is overdue. `tried` is asked once for each state, with whether it was lost.
    fn apply(&mut self, state: Registration, now: Instant, tried: impl Fn(bool) -> String) -> Registration {
        if state.is_registered() {
            (self.since, self.told) = (None, None);
            return state;
        }
        let since = *self.since.get_or_insert(now);
        // A reason from the kubelet says more than anything that can be seen from here.
        if matches!(state, Registration::Refused { .. }) || now.duration_since(since) < PATIENCE {
            return state;
        }
        if self.told.as_ref().is_none_or(|(of, _)| *of != state) {
            let tried = tried(state == Registration::Lost);
            self.told = Some((state, tried));
        }
        let tried = self.told.as_ref().map(|(_, tried)| tried.clone()).unwrap_or_default();
        Registration::Overdue { tried }
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.since.map(|since| since + PATIENCE).filter(|at| *at > now)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn log(state: &Registration) {
    match state {
        // That it is overdue is told as an error of the background too, which is logged.
        Registration::Waiting { .. } | Registration::Overdue { .. } => {}
        Registration::Registered { epoch } => tracing::info!(epoch, "registered by the kubelet"),
        Registration::Refused { reason } => tracing::error!(reason, "refused by the kubelet"),
        Registration::Lost => {
            tracing::warn!("the kubelet has closed its connection; waiting for it to register us anew");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[(Event, u64)], at: u64) -> Registration {
        let start = Instant::now();
        let mut seen = Seen::default();
        for (event, seconds) in events {
            seen.apply(event.clone(), start + Duration::from_secs(*seconds));
        }
        seen.view(start + Duration::from_secs(at))
    }

    const OK: Event = Event::Notified(Ok(()));

    #[test]
    fn registered_takes_both_the_word_and_the_connection() {
        use Event::{Asked, Connected, Disconnected};
        type Row<'a> = (&'a [(Event, u64)], u64, Registration);
        let refused = Event::Notified(Err("no".into()));
        let table: &[Row<'_>] = &[
            (&[], 0, Registration::Waiting { asked: false }),
            (&[(Asked, 0)], 0, Registration::Waiting { asked: true }),
            (&[(Asked, 0), (Connected, 0)], 0, Registration::Waiting { asked: true }),
            (&[(Asked, 0), (OK, 0)], 0, Registration::Waiting { asked: true }),
            (&[(OK, 0), (Connected, 0)], 0, Registration::Registered { epoch: 1 }),
            (&[(refused.clone(), 0)], 0, Registration::Refused { reason: "no".into() }),
            (&[(refused, 0), (Connected, 1), (OK, 1)], 1, Registration::Registered { epoch: 1 }),
            (&[(OK, 0), (Connected, 0), (Disconnected, 9)], 13, Registration::Registered { epoch: 1 }),
            (&[(OK, 0), (Connected, 0), (Disconnected, 9)], 14, Registration::Lost),
            (
                &[(OK, 0), (Connected, 0), (Disconnected, 1), (Connected, 4)],
                90,
                Registration::Registered { epoch: 1 },
            ),
            (
                &[(OK, 0), (Connected, 0), (Disconnected, 1), (Connected, 9), (OK, 9)],
                9,
                Registration::Registered { epoch: 2 },
            ),
        ];
        for (events, at, expected) in table {
            assert_eq!(after(events, *at), *expected, "{events:?}");
        }
    }

    #[test]
    fn who_does_not_come_is_overdue_after_thirty_seconds_and_who_refuses_is_not() {
        let start = Instant::now();
        let after = |delay: &mut Delay, state: &Registration, seconds| {
            delay.apply(state.clone(), start + Duration::from_secs(seconds), |lost| format!("lost: {lost}"))
        };
        let overdue = |lost| Registration::Overdue { tried: format!("lost: {lost}") };
        let waiting = Registration::Waiting { asked: false };
        let refused = Registration::Refused { reason: "no".into() };
        let mut delay = Delay::new(start);
        assert_eq!(after(&mut delay, &waiting, 29), waiting);
        assert_eq!(after(&mut delay, &waiting, 30), overdue(false));
        assert_eq!(after(&mut delay, &refused, 31), refused);
        let registered = Registration::Registered { epoch: 1 };
        assert_eq!(after(&mut delay, &registered, 32), registered);
        assert_eq!(after(&mut delay, &Registration::Lost, 33), Registration::Lost);
        assert_eq!(after(&mut delay, &Registration::Lost, 62), Registration::Lost);
        assert_eq!(after(&mut delay, &Registration::Lost, 63), overdue(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_vanished_kubelet_is_noticed_without_any_event() {
        let (events, received) = mpsc::unbounded_channel();
        let (state, mut seen) = watch::channel(Registration::Waiting { asked: false });
        tokio::spawn(follow(received, state, Surroundings::default, Metrics::new()));
        events.send(Event::Connected).unwrap();
        events.send(OK).unwrap();
        seen.wait_for(Registration::is_registered).await.unwrap();
        events.send(Event::Disconnected).unwrap();
        seen.wait_for(|state| *state == Registration::Lost).await.unwrap();
        let lost = Instant::now();
        let overdue =
            |state: &Registration| matches!(state, Registration::Overdue { tried } if tried.contains("gone"));
        seen.wait_for(overdue).await.unwrap();
        assert_eq!(lost.elapsed(), PATIENCE);
    }
}
