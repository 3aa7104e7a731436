//! Whole GPUs: published, prepared, shared.

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
