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
async fn gpus_that_come_and_go_are_published_and_withdrawn() {
    let rig = Rig::new(&gpus(1), &[]).await;
    rig.devices(&["gpu-0"]).await;
    rig.fake.change(|machine| machine.gpus = gpus(3).gpus).unwrap();
    rig.devices(&["gpu-0", "gpu-1", "gpu-2"]).await;
    rig.fake.change(|machine| drop(machine.gpus.remove(0))).unwrap();
    rig.devices(&["gpu-1", "gpu-2"]).await;
}
