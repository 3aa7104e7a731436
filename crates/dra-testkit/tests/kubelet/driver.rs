//! A small driver that notes what the kubelet does to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dra_kubeletplugin::wire::dra_v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use dra_kubeletplugin::wire::dra_v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use dra_kubeletplugin::wire::dra_v1beta1;
use dra_kubeletplugin::wire::registration::registration_server::{Registration, RegistrationServer};
use dra_kubeletplugin::wire::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use dra_testkit::TempNode;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tower::Service;

/// Name of the driver.
pub(crate) const DRIVER: &str = "gpu.example.com";

/// What the driver saw and how it answers.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// `supported_versions`, by default both.
    pub(crate) versions: Option<Vec<&'static str>>,
    pub(crate) plugin_type: Option<&'static str>,
    /// Never answers prepare.
    pub(crate) hangs: bool,
    /// Fails prepare as a whole.
    pub(crate) fails: bool,
    /// Leaves this claim UID out.
    pub(crate) leaves_out: Option<&'static str>,
    /// Answers this claim UID with an error.
    pub(crate) refuses: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) authorities: Vec<String>,
    pub(crate) notified: Vec<(bool, String)>,
    pub(crate) prepared: Vec<String>,
    pub(crate) unprepared: Vec<String>,
    pub(crate) connections: usize,
}

/// A driver that serves until it is dropped.
pub(crate) struct Driver {
    pub(crate) socket: PathBuf,
    seen: Arc<Mutex<Seen>>,
    tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Server {
    endpoint: PathBuf,
    behaviour: Arc<Behaviour>,
    seen: Arc<Mutex<Seen>>,
}

impl Driver {
    pub(crate) fn start(node: &TempNode, unique: &str, behaviour: Behaviour) -> Self {
        Self::start_as(node, &format!("{unique}@{DRIVER}-reg.sock"), unique, behaviour)
    }

    pub(crate) fn start_as(node: &TempNode, file: &str, unique: &str, behaviour: Behaviour) -> Self {
        let socket = node.plugins_registry().join(file);
        let endpoint = node.plugins().join(format!("{unique}.sock"));
        let mut driver = Self { socket: socket.clone(), seen: Arc::default(), tasks: JoinSet::new() };
        let server = Server {
            endpoint: endpoint.clone(),
            behaviour: Arc::new(behaviour),
            seen: Arc::clone(&driver.seen),
        };
        driver.serve(&endpoint, server.clone(), Role::Dra);
        driver.serve(&socket, server, Role::Registration);
        driver
    }

    /// Only a registration socket, for this endpoint.
    pub(crate) fn register_only(node: &TempNode, unique: &str, endpoint: PathBuf) -> Self {
        let socket = node.plugins_registry().join(format!("{unique}@{DRIVER}-reg.sock"));
        let mut driver = Self { socket: socket.clone(), seen: Arc::default(), tasks: JoinSet::new() };
        let server = Server { endpoint, behaviour: Arc::default(), seen: Arc::clone(&driver.seen) };
        driver.serve(&socket, server, Role::Registration);
        driver
    }

    /// Serves the DRA socket again, after [`Driver::kill`].
    pub(crate) fn serve_again(&mut self, endpoint: &Path) {
        let server =
            Server { endpoint: endpoint.to_owned(), behaviour: Arc::default(), seen: Arc::clone(&self.seen) };
        self.serve(endpoint, server, Role::Dra);
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().expect("lock"))
    }

    /// Closes everything and leaves the sockets behind, as a kill does.
    pub(crate) async fn kill(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Closes everything and takes the registration socket away.
    pub(crate) async fn end(mut self) {
        self.kill().await;
        std::fs::remove_file(&self.socket).expect("removed");
    }

    fn serve(&mut self, path: &Path, server: Server, role: Role) {
        let listener = UnixListener::bind(path).expect("listening");
        self.tasks.spawn(accept(listener, server, role));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Registration,
    Dra,
}

/// Serves connections until it is dropped; notes the authorities of requests to the registration socket.
async fn accept(listener: UnixListener, server: Server, role: Role) {
    let routes = match role {
        Role::Registration => Routes::new(RegistrationServer::new(server.clone())),
        Role::Dra => Routes::new(DraPluginServer::new(server.clone()))
            .add_service(dra_v1beta1::dra_plugin_server::DraPluginServer::new(server.clone())),
    };
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accepted");
        let (routes, seen) = (routes.clone(), Arc::clone(&server.seen));
        if role == Role::Dra {
            seen.lock().expect("lock").connections += 1;
        }
        let service = service_fn(move |request: http::Request<Incoming>| {
            if role == Role::Registration {
                let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
                seen.lock().expect("lock").authorities.push(authority);
            }
            let mut routes = routes.clone();
            async move { routes.call(request).await }
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { drop(connection.await) });
    }
}

#[tonic::async_trait]
impl Registration for Server {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let versions = self.behaviour.versions.clone();
        let versions = versions.unwrap_or_else(|| vec!["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
        Ok(Response::new(PluginInfo {
            r#type: self.behaviour.plugin_type.unwrap_or("DRAPlugin").into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: versions.into_iter().map(str::to_owned).collect(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.seen.lock().expect("lock").notified.push((status.plugin_registered, status.error));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl Server {
    async fn prepare(&self, uids: Vec<String>) -> Result<BTreeMap<String, Result<(), String>>, Status> {
        if self.behaviour.hangs {
            std::future::pending::<()>().await;
        }
        if self.behaviour.fails {
            return Err(Status::internal("out of order"));
        }
        self.seen.lock().expect("lock").prepared.extend(uids.clone());
        let kept = uids.into_iter().filter(|uid| self.behaviour.leaves_out != Some(uid.as_str()));
        Ok(kept
            .map(|uid| {
                let refused = self.behaviour.refuses == Some(uid.as_str());
                (uid, if refused { Err("no power".to_owned()) } else { Ok(()) })
            })
            .collect())
    }
}

#[tonic::async_trait]
impl DraPlugin for Server {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let uids = request.into_inner().claims.into_iter().map(|claim| claim.uid).collect();
        let entry = |(uid, result): (String, Result<(), String>)| {
            let device = Device {
                request_names: vec!["gpu".into()],
                pool_name: "node-1".into(),
                device_name: "gpu-0".into(),
                cdi_device_ids: vec![format!("k8s.{DRIVER}/claim={uid}-gpu-0")],
                share_id: Some("share".into()),
            };
            let error = result.err().unwrap_or_default();
            (uid, NodePrepareResourceResponse { devices: vec![device], error })
        };
        let claims = self.prepare(uids).await?.into_iter().map(entry).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let uids: Vec<String> = request.into_inner().claims.into_iter().map(|claim| claim.uid).collect();
        self.seen.lock().expect("lock").unprepared.extend(uids.clone());
        let claims = uids.into_iter().map(|uid| (uid, NodeUnprepareResourceResponse::default())).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl dra_v1beta1::dra_plugin_server::DraPlugin for Server {
    async fn node_prepare_resources(
        &self,
        request: Request<dra_v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra_v1beta1::NodePrepareResourcesResponse>, Status> {
        let uids = request.into_inner().claims.into_iter().map(|claim| claim.uid).collect();
        let entry = |(uid, _): (String, Result<(), String>)| {
            let device =
                dra_v1beta1::Device { device_name: "beta-0".into(), ..dra_v1beta1::Device::default() };
            (uid, dra_v1beta1::NodePrepareResourceResponse { devices: vec![device], error: String::new() })
        };
        let claims = self.prepare(uids).await?.into_iter().map(entry).collect();
        Ok(Response::new(dra_v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        _: Request<dra_v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra_v1beta1::NodeUnprepareResourcesResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}
