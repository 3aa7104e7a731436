//! The driver on stand-ins for the API server, the scheduler, the kubelet and the container runtime.

use std::{fs, path::PathBuf, time::Duration};

use dra_kubeletplugin::{Handle, NodeName, Options};
use dra_testkit::{
    TempNode,
    api::ApiServer,
    kubelet::{Kubelet, PreparedPod},
    runtime::{OciSpec, Runtime},
    scheduler::{Scheduled, Scheduler},
};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};

use crate::{DRIVER, serve};

const CLASS: &str = include_str!("../deploy/class.yaml");
const POD: &str = include_str!("../deploy/pod.yaml");
const PATIENCE: Duration = Duration::from_secs(20);

struct Cluster {
    node: TempNode,
    api: ApiServer,
    kubelet: Kubelet,
    disks: PathBuf,
    _driver: Handle,
}

impl Cluster {
    /// With two disks, and the driver at work.
    async fn start() -> anyhow::Result<Self> {
        let node = TempNode::new()?;
        let disks = node.root().join("disks");
        for (name, medium) in [("disk-0", "hdd"), ("disk-1", "ssd")] {
            fs::create_dir_all(disks.join(name).join("data"))?;
            fs::write(disks.join(name).join("medium"), medium)?;
        }
        let api = ApiServer::new();
        api.node("node-1")?;
        api.apply_yaml(CLASS)?;

        let name: NodeName = "node-1".parse()?;
        let options = Options::new(DRIVER.parse()?, name.clone(), api.client())
            .kubelet_root(node.kubelet())
            .cdi_root(node.cdi())
            .kubelet_in_process(true);
        let driver = serve(options, &name, &disks).await?;
        let kubelet = Kubelet::new(node.kubelet());
        kubelet.wait_registered(DRIVER, PATIENCE).await?;
        Ok(Self { node, api, kubelet, disks, _driver: driver })
    }

    async fn schedule(&self, manifest: &str) -> anyhow::Result<Scheduled> {
        self.api.apply_yaml(manifest)?;
        Ok(Scheduler::new(&self.api).schedule_within(("default", "worker"), PATIENCE).await?)
    }

    /// What the container gets.
    fn container(&self, pod: &Pod, prepared: &PreparedPod) -> anyhow::Result<OciSpec> {
        let mut container = OciSpec::default();
        Runtime::new([self.node.cdi()]).apply(&mut container, &prepared.cdi_device_ids(pod, "main"))?;
        Ok(container)
    }

    /// What claims have on a disk.
    fn folders(&self, disk: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.disks.join(disk).join("data")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

#[tokio::test]
async fn a_pod_has_a_folder_on_the_disk_it_asked_for_until_it_ends() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let scheduled = cluster.schedule(POD).await?;
    let prepared = cluster.kubelet.prepare_pod(&cluster.api, &scheduled.pod).await?;

    let container = cluster.container(&scheduled.pod, &prepared)?;
    assert_eq!(container.env("SCRATCH"), Some("/var/cache/work"));
    assert_eq!(container.mounts[0].destination, "/var/cache/work");
    let folder = PathBuf::from(&container.mounts[0].source);
    assert!(folder.starts_with(cluster.disks.join("disk-1")), "{} is not on the SSD", folder.display());
    fs::write(folder.join("file"), "hello")?;

    cluster.kubelet.unprepare_pod(&prepared).await?;
    assert!(cluster.folders("disk-1").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_mistake_in_the_configuration_is_told_with_its_field_and_leaves_nothing() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let scheduled = cluster.schedule(&POD.replace("/var/cache/work", "cache")).await?;
    let error = cluster.kubelet.prepare_pod(&cluster.api, &scheduled.pod).await.unwrap_err();
    assert!(error.to_string().contains("parameters.mountPath: must be an absolute path"), "{error}");
    assert!(cluster.folders("disk-1").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_disk_that_is_lost_is_tainted() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    fs::remove_dir(cluster.disks.join("disk-0").join("data"))?;
    let tainted = |api: &ApiServer| {
        let slices = api.list::<ResourceSlice>();
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let tainted: Vec<_> =
            devices.filter(|device| device.taints.is_some()).map(|d| d.name.clone()).collect();
        (!tainted.is_empty()).then_some(tainted)
    };
    let tainted = cluster.api.wait_until("a tainted disk", PATIENCE, tainted).await?;
    assert_eq!(tainted, ["disk-0"]);
    Ok(())
}
