//! The driver dies, as by SIGKILL, at each call that makes or removes a partition: none is left behind in the end.

use fake_nvml::{Gpu, Machine, MigInstance, Model, Moment, Process};

use crate::rig::{DRIVER, PATIENCE, Rig, devices};

const MAKING: [&str; 5] = [
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceGetInfo",
    "nvmlComputeInstanceGetInfo_v2",
];
const REMOVING: [&str; 3] =
    ["nvmlDeviceGetGpuInstances", "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"];
const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

async fn rig() -> Rig {
    let machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)]);
    Rig::new(&machine, &["--dynamic-mig", "true"]).await
}

fn crash_at(rig: &Rig, function: &str, moment: Moment) {
    rig.fake
        .change(|machine| {
            machine.faults.crash.insert(function.to_owned(), moment);
        })
        .unwrap();
}

#[tokio::test]
async fn a_crash_while_a_partition_is_made_leaves_one_if_it_is_still_wanted_and_none_if_not() {
    let mut rig = rig().await;
    for (number, (function, moment)) in
        MAKING.iter().flat_map(|function| MOMENTS.map(|moment| (function, moment))).enumerate()
    {
        let what = format!("{function} {moment:?}");
        let scheduled = rig.pod(&format!("pod-{number}"), "mig.nvidia.com", "", "").await;
        crash_at(&rig, function, moment);
        rig.prepare(&scheduled.pod).await.expect_err(&what);
        rig.revive().await;
        let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
        let made = rig.instances();
        assert_eq!(made.iter().map(|(_, computes)| *computes).collect::<Vec<_>>(), [1], "{what}: {made:?}");
        rig.unprepare_in_the_end(&prepared).await;
        assert_eq!(rig.instances(), [], "{what}");
        rig.forget(&format!("pod-{number}"));
        rig.reset_hardware();
    }
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_crash_while_a_partition_is_removed_leaves_none() {
    let mut rig = rig().await;
    let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
    for (function, moment) in REMOVING.iter().flat_map(|function| MOMENTS.map(|moment| (function, moment))) {
        let what = format!("{function} {moment:?}");
        let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
        assert_eq!(rig.instances().len(), 1, "{what}");
        crash_at(&rig, function, moment);
        rig.kubelet.unprepare_pod(&prepared).await.expect_err(&what);
        rig.revive().await;
        rig.unprepare_in_the_end(&prepared).await;
        assert_eq!(rig.instances(), [], "{what}");
    }
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_partition_that_a_crash_has_left_is_removed_at_the_next_start_even_if_the_record_of_its_claim_is_lost()
 {
    let mut rig = rig().await;
    for (number, (function, moment)) in
        MAKING.iter().flat_map(|function| MOMENTS.map(|moment| (function, moment))).enumerate()
    {
        let (what, name) = (format!("{function} {moment:?}"), format!("pod-{number}"));
        let scheduled = rig.pod(&name, "mig.nvidia.com", "", "").await;
        crash_at(&rig, function, moment);
        rig.prepare(&scheduled.pod).await.expect_err(&what);
        rig.wait_dead().await;
        rig.lose_records();
        rig.forget(&name);
        rig.revive().await;
        rig.wait_for_no_partition(&what).await;
        rig.reset_hardware();
    }
    for (function, moment) in REMOVING.iter().flat_map(|function| MOMENTS.map(|moment| (function, moment))) {
        let what = format!("{function} {moment:?}");
        let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
        let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
        crash_at(&rig, function, moment);
        rig.kubelet.unprepare_pod(&prepared).await.expect_err(&what);
        rig.wait_dead().await;
        rig.lose_records();
        rig.forget("pod");
        rig.revive().await;
        rig.wait_for_no_partition(&what).await;
    }
}

#[tokio::test]
async fn partitions_that_the_driver_has_not_made_stay_and_nothing_is_offered_over_them() {
    let mut gpu = Gpu::new(Model::H100Sxm5_80Gb, 0);
    gpu.mig = true;
    // One with nothing on it is in the way as well.
    let mut bare = MigInstance::new("2g.20gb", 4);
    bare.compute = false;
    gpu.instances = vec![MigInstance::new("1g.10gb", 2), bare];
    let mut rig = Rig::new(&Machine::new([gpu]), &["--dynamic-mig", "true"]).await;
    for _ in 0..2 {
        let is_there = |device: &serde_json::Value| !device.is_null();
        rig.device("gpu-0-mig-1g10gb-19-0", "a free place", is_there).await;
        let names: Vec<String> =
            devices(&rig.api).iter().map(|device| device["name"].as_str().unwrap().to_owned()).collect();
        for taken in ["gpu-0", "gpu-0-mig-1g10gb-19-2", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-3g40gb-9-0"] {
            assert!(!names.contains(&taken.to_owned()), "{taken} in {names:?}");
        }
        assert!(
            rig.log().contains("gpu-0 has MIG devices that no claim of this driver has"),
            "{}",
            rig.log()
        );
        let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
        let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
        assert_eq!(rig.instances().len(), 3);
        rig.kubelet.unprepare_pod(&prepared).await.unwrap();
        assert_eq!(rig.instances().len(), 2, "{:?}", rig.instances());
        rig.forget("pod");
        rig.kill();
        rig.start();
        rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn what_claims_have_outlives_a_start_and_what_is_in_use_is_removed_when_it_is_not() {
    let mut rig = rig().await;
    let scheduled = rig.pod("kept", "mig.nvidia.com", "", "").await;
    let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
    rig.kill();
    rig.start();
    rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    rig.wait_for_log("devices published", 2).await;
    assert_eq!(rig.instances().len(), 1);

    let instance = rig.hardware()[0]["instances"][0].clone();
    let id = u32::try_from(instance["id"].as_u64().unwrap()).unwrap();
    rig.run_process(0, Process::new(4711, 1).on(id, 0), "train.py");
    rig.kill();
    rig.lose_records();
    rig.start();
    rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    rig.wait_for_log("removing a partition that no claim has any more", 1).await;
    assert_eq!(rig.instances().len(), 1);
    let is_withdrawn = |api: &_| (!devices(api).iter().any(|device| device["name"] == "gpu-0")).then_some(());
    rig.api.wait_until("nothing is offered over it", PATIENCE, is_withdrawn).await.unwrap();
    rig.end_processes();
    rig.wait_for_no_partition("it is not used any more").await;
    rig.unprepare_in_the_end(&prepared).await;
}
