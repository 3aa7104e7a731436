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

#[tokio::test]
async fn an_error_outlives_one_failed_call_and_a_restart_of_the_driver_but_no_start_of_the_machine() {
    let mut rig = rig(&["--boot-id", "one"]).await;
    let xid = [("gpu.nvidia.com/xid", "48", "NoSchedule")];
    report(&rig, 0, &Event::xid(48), &xid).await;
    let fail = |machine: &mut Machine| {
        machine.gpus[0].faults.fail.insert("nvmlDeviceGetBrand".to_owned(), 999);
    };
    rig.fake.change(fail).unwrap();
    let lost = |device: &Value| taints(device).contains(&("gpu.nvidia.com/gpu-lost", "", "NoSchedule"));
    rig.device("gpu-0", "gpu-0 that does not answer", lost).await;
    rig.fake.change(|machine| machine.gpus[0].faults.fail.clear()).unwrap();
    rig.device("gpu-0", "gpu-0 with its error", |device| taints(device) == xid).await;

    rig.kill();
    rig.start();
    rig.wait_for_log("waits for what GPUs report", 2).await;
    rig.wait_for_log("devices published", 2).await;
    rig.device("gpu-0", "gpu-0 with its error after a restart", |device| taints(device) == xid).await;

    rig.kill();
    rig.set_option("--boot-id", "two");
    rig.start();
    rig.device("gpu-0", "gpu-0 without a taint", |device| device["taints"].is_null()).await;
}

#[tokio::test]
async fn a_gpu_is_reset_while_the_driver_runs_after_it_was_asked_and_its_errors_are_forgiven() {
    let rig = rig(&[]).await;
    rig.fake.change(|machine| machine.gpus[0].recovery_action = Some(1)).unwrap();
    report(&rig, 0, &Event::xid(48), &[("gpu.nvidia.com/xid", "48", "NoSchedule")]).await;
    let scheduled = rig.pod("pod", "gpu.nvidia.com", "", "").await;
    assert!(matches!(rig.fake.reset(0), Err(fake_nvml::Error::InUse(_))), "the driver has it open");
    rig.gpus("release").await;
    rig.fake.reset(0).unwrap();
    let released = |device: &Value| taints(device).contains(&("gpu.nvidia.com/released", "", "NoSchedule"));
    rig.device("gpu-1", "gpu-1 released", released).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("nvidia-gpu-driver gpus resume"), "{error}");
    rig.gpus("resume").await;
    for name in ["gpu-0", "gpu-1"] {
        rig.device(name, "a GPU without a taint", |device| device["taints"].is_null()).await;
    }
    rig.prepare(&scheduled.pod).await.unwrap();
}

#[tokio::test]
async fn without_health_nvml_is_open_only_while_it_is_needed() {
    let rig = rig(&["--health", "false"]).await;
    let unmonitored = |device: &Value| taints(device) == [("gpu.nvidia.com/unmonitored", "", "None")];
    rig.device("gpu-0", "gpu-0 unmonitored", unmonitored).await;
    let patience = std::time::Instant::now() + crate::rig::PATIENCE;
    while let Err(error) = rig.fake.unload() {
        assert!(std::time::Instant::now() < patience, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    rig.fake.load().unwrap();
    let scheduled = rig.pod("pod", "gpu.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
}

#[tokio::test]
async fn an_error_of_a_gpu_that_does_not_tell_its_uuid_any_more_taints_it() {
    let rig = rig(&[]).await;
    rig.wait_for_log("waits for what GPUs report", 1).await;
    rig.fake
        .change(|machine| {
            machine.gpus[0].faults.fail.insert("nvmlDeviceGetUUID".to_owned(), 999);
            machine.gpus[0].events.push(Event::xid(79));
        })
        .unwrap();
    let xid = |device: &Value| taints(device).contains(&("gpu.nvidia.com/xid", "79", "NoSchedule"));
    rig.device("gpu-0", "gpu-0 with its error", xid).await;
}

#[tokio::test]
async fn an_error_on_a_partition_that_was_made_for_a_claim_taints_its_device() {
    let machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)]);
    let rig = Rig::new(&machine, &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    rig.wait_for_log("waits for what GPUs report", 1).await;
    let instance = rig.hardware()[0]["instances"][0].clone();
    let id = u32::try_from(instance["id"].as_u64().unwrap()).unwrap();
    rig.fake.change(|machine| machine.gpus[0].events.push(Event::xid(94).on(id, 0))).unwrap();
    let allocated = rig.allocated_device("pod");
    let xid = |device: &Value| taints(device) == [("gpu.nvidia.com/xid", "94", "NoSchedule")];
    rig.device(&allocated, "the device of the claim with its error", xid).await;
    let others = devices(&rig.api).into_iter().filter(|device| device["name"] != allocated.as_str());
    assert!(others.into_iter().all(|device| device["taints"].is_null()), "{:#?}", devices(&rig.api));
}
