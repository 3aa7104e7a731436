//! Keeps what is offered in line with the hardware.

use std::{sync::Arc, time::Duration};

use dra_kubeletplugin::{DriverResources, PoolName, Ticket, Wishes, resourceslice::sysfs::Sysfs};
use tokio::sync::watch;

use crate::{
    gpu::{self, Gpu, Reading},
    hardware::{Hardware, HardwareError},
    inventory::Inventory,
};

/// The GPUs of a node, and where they are offered.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) hardware: Hardware,
    pub(crate) sysfs: Sysfs,
    pub(crate) dynamic_mig: bool,
    pub(crate) inventories: watch::Sender<Arc<Inventory>>,
    /// What was found last.
    pub(crate) gpus: Vec<Gpu>,
    /// What kept GPUs from being read, the last time that it was told.
    pub(crate) told: Vec<String>,
}

impl Node {
    /// Looks at the hardware; whether what is offered has changed.
    pub(crate) async fn look(&mut self) -> bool {
        let sysfs = self.sysfs.clone();
        let reading = self.hardware.run(move |library| Ok(gpu::read(library, &sysfs)?)).await;
        self.tell(&reading);
        let gpus = known(&self.gpus, reading);
        if gpus == self.gpus {
            return false;
        }
        match Inventory::of(&gpus, self.dynamic_mig) {
            Ok(inventory) => {
                self.gpus = gpus;
                self.inventories.send_replace(Arc::new(inventory));
                true
            }
            Err(error) => {
                tracing::error!(%error, "the GPUs cannot be offered");
                false
            }
        }
    }

    /// Publishes what there is.
    pub(crate) fn offer(&self, pool: &PoolName, wishes: &Wishes) -> Ticket {
        let inventory = Arc::clone(&self.inventories.borrow());
        wishes.publish(DriverResources::new().pool(pool.clone(), inventory.pool()))
    }

    /// Looks and publishes until the plugin ends.
    pub(crate) async fn follow(mut self, pool: PoolName, wishes: Wishes, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            if self.look().await {
                tracing::info!(gpus = self.gpus.len(), "the GPUs of this node have changed");
                drop(self.offer(&pool, &wishes));
            }
        }
    }

    /// Says what is wrong, once for as long as it is the same.
    fn tell(&mut self, reading: &Result<Reading, HardwareError>) {
        let troubles: Vec<String> = match reading {
            Ok(reading) => {
                let broken = reading.broken.iter();
                broken.map(|(index, error)| format!("GPU {index} does not answer: {error}")).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if troubles != self.told {
            for trouble in &troubles {
                tracing::warn!("{trouble}");
            }
            self.told = troubles;
        }
    }
}

/// The GPUs that are known after a look: one that does not answer now stays as it was, since nobody can tell that it is gone.
fn known(before: &[Gpu], reading: Result<Reading, HardwareError>) -> Vec<Gpu> {
    let Ok(reading) = reading else { return before.to_vec() };
    let mut gpus = reading.gpus;
    for (index, _) in reading.broken {
        let same = |gpu: &&Gpu| gpu.index == index;
        if let Some(gpu) = before.iter().find(same)
            && !gpus.iter().any(|found| found.uuid == gpu.uuid)
        {
            gpus.push(gpu.clone());
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::{a100, h100};

    fn names(gpus: &[Gpu]) -> Vec<u32> {
        gpus.iter().map(|gpu| gpu.minor).collect()
    }

    #[test]
    fn a_gpu_that_does_not_answer_stays_and_one_that_is_gone_goes() {
        let before = [a100(), h100()];
        assert_eq!(names(&known(&before, Err(HardwareError::Gone))), [0, 1]);
        let gone = Reading { gpus: vec![h100()], broken: Vec::new() };
        assert_eq!(names(&known(&before, Ok(gone))), [1]);
        assert_eq!(names(&known(&[], Err(HardwareError::Gone))), [0; 0]);
    }
}
