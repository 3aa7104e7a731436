//! The plugin dies at every step that changes something, and nothing comes of it. Needs the private feature `__fault`:
//! `cargo test -p dra-kubeletplugin --features __fault --test kill_points -- --nocapture`.
//!
//! The test runs its own binary again as the plugin's process. Around it stand the test kit's kubelet and API server,
//! and a folder that plays the hardware; all three outlive it. A script says what earlier processes left, and what the
//! kubelet then asks; its process is run until it dies at its first step, then anew until the second one, and so on
//! until it gets through. What each death left is judged, and then taken to its end by a process that does not die.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod hardware;
mod lab;
mod node;
mod points;
mod process;
mod records;
mod run;
mod scripts;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use run::{Tally, kill_everywhere};
use scripts::{Script, Step};

/// Scripts at once: their processes mostly wait.
const WORKERS: usize = 4;

#[test]
fn a_death_at_any_point_has_one_legal_outcome() {
    if process::is_the_plugin() {
        return process::run_the_plugin();
    }
    let scripts = scripts::all();
    let total = Mutex::new(Tally::default());
    side_by_side(&scripts, async |script| {
        let tally = kill_everywhere(script).await;
        println!("{:>4} kill points: {}", tally.points, script.name);
        assert!(tally.points > 0, "{}: nothing was changed", script.name);
        total.lock().unwrap().add(tally);
    });
    let Tally { points, deaths, recoveries } = total.into_inner().unwrap();
    println!(
        "{points} kill points over {} scripts, {deaths} deaths, all legal ({recoveries} recoveries)",
        scripts.len()
    );
}

#[test]
fn a_repair_that_dies_at_any_point_can_be_done_again() {
    let points = Mutex::new(0);
    side_by_side(&[()], async |()| *points.lock().unwrap() = run::kill_repair_everywhere().await);
    let points = points.into_inner().unwrap();
    println!("{points} kill points of a repair, all undone by the next");
    // CDI file, folder, record, the folders of both, and the word to running instances.
    assert!(points >= 6, "{points}");
}

#[test]
fn a_release_that_dies_at_any_point_can_be_done_again() {
    let points = Mutex::new(0);
    side_by_side(&[()], async |()| *points.lock().unwrap() = run::kill_release_everywhere().await);
    let points = points.into_inner().unwrap();
    println!("{points} kill points of a release, all finished by the next");
    // Of the prepared claim mark, driver, CDI file, metadata, record; of the started one less; of the adopted one only that.
    assert!(points >= 12, "{points}");
}

#[test]
fn every_point_in_the_sources_is_one_that_a_script_dies_at() {
    let names = points::in_the_sources();
    let scripts = scripts::all();
    assert!(names.len() > 20, "{names:?}");
    side_by_side(&names, async |name| {
        for script in &scripts {
            if run::dies_at(script, name).await {
                return;
            }
        }
        panic!("no script passes the point {name}: add one that does");
    });
}

#[test]
fn a_step_that_fails_is_the_error_of_its_claim_and_the_next_try_works() {
    let names = points::of_file_steps();
    let calls = scripts::that_fail();
    let cases: Vec<(&Script, &String)> =
        calls.iter().flat_map(|script| names.iter().map(move |name| (script, name))).collect();
    let failed = Mutex::new(Vec::new());
    side_by_side(&cases, async |(script, name)| {
        if run::fails_at(script, name).await {
            failed.lock().unwrap().push((script.name, name.as_str()));
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort_unstable();
    println!("{} failing steps over {} scripts, all told and undone", failed.len(), calls.len());
    assert_eq!(failed, scripts::failing_steps());
}

/// What `docs/claim-protocol.md` says of the cost: none may be lost for speed, and none be added unnoticed.
#[test]
fn each_call_syncs_what_the_protocol_needs_and_no_more() {
    let (prepare, unprepare) = (Step::Prepare("a"), Step::Unprepare("a"));
    let told = Step::Prepare("told");
    let calls: [(&str, Vec<Step>, [usize; 2]); 6] = [
        ("a start", vec![], [0, 0]),
        // `Started`, the driver's saved state, the CDI file, `Prepared`.
        ("prepare by a driver that saves its state once", vec![prepare], [4, 4]),
        // What is there was durable before its record was.
        ("prepare again", vec![prepare, prepare], [4, 4]),
        // The rename of the record, the CDI file, the record.
        ("unprepare", vec![prepare, unprepare], [4, 7]),
        // As without, the metadata, its folder, and the folder of all claims' metadata.
        ("prepare with metadata", vec![told], [5, 6]),
        ("prepare with metadata again", vec![told, told], [5, 6]),
    ];
    side_by_side(&calls, async |(name, steps, expected)| {
        let script = scripts::first_calls(steps);
        let mut files =
            passings(&script, "store.fsync-file").await + passings(&script, "cdi.fsync-file").await;
        let mut folders =
            passings(&script, "store.fsync-folder").await + passings(&script, "cdi.fsync-folder").await;
        files += passings(&script, "metadata.fsync-file").await;
        folders += passings(&script, "metadata.fsync-folder").await;
        // The first time also that of the driver's folder, which is made but once.
        folders += passings(&script, "metadata.fsync-parent").await.saturating_sub(1);
        println!("{name}: {files} files and {folders} folders synced, with the calls before");
        assert_eq!([files, folders], *expected, "{name}");
    });
}

/// How often the script's process passes the point.
async fn passings(script: &Script, point: &str) -> usize {
    let mut count = 0;
    while run::dies_at(script, &format!("{point}:{}", count + 1)).await {
        count += 1;
    }
    count
}

/// Does the work for all items, some at once.
fn side_by_side<T: Sync>(items: &[T], work: impl AsyncFn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    runtime.block_on(work(item));
                }
            });
        }
    });
}
