//! The driver dies, as by SIGKILL, at each call that makes or removes a partition: none is left behind in the end.

use fake_nvml::{Gpu, Machine, Model, Moment};

use crate::rig::{DRIVER, PATIENCE, Rig};

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

async fn revive(rig: &mut Rig) {
    rig.wait_dead().await;
    rig.fake.change(|machine| machine.faults.crash.clear()).unwrap();
    rig.start();
    rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
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
        revive(&mut rig).await;
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
        revive(&mut rig).await;
        rig.unprepare_in_the_end(&prepared).await;
        assert_eq!(rig.instances(), [], "{what}");
    }
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}
