//! Devices shared by MPS: the daemon of a claim, from its start to its end, whatever dies meanwhile.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use fake_nvml::{Gpu, MPS_CONTROL, Machine, MigInstance, Model, Moment};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::rig::{DRIVER, PATIENCE, Rig};

const EXCLUSIVE: u64 = 3;

fn l4() -> Machine {
    Machine::new([Gpu::new(Model::L4, 0)])
}

/// On a node with NVIDIA's program.
async fn rig(machine: &Machine, options: &[&str]) -> Rig {
    let rig = Rig::new(machine, options).await;
    fs::create_dir_all(programs(&rig)).unwrap();
    let program = programs(&rig).join("nvidia-cuda-mps-control");
    fs::write(&program, MPS_CONTROL).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    rig
}

fn programs(rig: &Rig) -> PathBuf {
    rig.root().join("usr/bin")
}

/// A configuration for all requests, as a field of a claim.
fn mps(kind: &str, limits: &str) -> String {
    format!(
        ", config: [{{opaque: {{driver: {DRIVER}, parameters: {{apiVersion: resource.nvidia.com/v1beta1, kind: {kind}, sharing: {{strategy: MPS{limits}}}}}}}}}]"
    )
}

/// What the program was told so far.
fn told(rig: &Rig) -> Vec<String> {
    let told = fs::read_to_string(programs(rig).join("told")).unwrap_or_default();
    told.lines().map(str::to_owned).collect()
}

/// How often it was told what begins like this.
fn count(rig: &Rig, text: &str) -> usize {
    told(rig).iter().filter(|line| line.starts_with(text)).count()
}

/// The process of the only daemon, once there is one.
async fn daemon(rig: &Rig) -> Pid {
    let pid = || {
        let folder = folders(rig).into_iter().find(|path| path.is_dir())?;
        let pid = fs::read_to_string(folder.join("pipe/control")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw).filter(|pid| lives(*pid))
    };
    wait(rig, "a daemon", pid).await
}

async fn wait<T>(rig: &Rig, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < patience, "no {what}; the log:\n{}", rig.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Whether it is there, and not only waits for somebody to ask how it ended.
fn lives(pid: Pid) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|arguments| !arguments.is_empty())
}

/// What the driver keeps of daemons.
fn folders(rig: &Rig) -> Vec<PathBuf> {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(&rig.data().join("mps")).filter(|path| !path.ends_with("lock")).collect()
}

/// How each GPU may be used, as numbers of NVML.
fn compute_modes(rig: &Rig) -> Vec<u64> {
    rig.hardware().iter().map(|gpu| gpu["computeMode"].as_u64().unwrap()).collect()
}

fn nothing_is_left(rig: &Rig, daemon: Pid) {
    assert!(!lives(daemon), "daemon {daemon} is left");
    assert_eq!(folders(rig), [] as [PathBuf; 0]);
    assert_eq!(rig.books(), [] as [PathBuf; 0]);
    assert!(compute_modes(rig).iter().all(|mode| *mode == 0), "{:?}", compute_modes(rig));
}

#[tokio::test]
async fn containers_share_a_gpu_through_a_daemon_that_their_claim_has_for_itself() {
    let rig = rig(&l4(), &[]).await;
    let uuid = rig.devices(&["gpu-0"]).await[0]["attributes"]["uuid"]["string"].as_str().unwrap().to_owned();
    let limits = ", mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi, \
                  defaultPerDevicePinnedMemoryLimit: {'0': 8Gi}}";
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", limits)).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let pid = daemon(&rig).await;
    assert_eq!(
        told(&rig),
        [
            format!("start {uuid}"),
            "set_default_active_thread_percentage 50".to_owned(),
            format!("set_default_device_pinned_mem_limit {uuid} 8192M"),
        ]
    );
    assert_eq!(compute_modes(&rig), [EXCLUSIVE]);
    for container in ["a", "b"] {
        let spec = rig.container(&scheduled.pod, &prepared, container);
        assert_eq!(spec.env("CUDA_MPS_PIPE_DIRECTORY"), Some("/tmp/nvidia-mps"));
        let source = |seen_at: &str| {
            let mount = spec.mounts.iter().find(|mount| mount.destination == seen_at).unwrap();
            assert!(mount.options.iter().any(|option| option == "rw"), "{mount:?}");
            PathBuf::from(&mount.source)
        };
        assert_eq!(
            fs::read_to_string(source("/tmp/nvidia-mps").join("control")).unwrap().trim(),
            pid.to_string()
        );
        let shm = source("/dev/shm");
        assert!(shm.starts_with(rig.data().join("mps")), "{shm:?} is where other users can put things first");
        assert_eq!(fs::metadata(shm).unwrap().permissions().mode() & 0o7777, 0o1777);
    }
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(told(&rig)[3..], ["quit"]);
    nothing_is_left(&rig, pid);
}

#[tokio::test]
async fn a_daemon_lives_on_without_the_driver_and_is_ended_by_the_next_one() {
    let mut rig = rig(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    rig.prepare(&scheduled.pod).await.unwrap();
    let pid = daemon(&rig).await;
    rig.kill();
    rig.start();
    rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
    assert_eq!(daemon(&rig).await, pid);
    assert_eq!(count(&rig, "start"), 1);
    rig.unprepare_in_the_end(&prepared).await;
    nothing_is_left(&rig, pid);
}

#[tokio::test]
async fn a_daemon_that_has_died_is_started_again_with_its_limits() {
    let rig = rig(&l4(), &[]).await;
    let limits = ", mpsConfig: {defaultActiveThreadPercentage: 20}";
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", limits)).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let first = daemon(&rig).await;
    kill(first, Signal::SIGKILL).unwrap();
    let second = daemon(&rig).await;
    wait(&rig, "limit", || (count(&rig, "set_default_active_thread_percentage 20") == 2).then_some(())).await;
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    nothing_is_left(&rig, second);
}

#[tokio::test]
async fn a_daemon_that_cannot_be_started_is_told_and_leaves_nothing() {
    let rig = Rig::new(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    let tried = programs(&rig).join("nvidia-cuda-mps-control");
    assert!(error.contains("MPS") && error.contains(&format!("{} (not there)", tried.display())), "{error}");
    assert_eq!((folders(&rig), rig.books()), (Vec::new(), Vec::new()));

    fs::create_dir_all(programs(&rig)).unwrap();
    fs::write(&tried, MPS_CONTROL).unwrap();
    fs::set_permissions(&tried, Permissions::from_mode(0o755)).unwrap();
    fs::write(programs(&rig).join("fails"), "").unwrap();
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("-d: exit status: 1: no CUDA-capable device is detected"), "{error}");
    assert_eq!((folders(&rig), rig.books()), (Vec::new(), Vec::new()));
    assert_eq!(compute_modes(&rig), [0]);
}

#[tokio::test]
async fn a_daemon_that_does_not_get_ready_is_killed() {
    let rig = rig(&l4(), &[]).await;
    fs::write(programs(&rig).join("mute"), "").unwrap();
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("nvidia-cuda-mps-control -d: no answer in 10s"), "{error}");
    assert_eq!((folders(&rig), rig.books()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_daemon_that_does_not_end_when_it_is_told_to_is_killed() {
    let rig = rig(&l4(), &[]).await;
    fs::write(programs(&rig).join("deaf"), "").unwrap();
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let pid = daemon(&rig).await;
    rig.unprepare_in_the_end(&prepared).await;
    nothing_is_left(&rig, pid);
}

#[tokio::test]
async fn mig_devices_of_one_gpu_have_daemons_of_their_own_and_the_gpu_keeps_its_compute_mode() {
    let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, 0);
    gpu.mig = true;
    gpu.instances = vec![MigInstance::new("3g.20gb", 0), MigInstance::new("3g.20gb", 4)];
    let mut machine = Machine::new([gpu]);
    machine.log_calls = true;
    let rig = rig(&machine, &[]).await;
    let devices = rig.devices(&["gpu-0-mig-3g20gb-9-0", "gpu-0-mig-3g20gb-9-4"]).await;
    let mut prepared = Vec::new();
    for name in ["one", "other"] {
        let scheduled = rig.pod(name, "mig.nvidia.com", "", &mps("MigDeviceConfig", "")).await;
        prepared.push(rig.prepare(&scheduled.pod).await.unwrap());
    }
    let mut started: Vec<String> = told(&rig).into_iter().filter(|line| line.starts_with("start")).collect();
    started.sort();
    let mut uuids: Vec<String> = devices
        .iter()
        .map(|device| format!("start {}", device["attributes"]["uuid"]["string"].as_str().unwrap()))
        .collect();
    uuids.sort();
    assert_eq!(started, uuids);
    assert_eq!(rig.calls("nvmlDeviceSetComputeMode"), 0, "a GPU in MIG mode refuses it");
    rig.kubelet.unprepare_pod(&prepared[0]).await.unwrap();
    let pid = daemon(&rig).await;
    rig.kubelet.unprepare_pod(&prepared[1]).await.unwrap();
    nothing_is_left(&rig, pid);
}

#[tokio::test]
async fn mig_devices_that_are_made_for_claims_are_not_shared_by_mps() {
    let machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)]);
    let rig = rig(&machine, &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("shared", "mig.nvidia.com", "", &mps("MigDeviceConfig", "")).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("parameters.sharing.strategy: MPS does not go with MIG devices"), "{error}");
    assert_eq!((folders(&rig), rig.books(), rig.instances()), (Vec::new(), Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_crash_at_any_step_leaves_no_daemon_but_that_of_a_claim() {
    let mut rig = rig(&l4(), &[]).await;
    let crash = |rig: &Rig, moment| {
        let crash = |machine: &mut Machine| {
            machine.faults.crash.insert("nvmlDeviceSetComputeMode".to_owned(), moment);
        };
        rig.fake.change(crash).unwrap();
    };
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    for moment in [Moment::Before, Moment::After] {
        crash(&rig, moment);
        rig.prepare(&scheduled.pod).await.unwrap_err();
        rig.revive().await;
        let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
        let pid = daemon(&rig).await;
        crash(&rig, moment);
        rig.kubelet.unprepare_pod(&prepared).await.unwrap_err();
        rig.revive().await;
        rig.unprepare_in_the_end(&prepared).await;
        nothing_is_left(&rig, pid);
    }
}

#[tokio::test]
async fn a_daemon_that_was_being_started_or_ended_by_a_driver_that_died_is_found() {
    let mut rig = rig(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    let (mute, deaf) = (programs(&rig).join("mute"), programs(&rig).join("deaf"));
    fs::write(&mute, "").unwrap();
    let (outcome, ()) = tokio::join!(rig.prepare(&scheduled.pod), kill_when_told(&rig, "start", 0));
    outcome.unwrap_err();
    assert!(!folders(&rig).is_empty(), "there is nothing to find");
    fs::remove_file(mute).unwrap();
    rig.revive().await;

    let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
    let pid = daemon(&rig).await;
    fs::write(&deaf, "").unwrap();
    let before = count(&rig, "quit");
    let (outcome, ()) =
        tokio::join!(rig.kubelet.unprepare_pod(&prepared), kill_when_told(&rig, "quit", before));
    outcome.unwrap_err();
    fs::remove_file(deaf).unwrap();
    rig.revive().await;
    rig.unprepare_in_the_end(&prepared).await;
    nothing_is_left(&rig, pid);
}

/// Kills the driver once the program was told this more often than before.
async fn kill_when_told(rig: &Rig, text: &str, before: usize) {
    wait(rig, text, || (count(rig, text) > before).then_some(())).await;
    kill(rig.pid(), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_daemon_without_a_claim_is_ended_when_the_driver_starts() {
    let mut rig = rig(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    rig.prepare(&scheduled.pod).await.unwrap();
    let pid = daemon(&rig).await;
    rig.kill();
    // Somebody has cleaned up.
    for book in rig.books() {
        fs::remove_file(book).unwrap();
    }
    fs::create_dir_all(rig.data().join("mps/0123456789ab/pipe")).unwrap();
    fs::write(rig.data().join("mps/0123456789ab.json"), "cut").unwrap();
    rig.start();
    wait(&rig, "end", || folders(&rig).is_empty().then_some(())).await;
    nothing_is_left(&rig, pid);
}

#[tokio::test]
async fn a_pod_without_a_claim_that_plays_a_daemon_keeps_no_gpu_from_others() {
    let rig = rig(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let pid = daemon(&rig).await;
    // All that a pod can see: the folder is in the mounts of its containers, and names are anyone's.
    let folder = folders(&rig).into_iter().find(|path| path.is_dir()).unwrap();
    let script = "exec -a nvidia-cuda-mps-control sleep 1000";
    let mut attacker = std::process::Command::new("bash")
        .args(["-c", script])
        .env("NVIDIA_GPU_DRIVER_MPS", &folder)
        .spawn()
        .unwrap();
    let attacks = || {
        let arguments = fs::read(format!("/proc/{}/cmdline", attacker.id())).unwrap_or_default();
        arguments.starts_with(b"nvidia-cuda-mps-control").then_some(())
    };
    wait(&rig, "attacker", attacks).await;
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    nothing_is_left(&rig, pid);
    assert!(attacker.try_wait().unwrap().is_none(), "a process of another pod was killed");
    rig.forget("shared");
    let other = rig.pod("other", "gpu.nvidia.com", "", "").await;
    rig.prepare(&other.pod).await.unwrap();
    attacker.kill().unwrap();
    attacker.wait().unwrap();
}

#[tokio::test]
async fn only_root_reads_by_what_the_processes_of_a_daemon_are_known() {
    let rig = rig(&l4(), &[]).await;
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", &mps("GpuConfig", "")).await;
    rig.prepare(&scheduled.pod).await.unwrap();
    let book =
        folders(&rig).into_iter().find(|path| path.extension().is_some_and(|end| end == "json")).unwrap();
    assert_eq!(fs::metadata(&book).unwrap().permissions().mode() & 0o777, 0o600);
    let book: serde_json::Value = serde_json::from_slice(&fs::read(book).unwrap()).unwrap();
    assert!(book["secret"].as_str().unwrap().len() > 20, "{book}");
}
