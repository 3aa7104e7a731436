//! What is offered to the scheduler, and how each device is, for as long as the driver runs.

use std::sync::Arc;

use dra_kubeletplugin::{DeviceName, DeviceRef, DriverResources, Handle, HealthReporter, PoolName, Wishes};
use tokio::sync::watch;

use crate::inventory::Inventory;

/// Where the devices of this node are offered.
struct Offer {
    pool: PoolName,
    wishes: Wishes,
    health: HealthReporter,
}

/// Offers the devices now, and again whenever they are others or otherwise.
pub(crate) fn keep(handle: &Handle, pool: PoolName, mut inventory: watch::Receiver<Arc<Inventory>>) {
    let offer = Offer { pool, wishes: handle.wishes(), health: handle.health() };
    let mut offered = Arc::clone(&inventory.borrow_and_update());
    offer.say(&offered);
    tokio::spawn(async move {
        while inventory.changed().await.is_ok() {
            let next = Arc::clone(&inventory.borrow_and_update());
            offer.say(&next);
            for (gone, _) in offered.health().filter(|(name, _)| next.device(name).is_none()) {
                offer.health.forget(&offer.device(gone));
            }
            offered = next;
            tracing::info!("the inventory has changed");
        }
    });
}

impl Offer {
    /// Says how the devices are, and then which there are: so one that does not work is tainted from the first moment.
    fn say(&self, inventory: &Inventory) {
        self.health.report_all(inventory.health().map(|(name, health)| (self.device(name), health.clone())));
        self.wishes.publish(DriverResources::new().pool(self.pool.clone(), inventory.pool().clone()));
    }

    fn device(&self, name: &DeviceName) -> DeviceRef {
        DeviceRef::new(self.pool.clone(), name.clone())
    }
}
