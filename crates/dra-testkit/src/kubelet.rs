//! A stand-in for the kubelet: its plugin manager and its DRA manager.
//!
//! It finds registration sockets, registers drivers, and calls prepare and unprepare, with the authority, the
//! deadlines, the checks and the choices of the real one (seen in 1.34 to 1.37). Pauses are shorter by default, so
//! that tests are fast; [`KubeletBuilder`] sets them.
//!
//! What differs: the folder is polled; a socket whose name makes an HTTP server in Rust refuse the real kubelet's
//! call is refused here too, before the call, so a driver in Go needs an `@` in its socket's name as well; there are
//! no pods and no containers beyond [`Kubelet::prepare_pod`].

mod authority;
mod calls;
mod claims;
mod connection;
mod error;
mod health;
mod manager;
mod options;
mod plugins;
mod pods;
mod reconciler;
mod registration;
mod services;
mod sockets;
mod wipe;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use claims::{Answer, ClaimRef, PreparedDevice};
pub use error::KubeletError;
pub use health::{DeviceHealth, Health, HealthService};
pub use options::KubeletBuilder;
pub use plugins::RegisteredPlugin;
pub use pods::{PreparedClaim, PreparedPod};
pub use services::DraService;

pub(crate) use pods::claim_name;

use crate::api::lock;
use calls::Target;
use plugins::{Link, Plugins};

/// The kubelet stand-in; dropped, it stops.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use dra_testkit::kubelet::{ClaimRef, Kubelet};
///
/// let kubelet = Kubelet::new("/tmp/node/kubelet");
/// kubelet.wait_registered("gpu.example.com", Duration::from_secs(5)).await?;
/// let claim = ClaimRef::new("default", "claim-1", "7c9e6679-7425-40de-944b-e07fc1f90ae7");
/// let devices = kubelet.prepare("gpu.example.com", &[claim.clone()]).await?;
/// println!("{:?}", devices[&claim.uid]);
/// kubelet.unprepare("gpu.example.com", &[claim]).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Kubelet {
    options: KubeletBuilder,
    plugins: Arc<Plugins>,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Kubelet {
    /// Starts a kubelet on this root folder (`/var/lib/kubelet` on a real node), which must have the folder
    /// `plugins_registry`. Must be called within a tokio runtime.
    #[must_use]
    pub fn new(root: impl AsRef<Path>) -> Self {
        Self::builder(root).start()
    }

    /// Options first.
    pub fn builder(root: impl AsRef<Path>) -> KubeletBuilder {
        KubeletBuilder::new(root.as_ref())
    }

    pub(super) fn with(options: KubeletBuilder) -> Self {
        let kubelet = Self { options, plugins: Arc::default(), running: Mutex::default() };
        kubelet.run();
        kubelet
    }

    fn run(&self) {
        let task = tokio::spawn(manager::run(self.options.clone(), Arc::clone(&self.plugins)));
        *lock(&self.running) = Some(task);
    }

    /// Stops: closes all connections and forgets all plugins, as when the kubelet's process ends.
    ///
    /// # Cancel safety
    /// Safe: dropped early, it stops all the same.
    pub async fn stop(&self) {
        let task = lock(&self.running).take();
        if let Some(task) = task {
            task.abort();
            // An aborted task ends with an error by intent.
            let _ = task.await;
        }
        self.plugins.clear();
    }

    /// Stops, and starts again with nothing remembered, back-off included.
    ///
    /// # Cancel safety
    /// Not safe: dropped early, the kubelet may stay stopped.
    pub async fn restart(&self) {
        self.stop().await;
        self.run();
    }

    /// The registered plugins, oldest first.
    #[must_use]
    pub fn registered(&self) -> Vec<RegisteredPlugin> {
        self.plugins.registered()
    }

    /// The sockets that could not be registered, with the latest reason.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<PathBuf, String> {
        self.plugins.refused()
    }

    /// What the plugins of a driver have said of its devices, by pool and name.
    #[must_use]
    pub fn health(&self, driver: &str) -> BTreeMap<(String, String), DeviceHealth> {
        self.plugins.health.of(driver)
    }

    /// Waits until what is known of a driver's devices is as `wanted` says.
    ///
    /// # Errors
    /// After `timeout`, with what is known.
    ///
    /// # Cancel safety
    /// Safe: nothing but the wait is lost.
    pub async fn wait_health(
        &self,
        driver: &str,
        timeout: Duration,
        wanted: impl Fn(&BTreeMap<(String, String), DeviceHealth>) -> bool,
    ) -> Result<(), KubeletError> {
        let mut changes = self.plugins.health.changes();
        let search = async {
            loop {
                changes.mark_unchanged();
                if wanted(&self.health(driver)) {
                    return;
                }
                // The sender lives as long as `self`, so this cannot fail.
                let _ = changes.changed().await;
            }
        };
        tokio::time::timeout(timeout, search).await.map_err(|_| KubeletError::NotHealthyInTime {
            driver: driver.to_owned(),
            waited: timeout,
            known: self.health(driver),
        })
    }

    /// Waits until a plugin of the driver is registered and connected, and returns the newest.
    ///
    /// # Errors
    /// After `timeout`, saying which sockets were refused and why.
    ///
    /// # Cancel safety
    /// Safe: nothing but the wait is lost.
    pub async fn wait_registered(
        &self,
        driver: &str,
        timeout: Duration,
    ) -> Result<RegisteredPlugin, KubeletError> {
        let mut changes = self.plugins.changes();
        let search = async {
            loop {
                changes.mark_unchanged();
                let found =
                    self.registered().into_iter().rfind(|plugin| plugin.driver == driver && plugin.connected);
                if let Some(plugin) = found {
                    return plugin;
                }
                // The sender lives as long as `self`, so this cannot fail.
                let _ = changes.changed().await;
            }
        };
        tokio::time::timeout(timeout, search).await.map_err(|_| KubeletError::NotRegisteredInTime {
            driver: driver.to_owned(),
            waited: timeout,
            refused: self.refused(),
        })
    }

    /// Prepares claims in one call, and checks the answer as the kubelet does. The devices are by claim UID.
    ///
    /// # Errors
    /// If the call fails, is not answered within the deadline, or a claim has an error, is missing or unknown.
    ///
    /// # Cancel safety
    /// Dropped early, the driver sees a cancelled call.
    pub async fn prepare(
        &self,
        driver: &str,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<String, Vec<PreparedDevice>>, KubeletError> {
        let answer = self.prepare_unchecked(driver, claims).await?;
        claims::check(calls::PREPARE, driver, claims, answer)
    }

    /// Prepares claims in one call, and returns the answer as it came.
    ///
    /// # Errors
    /// If the call as a whole fails or is not answered within the deadline.
    ///
    /// # Cancel safety
    /// Dropped early, the driver sees a cancelled call.
    pub async fn prepare_unchecked(
        &self,
        driver: &str,
        claims: &[ClaimRef],
    ) -> Result<Answer<Vec<PreparedDevice>>, KubeletError> {
        calls::prepare(self.target(calls::PREPARE, driver).await?, claims).await
    }

    /// Unprepares claims in one call, and checks the answer as the kubelet does.
    ///
    /// # Errors
    /// As [`Kubelet::prepare`].
    ///
    /// # Cancel safety
    /// Dropped early, the driver sees a cancelled call.
    pub async fn unprepare(&self, driver: &str, claims: &[ClaimRef]) -> Result<(), KubeletError> {
        let answer = self.unprepare_unchecked(driver, claims).await?;
        claims::check(calls::UNPREPARE, driver, claims, answer).map(drop)
    }

    /// Unprepares claims in one call, and returns the answer as it came.
    ///
    /// # Errors
    /// If the call as a whole fails or is not answered within the deadline.
    ///
    /// # Cancel safety
    /// Dropped early, the driver sees a cancelled call.
    pub async fn unprepare_unchecked(
        &self,
        driver: &str,
        claims: &[ClaimRef],
    ) -> Result<Answer<()>, KubeletError> {
        calls::unprepare(self.target(calls::UNPREPARE, driver).await?, claims).await
    }

    /// The plugin for a call. A connection that is being opened is waited for, a failed one is an error.
    async fn target<'a>(&self, method: &'static str, driver: &'a str) -> Result<Target<'a>, KubeletError> {
        let (plugin, mut link) = self.plugins.select(driver).ok_or_else(|| KubeletError::NotRegistered {
            method,
            driver: driver.to_owned(),
            refused: self.refused(),
        })?;
        match settled(&mut link).await {
            Ok(client) => {
                Ok(Target { driver, service: plugin.service, client, timeout: self.options.call_timeout })
            }
            Err(reason) => Err(KubeletError::Unavailable {
                method,
                driver: driver.to_owned(),
                endpoint: plugin.endpoint,
                reason,
            }),
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.running).take() {
            task.abort();
        }
    }
}

/// The client of a connection, once it is open or has failed.
async fn settled(link: &mut watch::Receiver<Link>) -> Result<connection::Client, String> {
    match link.wait_for(|link| !matches!(link, Link::Connecting)).await.as_deref() {
        Ok(Link::Ready(client)) => Ok(client.clone()),
        Ok(Link::Down(reason)) => Err(reason.clone()),
        Ok(Link::Connecting) | Err(_) => Err("the plugin was unregistered".into()),
    }
}
