//! The way of a GPU into a container and out again, without Kubernetes: API server, scheduler, kubelet and runtime are
//! the test kit's; the driver is this very program as a process of its own, over real sockets.

mod driver;
mod timeline;

use std::{fs, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use dra_testkit::{
    TempNode,
    api::ApiServer,
    kubelet::{Kubelet, PreparedPod},
    runtime::{OciSpec, Runtime},
    scheduler::{Scheduled, Scheduler},
};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};

use self::{
    driver::DriverProcess,
    timeline::{Event, PublishedDevice, Timeline},
};

/// The objects are in files that a real cluster takes too.
const DEVICE_CLASS: &str = include_str!("../demo/device-class.yaml");
const CLAIM_TEMPLATE: &str = include_str!("../demo/claim-template.yaml");
const POD: &str = include_str!("../demo/pod.yaml");

const DRIVER: &str = "gpu.example.com";
const NODE: &str = "node-1";
const PATIENCE: Duration = Duration::from_secs(20);

/// How the demo is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoOptions {
    /// Print each event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn demo(options: DemoOptions) -> anyhow::Result<()> {
    let mut timeline = Timeline::new(options.json);
    let node = TempNode::new().context("making a temporary folder")?;
    let api = ApiServer::new();
    api.node(NODE)?;
    let served = api.serve().await.context("serving the API")?;
    let kubeconfig = node.root().join("kubeconfig");
    served.write_kubeconfig(&kubeconfig).context("writing a kubeconfig")?;
    let kubelet = Kubelet::builder(node.kubelet()).start();

    let mut driver = DriverProcess::start(&node, &kubeconfig, DRIVER, NODE)?;
    let outcome = Demo { api, kubelet, node: &node, timeline: &mut timeline }.play().await;
    let outcome = match outcome {
        Ok(()) => driver.stop(PATIENCE).await,
        Err(error) => Err(error),
    };
    outcome
        .map_err(|error| error.context(format!("the demo failed; the driver's log:\n{}", driver.log())))?;
    timeline.tell(&Event::DriverStopped { exit_code: 0 });
    Ok(())
}

struct Demo<'a> {
    api: ApiServer,
    kubelet: Kubelet,
    node: &'a TempNode,
    timeline: &'a mut Timeline,
}

impl Demo<'_> {
    async fn play(&mut self) -> anyhow::Result<()> {
        self.registration().await?;
        self.slices().await?;
        let scheduled = self.allocation().await?;
        let prepared = self.prepare(&scheduled.pod).await?;
        self.container(&scheduled.pod, &prepared)?;
        self.end(&scheduled, &prepared).await
    }

    async fn registration(&mut self) -> anyhow::Result<()> {
        let plugin = self.kubelet.wait_registered(DRIVER, PATIENCE).await?;
        self.timeline.tell(&Event::Registered { driver: DRIVER.to_owned(), endpoint: plugin.endpoint });
        Ok(())
    }

    async fn slices(&mut self) -> anyhow::Result<()> {
        let found = |api: &ApiServer| api.list::<ResourceSlice>().into_iter().next();
        let slice = self.api.wait_until("a ResourceSlice", PATIENCE, found).await?;
        let devices = slice.spec.devices.iter().flatten().map(PublishedDevice::of).collect();
        let (pool, generation) = (slice.spec.pool.name, slice.spec.pool.generation);
        let name = slice.metadata.name.unwrap_or_default();
        self.timeline.tell(&Event::Published { slice: name, pool, generation, devices });
        Ok(())
    }

    async fn allocation(&mut self) -> anyhow::Result<Scheduled> {
        for yaml in [DEVICE_CLASS, CLAIM_TEMPLATE, POD] {
            self.api.apply_yaml(yaml)?;
        }
        let scheduled = Scheduler::new(&self.api).schedule_within(("default", "demo"), PATIENCE).await?;
        for claim in &scheduled.claims {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
            self.timeline.tell(&Event::Allocated {
                pod: "default/demo".to_owned(),
                node: scheduled.node.clone(),
                claim: claim.metadata.name.clone().unwrap_or_default(),
                devices: results.into_iter().flatten().map(|r| format!("{}/{}", r.pool, r.device)).collect(),
            });
        }
        Ok(scheduled)
    }

    async fn prepare(&mut self, pod: &Pod) -> anyhow::Result<PreparedPod> {
        let prepared = self.kubelet.prepare_pod(&self.api, pod).await?;
        for claim in prepared.claims.values() {
            let ids = claim.devices.iter().flat_map(|device| device.cdi_device_ids.clone());
            self.timeline
                .tell(&Event::Prepared { claim: claim.claim.to_string(), cdi_device_ids: ids.collect() });
        }
        for entry in fs::read_dir(self.node.cdi()).context("reading the CDI folder")? {
            let path = entry?.path();
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let content =
                serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
            self.timeline.tell(&Event::CdiFile { path, content });
        }
        Ok(prepared)
    }

    fn container(&mut self, pod: &Pod, prepared: &PreparedPod) -> anyhow::Result<()> {
        let ids = prepared.cdi_device_ids(pod, "main");
        let mut container = OciSpec { env: vec!["PATH=/bin".to_owned()], ..OciSpec::default() };
        Runtime::new([self.node.cdi()]).apply(&mut container, &ids).context("starting the container")?;
        if !container.env.iter().any(|variable| variable.starts_with("GPU_DEVICE_")) {
            bail!("the container got no GPU: its environment is {:?}", container.env);
        }
        let devices = container.devices.into_iter().map(|device| device.path).collect();
        self.timeline.tell(&Event::Container { name: "main".to_owned(), env: container.env, devices });
        Ok(())
    }

    async fn end(&mut self, scheduled: &Scheduled, prepared: &PreparedPod) -> anyhow::Result<()> {
        self.api.remove::<Pod>(("default", "demo"));
        self.kubelet.unprepare_pod(prepared).await?;
        for claim in prepared.claims.values() {
            self.timeline.tell(&Event::Unprepared { claim: claim.claim.to_string() });
        }
        Scheduler::new(&self.api).collect()?;
        let claims = self.api.list::<ResourceClaim>().len();
        let cdi_files = fs::read_dir(self.node.cdi()).context("reading the CDI folder")?.count();
        let records = driver::records(self.node, DRIVER)?;
        ensure!(
            (claims, cdi_files, records) == (0, 0, 0),
            "left of {} claims: {claims} claims, {cdi_files} CDI files, {records} records",
            scheduled.claims.len()
        );
        self.timeline.tell(&Event::NothingLeft { claims, cdi_files, records });
        Ok(())
    }
}
