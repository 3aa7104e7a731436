//! A driver on the SDK takes a node with running pods over from one on the Go helper, which kept its own books, and gives
//! it back.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use serde_json::{Map, Value};
use tokio::process::Command;

use super::{
    beside_go, go_driver,
    gpu::{self, DRIVER},
};
use crate::{
    context::Context,
    dra_socket::DraSocket,
    eventually::eventually,
    node::{self, ComponentLog},
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

/// The kubelet tries a prepare again after 60 to 90 s. A pod on the Go driver may need that: its slices can be there
/// before it is registered, and its registration can be lost for a moment, as its socket has the name of the last one.
const RUNS_WITHIN: Duration = Duration::from_secs(150);
/// The kubelet tries an unprepare again after 10 to 15 s, and its back-off doubles.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

/// The Go driver's books.
const CHECKPOINT: &str = "/var/lib/kubelet/plugins/gpu.example.com/checkpoint.json";
const TAKE_OVER: [&str; 2] = ["--adopt-from", CHECKPOINT];
/// Has the command that takes the driver off a node: what is told there is what is run here.
const OPERATIONS: &str = include_str!("../../../docs/operations.md");

pub(crate) fn scenarios() -> Vec<Scenario> {
    let within = Duration::from_secs(500);
    vec![
        Scenario::new("pods_of_a_killed_go_driver_0_37_are_taken_over_and_leave_nothing", |cx| {
            Box::pin(taken_over(cx, go_driver::NEWEST))
        })
        .within(within),
        Scenario::new("pods_of_a_killed_go_driver_0_35_are_taken_over_and_leave_nothing", |cx| {
            Box::pin(taken_over(cx, go_driver::RANDOM_NAMES))
        })
        .tier(Tier::Full)
        .within(within),
        Scenario::new("claims_of_a_go_driver_outlive_a_rolling_update_to_ours", |cx| {
            Box::pin(rolling_update(cx))
        })
        .within(within),
        Scenario::new("claim_of_a_go_driver_is_shared_with_a_pod_that_comes_after_the_take_over", |cx| {
            Box::pin(shared_later(cx))
        })
        .within(within),
        Scenario::new("node_goes_back_to_a_go_driver_by_the_recipe_of_the_docs", |cx| {
            Box::pin(back_to_go(cx))
        })
        .within(within),
    ]
}

async fn taken_over(cx: &Context, helper: &str) -> Result<()> {
    const PODS: [&str; 3] = ["one", "two", "three"];
    gpu::apply_class_and_template(cx).await?;
    let go = go_driver::start_registered(cx, helper, &[]).await?;
    for name in PODS {
        create(cx, name, 1).await?;
    }
    for name in PODS {
        cx.wait_running(name, RUNS_WITHIN).await?;
    }
    let checkpoint = books()?;
    ensure!(checkpoint.len() == PODS.len(), "the Go driver's books have {checkpoint:?}");
    go.kill().await?;

    let (_ours, took) = gpu::start_registered(cx, &TAKE_OVER).await?;
    println!("    registered after {} ms", took.as_millis());
    let recorded = |files: &gpu::Files| (files.records.len(), files.cdi.len()) == (PODS.len(), PODS.len());
    gpu::wait_files("a record for each of the Go driver's CDI files", SOON, recorded).await?;
    restart_container(cx, "one").await?;
    let mut gpus = gpu::run_pod(cx, "four", RUNS_WITHIN).await?;
    for name in PODS {
        cx.wait_running(name, RUNS_WITHIN).await?;
        gpus.extend(gpu::gpus_of(cx, name).await?);
    }
    let distinct: BTreeSet<_> = gpus.iter().collect();
    ensure!(distinct.len() == 4, "four pods see {gpus:?}");

    delete(cx, &["one", "two", "three", "four"]).await?;
    gpu::nothing_left().await?;
    nothing_in_the_books()?;
    only_known_leftovers().await
}

/// Claims that the Go driver has prepared before ours started and after that, and claims of ours.
async fn rolling_update(cx: &Context) -> Result<()> {
    const CLAIMS: usize = 10;
    let uid = |digit: u32| format!("00000000-0000-4000-8000-00000000000{digit}");
    let devices = ["--num-devices", "48"];
    gpu::apply_class_and_template(cx).await?;
    let go_pod = uid(1);
    let go = [&devices[..], &["--pod-uid", &go_pod, "--qps=1000", "--burst=1000"]].concat();
    let go = go_driver::start_registered(cx, go_driver::NEWEST, &go).await?;
    run_all(cx, &["before-1", "before-2"], CLAIMS).await?;

    let our_pod = uid(2);
    let ours = [&devices[..], &TAKE_OVER, &["--pod-uid", &our_pod]].concat();
    let (ours, _) = gpu::start_registered(cx, &ours).await?;
    run_all(cx, &["after-1", "after-2"], CLAIMS).await?;
    gpu::wait_files("records of all claims", SOON, |files| files.records.len() == 4 * CLAIMS).await?;
    let prepared = books()?.len();
    ensure!(prepared == 2 * CLAIMS, "the Go driver's books have {prepared} claims: who prepared the rest?");

    // The Go driver has gone on preparing when ours had read its books: ours learns of that when it is asked.
    let late = [beside_go::claim(cx, 47).await?];
    let go_socket = Path::new(node::PLUGINS).join(DRIVER).join(format!("dra-{go_pod}.sock"));
    DraSocket::connect(&go_socket).await?.prepare(&late).await?;
    ensure!(books()?.contains_key(&late[0].uid), "the Go driver has not prepared {late:?}");
    DraSocket::connect(&gpu::our_socket()?).await?.unprepare(&late).await?;
    ensure!(!books()?.contains_key(&late[0].uid), "ours has not unprepared {late:?}");

    // With both alive, and with one of them.
    delete(cx, &["before-1", "after-1"]).await?;
    go_driver::stop(&go).await?;
    ensure!(ours.is_running().await?, "our driver has ended with the Go driver");
    delete(cx, &["before-2", "after-2"]).await?;
    gpu::nothing_left().await?;
    nothing_in_the_books()
}

/// The kubelet has forgotten that the claim is prepared, and asks for it when another pod wants it. Both files then have
/// devices of the claim, and neither may take the other's away.
async fn shared_later(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::apply_claim(cx, "shared").await?;
    let go = go_driver::start_registered(cx, go_driver::NEWEST, &[]).await?;
    cx.create_pod(&ShellPod::print_env("first").restarting().claim("shared").build()).await?;
    cx.wait_running("first", RUNS_WITHIN).await?;
    go.kill().await?;
    gpu::start_registered(cx, &TAKE_OVER).await?;
    let log = ComponentLog::of("kubelet")?;
    node::component("restart", "kubelet").await?;
    eventually("registered anew", RUNS_WITHIN, || async { Ok(log.says_registered(DRIVER)?.then_some(())) })
        .await?;

    cx.create_pod(&ShellPod::print_env("second").claim("shared").build()).await?;
    cx.wait_running("second", RUNS_WITHIN).await?;
    gpu::wait_files("the CDI files of both drivers", SOON, |files| files.cdi.len() == 2).await?;
    restart_container(cx, "first").await?;
    let (first, second) = (gpu::gpus_of(cx, "first").await?, gpu::gpus_of(cx, "second").await?);
    ensure!(first == second && first.len() == 1, "with one claim, two pods see {first:?} and {second:?}");
    delete(cx, &["first", "second"]).await?;
    gpu::nothing_left().await?;
    nothing_in_the_books()
}

async fn back_to_go(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let go = go_driver::start_registered(cx, go_driver::NEWEST, &[]).await?;
    create(cx, "of-go", 1).await?;
    cx.wait_running("of-go", RUNS_WITHIN).await?;
    go_driver::stop(&go).await?;
    let (ours, _) = gpu::start_registered(cx, &TAKE_OVER).await?;
    run_all(cx, &["ours-1", "ours-2"], 1).await?;
    gpu::wait_files("records of all claims", SOON, |files| files.records.len() == 3).await?;
    ours.terminate(Duration::from_secs(10)).await?;

    let told = release_as_the_docs_say(cx).await?;
    let count = |outcome: &str| told.lines().filter(|line| line.ends_with(outcome)).count();
    ensure!((count("  unprepared"), count("  handed back")) == (2, 1), "it said: {told}");
    let files = gpu::files()?;
    ensure!(files.records.is_empty() && files.cdi.len() == 1, "after the release there are {files:?}");

    go_driver::start_registered(cx, go_driver::NEWEST, &[]).await?;
    let gpus = gpu::run_pod(cx, "new", RUNS_WITHIN).await?;
    for name in ["of-go", "ours-1", "ours-2"] {
        cx.wait_running(name, RUNS_WITHIN).await.context("pods go on")?;
        ensure!(gpu::gpus_of(cx, name).await? != gpus, "pods new and {name} both see {gpus:?}");
    }
    restart_container(cx, "of-go").await?;
    // What the docs say of the others: without its CDI device a container is not started again, and its pod can end.
    node::end_container(&status(cx, "ours-1").await?.container_id.context("no container")?).await?;
    cx.wait_event("ours-1", "Failed", RUNS_WITHIN).await?;
    delete(cx, &["of-go", "ours-1", "ours-2", "new"]).await?;
    gpu::nothing_left().await?;
    nothing_in_the_books()
}

/// Runs the command of the docs in a shell.
async fn release_as_the_docs_say(cx: &Context) -> Result<String> {
    let command = OPERATIONS.lines().find(|line| line.starts_with("mock-gpu-driver state release --all"));
    let command = command.context("docs/operations.md does not say how to release all claims")?;
    let program = cx.binary("mock-gpu-driver");
    let folder = program.parent().context("a binary without a folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run =
        Command::new("sh").args(["-c", command]).env("PATH", path).env("NODE_NAME", node::NAME).output();
    let output = run.await.with_context(|| format!("running {command:?}"))?;
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command}: {}: {told}{errors}", output.status);
    Ok(told.into_owned())
}

async fn create(cx: &Context, name: &str, claims: usize) -> Result<()> {
    let pod = ShellPod::print_env(name).restarting();
    let pod = (0..claims).fold(pod, |pod, _| pod.template("one-gpu"));
    cx.create_pod(&pod.build()).await.map(drop)
}

/// Runs pods with so many GPUs each.
async fn run_all(cx: &Context, names: &[&str], claims: usize) -> Result<()> {
    for name in names {
        create(cx, name, claims).await?;
    }
    for name in names {
        cx.wait_running(name, RUNS_WITHIN).await?;
        let gpus = gpu::gpus_of(cx, name).await?;
        ensure!(gpus.len() == claims, "pod {name} with {claims} claims sees {gpus:?}");
    }
    Ok(())
}

/// Deletes pods at once, and waits until the kubelet is done with all.
async fn delete(cx: &Context, names: &[&str]) -> Result<()> {
    for name in names {
        let deleted = cx.api::<Pod>().delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("deleting pod {name}"))?;
    }
    for name in names {
        cx.wait_gone(name, GONE_WITHIN).await?;
    }
    Ok(())
}

/// Ends the pod's container and waits until the kubelet has started it again, with its GPU.
async fn restart_container(cx: &Context, pod: &str) -> Result<()> {
    let before = status(cx, pod).await?;
    node::end_container(before.container_id.as_deref().context("no container")?).await?;
    let again = || async {
        let now = status(cx, pod).await?;
        let runs = now.state.is_some_and(|state| state.running.is_some());
        Ok((runs && now.restart_count > before.restart_count).then_some(()))
    };
    eventually(&format!("container of pod {pod} started again"), RUNS_WITHIN, again).await?;
    let gpus = gpu::gpus_of(cx, pod).await?;
    ensure!(gpus.len() == 1, "started again, pod {pod} sees {gpus:?}");
    Ok(())
}

/// Of the pod's only container.
pub(super) async fn status(cx: &Context, pod: &str) -> Result<ContainerStatus> {
    let found = cx.api::<Pod>().get(pod).await.with_context(|| format!("reading pod {pod}"))?;
    let statuses = found.status.and_then(|status| status.container_statuses).unwrap_or_default();
    statuses.into_iter().next().with_context(|| format!("pod {pod} has no container yet"))
}

/// What the Go driver's checkpoint says.
fn books() -> Result<Map<String, Value>> {
    let text = fs::read_to_string(CHECKPOINT).with_context(|| format!("reading {CHECKPOINT}"))?;
    serde_json::from_str(&text).with_context(|| format!("{CHECKPOINT} is {text:?}"))
}

fn nothing_in_the_books() -> Result<()> {
    let left = books()?;
    ensure!(left.is_empty(), "the Go driver's books still have {left:?}");
    Ok(())
}

/// Of the Go driver its empty books and a socket that nobody looks for are left. Its registration socket goes, as the
/// kubelet would go on dialling it.
async fn only_known_leftovers() -> Result<()> {
    let old = Path::new(node::PLUGIN_REGISTRY).join(format!("{DRIVER}-reg.sock"));
    eventually("the dead registration socket removed", SOON, || async { Ok((!old.exists()).then_some(())) })
        .await?;
    let of_go = ["checkpoint.json", "checkpoint.json.lock", "dra.sock", "serialize.lock"];
    let ours = ["claims", "instances.lock", "metadata", "publish.lock", "publish.next"];
    let folder = Path::new(node::PLUGINS).join(DRIVER);
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let known = of_go.contains(&name.as_str()) || ours.contains(&name.as_str());
        ensure!(known || name.starts_with("dra-rs-"), "left in {}: {name}", folder.display());
    }
    Ok(())
}
