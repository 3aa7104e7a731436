//! Threads for file work: a few, for all drivers of a process.
//!
//! The main runtime has some too, but it starts one more whenever work comes before the thread of the work before is
//! idle again, and a driver may keep them all busy with work of its own.

use std::{io, sync::LazyLock};

use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, spawn_blocking},
};

/// Pieces of work at once: enough for a disk to join their syncs. With two, calls with many claims take a fifth longer.
pub(crate) const THREADS: usize = 4;

/// Nothing runs on it but the threads, which end when there was no work for 10 s.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_current_thread().max_blocking_threads(THREADS).thread_name("dra-files").build()
});

/// Runs work that blocks, off the async workers. What comes while all threads are busy waits.
pub(crate) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match &*RUNTIME {
        Ok(runtime) => runtime.spawn_blocking(work),
        Err(_) => spawn_blocking(work),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn much_work_has_few_threads() {
        let work = || thread::current().id();
        let threads: HashSet<_> =
            join_all((0..100).map(|_| run(work))).await.into_iter().map(Result::unwrap).collect();
        assert!(threads.len() <= THREADS && !threads.contains(&thread::current().id()), "{threads:?}");
    }

    #[tokio::test]
    async fn a_panic_is_the_error_of_that_work_and_of_no_other() {
        let panicked = run(|| panic!("on purpose")).await.unwrap_err();
        assert!(panicked.is_panic());
        assert_eq!(run(|| 1).await.unwrap(), 1);
    }
}
