//! The mock GPU driver in scenarios: how it is started, what its pods look like, which files there are of it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node,
    node::ComponentLog,
    pod::{END_OF_ENV, ShellPod},
};

pub(crate) const DRIVER: &str = "gpu.example.com";

/// The objects of the demo, as they are given to users.
const DEVICE_CLASS: &str = include_str!("../../../examples/mock-gpu-driver/demo/device-class.yaml");
const CLAIM_TEMPLATE: &str = include_str!("../../../examples/mock-gpu-driver/demo/claim-template.yaml");

/// The kubelet looks every minute for what pods that are gone have left, and tries a failed prepare again after 60 to
/// 90 s.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(180);

/// Starts the driver and waits until the kubelet has registered it; gives how long that took from the start of the
/// process.
///
/// # Errors
/// It took more than 5 s.
pub(crate) async fn start_registered(cx: &Context, arguments: &[&str]) -> Result<(Driver, Duration)> {
    let log = ComponentLog::of("kubelet")?;
    let start = Instant::now();
    let driver = cx.start_driver("mock-gpu-driver", arguments)?;
    wait_registered(&log).await?;
    Ok((driver, start.elapsed()))
}

/// Waits until the kubelet has registered the driver, by what it says since the start of `log`.
///
/// # Errors
/// It took more than 5 s.
pub(crate) async fn wait_registered(log: &ComponentLog) -> Result<()> {
    let registered = || async { Ok(log.says_registered(DRIVER)?.then_some(())) };
    eventually("driver registered by the kubelet", Duration::from_secs(5), registered).await
}

/// Makes the device class, and the claim template in the scenario's namespace.
pub(crate) async fn apply_class_and_template(cx: &Context) -> Result<()> {
    cx.apply(DEVICE_CLASS).await?;
    apply_template(cx).await
}

/// Makes the claim template in the scenario's namespace.
pub(crate) async fn apply_template(cx: &Context) -> Result<()> {
    cx.apply(&CLAIM_TEMPLATE.replace("  namespace: default\n", "")).await.map(drop)
}

/// Makes a claim of this name for one GPU, in the scenario's namespace.
pub(crate) async fn apply_claim(cx: &Context, name: &str) -> Result<()> {
    let claim = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}

/// Runs a pod that prints its environment and has one GPU; gives what it sees.
pub(crate) async fn run_pod(cx: &Context, name: &str, within: Duration) -> Result<Vec<String>> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, within).await?;
    gpus_of(cx, name).await
}

/// The GPUs that a pod of [`ShellPod::print_env`](crate::pod::ShellPod::print_env) has printed.
///
/// # Errors
/// The variables of a GPU do not fit together.
pub(crate) async fn gpus_of(cx: &Context, pod: &str) -> Result<Vec<String>> {
    let env = env_of(cx, pod).await?;
    let mut gpus = Vec::new();
    for (name, value) in &env {
        let Some(index) = name.strip_prefix("GPU_DEVICE_").filter(|index| index.parse::<u32>().is_ok())
        else {
            continue;
        };
        if value != &format!("gpu-{index}")
            || !env.contains_key(format!("GPU_DEVICE_GPU_{index}_RESOURCE_CLAIM").as_str())
        {
            bail!("pod {pod} has {name}={value} in {env:?}");
        }
        gpus.push(value.clone());
    }
    Ok(gpus)
}

/// The environment that a pod of [`ShellPod::print_env`](crate::pod::ShellPod::print_env) has printed.
pub(crate) async fn env_of(cx: &Context, pod: &str) -> Result<BTreeMap<String, String>> {
    // A container that is started again begins a new log.
    let whole = || async { Ok(Some(cx.pod_log(pod).await?).filter(|log| log.contains(END_OF_ENV))) };
    let log = eventually(&format!("the environment of pod {pod}"), Duration::from_secs(20), whole).await?;
    let variables = log.lines().filter_map(|line| line.split_once('='));
    Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Files of the driver on the node.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Registration and DRA sockets.
    pub(crate) sockets: Vec<PathBuf>,
    /// Claim records.
    pub(crate) records: Vec<PathBuf>,
    /// CDI files, and whatever else lies in the CDI folder.
    pub(crate) cdi: Vec<PathBuf>,
    /// What interrupted writes have left in the driver's folder; in the CDI folder it counts there.
    pub(crate) temps: Vec<PathBuf>,
}

/// Looks at the disk.
pub(crate) fn files() -> Result<Files> {
    files_of(Path::new(node::KUBELET), DRIVER)
}

/// Looks for the files of another driver, or below another kubelet root.
pub(crate) fn files_of(kubelet_root: &Path, driver: &str) -> Result<Files> {
    let data = kubelet_root.join("plugins").join(driver);
    let mut files = Files { cdi: list(Path::new(node::CDI))?, ..Files::default() };
    files.sockets = list(&kubelet_root.join("plugins_registry"))?;
    files
        .sockets
        .extend(list(&data)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "sock")));
    for boot in list(&data.join("claims"))? {
        files.records.extend(list(&boot)?);
    }
    add_temps(&data, &mut files.temps)?;
    Ok(files)
}

/// The files below `folder` that were not written to their end.
fn add_temps(folder: &Path, temps: &mut Vec<PathBuf>) -> Result<()> {
    for path in list(folder)? {
        if path.is_dir() {
            add_temps(&path, temps)?;
        } else if path.extension().is_some_and(|end| end == "tmp") {
            temps.push(path);
        }
    }
    Ok(())
}

/// Waits until the node has no file of a claim, no file that is half written, and the sockets of so many instances.
pub(crate) async fn wait_only_instances(instances: usize, within: Duration) -> Result<()> {
    let what = format!("nothing on the node but the sockets of {instances} instances");
    let wanted = |files: &Files| {
        files.records.is_empty()
            && files.cdi.is_empty()
            && files.temps.is_empty()
            && files.sockets.len() == 2 * instances
    };
    wait_files(&what, within, wanted).await.map(drop)
}

/// The DRA socket of our driver, not of a Go helper beside it.
pub(crate) fn our_socket() -> Result<PathBuf> {
    let sockets = files()?.sockets;
    let ours =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dra-rs-"));
    sockets.iter().find(ours).cloned().with_context(|| format!("our DRA socket is not among {sockets:?}"))
}

/// Waits until the files are as wanted.
pub(crate) async fn wait_files(
    what: &str,
    within: Duration,
    wanted: impl Fn(&Files) -> bool,
) -> Result<Files> {
    let outcome =
        eventually(what, within, || async { files().map(|files| wanted(&files).then_some(files)) }).await;
    match outcome {
        Ok(files) => Ok(files),
        Err(error) => Err(error.context(format!("{:?}", files()?))),
    }
}

/// Waits until no claim has left a file.
pub(crate) async fn nothing_left() -> Result<()> {
    let empty = |files: &Files| files.records.is_empty() && files.cdi.is_empty();
    wait_files("no CDI file and no record", Duration::from_secs(5), empty).await.map(drop)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("reading {}", folder.display()))?,
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}
