//! Which sockets to register and which to unregister: decisions without I/O.
//!
//! Source: the kubelet's plugin manager (`pkg/kubelet/pluginmanager`, 1.37).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::sockets::{Identity, Sockets};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Forget the plugin of this socket.
    Unregister(PathBuf),
    /// Register the plugin of this socket; [`Reconciler::finished`] must follow.
    Register(PathBuf, Identity),
}

/// What has been tried, and when to try again.
///
/// One attempt per path at a time. The back-off is kept by path, also when another socket appears there.
#[derive(Debug)]
pub(super) struct Reconciler {
    first_pause: Duration,
    longest_pause: Duration,
    registered: BTreeMap<PathBuf, Identity>,
    busy: BTreeSet<PathBuf>,
    failed: BTreeMap<PathBuf, Failed>,
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    pause: Duration,
    until: Instant,
}

impl Reconciler {
    /// Nothing is known yet. Pauses after failures start at `first_pause`, double, and end at `longest_pause`.
    pub(super) fn new(first_pause: Duration, longest_pause: Duration) -> Self {
        Self {
            first_pause,
            longest_pause,
            registered: BTreeMap::new(),
            busy: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }

    /// The actions that lead from what is registered to what is `seen`.
    pub(super) fn step(&mut self, seen: &Sockets, now: Instant) -> Vec<Action> {
        let stale: Vec<PathBuf> = self
            .registered
            .iter()
            .filter(|(path, identity)| !self.busy.contains(*path) && seen.get(*path) != Some(identity))
            .map(|(path, _)| path.clone())
            .collect();
        for path in &stale {
            self.registered.remove(path);
        }
        let mut actions: Vec<Action> = stale.into_iter().map(Action::Unregister).collect();
        for (path, identity) in seen {
            let waiting = self.failed.get(path).is_some_and(|failed| now < failed.until);
            if !waiting && !self.registered.contains_key(path) && self.busy.insert(path.clone()) {
                actions.push(Action::Register(path.clone(), *identity));
            }
        }
        actions
    }

    /// Notes how an attempt ended.
    pub(super) fn finished(&mut self, path: &Path, identity: Identity, succeeded: bool, now: Instant) {
        self.busy.remove(path);
        if succeeded {
            self.failed.remove(path);
            self.registered.insert(path.to_owned(), identity);
            return;
        }
        let pause = match self.failed.get(path) {
            None => self.first_pause,
            Some(failed) => (failed.pause * 2).min(self.longest_pause),
        };
        self.failed.insert(path.to_owned(), Failed { pause, until: now + pause });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::sockets::scan;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Two different sockets, as seen at one path.
    fn two_sockets() -> (PathBuf, Identity, Identity) {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let _open = [UnixListener::bind(&a).expect("listening"), UnixListener::bind(&b).expect("listening")];
        let seen = scan(folder.path()).expect("readable");
        ("/a".into(), seen[&a], seen[&b])
    }

    fn seen(path: &Path, identity: Identity) -> Sockets {
        Sockets::from([(path.to_owned(), identity)])
    }

    #[test]
    fn a_socket_is_registered_once_and_unregistered_when_gone() {
        let (path, one, _) = two_sockets();
        let mut reconciler = Reconciler::new(SECOND, SECOND);
        let now = Instant::now();
        assert_eq!(reconciler.step(&seen(&path, one), now), [Action::Register(path.clone(), one)]);
        assert_eq!(reconciler.step(&seen(&path, one), now), [], "busy");
        reconciler.finished(&path, one, true, now);
        assert_eq!(reconciler.step(&seen(&path, one), now), [], "registered");
        assert_eq!(reconciler.step(&Sockets::new(), now), [Action::Unregister(path)]);
        assert_eq!(reconciler.step(&Sockets::new(), now), []);
    }

    #[test]
    fn another_socket_at_the_same_path_is_registered_anew() {
        let (path, one, two) = two_sockets();
        let mut reconciler = Reconciler::new(SECOND, SECOND);
        let now = Instant::now();
        reconciler.step(&seen(&path, one), now);
        assert_eq!(reconciler.step(&seen(&path, two), now), [], "busy with the first");
        reconciler.finished(&path, one, true, now);
        let expected = [Action::Unregister(path.clone()), Action::Register(path.clone(), two)];
        assert_eq!(reconciler.step(&seen(&path, two), now), expected);
    }

    #[test]
    fn failures_back_off_by_path_also_for_another_socket() {
        let (path, one, two) = two_sockets();
        let mut reconciler = Reconciler::new(SECOND, 4 * SECOND);
        let mut now = Instant::now();
        for pause in [1, 2, 4, 4] {
            assert_eq!(reconciler.step(&seen(&path, one), now).len(), 1);
            reconciler.finished(&path, one, false, now);
            let almost = now + Duration::from_millis(pause * 1000 - 1);
            assert_eq!(reconciler.step(&seen(&path, two), almost), [], "pause of {pause} s");
            now += Duration::from_secs(pause);
        }
        reconciler.step(&seen(&path, one), now);
        reconciler.finished(&path, one, true, now);
        reconciler.step(&Sockets::new(), now);
        reconciler.step(&seen(&path, one), now);
        reconciler.finished(&path, one, false, now);
        now += SECOND;
        assert_eq!(reconciler.step(&seen(&path, one), now).len(), 1, "a success forgets earlier failures");
    }
}
