//! How many files a process may have open. The usual soft limit of 1,024 is there for programs that use `select`; each
//! connection of a client takes one of them, and without one no claim can be prepared.

use std::sync::{Mutex, OnceLock};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use crate::mutex::locked;

/// More than a driver and all its clients ever need.
const ENOUGH: rlim_t = 65_536;

/// Soft and hard limit as the process got them.
static FORMER: OnceLock<Option<(rlim_t, rlim_t)>> = OnceLock::new();

/// Raises the soft limit of this process towards the hard one, to 65,536 at most; once. [`start`](crate::start) does so, and
/// a program that serves others without it, such as a webhook, may.
pub fn raise_file_limit() {
    FORMER.get_or_init(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        let wanted = wanted(soft, hard)?;
        match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
            Ok(()) => Some((soft, hard)),
            Err(error) => {
                tracing::warn!(%error, soft, wanted, "the limit of open files stays as it is");
                None
            }
        }
    });
}

/// Runs `spawn`, which starts a child process, under the soft limit that this process got itself: a child inherits the
/// limit, and some programs count on the usual one. While it runs this process has that limit too, which keeps open files
/// open.
pub fn with_former_file_limit<T>(spawn: impl FnOnce() -> T) -> T {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Some((soft, hard)) = FORMER.get().copied().flatten() else { return spawn() };
    let _alone = locked(&ONE_AT_A_TIME);
    let raised = getrlimit(Resource::RLIMIT_NOFILE);
    // If it cannot be lowered the child has the raised one, as it would without this.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    let spawned = spawn();
    if let Ok((raised, hard)) = raised {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, raised, hard);
    }
    spawned
}

/// The soft limit to set, if another one.
fn wanted(soft: rlim_t, hard: rlim_t) -> Option<rlim_t> {
    let wanted = hard.min(ENOUGH);
    (wanted > soft).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use nix::libc::RLIM_INFINITY;

    use super::*;

    #[test]
    fn the_soft_limit_is_raised_and_never_lowered() {
        assert_eq!(wanted(1024, 524_288), Some(ENOUGH));
        assert_eq!(wanted(1024, 4096), Some(4096));
        assert_eq!(wanted(1024, RLIM_INFINITY), Some(ENOUGH));
        assert_eq!(wanted(128, 128), None);
        assert_eq!(wanted(1_048_576, 1_048_576), None);
    }
}
