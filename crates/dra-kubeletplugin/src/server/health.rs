//! Health of devices on the wire, in both versions that kubelets speak.

use std::{
    pin::Pin,
    time::{Duration, SystemTime},
};

use futures::stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    health::{HealthReporter, Neighbours, Report, reports},
    wire::{health_v1 as v1, health_v1alpha1 as v1alpha1},
};

/// Serves the kubelet's streams until it is stopped.
#[derive(Clone)]
pub(crate) struct HealthService<N> {
    pub(crate) reporter: HealthReporter,
    pub(crate) neighbours: N,
    pub(crate) stop: CancellationToken,
}

type Messages<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

impl<N: Fn() -> Neighbours + Clone + Send + Sync + 'static> HealthService<N> {
    /// Streams have no end of their own: a stop must not wait for them.
    fn messages<M: 'static>(&self, message: fn(Vec<Report>) -> M) -> Response<Messages<M>> {
        let reports = reports(self.reporter.clone(), self.neighbours.clone());
        let messages = reports.map(move |reports| Ok(message(reports)));
        Response::new(Box::pin(messages.take_until(self.stop.clone().cancelled_owned())))
    }
}

#[tonic::async_trait]
impl<N: Fn() -> Neighbours + Clone + Send + Sync + 'static> v1::dra_resource_health_server::DraResourceHealth
    for HealthService<N>
{
    type NodeWatchResourcesStream = Messages<v1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(self.messages(message_v1))
    }
}

#[tonic::async_trait]
impl<N: Fn() -> Neighbours + Clone + Send + Sync + 'static>
    v1alpha1::dra_resource_health_server::DraResourceHealth for HealthService<N>
{
    type NodeWatchResourcesStream = Messages<v1alpha1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(self.messages(|reports| {
            let devices = message_v1(reports).devices.into_iter().map(device_v1alpha1);
            v1alpha1::NodeWatchResourcesResponse { devices: devices.collect() }
        }))
    }
}

fn message_v1(reports: Vec<Report>) -> v1::NodeWatchResourcesResponse {
    let devices = reports.into_iter().map(|report| v1::DeviceHealth {
        last_updated_time: unix_seconds(report.said),
        health_check_timeout_seconds: lease_seconds(&report),
        device: Some(v1::DeviceIdentifier {
            pool_name: report.device.pool.to_string(),
            device_name: report.device.device.to_string(),
        }),
        health: report.health.status.on_the_wire(),
        message: report.health.message.unwrap_or_default(),
    });
    v1::NodeWatchResourcesResponse { devices: devices.collect() }
}

/// Both versions have the same fields.
fn device_v1alpha1(report: v1::DeviceHealth) -> v1alpha1::DeviceHealth {
    let v1::DeviceHealth { device, health, last_updated_time, health_check_timeout_seconds, message } =
        report;
    let device = device.map(|v1::DeviceIdentifier { pool_name, device_name }| v1alpha1::DeviceIdentifier {
        pool_name,
        device_name,
    });
    v1alpha1::DeviceHealth { device, health, last_updated_time, health_check_timeout_seconds, message }
}

fn unix_seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn lease_seconds(report: &Report) -> i64 {
    let lease: Duration = report.health.lease_or_default();
    i64::try_from(lease.as_secs()).unwrap_or(i64::MAX)
}
