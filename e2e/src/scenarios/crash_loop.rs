//! A driver that is killed again and again while it starts, and then starts as it should. The kubelet waits longer each
//! time before it dials a registration socket that has failed it, up to two minutes, and knows sockets by their names.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{
    gpu::{self, DRIVER},
    updates,
};
use crate::{context::Context, driver::Driver, scenario::Scenario};

const SOON: Duration = Duration::from_secs(10);
const RUNS_WITHIN: Duration = Duration::from_secs(60);
/// From the start of the process.
const REGISTERED_WITHIN: Duration = Duration::from_secs(5);
/// Dead sockets are removed a second after the registration.
const SWEPT_WITHIN: Duration = Duration::from_secs(30);
const POD_UID: [&str; 2] = ["--pod-uid", "00000000-0000-4000-8000-000000000002"];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("driver_registers_within_5_s_after_ten_kills", |cx| Box::pin(alone(cx)))
            .within(Duration::from_secs(240)),
        Scenario::new("new_instance_registers_within_5_s_after_ten_kills_beside_the_old_one", |cx| {
            Box::pin(beside_another(cx))
        })
        .within(Duration::from_secs(600)),
    ]
}

/// When a driver is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So many milliseconds after its process has been made.
    After(u64),
    /// So many milliseconds after it has shown its socket: the kubelet, which looks each second, calls it about then.
    Shown(u64),
    /// The kubelet has told it that all is well.
    Registered,
    /// Its devices are published.
    Published,
}

/// Ten, from the first instant to the last step of a start.
const MOMENTS: [Moment; 10] = [
    Moment::After(0),
    Moment::After(15),
    Moment::After(40),
    Moment::Shown(0),
    Moment::Shown(200),
    Moment::Shown(400),
    Moment::Shown(600),
    Moment::Shown(800),
    Moment::Registered,
    Moment::Published,
];

async fn kill_at(driver: &Driver, moment: Moment) -> Result<()> {
    let milliseconds = |time| tokio::time::sleep(Duration::from_millis(time));
    match moment {
        Moment::After(time) => milliseconds(time).await,
        Moment::Shown(time) => {
            driver.wait_log("serving the kubelet", SOON).await?;
            milliseconds(time).await;
        }
        Moment::Registered => driver.wait_log("registered by the kubelet", SOON).await?,
        Moment::Published => driver.wait_log("devices published", SOON).await?,
    }
    ensure!(driver.is_running().await?, "it had ended by itself: {}", driver.log()?);
    driver.kill().await
}

/// Kills ten in a row, then starts one that may live.
async fn crash_loop(cx: &Context, arguments: &[&str]) -> Result<Driver> {
    for moment in MOMENTS {
        let victim = cx.start_driver("mock-gpu-driver", arguments)?;
        kill_at(&victim, moment).await.with_context(|| format!("killing one at {moment:?}"))?;
    }
    let start = Instant::now();
    let survivor = cx.start_driver("mock-gpu-driver", arguments)?;
    survivor.wait_log("registered by the kubelet", REGISTERED_WITHIN).await?;
    println!("    registered {} ms after its start, the eleventh in a row", start.elapsed().as_millis());
    Ok(survivor)
}

async fn alone(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (first, _) = gpu::start_registered(cx, &[]).await?;
    updates::run_pod(cx, "before", RUNS_WITHIN).await?;
    first.kill().await?;
    crash_loop(cx, &[]).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    cx.delete_pod("before", RUNS_WITHIN).await?;
    updates::run_pod(cx, "after", RUNS_WITHIN).await?;
    cx.delete_pod("after", RUNS_WITHIN).await?;
    updates::no_prepare_has_failed(cx).await?;
    gpu::wait_only_instances(1, SWEPT_WITHIN).await
}

/// The container of the new pod is started again by the kubelet after each crash, so the pod's UID stays the same. The old
/// instance goes on serving.
async fn beside_another(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let old = updates::start_instance(cx, 1).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    let before = old.holdings()?;
    let pods = async {
        // Made and deleted while the others die. One may be in the hands of a victim: the kubelet tries again.
        for number in 0..4 {
            let name = format!("meanwhile-{number}");
            updates::run_pod(cx, &name, gpu::SETTLED_WITHIN).await?;
            cx.delete_pod(&name, RUNS_WITHIN).await?;
        }
        Ok(())
    };
    let (new, ()) = tokio::try_join!(crash_loop(cx, &POD_UID), pods)?;
    updates::run_pod(cx, "both", RUNS_WITHIN).await?;
    gpu::wait_files("the sockets of two instances", SWEPT_WITHIN, |files| files.sockets.len() == 4).await?;
    updates::settled(&old, &before).await.context("the old instance, after its neighbours died")?;
    updates::end(&old).await?;
    cx.delete_pod("both", RUNS_WITHIN).await?;
    updates::run_pod(cx, "after", RUNS_WITHIN).await?;
    cx.delete_pod("after", RUNS_WITHIN).await?;
    ensure!(new.is_running().await?, "the new instance has ended");
    gpu::wait_only_instances(1, SWEPT_WITHIN).await
}
