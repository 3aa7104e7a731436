//! The NVIDIA driver on a stand-in for NVML that it loads as it loads NVIDIA's.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use fake_nvml::{Event, Folder, Gpu, Machine, Model};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node::ComponentLog,
    pod::ShellPod,
    scenario::Scenario,
    scenarios::gpu::{self, SETTLED_WITHIN},
};

const DRIVER: &str = "gpu.nvidia.com";
/// As an administrator makes them.
const CLASSES: &str = include_str!("../../../examples/nvidia-gpu-driver/deploy/device-classes.yaml");
const RUNNING_WITHIN: Duration = Duration::from_secs(60);
/// Version of NVIDIA's driver, which is in the names of its libraries.
const VERSION: &str = "580.82.07";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_gpu_reaches_both_containers_of_a_pod", |cx| Box::pin(gpu_reaches(cx))),
        Scenario::new("nvidia_mig_device_is_made_and_removed", |cx| Box::pin(mig_is_made(cx))),
        Scenario::new("nvidia_xid_taints_a_gpu_until_it_is_back", |cx| Box::pin(xid_taints(cx))),
    ]
}

/// Device nodes, libraries and programs of NVIDIA's driver; the pod has two containers with one claim.
async fn gpu_reaches(cx: &Context) -> Result<()> {
    let machine = Machine::new([Gpu::new(Model::A100Sxm4_40Gb, 0), Gpu::new(Model::L4, 1)]);
    let node = Node::start(cx, &machine, &[]).await?;
    cx.wait_devices(DRIVER, 2, RUNNING_WITHIN).await?;
    claim(cx, "l4", "gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L4'")
        .await?;
    let script = "env; ls /dev; cat /usr/lib64/libcuda.so.1; nvidia-smi; echo ' (end)'; exec sleep 3600";
    cx.create_pod(&two_containers(ShellPod::new("pod", script).claim("l4").build())?).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    for container in ["main", "second"] {
        let log = log_of(cx, "pod", container).await?;
        for expected in [
            "NVIDIA_VISIBLE_DEVICES=void",
            "nvidia1",
            "nvidiactl",
            "a library of the driver",
            "a program of the driver",
        ] {
            ensure!(log.contains(expected), "container {container} does not see {expected:?}:\n{log}");
        }
        ensure!(!log.lines().any(|line| line == "nvidia0"), "container {container} sees another GPU:\n{log}");
    }
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    drop(node);
    Ok(())
}

/// A partition is made for a pod, on a GPU that was whole, and removed after it.
async fn mig_is_made(cx: &Context) -> Result<()> {
    let machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)]);
    let node = Node::start(cx, &machine, &["--dynamic-mig", "true"]).await?;
    claim(cx, "mig", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'").await?;
    let script = "ls /dev/nvidia-caps; echo ' (end)'; exec sleep 3600";
    cx.create_pod(&ShellPod::new("pod", script).claim("mig").build()).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    let log = log_of(cx, "pod", "main").await?;
    let capabilities = log.lines().filter(|line| line.starts_with("nvidia-cap")).count();
    ensure!(capabilities == 2, "the container has {capabilities} capabilities of a MIG device:\n{log}");
    ensure!(node.instances()? == 1, "{} GPU instances while the pod runs", node.instances()?);
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(node.instances()? == 0, "{} GPU instances after the pod", node.instances()?);
    Ok(())
}

/// A critical error keeps pods away from the GPU, on clusters with taints, until it was lost and is back.
async fn xid_taints(cx: &Context) -> Result<()> {
    if !super::gpu_health::is_on(cx, "DRADeviceTaints").await? {
        return Ok(());
    }
    let machine = Machine::new([Gpu::new(Model::L4, 0)]);
    let node = Node::start(cx, &machine, &[]).await?;
    cx.wait_devices(DRIVER, 1, RUNNING_WITHIN).await?;
    // An error from before the driver waits for one is not told.
    node.driver.wait_log("waits for what GPUs report", RUNNING_WITHIN).await?;
    node.fake.change(|machine| machine.gpus[0].events.push(Event::xid(79)))?;
    wait_taints(cx, &[("gpu.nvidia.com/xid", "79")]).await?;
    node.fake.change(|machine| machine.gpus[0].lost = true)?;
    wait_taints(cx, &[("gpu.nvidia.com/gpu-lost", ""), ("gpu.nvidia.com/xid", "79")]).await?;
    node.fake.change(|machine| machine.gpus[0].lost = false)?;
    wait_taints(cx, &[]).await
}

/// Waits until the only device has these taints, by key and value.
async fn wait_taints(cx: &Context, expected: &[(&str, &str)]) -> Result<()> {
    eventually(&format!("taints {expected:?}"), RUNNING_WITHIN, || async {
        let slices = cx.slices(DRIVER).await?;
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let taints = devices.flat_map(|device| device.taints.iter().flatten());
        let mut taints: Vec<(&str, &str)> =
            taints.map(|taint| (taint.key.as_str(), taint.value.as_deref().unwrap_or_default())).collect();
        taints.sort_unstable();
        Ok((taints == expected).then_some(()))
    })
    .await
}

/// NVIDIA's hardware and driver, as far as they can be seen, and our driver on them.
struct Node {
    fake: Folder,
    driver: Driver,
}

impl Node {
    async fn start(cx: &Context, machine: &Machine, more: &[&str]) -> Result<Self> {
        let fake = Folder::create(cx.scratch.join("fake"), machine)?;
        let root = cx.scratch.join("root");
        let (libraries, programs) = (root.join("usr/lib64"), root.join("usr/bin"));
        fake.install(&libraries)?;
        fs::create_dir_all(&programs)?;
        fs::write(libraries.join(format!("libcuda.so.{VERSION}")), "a library of the driver\n")?;
        symlink(format!("libcuda.so.{VERSION}"), libraries.join("libcuda.so.1"))?;
        write_program(&programs.join("nvidia-smi"), "#!/bin/sh\necho a program of the driver\n")?;
        let devices = make_device_nodes(cx, machine)?;
        cx.apply(CLASSES).await?;
        let proc = fake.path().join("proc");
        let path =
            |path: &PathBuf| path.to_str().map(str::to_owned).context("a scratch folder that is not UTF-8");
        let options = [
            ("--nvidia-driver-root", path(&root)?),
            ("--nvidia-dev-root", path(&devices)?),
            ("--procfs", path(&proc)?),
            ("--poll-interval", "1".to_owned()),
        ];
        let options = options.iter().flat_map(|(option, value)| [*option, value.as_str()]);
        let log = ComponentLog::of("kubelet")?;
        let program = std::env::current_exe()?.with_file_name("nvidia-gpu-driver");
        let driver = cx.start_program(&program, &options.chain(more.iter().copied()).collect::<Vec<_>>())?;
        let registered = || async { Ok(log.says_registered(DRIVER)?.then_some(())) };
        eventually("driver registered by the kubelet", Duration::from_secs(10), registered).await?;
        Ok(Self { fake, driver })
    }

    /// GPU instances of all GPUs.
    fn instances(&self) -> Result<usize> {
        Ok(self.fake.hardware()?.gpus.values().map(|gpu| gpu.instances.len()).sum())
    }
}

/// Links to a device that every machine has: what counts is that the container gets a node of that name.
fn make_device_nodes(cx: &Context, machine: &Machine) -> Result<PathBuf> {
    let root = cx.scratch.join("devices");
    let dev = root.join("dev");
    fs::create_dir_all(dev.join("nvidia-caps"))?;
    let own = machine.gpus.iter().map(|gpu| format!("nvidia{}", gpu.minor()));
    let common = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(str::to_owned);
    let capabilities = (1..150).map(|number| format!("nvidia-caps/nvidia-cap{number}"));
    for node in own.chain(common).chain(capabilities) {
        symlink("/dev/null", dev.join(&node)).with_context(|| format!("making device node {node}"))?;
    }
    Ok(root)
}

fn write_program(path: &std::path::Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} a program", path.display()))
}

async fn claim(cx: &Context, name: &str, class: &str, cel: &str) -> Result<()> {
    let selectors = json!([{"cel": {"expression": cel}}]);
    let claim: Value = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": class, "selectors": selectors}},
        ]}},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}

/// The same pod with its container twice.
fn two_containers(mut pod: Pod) -> Result<Pod> {
    let spec = pod.spec.as_mut().context("a pod without a spec")?;
    let mut second = spec.containers.first().cloned().context("a pod without a container")?;
    "second".clone_into(&mut second.name);
    spec.containers.push(second);
    Ok(pod)
}

/// All that a container has to say.
async fn log_of(cx: &Context, pod: &str, container: &str) -> Result<String> {
    let options = kube::api::LogParams { container: Some(container.to_owned()), ..Default::default() };
    eventually(&format!("the whole log of {pod}/{container}"), RUNNING_WITHIN, || async {
        let log =
            cx.api::<Pod>().logs(pod, &options).await.with_context(|| format!("the log of pod {pod}"))?;
        Ok(log.contains("(end)").then_some(log))
    })
    .await
}
