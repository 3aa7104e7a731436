//! Hardware that comes late, goes, or does not answer.

use fake_nvml::{Gpu, Machine, Model};

use crate::rig::Rig;

fn gpus(count: u32) -> Machine {
    Machine::new((0..count).map(|number| Gpu::new(Model::H100Sxm5_80Gb, number)))
}

#[tokio::test]
async fn without_a_driver_the_pool_is_empty_and_devices_appear_when_it_is_installed() {
    let mut rig = Rig::without_nvml(&gpus(2), &[]).await;
    rig.start();
    rig.devices(&[]).await;
    assert!(rig.log().contains("no NVML library; tried"), "{}", rig.log());
    rig.install();
    rig.devices(&["gpu-0", "gpu-1"]).await;
}

#[tokio::test]
async fn one_gpu_that_does_not_answer_does_not_hide_the_others() {
    let mut machine = gpus(3);
    machine.gpus[1].lost = true;
    let rig = Rig::new(&machine, &[]).await;
    rig.devices(&["gpu-0", "gpu-2"]).await;
    rig.fake.change(|machine| machine.gpus[1].lost = false).unwrap();
    rig.devices(&["gpu-0", "gpu-1", "gpu-2"]).await;
}

#[tokio::test]
async fn gpus_whose_driver_is_unloaded_are_tainted_until_it_is_loaded_again() {
    let rig = Rig::new(&gpus(1), &[]).await;
    rig.devices(&["gpu-0"]).await;
    let (machine, aside) = (rig.fake.path().join("machine.json"), rig.fake.path().join("aside"));
    std::fs::rename(&machine, &aside).unwrap();
    let lost = |device: &serde_json::Value| device["taints"][0]["key"] == "gpu.nvidia.com/gpu-lost";
    rig.device("gpu-0", "gpu-0 lost", lost).await;
    std::fs::rename(&aside, &machine).unwrap();
    rig.device("gpu-0", "gpu-0 without a taint", |device| device["taints"].is_null()).await;
}

#[tokio::test]
async fn a_gpu_that_is_lost_while_it_is_used_can_be_given_back() {
    let rig = Rig::new(&gpus(1), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    rig.fake.change(|machine| machine.gpus[0].lost = true).unwrap();
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn gpus_that_come_and_go_are_published_and_withdrawn() {
    let rig = Rig::new(&gpus(1), &[]).await;
    rig.devices(&["gpu-0"]).await;
    rig.fake.change(|machine| machine.gpus = gpus(3).gpus).unwrap();
    rig.devices(&["gpu-0", "gpu-1", "gpu-2"]).await;
    rig.fake.change(|machine| drop(machine.gpus.remove(0))).unwrap();
    rig.devices(&["gpu-1", "gpu-2"]).await;
}
