//! The NVIDIA driver shares a GPU by MPS: what containers have together with the control daemon of their claim.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use fake_nvml::{Folder, Gpu, MPS_CONTROL, Machine, Model};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    context::Context,
    eventually::eventually,
    pod::ShellPod,
    scenario::Scenario,
    scenarios::gpu::{self, SETTLED_WITHIN},
};

const DRIVER: &str = "gpu.nvidia.com";
const CLASSES: &str = include_str!("../../../examples/nvidia-gpu-driver/deploy/device-classes.yaml");
const RUNNING_WITHIN: Duration = Duration::from_secs(60);
const CONTAINERS: [&str; 2] = ["main", "second"];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("nvidia_mps_is_shared_by_both_containers_of_a_pod", |cx| Box::pin(shared(cx)))]
}

/// The daemon outlives the driver, which is killed while the pod runs.
async fn shared(cx: &Context) -> Result<()> {
    let root = cx.scratch.join("root");
    let fake = Folder::create(cx.scratch.join("fake"), &Machine::new([Gpu::new(Model::L4, 0)]))?;
    fake.install(root.join("usr/lib64"))?;
    let programs = root.join("usr/bin");
    fs::create_dir_all(&programs)?;
    let program = programs.join("nvidia-cuda-mps-control");
    fs::write(&program, MPS_CONTROL)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    fs::write(programs.join("signs"), "")?;
    cx.apply(CLASSES).await?;
    let driver = start(cx, &root, &fake)?;
    cx.wait_devices(DRIVER, 1, RUNNING_WITHIN).await?;
    claim(cx).await?;
    let script = "env; cat /dev/shm/mps-sign; cat /tmp/nvidia-mps/control; echo ' (end)'; exec sleep 3600";
    let mut pod = ShellPod::new("pod", script).claim("shared").build();
    let containers = &mut pod.spec.as_mut().context("a pod without a spec")?.containers;
    containers.extend_from_within(..1);
    CONTAINERS[1].clone_into(&mut containers[1].name);
    cx.create_pod(&pod).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    let mut daemons = Vec::new();
    for container in CONTAINERS {
        let log = log_of(cx, container).await?;
        for expected in ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "a sign of MPS"] {
            ensure!(
                log.lines().any(|line| line == expected),
                "{container} does not see {expected:?}:\n{log}"
            );
        }
        daemons.extend(log.lines().find_map(|line| line.parse::<u32>().ok()));
    }
    ensure!(daemons.len() == 2 && daemons[0] == daemons[1], "the containers see the daemons {daemons:?}");
    let arguments = PathBuf::from(format!("/proc/{}/cmdline", daemons[0]));
    driver.kill().await?;
    start(cx, &root, &fake)?;
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(!arguments.exists(), "the daemon {} is left", daemons[0]);
    let told = fs::read_to_string(programs.join("told"))?;
    let started = told.lines().filter(|line| line.starts_with("start")).count();
    ensure!(started == 1 && told.contains("set_default_active_thread_percentage 25"), "it was told:\n{told}");
    let kept = Path::new("/var/lib/kubelet/plugins").join(DRIVER).join("mps");
    let names = |folder: &Path| -> Result<Vec<String>> {
        let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    ensure!(names(&kept)? == ["lock"], "left in {}: {:?}", kept.display(), names(&kept)?);
    let shared = names(Path::new("/dev/shm"))?;
    ensure!(!shared.iter().any(|name| name.contains("mps")), "left in /dev/shm: {shared:?}");
    let gpus = fake.hardware()?.gpus;
    ensure!(gpus.values().all(|gpu| gpu.compute_mode == 0), "the compute mode is left: {gpus:?}");
    Ok(())
}

fn start(cx: &Context, root: &Path, fake: &Folder) -> Result<crate::driver::Driver> {
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a scratch folder that is not UTF-8");
    let (root, proc) = (path(root)?, path(&fake.path().join("proc"))?);
    let options = ["--nvidia-driver-root", &root, "--procfs", &proc, "--poll-interval", "1"];
    cx.start_program(&std::env::current_exe()?.with_file_name("nvidia-gpu-driver"), &options)
}

async fn claim(cx: &Context) -> Result<()> {
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 25}},
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared"},
        "spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
            "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
        }},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}

/// All that a container has to say.
async fn log_of(cx: &Context, container: &str) -> Result<String> {
    let options = kube::api::LogParams { container: Some(container.to_owned()), ..Default::default() };
    eventually(&format!("the whole log of {container}"), RUNNING_WITHIN, || async {
        let log = cx.api::<Pod>().logs("pod", &options).await.context("the log of the pod")?;
        Ok(log.contains("(end)").then_some(log))
    })
    .await
}
