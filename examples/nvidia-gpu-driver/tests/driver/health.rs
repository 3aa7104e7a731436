//! Errors that GPUs report, and GPUs that are lost and come back.

use fake_nvml::{Event, Gpu, Machine, Model};
use serde_json::Value;

use crate::rig::{Rig, devices};

async fn rig(options: &[&str]) -> Rig {
    let machine = Machine::new((0..2).map(|number| Gpu::new(Model::H100Sxm5_80Gb, number)));
    let rig = Rig::new(&machine, options).await;
    rig.devices(&["gpu-0", "gpu-1"]).await;
    rig
}

/// Keys, values and effects, without the time.
fn taints(device: &Value) -> Vec<(&str, &str, &str)> {
    let taints = device["taints"].as_array().into_iter().flatten();
    taints
        .map(|taint| {
            let field = |name: &str| taint[name].as_str().unwrap_or_default();
            (field("key"), field("value"), field("effect"))
        })
        .collect()
}

/// Reports an error again and again until the driver has heard of it: it may not be waiting yet.
async fn report(rig: &Rig, gpu: usize, event: &Event, expected: &[(&str, &str, &str)]) {
    let name = format!("gpu-{gpu}");
    for _ in 0..60 {
        rig.fake.change(|machine| machine.gpus[gpu].events.push(event.clone())).unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let devices = devices(&rig.api);
        let device = devices.iter().find(|device| device["name"] == name.as_str()).unwrap();
        if taints(device) == expected {
            return;
        }
    }
    panic!("no taints {expected:?} on {name}: {:#?}; the log:\n{}", devices(&rig.api), rig.log());
}

#[tokio::test]
async fn a_critical_error_taints_its_gpu_until_that_was_lost_and_is_back() {
    let rig = rig(&[]).await;
    report(&rig, 0, &Event::xid(79), &[("gpu.nvidia.com/xid", "79", "NoSchedule")]).await;
    rig.device("gpu-1", "gpu-1 without a taint", |device| device["taints"].is_null()).await;

    rig.fake.change(|machine| machine.gpus[0].lost = true).unwrap();
    let lost = |device: &Value| taints(device).contains(&("gpu.nvidia.com/gpu-lost", "", "NoSchedule"));
    rig.device("gpu-0", "gpu-0 lost", lost).await;
    rig.fake.change(|machine| machine.gpus[0].lost = false).unwrap();
    rig.device("gpu-0", "gpu-0 without a taint", |device| device["taints"].is_null()).await;
}

#[tokio::test]
async fn an_error_of_an_application_only_informs_and_is_forgiven_in_time() {
    let rig = rig(&["--additional-xids-to-ignore", "7", "--forgive-xids-after", "2"]).await;
    report(&rig, 1, &Event::xid(7), &[("gpu.nvidia.com/xid", "7", "None")]).await;
    rig.device("gpu-1", "gpu-1 without a taint", |device| device["taints"].is_null()).await;
}

#[tokio::test]
async fn a_gpu_that_cannot_report_says_so() {
    let mut machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0), Gpu::new(Model::H100Sxm5_80Gb, 1)]);
    machine.gpus[1].faults.fail.insert("nvmlDeviceRegisterEvents".to_owned(), 3);
    let rig = Rig::new(&machine, &[]).await;
    let unmonitored = |device: &Value| taints(device) == [("gpu.nvidia.com/unmonitored", "", "None")];
    rig.device("gpu-1", "gpu-1 unmonitored", unmonitored).await;
    rig.device("gpu-0", "gpu-0 without a taint", |device| device["taints"].is_null()).await;
}
