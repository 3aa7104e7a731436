//! Prepare and unprepare on the wire, in both versions that kubelets speak.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dra_resourceslice::DriverName;
use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, metadata::MetadataMap};
use tracing::Instrument as _;

use crate::{
    claim::ClaimRef,
    claims::{AnsweredDevice, Claims, Failure},
    one_line::OneLine,
    operations::{Method, Metrics},
    plugin::DriverPlugin,
    wire::{dra_v1 as v1, dra_v1beta1 as v1beta1},
};

/// What the kubelet is told that we serve; it takes the first that it knows. These are not the names of the services.
pub(crate) const SUPPORTED_VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

/// The kubelet's own limit (1.37), for a caller that names none.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(45);

/// Serves the kubelet's calls.
pub(crate) struct DraService<P: DriverPlugin> {
    claims: Arc<Claims<P>>,
    driver: DriverName,
    metrics: Metrics,
    /// Numbers the calls.
    calls: Arc<AtomicU64>,
    /// Has those that are under way.
    under_way: TaskTracker,
}

impl<P: DriverPlugin> Clone for DraService<P> {
    fn clone(&self) -> Self {
        Self {
            claims: Arc::clone(&self.claims),
            driver: self.driver.clone(),
            metrics: self.metrics.clone(),
            calls: Arc::clone(&self.calls),
            under_way: self.under_way.clone(),
        }
    }
}

/// A claim as the kubelet names it: not checked yet.
struct Wanted {
    namespace: String,
    name: String,
    uid: String,
}

impl<P: DriverPlugin> DraService<P> {
    pub(crate) fn new(
        claims: Arc<Claims<P>>,
        driver: DriverName,
        metrics: Metrics,
        under_way: TaskTracker,
    ) -> Self {
        Self { claims, driver, metrics, calls: Arc::default(), under_way }
    }

    /// All claims at once, each judged alone: an error belongs to its claim, never to the call.
    async fn prepare(
        &self,
        wanted: Vec<Wanted>,
        deadline: Instant,
    ) -> HashMap<String, Result<Vec<AnsweredDevice>, String>> {
        self.call(Method::Prepare, wanted, |claim| self.claims.prepare(claim, deadline)).await
    }

    async fn unprepare(&self, wanted: Vec<Wanted>, deadline: Instant) -> HashMap<String, Result<(), String>> {
        self.call(Method::Unprepare, wanted, |claim| self.claims.unprepare(claim, deadline)).await
    }

    /// Everything that is logged on the way carries the call and the claim.
    async fn call<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        method: Method,
        wanted: Vec<Wanted>,
        work: impl Fn(ClaimRef) -> F,
    ) -> HashMap<String, Result<T, String>> {
        // A liveness check asks for nothing.
        if wanted.is_empty() {
            return HashMap::new();
        }
        let _under_way = self.under_way.token();
        let request = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let span = tracing::info_span!("call", driver = %self.driver, method = method.name(), request);
        let begun = Instant::now();
        let answers = each(method, wanted, &self.metrics, work).instrument(span).await;
        self.metrics.call(method, begun.elapsed());
        answers
    }
}

/// Works on each UID once, however often it is named, and gives an answer for every one.
async fn each<T, F: Future<Output = Result<T, Failure>>>(
    method: Method,
    wanted: Vec<Wanted>,
    metrics: &Metrics,
    work: impl Fn(ClaimRef) -> F,
) -> HashMap<String, Result<T, String>> {
    let by_uid: HashMap<String, Wanted> =
        wanted.into_iter().map(|claim| (claim.uid.clone(), claim)).collect();
    let answers = by_uid.into_values().map(|Wanted { namespace, name, uid }| {
        // In JSON a span's `name` is that of the span.
        let span = tracing::info_span!("claim", namespace, claim = name, uid);
        let done = uid.parse().map(|uid| work(ClaimRef::new(namespace, name, uid)));
        let answer = async move {
            let begun = Instant::now();
            let outcome = match done {
                Ok(done) => done.await,
                Err(error) => Err(Failure::Uid(error)),
            };
            let result = outcome.as_ref().map(drop).map_err(Failure::class);
            metrics.claim(method, begun.elapsed(), result);
            match &outcome {
                Ok(_) => tracing::info!("claim done"),
                Err(error) => tracing::warn!(error = %OneLine(error), "claim failed"),
            }
            (uid, outcome.map_err(|error| error.to_string()))
        };
        answer.instrument(span)
    });
    join_all(answers).await.into_iter().collect()
}

/// When the caller stops waiting, by gRPC's `grpc-timeout` header.
fn deadline(metadata: &MetadataMap) -> Instant {
    let header = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
    Instant::now() + header.and_then(parse_timeout).unwrap_or(DEFAULT_DEADLINE)
}

/// At most eight digits and a unit.
fn parse_timeout(header: &str) -> Option<Duration> {
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    let value = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[tonic::async_trait]
impl<P: DriverPlugin> v1::dra_plugin_server::DraPlugin for DraService<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let deadline = deadline(request.metadata());
        let wanted = request.into_inner().claims.into_iter();
        let wanted = wanted.map(|v1::Claim { namespace, uid, name }| Wanted { namespace, name, uid });
        let answers = self.prepare(wanted.collect(), deadline).await.into_iter();
        let claims = answers.map(|(uid, answer)| (uid, prepared_v1(answer))).collect();
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let deadline = deadline(request.metadata());
        let wanted = request.into_inner().claims.into_iter();
        let wanted = wanted.map(|v1::Claim { namespace, uid, name }| Wanted { namespace, name, uid });
        let answers = self.unprepare(wanted.collect(), deadline).await.into_iter();
        let claims = answers.map(|(uid, answer)| {
            (uid, v1::NodeUnprepareResourceResponse { error: answer.err().unwrap_or_default() })
        });
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims: claims.collect() }))
    }
}

fn prepared_v1(answer: Result<Vec<AnsweredDevice>, String>) -> v1::NodePrepareResourceResponse {
    match answer {
        Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error },
        Ok(devices) => v1::NodePrepareResourceResponse {
            devices: devices.into_iter().map(device_v1).collect(),
            error: String::new(),
        },
    }
}

fn device_v1(device: AnsweredDevice) -> v1::Device {
    v1::Device {
        request_names: vec![device.request],
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: device.cdi_ids,
        share_id: device.share_id,
    }
}

/// The older version differs in one field: it knows no shares.
#[tonic::async_trait]
impl<P: DriverPlugin> v1beta1::dra_plugin_server::DraPlugin for DraService<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let deadline = deadline(request.metadata());
        let wanted = request.into_inner().claims.into_iter();
        let wanted = wanted.map(|v1beta1::Claim { namespace, uid, name }| Wanted { namespace, name, uid });
        let answers = self.prepare(wanted.collect(), deadline).await.into_iter();
        let claims = answers.map(|(uid, answer)| {
            let v1::NodePrepareResourceResponse { devices, error } = prepared_v1(answer);
            let devices = devices.into_iter().map(device_v1beta1).collect();
            (uid, v1beta1::NodePrepareResourceResponse { devices, error })
        });
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims: claims.collect() }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let deadline = deadline(request.metadata());
        let wanted = request.into_inner().claims.into_iter();
        let wanted = wanted.map(|v1beta1::Claim { namespace, uid, name }| Wanted { namespace, name, uid });
        let answers = self.unprepare(wanted.collect(), deadline).await.into_iter();
        let claims = answers.map(|(uid, answer)| {
            (uid, v1beta1::NodeUnprepareResourceResponse { error: answer.err().unwrap_or_default() })
        });
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims: claims.collect() }))
    }
}

fn device_v1beta1(device: v1::Device) -> v1beta1::Device {
    v1beta1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_read_in_every_unit() {
        let table = [
            ("45S", Some(Duration::from_secs(45))),
            ("44999m", Some(Duration::from_millis(44_999))),
            ("44999999u", Some(Duration::from_micros(44_999_999))),
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("5x", None),
            ("5ü", None),
        ];
        for (header, expected) in table {
            assert_eq!(parse_timeout(header), expected, "{header:?}");
        }
    }
}
