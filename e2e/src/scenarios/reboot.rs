//! A driver that is stopped while it undoes what the boot before has left. The next instance is started at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use super::{
    adoption::status,
    books::power_cut,
    gpu::{self, SETTLED_WITHIN},
};
use crate::{context::Context, driver::Driver, eventually::eventually, pod::ShellPod, scenario::Scenario};

const POD: &str = "survivor";
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// What a stop may take, and slack for a busy machine.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// The driver logs these around an undo that is set to take long.
const BEGINS: &str = "a slow unprepare begins";
const ENDS: &str = "a slow unprepare ends";
/// The kubelet looks at a pod at once when it changes, and after 60 to 90 s otherwise.
const NUDGE_EVERY: Duration = Duration::from_secs(3);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("undo_of_a_reboot_that_ends_within_a_stop_is_done_once", |cx| {
            Box::pin(ends_in_time(cx))
        })
        .within(Duration::from_secs(300)),
        Scenario::new("undo_of_a_reboot_that_outlasts_a_stop_is_done_again_after_the_process", |cx| {
            Box::pin(outlasts_the_stop(cx))
        })
        .within(Duration::from_secs(300)),
    ]
}

/// The stop waits until the undo is done and its record is gone.
async fn ends_in_time(cx: &Context) -> Result<()> {
    let [stopped, next] = stop_in_the_middle(cx, "3000", [&[], &[]]).await?;
    ensure!(stopped.log()?.contains(ENDS), "the undo was cut short: {}", stopped.log()?);
    ensure!(undos(&next)? == 0, "the undo was done twice: {}", next.log()?);
    Ok(())
}

/// The process ends in the middle of the undo. In a rolling update only the lock of the claim keeps the next instance from
/// it until then: both instances run at once.
async fn outlasts_the_stop(cx: &Context) -> Result<()> {
    let uid = |digit: u32| format!("00000000-0000-4000-8000-00000000000{digit}");
    let (first, second) = (uid(1), uid(2));
    let [stopped, next] =
        stop_in_the_middle(cx, "600000", [&["--pod-uid", &first], &["--pod-uid", &second]]).await?;
    ensure!(!stopped.log()?.contains(ENDS), "the undo ended, so nothing was shown: {}", stopped.log()?);
    ensure!(undos(&next)? == 1, "the undo was not done again, or twice: {}", next.log()?);
    Ok(())
}

/// How many undos of the boot before an instance has begun.
fn undos(driver: &Driver) -> Result<usize> {
    let of_the_boot_before = |line: &&str| line.contains(BEGINS) && line.contains("reason=Reboot");
    Ok(driver.log()?.lines().filter(of_the_boot_before).count())
}

/// Plays a reboot under a pod and stops the driver of the new boot in the middle of the undo, which takes so many
/// milliseconds. The next instance is never at work on the claim at the same time, and the pod's container runs again.
/// Gives both instances; `more` are arguments of each.
async fn stop_in_the_middle(cx: &Context, takes: &str, more: [&[&str]; 2]) -> Result<[Driver; 2]> {
    gpu::apply_class_and_template(cx).await?;
    let before = [&["--num-devices", "1", "--boot-id", "first"], more[0]].concat();
    let (driver, _) = gpu::start_registered(cx, &before).await?;
    cx.create_pod(&ShellPod::print_env(POD).restarting().template("one-gpu").build()).await?;
    cx.wait_running(POD, RUNS_WITHIN).await?;
    let container = status(cx, POD).await?.container_id;
    power_cut(&driver).await?;

    let start = |takes, more| {
        let boot = ["--num-devices", "1", "--boot-id", "second", "--unprepare-delay", takes];
        cx.start_driver("mock-gpu-driver", &[&boot[..], more].concat())
    };
    let stopped = start(takes, more[0])?;
    stopped.wait_log(BEGINS, RUNS_WITHIN).await?;
    stopped.signal(Signal::SIGTERM).await?;
    let since = Instant::now();
    let next = start("500", more[1])?;

    let runs_again = eventually("the pod's container running again", SETTLED_WITHIN, || async {
        // The next instance first: what the other has ended by the second look, it had perhaps ended by the first.
        let next_is_at_work = next.log()?.contains(BEGINS) || !gpu::files()?.cdi.is_empty();
        let is_at_work = !stopped.log()?.contains(ENDS) && stopped.is_running().await?;
        ensure!(
            !(next_is_at_work && is_at_work),
            "{} ms after the stop two instances are at work on one device: {}\n{}",
            since.elapsed().as_millis(),
            stopped.log()?,
            next.log()?
        );
        let now = status(cx, POD).await?;
        let runs = now.state.is_some_and(|state| state.running.is_some());
        Ok((runs && now.container_id != container && !is_at_work).then_some(()))
    });
    let nudges = async {
        loop {
            tokio::time::sleep(NUDGE_EVERY).await;
            cx.nudge(POD).await?;
        }
    };
    tokio::select! {
        outcome = runs_again => outcome?,
        failed = nudges => return failed,
    }
    println!("    the pod's container ran again {} ms after the stop", since.elapsed().as_millis());
    let ended = stopped.wait(STOP_WITHIN).await?;
    ensure!(ended.success(), "the stopped driver ended with {ended}: {}", stopped.log()?);
    let gpus = gpu::gpus_of(cx, POD).await?;
    ensure!(gpus == ["gpu-0"], "the pod sees {gpus:?}");
    cx.delete_pod(POD, RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    Ok([stopped, next])
}
