//! Calls through one instance's own socket: the kubelet would choose the newest instance.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use dra_kubeletplugin::wire::dra_v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
    dra_plugin_client::DraPluginClient,
};
use dra_kubeletplugin::{DriverPlugin, Handle, Options};
use dra_testkit::kubelet::ClaimRef;
use tonic::transport::{Channel, Endpoint};

use super::{DRIVER, Rig};

/// A connection to one instance.
#[derive(Clone)]
pub(crate) struct Direct {
    client: DraPluginClient<Channel>,
    pub(crate) socket: PathBuf,
}

impl Direct {
    /// Starts an instance and connects to it, whether the kubelet has found it or not. One at a time.
    pub(crate) async fn start(rig: &Rig, plugin: impl DriverPlugin, options: Options) -> (Handle, Self) {
        let before = sockets(rig);
        let handle = options.start(plugin).await.unwrap();
        let socket = sockets(rig).difference(&before).next().expect("it listens once it has started").clone();
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let client = DraPluginClient::new(endpoint.connect().await.unwrap());
        (handle, Self { client, socket })
    }

    pub(crate) async fn prepare_one(&self, claim: &ClaimRef) -> Result<Vec<Device>, String> {
        let request = NodePrepareResourcesRequest { claims: vec![named(claim)] };
        let answer = self.client.clone().node_prepare_resources(request).await.unwrap();
        let mut claims = answer.into_inner().claims;
        let answer = claims.remove(&claim.uid).expect("the claim is answered");
        if answer.error.is_empty() { Ok(answer.devices) } else { Err(answer.error) }
    }

    pub(crate) async fn unprepare_one(&self, claim: &ClaimRef) -> Result<(), String> {
        let request = NodeUnprepareResourcesRequest { claims: vec![named(claim)] };
        let answer = self.client.clone().node_unprepare_resources(request).await.unwrap();
        let mut claims = answer.into_inner().claims;
        let answer = claims.remove(&claim.uid).expect("the claim is answered");
        if answer.error.is_empty() { Ok(()) } else { Err(answer.error) }
    }
}

fn named(claim: &ClaimRef) -> Claim {
    Claim { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: claim.uid.clone() }
}

/// The driver's DRA sockets; none before its folder is made.
fn sockets(rig: &Rig) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(rig.node.plugins().join(DRIVER)).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
}
