//! What this driver has beside what a driver needs: devices that a file lists, health that annotations of a pod say, and a
//! node taken over from another driver.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use dra_kubeletplugin::{DriverName, Pool, kube};
use tokio::sync::watch;

use crate::{
    go_books::GoBooks,
    health_pod::{self, PodName},
    inventory::Inventory,
};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Extras")]
pub(crate) struct Extras {
    /// YAML file with the devices to publish as in a ResourceSlice, or with slices and the health of their devices, instead
    /// of `--num-devices`; read again when it changes. One that cannot be read changes nothing.
    #[arg(long, env = "INVENTORY", value_name = "FILE")]
    pub(crate) inventory: Option<PathBuf>,
    /// Pod whose annotations `health.example.com/<device>` say how devices are: healthy, unhealthy or unknown. Usually the
    /// driver's own, which it has to be allowed to get, list and watch.
    #[arg(long, env = "HEALTH_POD", value_name = "NAMESPACE/NAME")]
    pub(crate) health_pod: Option<PodName>,
    /// Checkpoint of the driver on the Go helper that served this node before: its claims are taken over.
    #[arg(long, env = "ADOPT_FROM", value_name = "FILE")]
    pub(crate) adopt_from: Option<PathBuf>,
}

impl Extras {
    /// The devices and how they are: as a file says or, without one, `made_up`; and then as a pod says.
    ///
    /// # Errors
    /// The file cannot be used, or `made_up` fails.
    pub(crate) fn inventory(
        &self,
        client: &kube::Client,
        made_up: impl FnOnce() -> anyhow::Result<Pool>,
    ) -> anyhow::Result<watch::Receiver<Arc<Inventory>>> {
        let mut listed = Inventory::follow(self.inventory.clone(), made_up)?;
        let Some(pod) = self.health_pod.clone() else { return Ok(listed) };
        let mut said = health_pod::follow(client.clone(), pod);
        let (sender, receiver) = watch::channel(Arc::clone(&listed.borrow_and_update()));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = changed(&mut listed) => {}
                    () = changed(&mut said) => {}
                }
                let inventory = listed.borrow_and_update().with_health(&said.borrow_and_update());
                if sender.send(Arc::new(inventory)).is_err() {
                    break;
                }
            }
        });
        Ok(receiver)
    }

    /// The books of the driver that is to be taken over from, if there is one.
    pub(crate) fn go_books(&self, driver: &DriverName) -> Option<GoBooks> {
        self.adopt_from.clone().map(|file| GoBooks::new(file, driver.clone()))
    }
}

/// Waits for another value: for ever, if there will be none.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        let () = std::future::pending().await;
    }
}
