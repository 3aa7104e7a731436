//! The gRPC health protocol (`grpc.health.v1`), which the kubelet's gRPC probes speak.

use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

use super::Operations;
use crate::one_line::OneLine;

/// Answers for the services `liveness`, which is the default, and `readiness`.
#[derive(Clone, Debug)]
pub(super) struct Probes(pub(super) Operations);

#[tonic::async_trait]
impl Health for Probes {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let serves = match request.get_ref().service.as_str() {
            "" | "liveness" => self.is_live().await,
            "readiness" => self.0.readiness.borrow().is_ready(),
            other => {
                let known = format!("no service {other:?}: there are \"liveness\" and \"readiness\"");
                return Err(Status::not_found(known));
            }
        };
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    /// The protocol lets a server do without. Probes ask again and again instead.
    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("call Check instead"))
    }
}

impl Probes {
    /// The protocol has no room for the reason.
    async fn is_live(&self) -> bool {
        let live = self.0.probed.check().await;
        if let Err(error) = &live {
            tracing::warn!(error = %OneLine(error), "not live");
        }
        live.is_ok()
    }
}
