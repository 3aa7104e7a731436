//! For a machine with a GPU: what the driver publishes is held against what `nvidia-smi` tells, and each full GPU is
//! prepared, put into a container's configuration and given back. Its device nodes are held against the machine's, and NVML
//! is closed and opened again as an operator asks for it. API server, scheduler, kubelet and runtime are the test kit's;
//! NVIDIA's driver and the device nodes are the machine's. Nothing of the machine is changed.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use dra_testkit::{
    TempNode,
    api::ApiServer,
    kubelet::Kubelet,
    runtime::{OciSpec, Runtime},
    scheduler::Scheduler,
};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use serde_json::{Value, json};

const DRIVER: &str = "gpu.nvidia.com";
const NODE: &str = "node-1";
const PATIENCE: Duration = Duration::from_secs(60);
const CLASSES: &str = include_str!("../../deploy/device-classes.yaml");

#[derive(Parser)]
#[command(name = "gpu-smoke", about = "Tries the driver on the GPUs of this machine")]
struct Options {
    /// The program that tells what there is.
    #[arg(long, value_name = "FILE", default_value = "nvidia-smi")]
    nvidia_smi: PathBuf,
    /// Options of the driver, behind `--`.
    #[arg(last = true)]
    driver: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let node = TempNode::new().context("making a temporary folder")?;
    let api = ApiServer::new();
    api.node(NODE)?;
    api.apply_yaml(CLASSES)?;
    let served = api.serve().await.context("serving the API")?;
    served.write_kubeconfig(node.root().join("kubeconfig")).context("writing a kubeconfig")?;
    let kubelet = Kubelet::builder(node.kubelet()).start();
    let _driver = Driver::start(&node, &options.driver)?;
    kubelet.wait_registered(DRIVER, PATIENCE).await?;

    let told = told_by_nvidia_smi(&options.nvidia_smi)?;
    let published = api.wait_until("GPUs as nvidia-smi tells", PATIENCE, |api| same_gpus(api, &told)).await?;
    for gpu in &published {
        println!("{}", serde_json::to_string(gpu)?);
        compare(gpu, &told)?;
    }
    for gpu in &published {
        let name = gpu["name"].as_str().unwrap_or_default();
        prepare(&api, &kubelet, &node, gpu).await.with_context(|| format!("device {name}"))?;
    }
    release_and_resume(&api, &node).await.context("closing NVML for an operator, and opening it again")?;
    println!(
        "{} GPUs are as nvidia-smi tells, and were prepared and given back; NVML was closed and opened again",
        published.len()
    );
    Ok(())
}

/// A GPU in the words of `nvidia-smi`.
type Told = BTreeMap<&'static str, String>;

/// By UUID.
fn told_by_nvidia_smi(program: &Path) -> anyhow::Result<BTreeMap<String, Told>> {
    let output = Command::new(program).args(["-q", "-x"]).output();
    let output = output.with_context(|| format!("running {}", program.display()))?;
    ensure!(output.status.success(), "{} -q -x: {}", program.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let version = tag(&text, "driver_version").context("nvidia-smi tells no driver_version")?.to_owned();
    let gpus = text.split("<gpu id=").skip(1).map(|gpu| {
        let field =
            |name| tag(gpu, name).map(str::to_owned).with_context(|| format!("nvidia-smi tells no {name}"));
        let told = Told::from([
            ("productName", field("product_name")?),
            ("architecture", field("product_architecture")?),
            ("driverVersion", version.clone()),
            ("minor", field("minor_number")?),
        ]);
        Ok((field("uuid")?, told))
    });
    gpus.collect()
}

/// What stands in the first element of this name.
fn tag<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}

/// The full GPUs that are published, once they are as many as there are.
fn same_gpus(api: &ApiServer, told: &BTreeMap<String, Told>) -> Option<Vec<Value>> {
    let slices = api.list::<ResourceSlice>();
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let devices = devices.filter_map(|device| serde_json::to_value(device).ok());
    let gpus: Vec<Value> = devices.filter(|device| attribute(device, "type") == "gpu").collect();
    (gpus.len() == told.len()).then_some(gpus)
}

fn attribute(device: &Value, name: &str) -> String {
    let value = &device["attributes"][name];
    let text = ["string", "version"].iter().find_map(|kind| value[*kind].as_str());
    text.unwrap_or_default().to_owned()
}

fn compare(gpu: &Value, told: &BTreeMap<String, Told>) -> anyhow::Result<()> {
    let uuid = attribute(gpu, "uuid");
    let told = told.get(&uuid).with_context(|| format!("nvidia-smi tells of no GPU {uuid:?}"))?;
    for name in ["productName", "architecture"] {
        let published = attribute(gpu, name);
        ensure!(
            published == told[name],
            "GPU {uuid}: {name} is {published:?}, nvidia-smi tells {:?}",
            told[name]
        );
    }
    let version: Vec<u32> = told["driverVersion"].split('.').filter_map(|part| part.parse().ok()).collect();
    let published = attribute(gpu, "driverVersion");
    let parts: Vec<u32> = published.split('.').filter_map(|part| part.parse().ok()).collect();
    ensure!(parts.starts_with(&version), "driverVersion is {published:?}, nvidia-smi tells {version:?}");
    let name = format!("gpu-{}", told["minor"]);
    ensure!(gpu["name"] == name.as_str(), "GPU {uuid} is {}, nvidia-smi tells {name}", gpu["name"]);
    Ok(())
}

async fn prepare(api: &ApiServer, kubelet: &Kubelet, node: &TempNode, gpu: &Value) -> anyhow::Result<()> {
    let name = gpu["name"].as_str().context("a device without a name")?;
    let cel = format!("device.attributes['{DRIVER}'].uuid == '{}'", attribute(gpu, "uuid"));
    let metadata = json!({"name": name, "namespace": "default"});
    let request = json!({"name": "gpu", "exactly": {
        "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": cel}}],
    }});
    let claim: ResourceClaim =
        serde_json::from_value(json!({"metadata": metadata, "spec": {"devices": {"requests": [request]}}}))?;
    let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": {
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }}))?;
    api.put(&claim)?;
    api.put(&pod)?;
    let scheduled = Scheduler::new(api).schedule_within(("default", name), PATIENCE).await?;
    let prepared = kubelet.prepare_pod(api, &scheduled.pod).await?;
    let mut container = OciSpec::default();
    let ids = prepared.cdi_device_ids(&scheduled.pod, "main");
    Runtime::new([node.cdi()]).apply(&mut container, &ids).context("starting a container")?;
    let nodes: Vec<&str> = container.devices.iter().map(|device| device.path.as_str()).collect();
    println!("{name}: devices {nodes:?}, {} mounts", container.mounts.len());
    println!("{name}: {} of them have the numbers of this machine's nodes", compare_nodes(&container)?);
    let own = format!("/dev/nvidia{}", name.trim_start_matches("gpu-"));
    ensure!(nodes.contains(&own.as_str()), "the container has no {own}");
    kubelet.unprepare_pod(&prepared).await?;
    let left = std::fs::read_dir(node.cdi()).context("reading the CDI folder")?.count();
    ensure!(left == 0, "{left} CDI files are left");
    Ok(())
}

/// How many device nodes of the container have the numbers of the machine's own nodes, where there are any.
fn compare_nodes(container: &OciSpec) -> anyhow::Result<usize> {
    let mut same = 0;
    for node in &container.devices {
        let Ok(found) = std::fs::metadata(&node.path) else { continue };
        let number = found.rdev();
        // As glibc's `major` and `minor` have it.
        let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
        let minor = (number & 0xff) | (number >> 12 & !0xff);
        let given = (u64::from(node.major), u64::from(node.minor));
        ensure!(
            given == (major, minor),
            "{} is given as {given:?}, and is {major}:{minor} on this machine",
            node.path
        );
        same += 1;
    }
    Ok(same)
}

/// Asks the driver to close NVML, and to open it again: all devices that NVML sees say so, and stay.
async fn release_and_resume(api: &ApiServer, node: &TempNode) -> anyhow::Result<()> {
    let is_released = |device: &Value| {
        let taints = device["taints"].as_array().into_iter().flatten();
        taints.into_iter().any(|taint| taint["key"] == "gpu.nvidia.com/released")
    };
    let devices = |api: &ApiServer| -> Vec<Value> {
        let slices = api.list::<ResourceSlice>();
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let devices = devices.filter_map(|device| serde_json::to_value(device).ok());
        devices.filter(|device| attribute(device, "type") != "vfio").collect()
    };
    let before = devices(api).len();
    for (what, expected) in [("release", true), ("resume", false)] {
        let mut command = tokio::process::Command::new(driver()?);
        command.args(["gpus", what, "--kubelet-root"]).arg(node.kubelet());
        let status = command.status().await.with_context(|| format!("running gpus {what}"))?;
        ensure!(status.success(), "gpus {what}: {status}");
        let changed =
            |api: &ApiServer| devices(api).iter().all(|device| is_released(device) == expected).then_some(());
        api.wait_until(&format!("devices after gpus {what}"), PATIENCE, changed).await?;
    }
    let after = devices(api).len();
    ensure!(after == before, "{after} of {before} devices came back");
    Ok(())
}

/// The driver's program, which lies beside this one.
fn driver() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("nvidia-gpu-driver");
    if !program.exists() {
        bail!("{} is not there; build it by `cargo build -p nvidia-gpu-driver`", program.display());
    }
    Ok(program)
}

/// The driver, which lies beside this program; ended when dropped.
struct Driver(Child);

impl Driver {
    fn start(node: &TempNode, options: &[String]) -> anyhow::Result<Self> {
        let program = driver()?;
        let mut command = Command::new(&program);
        command.args(["--node-name", NODE]).arg("--kubeconfig").arg(node.root().join("kubeconfig"));
        command.arg("--kubelet-root").arg(node.kubelet()).arg("--cdi-root").arg(node.cdi());
        let child = command.args(options).spawn();
        Ok(Self(child.with_context(|| format!("starting {}", program.display()))?))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
