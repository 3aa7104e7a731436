//! Prepare and unprepare over the service that was chosen at registration.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use dra_kubeletplugin::wire::dra_v1::dra_plugin_client::DraPluginClient as V1Client;
use dra_kubeletplugin::wire::dra_v1beta1::dra_plugin_client::DraPluginClient as V1Beta1Client;
use dra_kubeletplugin::wire::{dra_v1, dra_v1beta1};
use http::Uri;

use super::claims::{Answer, ClaimRef, PreparedDevice};
use super::connection::Client;
use super::error::KubeletError;
use super::registration::deadline;
use super::services::DraService;

/// Name of the prepare call.
pub(super) const PREPARE: &str = "NodePrepareResources";

/// Name of the unprepare call.
pub(super) const UNPREPARE: &str = "NodeUnprepareResources";

/// The authority of the DRA connection.
const ORIGIN: &str = "http://localhost";

/// Where a call goes.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) driver: &'a str,
    pub(super) service: DraService,
    pub(super) client: Client,
    pub(super) timeout: Duration,
}

/// Calls `NodePrepareResources`.
pub(super) async fn prepare(
    target: Target<'_>,
    claims: &[ClaimRef],
) -> Result<Answer<Vec<PreparedDevice>>, KubeletError> {
    let Target { driver, service, client, timeout } = target;
    match service {
        DraService::V1 => {
            let request = dra_v1::NodePrepareResourcesRequest { claims: claims.iter().map(v1).collect() };
            let mut client = V1Client::with_origin(client, Uri::from_static(ORIGIN));
            let call = client.node_prepare_resources(deadline(request, timeout));
            let answer = limited(PREPARE, driver, timeout, call).await?.claims;
            Ok(results(answer, |entry| (entry.error, entry.devices.into_iter().map(from_v1).collect())))
        }
        DraService::V1Beta1 => {
            let request =
                dra_v1beta1::NodePrepareResourcesRequest { claims: claims.iter().map(v1beta1).collect() };
            let mut client = V1Beta1Client::with_origin(client, Uri::from_static(ORIGIN));
            let call = client.node_prepare_resources(deadline(request, timeout));
            let answer = limited(PREPARE, driver, timeout, call).await?.claims;
            Ok(results(answer, |entry| (entry.error, entry.devices.into_iter().map(from_v1beta1).collect())))
        }
    }
}

/// Calls `NodeUnprepareResources`.
pub(super) async fn unprepare(target: Target<'_>, claims: &[ClaimRef]) -> Result<Answer<()>, KubeletError> {
    let Target { driver, service, client, timeout } = target;
    match service {
        DraService::V1 => {
            let request = dra_v1::NodeUnprepareResourcesRequest { claims: claims.iter().map(v1).collect() };
            let mut client = V1Client::with_origin(client, Uri::from_static(ORIGIN));
            let call = client.node_unprepare_resources(deadline(request, timeout));
            let answer = limited(UNPREPARE, driver, timeout, call).await?.claims;
            Ok(results(answer, |entry| (entry.error, ())))
        }
        DraService::V1Beta1 => {
            let request =
                dra_v1beta1::NodeUnprepareResourcesRequest { claims: claims.iter().map(v1beta1).collect() };
            let mut client = V1Beta1Client::with_origin(client, Uri::from_static(ORIGIN));
            let call = client.node_unprepare_resources(deadline(request, timeout));
            let answer = limited(UNPREPARE, driver, timeout, call).await?.claims;
            Ok(results(answer, |entry| (entry.error, ())))
        }
    }
}

/// Awaits a call, but not beyond the kubelet's deadline.
async fn limited<M>(
    method: &'static str,
    driver: &str,
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<M>, tonic::Status>>,
) -> Result<M, KubeletError> {
    let driver = || driver.to_owned();
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(KubeletError::Call { method, driver: driver(), status: Box::new(status) }),
        Err(_) => Err(KubeletError::Deadline { method, driver: driver(), deadline: limit }),
    }
}

/// The answer by claim; `split` takes the error text and the content out of an entry.
fn results<E, T>(
    entries: impl IntoIterator<Item = (String, E)>,
    split: impl Fn(E) -> (String, T),
) -> BTreeMap<String, Result<T, String>> {
    let entries = entries.into_iter().map(|(uid, entry)| match split(entry) {
        (error, content) if error.is_empty() => (uid, Ok(content)),
        (error, _) => (uid, Err(error)),
    });
    entries.collect()
}

fn v1(claim: &ClaimRef) -> dra_v1::Claim {
    let ClaimRef { namespace, name, uid } = claim.clone();
    dra_v1::Claim { namespace, uid, name }
}

fn v1beta1(claim: &ClaimRef) -> dra_v1beta1::Claim {
    let ClaimRef { namespace, name, uid } = claim.clone();
    dra_v1beta1::Claim { namespace, uid, name }
}

fn from_v1(device: dra_v1::Device) -> PreparedDevice {
    let dra_v1::Device { request_names, pool_name, device_name, cdi_device_ids, share_id } = device;
    PreparedDevice { request_names, pool_name, device_name, cdi_device_ids, share_id }
}

fn from_v1beta1(device: dra_v1beta1::Device) -> PreparedDevice {
    let dra_v1beta1::Device { request_names, pool_name, device_name, cdi_device_ids } = device;
    PreparedDevice { request_names, pool_name, device_name, cdi_device_ids, share_id: None }
}
