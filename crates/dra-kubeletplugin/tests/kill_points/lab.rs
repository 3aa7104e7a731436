//! What stands around the nodes of one script: an API server with a handful of claims.

use std::cell::RefCell;
use std::collections::BTreeMap;

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_testkit::api::{ApiServer, ServedApi};
use dra_testkit::kubelet::ClaimRef;
use serde_json::{Value, json};

use crate::hardware::{BROKEN, TOLD};

pub(crate) const DRIVER: &str = "gpu.example.com";
pub(crate) const NODE: &str = "node-1";

/// The claims and their devices. `x` and `y` want what `a` and `b` have; `bad` wants a broken one, too; `told` has
/// metadata.
const CLAIMS: [(&str, &[&str]); 6] = [
    ("a", &["gpu-0"]),
    ("b", &["gpu-1"]),
    ("x", &["gpu-0"]),
    ("y", &["gpu-1"]),
    ("bad", &["gpu-2", BROKEN]),
    ("told", &[TOLD]),
];

/// The API server, and what is on it.
pub(crate) struct Lab {
    pub(crate) api: ApiServer,
    pub(crate) served: ServedApi,
    claims: BTreeMap<&'static str, ClaimRef>,
    /// Devices that claims had with an earlier allocation.
    former: RefCell<BTreeMap<String, Vec<String>>>,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        let api = ApiServer::new();
        api.node(NODE).unwrap();
        let claims = CLAIMS.iter().map(|(name, devices)| {
            let request = json!({"name": "gpu", "exactly": {"deviceClassName": DRIVER}});
            let claim = json!({
                "metadata": {"namespace": "default", "name": name},
                "spec": {"devices": {"requests": [request]}},
                "status": allocated(devices),
            });
            let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
            (*name, ClaimRef::from(&api.put(&claim).unwrap()))
        });
        let claims = claims.collect();
        Self { served: api.serve().await.unwrap(), api, claims, former: RefCell::default() }
    }

    pub(crate) fn claim(&self, name: &str) -> ClaimRef {
        self.claims[name].clone()
    }

    pub(crate) fn uid(&self, name: &str) -> &str {
        &self.claims[name].uid
    }

    pub(crate) fn claims(&self) -> Vec<ClaimRef> {
        self.claims.values().cloned().collect()
    }

    /// The devices that the claim is allocated now.
    pub(crate) fn devices(&self, name: &str) -> Vec<String> {
        let claim: ResourceClaim = self.api.get(("default", name)).unwrap();
        let results = claim.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap();
        results.into_iter().map(|result| result.device).collect()
    }

    /// The devices that it had with an earlier allocation. Kubelets before 1.37 go on asking for their CDI names.
    pub(crate) fn former_devices(&self, name: &str) -> Vec<String> {
        self.former.borrow().get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn delete(&self, name: &str) {
        assert!(self.api.remove::<ResourceClaim>(("default", name)));
    }

    /// Takes the claim's allocation away and gives it another one; it stays the same object.
    pub(crate) fn allocate_anew(&self, name: &str, devices: &[&str]) {
        self.former.borrow_mut().insert(name.to_owned(), self.devices(name));
        for status in [json!({}), allocated(devices)] {
            let mut stored: ResourceClaim = self.api.get(("default", name)).unwrap();
            stored.status = serde_json::from_value(status).unwrap();
            self.api.put(&stored).unwrap();
        }
    }
}

fn allocated(devices: &[&str]) -> Value {
    let result = |device: &&str| json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device});
    json!({"allocation": {"devices": {"results": devices.iter().map(result).collect::<Vec<_>>()}}})
}
