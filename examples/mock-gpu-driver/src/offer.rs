//! What is offered to the scheduler, and how each device is, for as long as the driver runs.

use std::sync::Arc;

use dra_kubeletplugin::{
    DeviceName, DeviceRef, DriverResources, Handle, HealthReporter, PoolName, Registration, Ticket, Wishes,
};
use tokio::sync::watch;

use crate::{health_pod::Overrides, inventory::Inventory};

/// Keeps the devices of this node offered as they are.
pub(crate) struct Offer {
    pub(crate) pool: PoolName,
    pub(crate) wishes: Wishes,
    pub(crate) health: HealthReporter,
    pub(crate) registration: watch::Receiver<Registration>,
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    /// What is to be said of some devices instead.
    pub(crate) overrides: watch::Receiver<Overrides>,
}

impl Offer {
    pub(crate) fn new(
        handle: &Handle,
        pool: PoolName,
        inventory: watch::Receiver<Arc<Inventory>>,
        overrides: watch::Receiver<Overrides>,
    ) -> Self {
        let (wishes, health) = (handle.wishes(), handle.health());
        Self { pool, wishes, health, registration: handle.registration(), inventory, overrides }
    }

    /// Offers the devices now, and again whenever something is different.
    pub(crate) fn keep(mut self) {
        let mut offered = Arc::clone(&self.inventory.borrow_and_update());
        tokio::spawn(log_published(self.registration.clone(), self.offer(&offered)));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = changed(&mut self.inventory) => tracing::info!("the inventory has changed"),
                    () = changed(&mut self.overrides) => tracing::info!("the annotations of health have changed"),
                }
                let inventory = Arc::clone(&self.inventory.borrow_and_update());
                self.offer(&inventory);
                for (gone, _) in offered.health().filter(|(name, _)| inventory.device(name).is_none()) {
                    self.health.forget(&self.device(gone));
                }
                offered = inventory;
            }
        });
    }

    /// Says how the devices are, and then which there are: so one that does not work is tainted from the first moment.
    fn offer(&self, inventory: &Inventory) -> Ticket {
        let overrides = self.overrides.borrow().clone();
        let health = inventory
            .health()
            .map(|(name, health)| (self.device(name), overrides.get(name).unwrap_or(health).clone()));
        self.health.report_all(health);
        self.wishes.publish(DriverResources::new().pool(self.pool.clone(), inventory.pool().clone()))
    }

    fn device(&self, name: &DeviceName) -> DeviceRef {
        DeviceRef::new(self.pool.clone(), name.clone())
    }
}

/// Waits for another value: for ever, if there will be none.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        let () = std::future::pending().await;
    }
}

async fn log_published(mut registration: watch::Receiver<Registration>, mut published: Ticket) {
    if registration.wait_for(Registration::is_registered).await.is_ok() {
        match published.published().await {
            Ok(published) => tracing::info!(?published, "devices published"),
            Err(error) => tracing::error!(%error, "devices not published"),
        }
    }
}
