//! The kubelet's loop: looks at the registry folder, registers, unregisters, wipes.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options::{KubeletBuilder, NodeSlices};
use super::plugins::Plugins;
use super::reconciler::{Action, Reconciler};
use super::registration;
use super::sockets::{self, Identity, Sockets};
use super::wipe::Wiper;

/// An attempt that has ended.
type Attempt = (PathBuf, Identity, Result<(), String>);

/// Runs until it is dropped.
pub(super) async fn run(options: KubeletBuilder, plugins: Arc<Plugins>) {
    let (first, longest) = options.registration_pause;
    let mut reconciler = Reconciler::new(first, longest);
    let mut wiper = Wiper::new(options.wipe_after);
    let mut attempts: JoinSet<Attempt> = JoinSet::new();
    let folder = options.root.join("plugins_registry");
    if let Some(slices) = &options.slices {
        slices.wipe(None);
    }
    loop {
        let seen = sockets::scan(&folder).unwrap_or_else(|error| {
            tracing::warn!(folder = %folder.display(), %error, "cannot read the registry folder");
            Sockets::new()
        });
        plugins.keep_refusals(|socket| seen.contains_key(socket));
        for action in reconciler.step(&seen, Instant::now()) {
            match action {
                Action::Unregister(socket) => plugins.remove(&socket),
                Action::Register(socket, identity) => {
                    let (options, plugins) = (options.clone(), Arc::clone(&plugins));
                    attempts.spawn(async move {
                        let result = registration::register(&socket, &options, &plugins).await;
                        (socket, identity, result)
                    });
                }
            }
        }
        if let Some(slices) = &options.slices {
            for driver in wiper.step(&plugins.connected_drivers(), Instant::now()) {
                slices.wipe(Some(&driver));
            }
        }
        tokio::select! {
            Some(Ok((socket, identity, result))) = attempts.join_next() => {
                reconciler.finished(&socket, identity, result.is_ok(), Instant::now());
                if let Err(reason) = result {
                    tracing::debug!(socket = %socket.display(), reason, "not registered");
                    plugins.refuse(&socket, reason);
                }
            }
            () = tokio::time::sleep(options.poll) => {}
        }
    }
}

impl NodeSlices {
    /// Deletes the node's slices, of one driver or of all.
    fn wipe(&self, driver: Option<&str>) {
        let selector = match driver {
            None => format!("spec.nodeName={}", self.node),
            Some(driver) => format!("spec.nodeName={},spec.driver={driver}", self.node),
        };
        match self.api.delete_where::<ResourceSlice>(&selector) {
            Ok(count) => tracing::debug!(selector, count, "slices wiped"),
            Err(error) => tracing::warn!(selector, %error, "cannot wipe slices"),
        }
    }
}
