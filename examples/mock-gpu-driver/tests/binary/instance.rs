//! Processes of the driver on one node, and calls through each one's own socket: the kubelet would choose the newest.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_kubeletplugin::wire::dra_v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
    dra_plugin_client::DraPluginClient,
};
use dra_testkit::TempNode;
use dra_testkit::api::{ApiServer, ServedApi};
use dra_testkit::kubelet::ClaimRef;
use nix::sys::signal::Signal;
use serde_json::json;
use tonic::transport::{Channel, Endpoint};

use crate::program::{Run, Running, program, run};

const DRIVER: &str = "gpu.example.com";
const NODE: &str = "node-1";
const PATIENCE: Duration = Duration::from_secs(60);
/// Tells of calls for the driver, and of nothing else.
pub(crate) const LOG: &str = "off,mock_gpu_driver::plugin=debug";

/// A node without a kubelet.
pub(crate) struct Node {
    folders: TempNode,
    api: ApiServer,
    _served: ServedApi,
}

/// A process of the driver, killed when dropped.
pub(crate) struct Instance {
    process: Running,
    client: DraPluginClient<Channel>,
}

/// What came of a call for one claim: the driver's answer, or none, as the process has ended.
pub(crate) type Answer<T> = Option<Result<T, String>>;

impl Node {
    pub(crate) async fn new() -> Self {
        let (folders, api) = (TempNode::new().unwrap(), ApiServer::new());
        api.node(NODE).unwrap();
        let served = api.serve().await.unwrap();
        served.write_kubeconfig(folders.root().join("kubeconfig")).unwrap();
        File::create(folders.root().join("log")).unwrap();
        Self { folders, api, _served: served }
    }

    /// What all processes print.
    pub(crate) fn log(&self) -> PathBuf {
        self.folders.root().join("log")
    }

    /// Stores a claim that has been allocated this device.
    pub(crate) fn claim(&self, name: &str, device: &str) -> ClaimRef {
        let result = json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device});
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}},
            ]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }))
        .unwrap();
        ClaimRef::from(&self.api.put(&claim).unwrap())
    }

    /// Starts a process and waits until it answers. One at a time.
    pub(crate) async fn start(&self, pod_uid: &str, prepare_delay: Duration) -> Instance {
        self.start_with(pod_uid, prepare_delay, LOG, &[]).await
    }

    /// The same with a log of one's own choice, and more arguments.
    pub(crate) async fn start_with(
        &self,
        pod_uid: &str,
        prepare_delay: Duration,
        log: &str,
        more: &[&str],
    ) -> Instance {
        let before = self.sockets();
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let options = [
            ("--node-name", NODE.to_owned()),
            ("--kubeconfig", path(self.folders.root().join("kubeconfig"))),
            ("--kubelet-root", path(self.folders.kubelet())),
            ("--cdi-root", path(self.folders.cdi())),
            ("--pod-uid", pod_uid.to_owned()),
            ("--prepare-delay", prepare_delay.as_millis().to_string()),
            ("--log-format", "json".to_owned()),
        ];
        let arguments =
            std::iter::once("run").chain(options.iter().flat_map(|(name, value)| [*name, value.as_str()]));
        let mut command = program(arguments.chain(more.iter().copied()));
        command.env("RUST_LOG", log);
        command.stderr(File::options().append(true).open(self.log()).unwrap());
        let process = Running::start(command);
        let patience = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < patience, "it does not start: {:?}", fs::read_to_string(self.log()));
            tokio::time::sleep(Duration::from_millis(10)).await;
            let Some(socket) = self.sockets().difference(&before).next().cloned() else { continue };
            let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
            if let Ok(channel) = endpoint.connect().await {
                return Instance { process, client: DraPluginClient::new(channel) };
            }
        }
    }

    /// Sockets of all processes, of both kinds.
    pub(crate) fn all_sockets(&self) -> Vec<PathBuf> {
        let registry = files_below(&self.folders.plugins_registry());
        self.sockets().into_iter().chain(registry).collect()
    }

    /// Where a Go driver would have kept its books.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.folders.root().join("checkpoint.json")
    }

    /// Runs `state release` to its end.
    pub(crate) fn release(&self, wanted: &[&str]) -> Run {
        let (kubelet, cdi) = (self.folders.kubelet(), self.folders.cdi());
        let folders = [kubelet.to_str().unwrap(), cdi.to_str().unwrap()];
        let place = ["--node-name", NODE, "--kubelet-root", folders[0], "--cdi-root", folders[1]];
        run(program(["state", "release"].iter().chain(&place).chain(wanted)))
    }

    /// Runs `state show` to its end.
    pub(crate) fn show(&self, more: &[&str]) -> Run {
        let (kubelet, cdi) = (self.folders.kubelet(), self.folders.cdi());
        let place = ["--kubelet-root", kubelet.to_str().unwrap(), "--cdi-root", cdi.to_str().unwrap()];
        run(program(["state", "show"].iter().chain(&place).chain(more)))
    }

    fn sockets(&self) -> BTreeSet<PathBuf> {
        let files = files_below(&self.folders.plugins());
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
    }

    /// Records, CDI files, and temporary files of both.
    pub(crate) fn books(&self) -> Vec<PathBuf> {
        let records = files_below(&self.folders.plugins().join(DRIVER).join("claims"));
        records.into_iter().chain(files_below(&self.folders.cdi())).collect()
    }

    /// Makes the books older: temporary files are only removed when nobody can be writing them any more.
    pub(crate) fn let_time_pass(&self) {
        let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(600));
        for path in self.books() {
            File::options().write(true).open(path).unwrap().set_times(long_ago).unwrap();
        }
    }
}

impl Instance {
    pub(crate) async fn prepare(&self, claim: &ClaimRef) -> Answer<Vec<Device>> {
        let request = NodePrepareResourcesRequest { claims: vec![named(claim)] };
        let answer = self.client.clone().node_prepare_resources(request).await.ok()?;
        let answer = answer.into_inner().claims.remove(&claim.uid).expect("the claim is answered");
        Some(if answer.error.is_empty() { Ok(answer.devices) } else { Err(answer.error) })
    }

    pub(crate) async fn unprepare(&self, claim: &ClaimRef) -> Answer<()> {
        let request = NodeUnprepareResourcesRequest { claims: vec![named(claim)] };
        let answer = self.client.clone().node_unprepare_resources(request).await.ok()?;
        let answer = answer.into_inner().claims.remove(&claim.uid).expect("the claim is answered");
        Some(if answer.error.is_empty() { Ok(()) } else { Err(answer.error) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until it has ended by itself; gives its exit code and how long that took.
    pub(crate) async fn wait_ended(&self, within: Duration) -> (Option<i32>, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.ended() {
                return (status.code(), start.elapsed());
            }
            assert!(start.elapsed() < within, "it has not ended after {within:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends it without warning.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }
}

fn named(claim: &ClaimRef) -> Claim {
    Claim { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: claim.uid.clone() }
}

/// All files; none if there is no such folder, or it goes away meanwhile.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}
