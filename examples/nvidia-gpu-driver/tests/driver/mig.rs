//! Partitions: those that are there, and those that are made for claims.

use fake_nvml::{Gpu, Machine, MigInstance, Model};

use crate::rig::Rig;

fn a100_with_two_partitions() -> Machine {
    let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, 0);
    gpu.mig = true;
    gpu.instances = vec![MigInstance::new("1g.5gb", 2), MigInstance::new("3g.20gb", 4)];
    Machine::new([gpu])
}

fn h100s(count: u32) -> Machine {
    Machine::new((0..count).map(|number| Gpu::new(Model::H100Sxm5_80Gb, number)))
}

/// One request for a partition of this profile.
fn request(name: &str, profile: &str) -> String {
    format!(
        "{{name: {name}, exactly: {{deviceClassName: mig.nvidia.com, selectors: [{{cel: {{expression: \"device.attributes['gpu.nvidia.com'].profile == '{profile}'\"}}}}]}}}}"
    )
}

#[tokio::test]
async fn a_partition_that_is_there_reaches_a_container_with_its_capabilities() {
    let rig = Rig::new(&a100_with_two_partitions(), &[]).await;
    let devices = rig.devices(&["gpu-0-mig-1g5gb-19-2", "gpu-0-mig-3g20gb-9-4"]).await;
    assert_eq!(devices[1]["attributes"]["profile"]["string"], "3g.20gb");
    assert_eq!(devices[1]["capacity"]["memorySlice7"]["value"], "1");

    let requests = format!("requests: [{}]", request("gpu", "1g.5gb"));
    let scheduled = rig.pod_with("one", &requests).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let spec = rig.container(&scheduled.pod, &prepared, "a");
    let nodes: Vec<&str> = spec.devices.iter().map(|device| device.path.as_str()).collect();
    assert_eq!(nodes[..4], ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]);
    assert_eq!(nodes.len(), 6, "{nodes:?}");
    assert!(nodes[4..].iter().all(|node| node.starts_with("/dev/nvidia-caps/nvidia-cap")), "{nodes:?}");
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.books(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn a_partition_is_made_for_its_claim_and_removed_after_it() {
    let rig = Rig::new(&h100s(1), &["--dynamic-mig", "true"]).await;
    let requests = format!("requests: [{}, {}]", request("small", "1g.10gb"), request("large", "3g.40gb"));
    let scheduled = rig.pod_with("two", &requests).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let mut made = rig.instances();
    made.sort();
    assert_eq!(made, [("1g.10gb".to_owned(), 1), ("3g.40gb".to_owned(), 1)]);
    let spec = rig.container(&scheduled.pod, &prepared, "b");
    let capabilities = spec.devices.iter().filter(|device| device.path.starts_with("/dev/nvidia-caps/"));
    assert_eq!(capabilities.count(), 4);
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.instances(), []);

    rig.forget("two");
    // The whole GPU can be had again: its mode is turned off for it.
    let scheduled = rig.pod("whole", "gpu.nvidia.com", "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
    assert_eq!(rig.hardware()[0]["mig"], false);
}

#[tokio::test]
async fn partitions_of_one_claim_can_be_kept_on_one_gpu() {
    let rig = Rig::new(&h100s(2), &["--dynamic-mig", "true"]).await;
    let devices = format!(
        "requests: [{}, {}], constraints: [{{matchAttribute: gpu.nvidia.com/parentUUID}}]",
        request("one", "4g.40gb"),
        request("two", "3g.40gb")
    );
    let scheduled = rig.pod_with("together", &devices).await;
    rig.prepare(&scheduled.pod).await.unwrap();
    let used = rig.hardware().into_iter().filter(|gpu| gpu["instances"].as_array().unwrap().len() == 2);
    assert_eq!(used.count(), 1);
}

#[tokio::test]
async fn a_partition_that_is_in_use_stays_held_until_it_is_not() {
    let rig = Rig::new(&h100s(1), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod_with("busy", &format!("requests: [{}]", request("gpu", "1g.10gb"))).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    rig.fake
        .change(|machine| {
            machine.faults.fail.insert("nvmlComputeInstanceDestroy".to_owned(), 19);
        })
        .unwrap();
    let error = rig.kubelet.unprepare_pod(&prepared).await.unwrap_err().to_string();
    assert!(error.contains("in use by a process"), "{error}");
    assert_eq!(rig.instances().len(), 1);
    rig.fake.change(|machine| machine.faults.fail.clear()).unwrap();
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    assert_eq!(rig.instances(), []);
}

#[tokio::test]
async fn a_partition_that_is_made_in_a_pod_has_its_nodes_by_number_as_the_kernel_tells_them() {
    let rig = Rig::new(&h100s(1), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod_with("one", &format!("requests: [{}]", request("gpu", "1g.10gb"))).await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    let instance = rig.hardware()[0]["instances"][0]["id"].as_u64().unwrap();
    let spec = rig.container(&scheduled.pod, &prepared, "a");
    let nodes: Vec<(&str, u32, u32)> =
        spec.devices.iter().map(|node| (node.path.as_str(), node.major, node.minor)).collect();
    let capability = u32::try_from(3 + 9 * instance).unwrap();
    let path = |number: u32| format!("/dev/nvidia-caps/nvidia-cap{number}");
    for expected in [
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidia-uvm", 511, 0),
        (&path(capability), 237, capability),
        (&path(capability + 1), 237, capability + 1),
    ] {
        assert!(nodes.contains(&expected), "{expected:?} in {nodes:?}");
    }
}

#[tokio::test]
async fn a_mode_that_only_a_reset_would_change_is_taken_back_and_the_claim_says_so() {
    let mut machine = h100s(1);
    machine.gpus[0].mig_needs_reset = true;
    let rig = Rig::new(&machine, &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod_with("one", &format!("requests: [{}]", request("gpu", "1g.10gb"))).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("turning MIG mode of gpu-0 on") && error.contains("reset"), "{error}");
    let hardware = rig.hardware();
    assert_eq!((&hardware[0]["mig"], &hardware[0]["pendingMig"]), (&false.into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn a_gpu_whose_minor_number_changes_with_its_mode_is_not_given_under_the_old_one() {
    let mut machine = h100s(1);
    machine.gpus[0].minor_after_mig = Some(5);
    let rig = Rig::new(&machine, &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod_with("one", &format!("requests: [{}]", request("gpu", "1g.10gb"))).await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("was published as gpu-0 and is /dev/nvidia5 now"), "{error}");
    rig.device("gpu-5", "the GPU under its new number", |device| !device.is_null()).await;
}
