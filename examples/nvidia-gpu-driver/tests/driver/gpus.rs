//! Whole GPUs: published, prepared, shared.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use fake_nvml::{Gpu, Machine, Model};

use crate::rig::Rig;

fn two_gpus() -> Machine {
    Machine::new([Gpu::new(Model::A100Sxm4_40Gb, 0), Gpu::new(Model::L4, 1)])
}

#[tokio::test]
async fn a_pod_gets_the_nodes_of_its_gpu_and_no_others_in_each_container() {
    let rig = Rig::new(&two_gpus(), &[]).await;
    let devices = rig.devices(&["gpu-0", "gpu-1"]).await;
    assert_eq!(devices[0]["attributes"]["productName"]["string"], "NVIDIA A100-SXM4-40GB");
    assert_eq!(devices[1]["attributes"]["architecture"]["string"], "Ada Lovelace");

    let l4 = ", selectors: [{cel: {expression: \"device.attributes['gpu.nvidia.com'].architecture == 'Ada Lovelace'\"}}]";
    let scheduled = rig.pod("one", "gpu.nvidia.com", l4, "").await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    for container in ["a", "b"] {
        let spec = rig.container(&scheduled.pod, &prepared, container);
        assert_eq!(spec.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
        let nodes: Vec<&str> = spec.devices.iter().map(|device| device.path.as_str()).collect();
        assert_eq!(nodes, ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]);
    }
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_config_of_the_wrong_kind_is_refused_with_its_field() {
    let rig = Rig::new(&two_gpus(), &[]).await;
    rig.devices(&["gpu-0", "gpu-1"]).await;
    let config = ", config: [{requests: [gpu], opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: MigDeviceConfig}}}]";
    let scheduled = rig.pod("wrong", "gpu.nvidia.com", "", config).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("parameters.kind: must be \"GpuConfig\", not \"MigDeviceConfig\""), "{error}");
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn time_slicing_is_set_for_the_claim_and_taken_back_after_it() {
    let rig = Rig::new(&two_gpus(), &[]).await;
    let ran = install_nvidia_smi(&rig);
    let config = ", config: [{requests: [gpu], opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}}}}]";
    let scheduled = rig.pod("shared", "gpu.nvidia.com", "", config).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let lines = || fs::read_to_string(&ran).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines().len(), 1);
    assert!(lines()[0].ends_with("--set-timeslice 3"), "{:?}", lines());
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(lines().len(), 2);
    assert!(lines()[1].ends_with("--set-timeslice 0"), "{:?}", lines());
}

#[tokio::test]
async fn a_gpu_with_another_minor_number_than_its_name_says_is_not_given_away() {
    let rig = Rig::new(&two_gpus(), &[]).await;
    rig.devices(&["gpu-0", "gpu-1"]).await;
    let scheduled = rig.pod("moved", "gpu.nvidia.com", "", "").await;
    // Either the driver has looked by then, or the prepare is the first to notice.
    rig.fake
        .change(|machine| machine.gpus.iter_mut().for_each(|gpu| gpu.minor = Some(gpu.number + 4)))
        .unwrap();
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    let told = error.contains("is /dev/nvidia4 now") || error.contains("this node has no device gpu-0 now");
    assert!(told, "{error}");
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
    rig.devices(&["gpu-4", "gpu-5"]).await;
}

/// A program that writes down what it is asked for; where it does.
fn install_nvidia_smi(rig: &Rig) -> PathBuf {
    let folder = rig.root().join("usr/bin");
    fs::create_dir_all(&folder).unwrap();
    let (program, ran) = (folder.join("nvidia-smi"), folder.join("ran"));
    fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}\n", ran.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    ran
}

#[tokio::test]
async fn without_the_module_that_cuda_needs_a_claim_says_what_to_run() {
    let mut machine = two_gpus();
    machine.without_uvm = true;
    let rig = Rig::new(&machine, &[]).await;
    let scheduled = rig.pod("one", "gpu.nvidia.com", "", "").await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("nvidia-uvm") && error.contains("nvidia-modprobe -u -c 0"), "{error}");
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_container_with_two_gpus_of_a_request_has_the_files_and_hooks_of_the_driver_once() {
    let rig = Rig::new(&two_gpus(), &[]).await;
    let programs = rig.root().join("usr/bin");
    fs::create_dir_all(&programs).unwrap();
    fs::write(programs.join("nvidia-cdi-hook"), "").unwrap();
    fs::write(rig.root().join("usr/lib64/libcuda.so.580.82.07"), "").unwrap();
    let scheduled = rig.pod("both", "gpu.nvidia.com", ", count: 2", "").await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let spec = rig.container(&scheduled.pod, &prepared, "a");
    for gpu in ["/dev/nvidia0", "/dev/nvidia1"] {
        assert!(spec.devices.iter().any(|device| device.path == gpu), "{gpu} in {:?}", spec.devices);
    }
    let file = rig.cdi_file();
    for once in
        ["update-ldcache", "enable-cuda-compat", "disable-device-node-modification", "create-symlinks"]
    {
        assert_eq!(file.matches(once).count(), 1, "{once} in {file}");
    }
    assert_eq!(spec.mounts.iter().filter(|mount| mount.source.ends_with("libcuda.so.580.82.07")).count(), 1);
}
