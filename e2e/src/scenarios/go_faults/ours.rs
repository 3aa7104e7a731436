//! A driver on our SDK that publishes when it hears of an error, in this process.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use dra_kubeletplugin::{
    AllocatedClaim, BackgroundError, Device, DriverPlugin, DriverResources, HeldClaim, Options, PluginError,
    PrepareContext, Prepared, resourceslice::Wishes,
};
use tokio::time::timeout;

use super::SOON;
use crate::{node, scenarios::slice_client};

/// Waits, when it hears of an error, until the plugin is about to stop; then it publishes.
struct Publisher {
    wishes: Mutex<mpsc::Receiver<Wishes>>,
    stopping: Mutex<mpsc::Receiver<()>>,
    heard: mpsc::Sender<()>,
    published: mpsc::Sender<()>,
}

impl DriverPlugin for Publisher {
    type State = ();

    async fn prepare(&self, _: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
        Err(PluginError::new("there are no devices"))
    }

    async fn unprepare(&self, _: &HeldClaim<()>) -> Result<(), PluginError> {
        Ok(())
    }

    fn on_background_error(&self, _: &BackgroundError) {
        let next = |receiver: &Mutex<mpsc::Receiver<()>>| {
            receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SOON)
        };
        let wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SOON);
        // Whoever waits for these words fails if one does not come.
        let _ = self.heard.send(());
        if let (Ok(wishes), Ok(())) = (wishes, next(&self.stopping)) {
            drop(wishes.publish(DriverResources::new()));
            let _ = self.published.send(());
        }
    }
}

/// Stops such a driver while it publishes; gives how long that took.
pub(super) async fn stopped_while_publishing() -> Result<Duration> {
    let (wishes, wishes_of_driver) = mpsc::channel();
    let (stopping, stopping_of_driver) = mpsc::channel();
    let (heard_of_driver, heard) = mpsc::channel();
    let (published_of_driver, published) = mpsc::channel();
    let plugin = Publisher {
        wishes: Mutex::new(wishes_of_driver),
        stopping: Mutex::new(stopping_of_driver),
        heard: heard_of_driver,
        published: published_of_driver,
    };
    let driver = "publishes-on-error.example.com".parse()?;
    let options = Options::new(driver, node::NAME.parse()?, slice_client::driver().await?);
    let handle = options.start(plugin).await?;
    wishes.send(handle.wishes()).context("the driver has no thread")?;
    // The same device twice: one is left out, which is told.
    let twice = [Device::named("gpu-0")?, Device::named("gpu-0")?];
    drop(handle.publish(DriverResources::single_pool(node::NAME.parse()?, twice)));
    tokio::task::spawn_blocking(move || heard.recv_timeout(SOON)).await?.context("no error was told")?;
    let start = Instant::now();
    let shutdown = handle.shutdown();
    stopping.send(()).context("the driver has no thread")?;
    timeout(SOON, shutdown).await.context("it does not stop")??;
    let took = start.elapsed();
    tokio::task::spawn_blocking(move || published.recv_timeout(SOON)).await?.context("it did not publish")?;
    Ok(took)
}
