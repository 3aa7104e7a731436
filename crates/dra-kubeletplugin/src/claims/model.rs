//! The claim protocol against a simple model: random interleavings of everything that kubelet, API server, driver and
//! machine can do, with one and with two instances, and the hardware must never be in two hands.
//!
//! A run is one seed. It plays 10 to 30 random steps on five claims and three devices, several at once: `play` takes
//! the steps, `process` is one instance of the driver with a runtime and a clock of its own, `hardware` is what the
//! driver changes and complains of double use at once, `api` stands for the API server, `disk` for one whose reads fail,
//! `checkpoint` for what another program has prepared, `books` knows what was asked
//! and answered and so what must be true, `audit` compares that with records, CDI files, memory and hardware.
//!
//! Time is simulated. A step of an instance is a slice of its time, and in most slices each task gets no further than
//! to its next file operation; so a crash, which drops the instance's runtime, may fall between any two of them.
//!
//! `DRA_MODEL_RUNS` says how many runs to make, `DRA_MODEL_SEED` where to begin; the seed alone repeats one run. Four of
//! five runs keep file work off other threads; of these, 99 in 100 go the same way again to the last step.

mod api;
mod audit;
mod books;
mod checkpoint;
mod dice;
mod disk;
mod driver;
mod hardware;
mod play;
mod process;
mod world;

use std::{
    cell::Cell,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::task::{JoinError, yield_now};

use crate::mutex::locked;

/// A few seconds; the gate asks for more.
const RUNS: u64 = 2000;

thread_local! {
    /// Whether file work of this thread's runtimes is done on the spot.
    static ON_THE_SPOT: Cell<bool> = const { Cell::new(false) };
}

/// Stands in for the one of tokio: others may run before and after the work, but nothing beside it.
pub(super) async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if !ON_THE_SPOT.get() {
        return tokio::task::spawn_blocking(work).await;
    }
    yield_now().await;
    let done = work();
    yield_now().await;
    Ok(done)
}

#[test]
fn no_interleaving_of_calls_faults_crashes_and_reboots_diverges_from_the_model() {
    let seed = number("DRA_MODEL_SEED");
    let runs = match (number("DRA_MODEL_RUNS"), seed) {
        (Some(runs), _) => runs,
        (None, Some(_)) => 1,
        (None, None) => RUNS,
    };
    let first = seed.unwrap_or(1);
    let (next, operations) = (AtomicU64::new(first), AtomicU64::new(0));
    let failed: Mutex<Option<String>> = Mutex::default();
    let work = || {
        while locked(&failed).is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - first >= runs {
                return;
            }
            let run = std::panic::catch_unwind(|| play::run(seed));
            match run.unwrap_or_else(|_| Err("the run panicked".to_owned())) {
                Ok(count) => operations.fetch_add(count, Ordering::Relaxed),
                Err(report) => return *locked(&failed) = Some(format!("DRA_MODEL_SEED={seed}\n{report}")),
            };
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    if let Some(report) = locked(&failed).take() {
        panic!("{report}");
    }
    println!("{runs} random interleavings, {} operations, no divergence", operations.into_inner());
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
