//! A plugin that says of itself what it is told to say.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use dra_kubeletplugin::wire::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{Registration, RegistrationServer},
};
use futures::stream;
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};
use tonic::{Request, Response, Status, transport::Server};

use crate::{node, scenarios::gpu::DRIVER};

/// It has a registration socket and nothing else. Dropped, it is gone.
pub(super) struct FakePlugin {
    path: PathBuf,
    serving: JoinHandle<()>,
}

impl FakePlugin {
    /// Shows itself to the kubelet, with this endpoint and these versions.
    pub(super) fn start(endpoint: &str, versions: &[&str]) -> Result<Self> {
        let path = Path::new(node::PLUGIN_REGISTRY).join(format!("fake@{DRIVER}-reg.sock"));
        let listener = UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        let info = PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: endpoint.into(),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        };
        let server = Server::builder().add_service(RegistrationServer::new(Says { info }));
        let serving = async move {
            if let Err(error) = server.serve_with_incoming(accepted(listener)).await {
                println!("    note: the plugin that is none has ended: {error}");
            }
        };
        Ok(Self { path, serving: tokio::spawn(serving) })
    }
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.serving.abort();
        // It may be gone: nobody else has a use for it.
        let _ = fs::remove_file(&self.path);
    }
}

fn accepted(listener: UnixListener) -> impl stream::Stream<Item = io::Result<UnixStream>> {
    stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}

struct Says {
    info: PluginInfo,
}

#[tonic::async_trait]
impl Registration for Says {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
