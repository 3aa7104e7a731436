//! What the kubelet made of this plugin, derived from what it did.

use std::time::Duration;

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    seen::{ConnectionId, Peer, Seen},
    surroundings::Surroundings,
};
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

/// What the kubelet did, or another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection to the registration socket.
    Dialled,
    /// `GetInfo`.
    Asked(Peer),
    /// `NotifyRegistrationStatus`; the error holds the reason of a refusal.
    Notified(Peer, Result<(), String>),
    /// A connection to the DRA socket was opened.
    Connected(ConnectionId, Peer),
    /// A call came over it.
    Called(ConnectionId),
    /// It has ended.
    Disconnected(ConnectionId),
}

pub(crate) type Events = mpsc::UnboundedSender<Event>;

/// Registration usually takes a second: the kubelet looks every second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

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
        seen.pass(now);
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
                    if let Event::Notified(_, outcome) = &event {
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
        let kubelet = Peer(Some(1));
        events.send(Event::Notified(kubelet, Ok(()))).unwrap();
        events.send(Event::Connected(1, kubelet)).unwrap();
        seen.wait_for(Registration::is_registered).await.unwrap();
        events.send(Event::Disconnected(1)).unwrap();
        seen.wait_for(|state| *state == Registration::Lost).await.unwrap();
        let lost = Instant::now();
        let overdue =
            |state: &Registration| matches!(state, Registration::Overdue { tried } if tried.contains("gone"));
        seen.wait_for(overdue).await.unwrap();
        assert_eq!(lost.elapsed(), PATIENCE);
    }
}
