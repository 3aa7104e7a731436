//! Claims that are prepared, on hardware that is not as it was.

use fake_nvml::{Gpu, Machine, MigInstance, Model, Text};

use crate::rig::{DRIVER, PATIENCE, Rig};

fn gpus(model: Model) -> Machine {
    Machine::new([Gpu::new(model, 0), Gpu::new(model, 1)])
}

#[tokio::test]
async fn a_claim_whose_gpu_is_another_one_since_the_driver_was_reloaded_is_refused() {
    let rig = Rig::new(&gpus(Model::L4), &[]).await;
    let scheduled = rig.pod("pod", "gpu.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    rig.prepare(&scheduled.pod).await.unwrap();
    rig.reload_driver(|machine| {
        machine.gpus[0].minor = Some(1);
        machine.gpus[1].minor = Some(0);
    })
    .await;
    let uuid = rig.fake.machine().unwrap().gpus[1].uuid();
    let uuid = String::from_utf8(uuid.bytes().to_vec()).unwrap();
    let is_swapped = |device: &serde_json::Value| device["attributes"]["uuid"]["string"] == uuid.as_str();
    rig.device("gpu-0", "gpu-0 is the other GPU", is_swapped).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("is another one now; delete the pod"), "{error}");
}

#[tokio::test]
async fn a_claim_gets_the_libraries_of_the_version_that_is_loaded_now() {
    let rig = Rig::new(&gpus(Model::L4), &[]).await;
    let libraries = rig.root().join("usr/lib64");
    let library = |version: &str| libraries.join(format!("libcuda.so.{version}"));
    std::fs::write(library("580.82.07"), "").unwrap();
    let scheduled = rig.pod("pod", "gpu.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    assert!(rig.cdi_file().contains("libcuda.so.580.82.07"), "{}", rig.cdi_file());

    std::fs::rename(library("580.82.07"), library("590.1")).unwrap();
    rig.reload_driver(|machine| machine.driver_version = Text::Plain("590.1".to_owned())).await;
    let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
    assert!(rig.cdi_file().contains("libcuda.so.590.1"), "{}", rig.cdi_file());
    assert!(!rig.cdi_file().contains("580.82.07"), "{}", rig.cdi_file());
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_partition_that_a_reload_has_removed_is_made_again_for_its_claim_and_removed_once() {
    let rig = Rig::new(&gpus(Model::H100Sxm5_80Gb), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    let before = rig.hardware();
    rig.prepare(&scheduled.pod).await.unwrap();
    assert_eq!(rig.hardware(), before, "it is there, and left alone");
    rig.reload_driver(|_| {}).await;
    assert_eq!(rig.instances(), []);
    let prepared = rig.prepare_in_the_end(&scheduled.pod).await;
    assert_eq!(rig.instances().len(), 1);
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.instances(), []);
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_claim_whose_gpu_was_partitioned_behind_its_back_is_refused_and_the_partitions_are_published() {
    let mut machine = gpus(Model::A100Sxm4_40Gb);
    machine.gpus.truncate(1);
    let rig = Rig::new(&machine, &[]).await;
    rig.devices(&["gpu-0"]).await;
    let scheduled = rig.pod("pod", "gpu.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    rig.fake
        .change(|machine| {
            machine.gpus[0].mig = true;
            machine.gpus[0].instances = vec![MigInstance::new("1g.5gb", 2)];
        })
        .unwrap();
    // First the driver may not have looked, and says what is wrong; then it has no such device any more.
    let error = rig.prepare(&scheduled.pod).await;
    rig.devices(&["gpu-0-mig-1g5gb-19-2"]).await;
    if let Err(error) = error {
        assert!(error.contains("MIG mode of gpu-0 was turned on behind this driver's back"), "{error}");
    }
    let mig = rig.pod("mig", "mig.nvidia.com", "", "").await;
    let error = rig.prepare(&mig.pod).await.unwrap_err();
    assert!(error.contains("gpu-0"), "the claim of the whole GPU is named: {error}");
}

#[tokio::test]
async fn prepared_claims_are_answered_for_and_end_where_the_driver_is_unloaded() {
    let mut rig = Rig::new(&gpus(Model::H100Sxm5_80Gb), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("pod", "mig.nvidia.com", "", "").await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let (machine, aside) = (rig.fake.path().join("machine.json"), rig.fake.path().join("aside"));
    std::fs::rename(&machine, &aside).unwrap();
    rig.prepare(&scheduled.pod).await.unwrap();
    rig.kill();
    rig.start();
    rig.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    rig.prepare_in_the_end(&scheduled.pod).await;
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
    // The partition outlived that, and nobody has it: it goes when the driver sees it.
    std::fs::rename(&aside, &machine).unwrap();
    rig.wait_for_no_partition("the driver is loaded again").await;
}
