//! GPUs that somebody uses past Kubernetes.

use std::path::PathBuf;

use fake_nvml::{Gpu, Machine, MigInstance, Model, Process};

use crate::rig::Rig;

fn l4() -> Machine {
    Machine::new([Gpu::new(Model::L4, 0)])
}

fn h100() -> Machine {
    Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)])
}

const GPU: &str = "gpu.nvidia.com";
const MIG: &str = "mig.nvidia.com";

#[tokio::test]
async fn a_gpu_that_a_process_of_nobody_uses_is_refused_with_its_name_and_given_when_that_has_ended() {
    let rig = Rig::new(&l4(), &[]).await;
    let scheduled = rig.pod("pod", GPU, "", "").await;
    rig.run_process(0, Process::new(4711, 100), "train.py");
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("gpu-0 (GPU-") && error.contains("is used by process 4711, train.py"), "{error}");
    assert!(error.contains("--check-processes false"), "{error}");
    assert_eq!(rig.books(), [] as [PathBuf; 0]);
    rig.end_processes();
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    // Its own processes are nobody else's business, and do not keep it from being prepared again.
    rig.run_process(0, Process::new(4712, 100), "train.py");
    assert_eq!(rig.prepare(&scheduled.pod).await.unwrap().claims.len(), prepared.claims.len());
}

#[tokio::test]
async fn what_is_no_use_of_a_gpu_or_cannot_be_told_keeps_it_from_nobody() {
    let rig = Rig::new(&l4(), &[]).await;
    // In a namespace that the driver does not see, and one that has just ended.
    let unseen = [Process::new(0, 100), Process::new(4712, 100)];
    rig.fake.change(|machine| machine.gpus[0].processes.extend(unseen)).unwrap();
    let scheduled = rig.pod("unseen", GPU, "", "").await;
    let prepared = rig.prepare(&scheduled.pod).await.unwrap();
    rig.kubelet.unprepare_pod(&prepared).await.unwrap();
    rig.forget("unseen");

    rig.run_process(0, Process::new(4713, 100), "train.py");
    for code in [3, 4, 999] {
        let fail = |machine: &mut Machine| {
            machine.faults.fail.insert("nvmlDeviceGetComputeRunningProcesses_v3".to_owned(), code);
        };
        rig.fake.change(fail).unwrap();
        let name = format!("fails-{code}");
        let scheduled = rig.pod(&name, GPU, "", "").await;
        let prepared = rig.prepare(&scheduled.pod).await.unwrap();
        rig.kubelet.unprepare_pod(&prepared).await.unwrap();
        rig.forget(&name);
    }
}

#[tokio::test]
async fn a_driver_that_is_told_not_to_look_gives_used_gpus_away() {
    let rig = Rig::new(&l4(), &["--check-processes", "false"]).await;
    rig.run_process(0, Process::new(4711, 100), "train.py");
    let scheduled = rig.pod("pod", GPU, "", "").await;
    rig.prepare(&scheduled.pod).await.unwrap();
}

#[tokio::test]
async fn who_has_admin_access_may_use_a_gpu_and_look_at_one_that_is_used() {
    let rig = Rig::new(&l4(), &[]).await;
    rig.run_process(0, Process::new(4711, 100), "monitor");
    let watching = rig.pod("watching", GPU, ", adminAccess: true", "").await;
    let watched = rig.prepare(&watching.pod).await.unwrap();
    let working = rig.pod("working", GPU, "", "").await;
    let worked = rig.prepare(&working.pod).await.unwrap();
    rig.kubelet.unprepare_pod(&worked).await.unwrap();
    rig.kubelet.unprepare_pod(&watched).await.unwrap();
    rig.prepare(&working.pod).await.unwrap_err();
}

#[tokio::test]
async fn a_partition_is_kept_by_its_own_processes_only() {
    let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, 0);
    gpu.mig = true;
    gpu.instances = vec![MigInstance::new("1g.5gb", 2), MigInstance::new("1g.5gb", 3)];
    let rig = Rig::new(&Machine::new([gpu]), &[]).await;
    rig.devices(&["gpu-0-mig-1g5gb-19-2", "gpu-0-mig-1g5gb-19-3"]).await;
    let scheduled = rig.pod("pod", MIG, "", "").await;
    let mut outcomes = Vec::new();
    for instance in [7, 8] {
        rig.end_processes();
        rig.run_process(0, Process::new(4711, 1).on(instance, 0), "train.py");
        match rig.prepare(&scheduled.pod).await {
            Ok(prepared) => {
                rig.kubelet.unprepare_pod(&prepared).await.unwrap();
                outcomes.push("given".to_owned());
            }
            Err(error) => {
                assert!(error.contains("is used by process 4711"), "{error}");
                outcomes.push("refused".to_owned());
            }
        }
    }
    // Which of the two the pod got is the scheduler's business.
    outcomes.sort();
    assert_eq!(outcomes, ["given", "refused"]);
}

#[tokio::test]
async fn a_gpu_that_is_used_whole_is_not_partitioned() {
    let rig = Rig::new(&h100(), &["--dynamic-mig", "true"]).await;
    let scheduled = rig.pod("pod", MIG, "", "").await;
    rig.run_process(0, Process::new(4711, 1), "train.py");
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("is used by process 4711, train.py"), "{error}");
    assert_eq!((rig.instances(), rig.hardware().len()), (Vec::new(), 0), "nothing was changed");
    rig.end_processes();
    rig.prepare(&scheduled.pod).await.unwrap();
}

#[tokio::test]
async fn a_process_that_has_the_name_of_a_server_of_mps_is_a_user_like_others() {
    let rig = Rig::new(&l4(), &[]).await;
    rig.run_process(0, Process::new(4711, 100), "nvidia-cuda-mps");
    let scheduled = rig.pod("pod", GPU, "", "").await;
    let error = rig.prepare(&scheduled.pod).await.unwrap_err();
    assert!(error.contains("is used by process 4711, nvidia-cuda-mps"), "{error}");
}
