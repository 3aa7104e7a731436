//! Calls a driver as the kubelet does, past the kubelet.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use dra_kubeletplugin::wire::dra_v1::{
    Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest, dra_plugin_client::DraPluginClient,
};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

/// What the kubelet gives a call.
const DEADLINE: Duration = Duration::from_secs(45);

/// A connection to a DRA socket. Clones share it.
#[derive(Clone)]
pub(crate) struct DraSocket {
    client: DraPluginClient<Channel>,
}

impl DraSocket {
    /// Connects.
    pub(crate) async fn connect(path: &Path) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("unix://{}", path.display()))?.connect().await;
        let channel = channel.with_context(|| format!("connecting to {}", path.display()))?;
        Ok(Self { client: DraPluginClient::new(channel) })
    }

    /// Prepares claims in one call.
    ///
    /// # Errors
    /// The call failed, or for one of the claims.
    pub(crate) async fn prepare(&self, claims: &[Claim]) -> Result<()> {
        let request = with_deadline(NodePrepareResourcesRequest { claims: claims.to_vec() });
        let answer =
            self.client.clone().node_prepare_resources(request).await.context("prepare")?.into_inner();
        judge(claims, |uid| answer.claims.get(uid).map(|claim| claim.error.as_str())).context("prepare")
    }

    /// Unprepares claims in one call.
    ///
    /// # Errors
    /// The call failed, or for one of the claims.
    pub(crate) async fn unprepare(&self, claims: &[Claim]) -> Result<()> {
        let request = with_deadline(NodeUnprepareResourcesRequest { claims: claims.to_vec() });
        let answer =
            self.client.clone().node_unprepare_resources(request).await.context("unprepare")?.into_inner();
        judge(claims, |uid| answer.claims.get(uid).map(|claim| claim.error.as_str())).context("unprepare")
    }
}

fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Each claim must have an answer without an error.
fn judge<'a>(claims: &[Claim], error_of: impl Fn(&str) -> Option<&'a str>) -> Result<()> {
    for claim in claims {
        let error = error_of(&claim.uid).with_context(|| format!("no answer for claim {}", claim.name))?;
        ensure!(error.is_empty(), "claim {}: {error}", claim.name);
    }
    Ok(())
}
