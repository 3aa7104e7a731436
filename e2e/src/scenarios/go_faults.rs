//! Faults of the Go helper 0.37 on a driver that is built on it, beside ours. They have the numbers of
//! `docs/compatibility.md`. What ours must do is checked, what the Go helper does is only printed.

mod ours;
mod slices;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use dra_kubeletplugin::wire::dra_v1::Claim;

use super::{
    beside_go::{self, GO_POD, OUR_POD},
    go_driver::{self, NEWEST},
    gpu::{self, DRIVER},
};
use crate::{
    context::Context, dra_socket::DraSocket, driver::Driver, eventually::eventually, node,
    node::ComponentLog, scenario::Scenario,
};

/// What is expected to take a second at most; the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("go_fault_1_long_driver_names_roll_with_ours", |cx| Box::pin(long_names(cx))),
        Scenario::new("go_faults_2_3_and_7_of_slices_are_not_ours", |cx| Box::pin(slices::slices(cx))),
        Scenario::new("go_faults_4_5_and_6_of_stops_and_logs_are_not_ours", |cx| Box::pin(stops(cx))),
    ]
}

/// Rolling updates with driver names of many letters.
async fn long_names(cx: &Context) -> Result<()> {
    for letters in [36, 37, 63] {
        let name = format!("{}.com", "g".repeat(letters - 4));
        let arguments = ["--driver-name", &name, "--pod-uid", GO_POD];
        let log = ComponentLog::of("kubelet")?;
        let go = cx.start_program(&go_driver::program(cx, NEWEST)?, &arguments)?;
        let go_says = registered_or_ended(&go, &log, &name).await?;
        go_driver::stop(&go).await?;

        let (log, start) = (ComponentLog::of("kubelet")?, Instant::now());
        let ours = cx.start_driver("mock-gpu-driver", &["--driver-name", &name, "--pod-uid", OUR_POD])?;
        let registered = registered_or_ended(&ours, &log, &name).await?;
        ensure!(registered == "registered", "a name of {letters} letters: {registered}");
        let took = start.elapsed().as_millis();
        ours.terminate(SOON).await?;
        println!("    1: a name of {letters} letters: ours registered after {took} ms; Go helper: {go_says}");
    }
    Ok(())
}

/// `registered`, or what the driver said last.
async fn registered_or_ended(driver: &Driver, log: &ComponentLog, name: &str) -> Result<String> {
    eventually("the driver registered or ended", SOON, || async {
        if log.says_registered(name)? {
            return Ok(Some("registered".to_owned()));
        }
        if driver.is_running().await? {
            return Ok(None);
        }
        let printed = driver.log()?;
        Ok(Some(printed.lines().last().unwrap_or("nothing said").to_owned()))
    })
    .await
}

async fn stops(cx: &Context) -> Result<()> {
    running_prepare(cx).await.context("fault 4")?;
    publish_on_error(cx).await.context("fault 5")?;
    silent_log(cx).await.context("fault 6")
}

/// What becomes of a call that is under way when the driver is told to stop.
async fn running_prepare(cx: &Context) -> Result<()> {
    let (for_go, for_ours) = (beside_go::claim(cx, 0).await?, beside_go::claim(cx, 1).await?);
    let go = go_driver::start_registered(cx, NEWEST, &["--prepare-delay", "2s"]).await?;
    let socket = Path::new(node::PLUGINS).join(DRIVER).join("dra.sock");
    let begun = async { go.wait_log("\"preparing\"", SOON).await };
    let go_says = match stopped_during_prepare(&go, &socket, for_go, begun).await? {
        Ok(took) => format!("answered after {} ms", took.as_millis()),
        Err(error) => format!("{error:#}").replace('\n', " "),
    };

    let (ours, _) = gpu::start_registered(cx, &["--prepare-delay", "2000"]).await?;
    let begun = async { gpu::wait_files("a record", SOON, |files| files.records.len() == 1).await.map(drop) };
    let answered = stopped_during_prepare(&ours, &gpu::our_socket()?, for_ours.clone(), begun).await?;
    let took = answered.context("ours")?.as_millis();
    println!(
        "    4: a prepare that runs when the driver stops: ours answered after {took} ms; Go helper: {go_says}"
    );
    let (ours, _) = gpu::start_registered(cx, &[]).await?;
    DraSocket::connect(&gpu::our_socket()?).await?.unprepare(&[for_ours]).await?;
    ours.terminate(SOON).await?;
    gpu::nothing_left().await
}

/// Stops a driver once its prepare has begun. Gives what the call came to, and after what time.
async fn stopped_during_prepare(
    driver: &Driver,
    socket: &Path,
    claim: Claim,
    begun: impl Future<Output = Result<()>>,
) -> Result<Result<Duration>> {
    let client = DraSocket::connect(socket).await?;
    let start = Instant::now();
    let call = async { client.prepare(&[claim]).await.map(|()| start.elapsed()) };
    let stop = async {
        begun.await?;
        driver.terminate(SOON).await
    };
    let (called, stopped) = tokio::join!(call, stop);
    stopped?;
    Ok(called)
}

/// A driver that publishes when it hears of an error, while it is told to stop.
async fn publish_on_error(cx: &Context) -> Result<()> {
    let inventory = cx.scratch.join("too-long.json");
    let value = "x".repeat(65);
    let text = format!(r#"[{{"devices":[{{"name":"gpu-0","attributes":{{"a":{{"string":"{value}"}}}}}}]}}]"#);
    std::fs::write(&inventory, text).context("writing an inventory")?;
    let arguments = ["--publish-on-error", "--inventory", &inventory.to_string_lossy()];
    let go = go_driver::start_registered(cx, NEWEST, &arguments).await?;
    go.wait_log("processing ResourceSlice objects", SOON).await?;
    let start = Instant::now();
    let go_says = match go.terminate(Duration::from_secs(6)).await {
        Ok(_) => format!("stopped after {} ms", start.elapsed().as_millis()),
        Err(error) => format!("{error:#}"),
    };
    go.kill().await?;
    let took = ours::stopped_while_publishing().await?.as_millis();
    println!(
        "    5: a publish on an error while the driver stops: ours stopped after {took} ms; Go helper: {go_says}"
    );
    Ok(())
}

/// Lines about a call in a log that is set to have none.
async fn silent_log(cx: &Context) -> Result<()> {
    let (for_go, for_ours) = (beside_go::claim(cx, 2).await?, beside_go::claim(cx, 3).await?);
    let go = go_driver::start_registered(cx, NEWEST, &["--grpc-verbosity=-1"]).await?;
    let socket = DraSocket::connect(&Path::new(node::PLUGINS).join(DRIVER).join("dra.sock")).await?;
    socket.prepare(std::slice::from_ref(&for_go)).await?;
    socket.unprepare(&[for_go]).await?;
    let go_lines = go.log()?.lines().filter(|line| line.contains("handling request")).count();
    go_driver::stop(&go).await?;

    let command = format!("RUST_LOG=off exec {}", cx.binary("mock-gpu-driver").display());
    let log = ComponentLog::of("kubelet")?;
    let ours = cx.start_program(Path::new("/bin/sh"), &["-c", &command])?;
    gpu::wait_registered(&log).await?;
    let socket = DraSocket::connect(&gpu::our_socket()?).await?;
    socket.prepare(std::slice::from_ref(&for_ours)).await?;
    socket.unprepare(&[for_ours]).await?;
    let our_log = ours.log()?;
    ours.terminate(SOON).await?;
    ensure!(our_log.is_empty(), "ours printed {our_log}");
    println!("    6: lines about two calls in a log that is off: ours 0; Go helper: {go_lines}");
    gpu::nothing_left().await
}
