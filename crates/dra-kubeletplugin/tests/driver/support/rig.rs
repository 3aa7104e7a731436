//! The node: folders, an API server, a kubelet, and shorthands for what the kubelet does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dra_kubeletplugin::k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use dra_kubeletplugin::kube::Client;
use dra_kubeletplugin::state::StateLocation;
use dra_kubeletplugin::{Handle, Options, Registration};
use dra_testkit::TempNode;
use dra_testkit::api::{ApiServer, Matcher, Verb};
use dra_testkit::kubelet::{Answer, ClaimRef, Kubelet, KubeletBuilder, PreparedDevice};
use serde_json::{Value, json};

use super::{TestDriver, eventually, soon};

pub(crate) const DRIVER: &str = "gpu.example.com";
pub(crate) const NODE: &str = "node-1";
/// Which boot of the machine it is.
const BOOT: &str = "boot-1";

/// A node with stand-ins around it.
pub(crate) struct Rig {
    pub(crate) api: ApiServer,
    pub(crate) kubelet: Kubelet,
    pub(crate) node: TempNode,
}

/// An allocation result: this device of the driver's pool.
pub(crate) fn device(name: &str) -> Value {
    json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": name})
}

/// The same, a share of it.
pub(crate) fn share(name: &str, number: u8) -> Value {
    let mut result = device(name);
    result["shareID"] = json!(format!("00000000-0000-4000-8000-0000000000{number:02x}"));
    result
}

/// The same, for looking on only.
pub(crate) fn admin(name: &str) -> Value {
    let mut result = device(name);
    result["adminAccess"] = json!(true);
    result
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_kubelet(|kubelet, _| kubelet)
    }

    /// A node whose kubelet is set up by `set`.
    pub(crate) fn with_kubelet(set: impl FnOnce(KubeletBuilder, &ApiServer) -> KubeletBuilder) -> Self {
        let node = TempNode::new().unwrap();
        let api = ApiServer::new();
        api.node(NODE).unwrap();
        let kubelet = set(Kubelet::builder(node.kubelet()), &api).start();
        Self { api, kubelet, node }
    }

    pub(crate) fn options(&self) -> Options {
        self.options_with(self.api.client())
    }

    /// The same, with a client of the test's own.
    pub(crate) fn options_with(&self, client: Client) -> Options {
        Options::new(DRIVER.parse().unwrap(), NODE.parse().unwrap(), client)
            .kubelet_root(self.node.kubelet())
            .cdi_root(self.node.cdi())
            .boot_id(BOOT)
            .kubelet_in_process(true)
    }

    /// Where what those drivers keep is.
    pub(crate) fn state_location(&self) -> StateLocation {
        let mut location = StateLocation::new(DRIVER.parse().unwrap());
        location.kubelet_root = self.node.kubelet();
        location.cdi_root = self.node.cdi();
        location.boot_id = Some(BOOT.to_owned());
        location
    }

    /// Starts a driver and waits until the kubelet calls it.
    pub(crate) async fn start(&self, driver: &TestDriver) -> Handle {
        self.start_with(driver, self.options()).await
    }

    pub(crate) async fn start_with(&self, driver: &TestDriver, options: Options) -> Handle {
        let before: BTreeSet<PathBuf> = self.sockets();
        let handle = options.start(driver.clone()).await.unwrap();
        let mut registration = handle.registration();
        soon("registered", registration.wait_for(Registration::is_registered)).await.unwrap();
        // The kubelet chooses the newest plugin once it has the answer to its last word.
        eventually("a new plugin", || {
            self.kubelet
                .registered()
                .iter()
                .any(|plugin| plugin.connected && !before.contains(&plugin.socket))
        })
        .await;
        handle
    }

    fn sockets(&self) -> BTreeSet<PathBuf> {
        self.kubelet.registered().into_iter().map(|plugin| plugin.socket).collect()
    }

    /// Stores a claim that has been allocated these devices.
    pub(crate) fn claim(&self, name: &str, results: &[Value]) -> ClaimRef {
        let mut claim = unallocated(name);
        claim["status"] = json!({"allocation": {"devices": {"results": results}}});
        self.put(claim)
    }

    /// The same, with configurations of its allocation.
    pub(crate) fn claim_with_configs(&self, name: &str, results: &[Value], configs: &[Value]) -> ClaimRef {
        let mut claim = unallocated(name);
        claim["status"] = json!({"allocation": {"devices": {"results": results, "config": configs}}});
        self.put(claim)
    }

    /// Stores a claim that has not been allocated.
    pub(crate) fn unallocated_claim(&self, name: &str) -> ClaimRef {
        self.put(unallocated(name))
    }

    /// Takes the claim's allocation away and gives it another one; it stays the same object.
    pub(crate) fn allocate_anew(&self, claim: &ClaimRef, results: &[Value]) {
        for status in [json!({}), json!({"allocation": {"devices": {"results": results}}})] {
            let key = (claim.namespace.as_str(), claim.name.as_str());
            let mut stored: ResourceClaim = self.api.get(key).unwrap();
            stored.status = serde_json::from_value(status).unwrap();
            self.api.put(&stored).unwrap();
        }
    }

    pub(crate) fn annotate(&self, claim: &ClaimRef, name: &str, value: &str) {
        let mut stored: ResourceClaim =
            self.api.get((claim.namespace.as_str(), claim.name.as_str())).unwrap();
        stored.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
        self.api.put(&stored).unwrap();
    }

    pub(crate) fn delete_claim(&self, claim: &ClaimRef) {
        assert!(self.api.remove::<ResourceClaim>((claim.namespace.as_str(), claim.name.as_str())));
    }

    fn put(&self, claim: Value) -> ClaimRef {
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        ClaimRef::from(&self.api.put(&claim).unwrap())
    }

    /// Prepares claims in one call; the answer by UID.
    pub(crate) async fn prepare(&self, claims: &[&ClaimRef]) -> Answer<Vec<PreparedDevice>> {
        let claims: Vec<ClaimRef> = claims.iter().copied().cloned().collect();
        self.kubelet.prepare_unchecked(DRIVER, &claims).await.unwrap()
    }

    /// Prepares one claim.
    pub(crate) async fn prepare_one(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, String> {
        self.prepare(&[claim]).await.remove(&claim.uid).expect("the claim is answered")
    }

    /// Unprepares claims in one call; the answer by UID.
    pub(crate) async fn unprepare(&self, claims: &[&ClaimRef]) -> Answer<()> {
        let claims: Vec<ClaimRef> = claims.iter().copied().cloned().collect();
        self.kubelet.unprepare_unchecked(DRIVER, &claims).await.unwrap()
    }

    /// Unprepares one claim.
    pub(crate) async fn unprepare_one(&self, claim: &ClaimRef) -> Result<(), String> {
        self.unprepare(&[claim]).await.remove(&claim.uid).expect("the claim is answered")
    }

    /// Waits until the API server was asked for a claim so many times.
    pub(crate) async fn wait_until_fetched(&self, claim: &ClaimRef, times: usize) {
        let gets = Matcher::any().verb(Verb::Get).resource("resourceclaims").name(&claim.name);
        eventually("the claim is fetched", || self.api.count(&gets) >= times).await;
    }

    /// The driver's slices.
    pub(crate) fn slices(&self) -> Vec<ResourceSlice> {
        self.api.list()
    }

    /// Where the claim's CDI file lies.
    pub(crate) fn cdi_file(&self, claim: &ClaimRef) -> PathBuf {
        self.node.cdi().join(format!("k8s.{DRIVER}+claim+{}.json", claim.uid))
    }

    /// Where the claim's record lies, in the boot that the driver takes by default.
    pub(crate) fn record(&self, claim: &ClaimRef) -> PathBuf {
        self.claims_folder().join(BOOT).join(format!("{}.json", claim.uid))
    }

    /// The driver's records of all boots.
    pub(crate) fn claims_folder(&self) -> PathBuf {
        self.node.plugins().join(DRIVER).join("claims")
    }

    /// Names of all records, CDI and metadata files, temporary ones included.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = files_below(&self.claims_folder());
        files.extend(files_below(&self.node.cdi()));
        let metadata = self.node.plugins().join(DRIVER).join("metadata");
        files.extend(metadata.is_dir().then(|| files_below(&metadata)).into_iter().flatten());
        files.sort();
        files
    }

    /// Names of the files that prepared claims have.
    pub(crate) fn files_of(&self, claims: &[&ClaimRef]) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let files = claims.iter().flat_map(|claim| [name(self.record(claim)), name(self.cdi_file(claim))]);
        let mut files: Vec<String> = files.collect();
        files.sort();
        files
    }
}

fn unallocated(name: &str) -> Value {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": DRIVER}});
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"devices": {"requests": [request]}},
    })
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    files
}
