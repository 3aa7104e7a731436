//! What the kubelet has done, and what follows from it. Pure: time is given.
//!
//! `NotifyRegistrationStatus` may get lost, and a kubelet of 1.34 or 1.35 neither sends it again nor forgets the plugin. So
//! it is not the only proof: who calls the DRA service is a kubelet that has registered the plugin, and so is who has asked
//! for `GetInfo` and then holds a connection to the DRA socket. A connection of any other process proves nothing.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    state::{Event, Registration},
    surroundings::Progress,
};

/// The process at the other end of a connection, if the system names it. In a pod with a PID namespace of its own all
/// processes outside have the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) Option<i32>);

/// Numbers the connections to the DRA socket.
pub(crate) type ConnectionId = u64;

/// The kubelet holds its connection all the time; it reconnects at once when gRPC closed an idle one.
const GAP: Duration = Duration::from_secs(5);

/// Longer than the kubelet tries to send `NotifyRegistrationStatus` (5 s, 1.34 to 1.37). From 1.36 on it closes its connection
/// then, and registers again.
const UNTOLD: Duration = Duration::from_secs(10);

/// As many processes as are remembered for having called `GetInfo`: the kubelet, and tools that look on.
const MOST_ASKERS: usize = 16;

/// All that is known of the kubelet.
#[derive(Debug, Default)]
pub(super) struct Seen {
    dialled: bool,
    asked: bool,
    /// Processes that have called `GetInfo` or `NotifyRegistrationStatus`, the last one at the end.
    askers: VecDeque<Peer>,
    outcome: Option<Result<u64, String>>,
    registrations: u64,
    connections: HashMap<ConnectionId, Connection>,
    /// Since when the kubelet is connected.
    connected_since: Option<Instant>,
    /// When its last connection ended.
    alone_since: Option<Instant>,
}

/// A connection to the DRA socket.
#[derive(Debug)]
struct Connection {
    peer: Peer,
    is_kubelet: bool,
}

impl Seen {
    pub(super) fn apply(&mut self, event: Event, now: Instant) {
        match event {
            Event::Dialled => self.dialled = true,
            Event::Asked(peer) => {
                self.asked = true;
                self.note_asker(peer);
            }
            Event::Notified(peer, outcome) => {
                self.note_asker(peer);
                match outcome {
                    Ok(()) => self.register(),
                    Err(reason) => self.outcome = Some(Err(reason)),
                }
            }
            Event::Connected(id, peer) => {
                let is_kubelet = self.askers.contains(&peer);
                self.connections.insert(id, Connection { peer, is_kubelet });
            }
            Event::Called(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_kubelet = true;
                    if !matches!(self.outcome, Some(Ok(_))) {
                        self.register();
                    }
                }
            }
            Event::Disconnected(id) => drop(self.connections.remove(&id)),
        }
        let connected = self.connections.values().any(|connection| connection.is_kubelet);
        match (connected, self.connected_since) {
            (true, None) => (self.connected_since, self.alone_since) = (Some(now), None),
            (false, Some(_)) => (self.connected_since, self.alone_since) = (None, Some(now)),
            _ => {}
        }
    }

    /// Takes the plugin as registered if the kubelet holds its connection and has been silent for long.
    pub(super) fn pass(&mut self, now: Instant) {
        if self.untold_until().is_some_and(|until| until <= now) {
            self.register();
        }
    }

    pub(super) fn view(&self, now: Instant) -> Registration {
        match &self.outcome {
            None => Registration::Waiting { asked: self.asked },
            Some(Err(reason)) => Registration::Refused { reason: reason.clone() },
            Some(Ok(epoch)) => match self.alone_since {
                Some(since) if now.duration_since(since) >= GAP => Registration::Lost,
                // The kubelet's connection is about to come.
                None if self.connected_since.is_none() => Registration::Waiting { asked: true },
                _ => Registration::Registered { epoch: *epoch },
            },
        }
    }

    /// How far the kubelet has come.
    pub(super) fn progress(&self, lost: bool) -> Progress {
        match self {
            _ if lost => Progress::Lost,
            Self { asked: true, .. } => Progress::Asked,
            Self { dialled: true, .. } => Progress::Dialled,
            _ => Progress::Nothing,
        }
    }

    /// When the view changes without an event.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        let lost = self.alone_since.map(|since| since + GAP);
        lost.into_iter().chain(self.untold_until()).filter(|at| *at > now).min()
    }

    /// When a silent kubelet counts as one that has registered the plugin.
    fn untold_until(&self) -> Option<Instant> {
        self.connected_since.filter(|_| self.outcome.is_none()).map(|since| since + UNTOLD)
    }

    fn register(&mut self) {
        self.registrations += 1;
        self.outcome = Some(Ok(self.registrations));
    }

    fn note_asker(&mut self, peer: Peer) {
        self.askers.retain(|asker| *asker != peer);
        self.askers.push_back(peer);
        if self.askers.len() > MOST_ASKERS {
            self.askers.pop_front();
        }
        for connection in self.connections.values_mut().filter(|connection| connection.peer == peer) {
            connection.is_kubelet = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELET: Peer = Peer(Some(1));
    const OTHER: Peer = Peer(Some(2));
    const OK: Event = Event::Notified(KUBELET, Ok(()));
    const ASKED: Event = Event::Asked(KUBELET);

    fn after(events: &[(Event, u64)], at: u64) -> Registration {
        let start = Instant::now();
        let mut seen = Seen::default();
        for (event, seconds) in events {
            let now = start + Duration::from_secs(*seconds);
            seen.pass(now);
            seen.apply(event.clone(), now);
        }
        seen.pass(start + Duration::from_secs(at));
        seen.view(start + Duration::from_secs(at))
    }

    #[test]
    fn registered_takes_both_the_word_or_a_call_and_the_connection_of_the_kubelet() {
        use Event::{Called, Connected, Disconnected};
        type Row<'a> = (&'a str, &'a [(Event, u64)], u64, Registration);
        let refused = Event::Notified(KUBELET, Err("no".into()));
        let waiting = |asked| Registration::Waiting { asked };
        let registered = |epoch| Registration::Registered { epoch };
        let (ours, foreign) = (|id| Connected(id, KUBELET), |id| Connected(id, OTHER));
        let table: &[Row<'_>] = &[
            ("nothing", &[], 0, waiting(false)),
            ("GetInfo", &[(ASKED, 0)], 0, waiting(true)),
            ("no word yet", &[(ASKED, 0), (ours(1), 0)], 9, waiting(true)),
            ("a lost word", &[(ASKED, 0), (ours(1), 0)], 10, registered(1)),
            ("a late word", &[(ASKED, 0), (ours(1), 0), (OK, 12)], 12, registered(2)),
            ("a lost word, and a connection of another", &[(ASKED, 0), (foreign(1), 0)], 90, waiting(true)),
            ("connected before GetInfo", &[(ours(1), 0), (ASKED, 1)], 11, registered(1)),
            (
                "dropped by a kubelet of 1.36",
                &[(ASKED, 0), (ours(1), 0), (Disconnected(1), 5)],
                90,
                waiting(true),
            ),
            ("no connection", &[(ASKED, 0), (OK, 0)], 90, waiting(true)),
            ("a bare connection of another", &[(ASKED, 0), (OK, 0), (foreign(1), 0)], 90, waiting(true)),
            ("the usual", &[(ASKED, 0), (OK, 0), (ours(1), 0)], 0, registered(1)),
            ("the word alone", &[(OK, 0), (ours(1), 0)], 0, registered(1)),
            ("a call without a word", &[(ASKED, 0), (foreign(1), 1), (Called(1), 1)], 1, registered(1)),
            ("a second call", &[(foreign(1), 1), (Called(1), 1), (Called(1), 2)], 2, registered(1)),
            (
                "a bare one does not keep it",
                &[(foreign(1), 0), (Called(1), 0), (foreign(2), 0), (Disconnected(1), 1)],
                6,
                Registration::Lost,
            ),
            (
                "a bare one beside the kubelet's",
                &[(OK, 0), (ours(1), 0), (foreign(2), 0), (Disconnected(1), 9)],
                14,
                Registration::Lost,
            ),
            ("refused", &[(refused.clone(), 0)], 0, Registration::Refused { reason: "no".into() }),
            (
                "refused, connected",
                &[(refused.clone(), 0), (ours(1), 0)],
                90,
                Registration::Refused { reason: "no".into() },
            ),
            ("refused, then taken", &[(refused.clone(), 0), (ours(1), 1), (OK, 1)], 1, registered(1)),
            ("refused, then called", &[(refused, 0), (ours(1), 1), (Called(1), 2)], 2, registered(1)),
            ("a short gap", &[(OK, 0), (ours(1), 0), (Disconnected(1), 9)], 13, registered(1)),
            ("a long gap", &[(OK, 0), (ours(1), 0), (Disconnected(1), 9)], 14, Registration::Lost),
            ("back", &[(OK, 0), (ours(1), 0), (Disconnected(1), 1), (ours(2), 4)], 90, registered(1)),
            (
                "a restart",
                &[(OK, 0), (ours(1), 0), (Disconnected(1), 1), (ours(2), 9), (OK, 9)],
                9,
                registered(2),
            ),
        ];
        for (what, events, at, expected) in table {
            assert_eq!(after(events, *at), *expected, "{what}: {events:?}");
        }
    }

    #[test]
    fn the_calls_of_many_processes_do_not_take_the_kubelets_connection_away() {
        let mut events = vec![(ASKED, 0), (OK, 0), (Event::Connected(1, KUBELET), 0)];
        events.extend((100..200).map(|pid| (Event::Asked(Peer(Some(pid))), 1)));
        assert_eq!(after(&events, 2), Registration::Registered { epoch: 1 });
    }
}
