//! Keeps what is offered, and what is told of it, in line with the hardware.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use dra_kubeletplugin::{
    DeviceName, DeviceRef, DeviceTaints, DriverResources, HealthReporter, PoolName, Wishes,
    resourceslice::sysfs::Sysfs,
};
use nvidia_nvml::Library;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    gpu::{self, Gpu, Reading},
    hardware::{Hardware, HardwareError},
    health::{
        Health, Kept, Lost, Told,
        monitor::{self, Report},
    },
    inventory::Inventory,
    release::Release,
    sweep::DynamicMig,
    vfio::{self, VfioGpu},
};

/// Who sets the taints.
const SOURCE: &str = "hardware";

/// The GPUs of a node.
#[derive(Debug)]
pub(crate) struct Node {
    hardware: Hardware,
    offered: Offered,
    inventories: watch::Sender<Arc<Inventory>>,
    /// What was found last.
    gpus: Vec<Gpu>,
    /// GPUs for virtual machines.
    vfio: Vec<VfioGpu>,
    watching: Watching,
    /// How often the kernel's driver was replaced, when it was last looked at.
    replaced: u64,
    /// The library whose events are waited for.
    monitored: Weak<Library>,
    monitored_gpus: watch::Sender<BTreeSet<String>>,
    reports: mpsc::UnboundedSender<Report>,
    /// What is not as it should be, the last time that it was logged.
    logged: Vec<String>,
}

/// What is offered, and where it is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) sysfs: PathBuf,
    /// Partitions are made as claims ask for them.
    pub(crate) dynamic_mig: Option<DynamicMig>,
    /// GPUs are offered to virtual machines.
    pub(crate) passthrough: bool,
}

/// How the GPUs are, and how that is learnt.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) health: Health,
    /// What a later process has to know of it.
    pub(crate) kept: Kept,
    pub(crate) release: Release,
    /// Whether events are waited for.
    pub(crate) monitors: bool,
}

/// Where they are offered.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) pool: PoolName,
    pub(crate) wishes: Wishes,
    pub(crate) health: HealthReporter,
    pub(crate) taints: DeviceTaints,
}

impl Node {
    pub(crate) fn new(
        hardware: Hardware,
        offered: Offered,
        watching: Watching,
        inventories: watch::Sender<Arc<Inventory>>,
    ) -> (Self, mpsc::UnboundedReceiver<Report>) {
        let (reports, received) = mpsc::unbounded_channel();
        let node = Self {
            hardware,
            offered,
            inventories,
            gpus: Vec::new(),
            vfio: Vec::new(),
            watching,
            replaced: 0,
            monitored: Weak::new(),
            monitored_gpus: watch::Sender::default(),
            reports,
            logged: Vec::new(),
        };
        (node, received)
    }

    /// Looks, listens and tells, until the hardware cannot be reached any more by this process.
    pub(crate) async fn follow(
        mut self,
        place: Place,
        mut reports: mpsc::UnboundedReceiver<Report>,
        interval: Duration,
    ) {
        self.look().await;
        let mut told = self.tell(&place, Vec::new());
        self.offer(&place);
        let mut next = Instant::now() + interval;
        loop {
            let changed = tokio::select! {
                Some(report) = reports.recv() => {
                    // What an error takes to be repaired is known from now on, and one seldom comes alone.
                    let mut is_error = false;
                    let more = std::iter::from_fn(|| reports.try_recv().ok());
                    for report in std::iter::once(report).chain(more) {
                        is_error |= !matches!(report, Report::Monitored { .. });
                        self.hear(report);
                    }
                    is_error && self.look().await
                }
                () = tokio::time::sleep_until(next) => {
                    let changed = self.look().await;
                    next = Instant::now() + interval;
                    changed
                }
            };
            if self.hardware.has_ended() {
                return;
            }
            self.keep();
            // First how they are, then which there are: one that does not work is tainted from the first moment.
            told = self.tell(&place, told);
            if changed {
                tracing::info!(gpus = self.gpus.len(), "the GPUs of this node have changed");
                self.offer(&place);
            }
        }
    }

    /// Looks at the hardware; whether what is offered has changed.
    async fn look(&mut self) -> bool {
        let (sysfs, mut is_ours) = (Sysfs::at(&self.offered.sysfs), None);
        if let Some(dynamic) = &mut self.offered.dynamic_mig {
            dynamic.sweep(&self.hardware).await;
            is_ours = Some(dynamic.clone());
        }
        let outcome = self.hardware.run_and_count(move |library| {
            let reading = gpu::read(library, &sysfs, is_ours.as_ref())?;
            Ok((reading, Arc::downgrade(library)))
        });
        let (outcome, replaced) = outcome.await;
        let (reading, library) = match outcome {
            Ok((reading, library)) => (Ok(reading), Some(library)),
            Err(error) => (Err(error), None),
        };
        self.log(&reading);
        self.set_released(reading.as_ref().err());
        if replaced.is_some_and(|replaced| replaced > self.replaced) {
            self.watching.health.reset();
        }
        self.replaced = replaced.unwrap_or(self.replaced);
        let fresh = library.filter(|library| self.watching.monitors && !self.monitored.ptr_eq(library));
        let recovery = reading.as_ref().map(|reading| reading.recovery.clone()).unwrap_or_default();
        let (gpus, lost) = known(&self.gpus, reading);
        let health = &mut self.watching.health;
        for gpu in &gpus {
            health.lost(&gpu.uuid, lost.get(&gpu.uuid).cloned());
            if !self.watching.monitors {
                health.unmonitored(&gpu.uuid, Some("--health is off".to_owned()));
            }
        }
        for (uuid, action) in recovery {
            health.recovery(&uuid, action);
        }
        health.forgive(SystemTime::now());
        let answering = gpus.iter().map(|gpu| gpu.uuid.clone()).filter(|uuid| !lost.contains_key(uuid));
        let answering: BTreeSet<String> = answering.collect();
        self.monitored_gpus.send_if_modified(|before| {
            let modified = *before != answering;
            *before = answering;
            modified
        });
        if let Some(library) = fresh {
            self.monitor(library);
        }
        let vfio = self.look_for_vfio();
        self.take(gpus, vfio)
    }

    /// Says so once NVML is closed because an operator has asked for the GPUs, and that it is not after that.
    fn set_released(&mut self, error: Option<&HardwareError>) {
        let error = error.filter(|error| error.is_released());
        self.watching.health.released(error.map(ToString::to_string));
        let is_closed = error.is_some() && self.monitored.strong_count() == 0;
        if let Err(error) = self.watching.release.set_done(is_closed) {
            tracing::error!(%error, "telling the operator whether NVML is closed");
        }
    }

    /// Keeps what a later process has to know.
    fn keep(&mut self) {
        if let Err(error) = self.watching.kept.set(self.watching.health.to_keep()) {
            tracing::error!(%error, "keeping errors of GPUs for the next start");
        }
    }

    /// Of sysfs alone. What cannot be read now is as it was.
    fn look_for_vfio(&self) -> Vec<VfioGpu> {
        if !self.offered.passthrough {
            return Vec::new();
        }
        vfio::read(&self.offered.sysfs).unwrap_or_else(|error| {
            tracing::warn!(%error, "looking for GPUs for virtual machines");
            self.vfio.clone()
        })
    }

    fn take(&mut self, gpus: Vec<Gpu>, vfio: Vec<VfioGpu>) -> bool {
        if gpus == self.gpus && vfio == self.vfio {
            return false;
        }
        match Inventory::of(&gpus, &vfio, self.offered.dynamic_mig.is_some()) {
            Ok(inventory) => {
                self.gpus = gpus;
                self.vfio = vfio;
                self.inventories.send_replace(Arc::new(inventory));
                true
            }
            Err(error) => {
                tracing::error!(%error, "the GPUs cannot be offered");
                false
            }
        }
    }

    /// Waits for events of a library that was opened; the one before it is gone.
    fn monitor(&mut self, library: Weak<Library>) {
        match monitor::start(library.clone(), self.monitored_gpus.subscribe(), self.reports.clone()) {
            Ok(()) => self.monitored = library,
            Err(error) => tracing::error!(%error, "no thread to wait for what GPUs report"),
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Xid { uuid, code, part } => {
                tracing::warn!(gpu = uuid, xid = code, ?part, "critical error of a GPU");
                self.watching.health.xid(&uuid, code, part, SystemTime::now());
            }
            Report::UncorrectedError { uuid } => {
                tracing::warn!(gpu = uuid, "memory error that could not be corrected");
                self.watching.health.uncorrected_error(&uuid);
            }
            Report::Monitored { uuid, why_not } => self.watching.health.unmonitored(&uuid, why_not),
        }
    }

    /// Publishes what there is.
    fn offer(&self, place: &Place) {
        let inventory = Arc::clone(&self.inventories.borrow());
        place.wishes.publish(DriverResources::new().pool(place.pool.clone(), inventory.pool()));
    }

    /// Says how the devices are, unless that was said already; what was said now.
    fn tell(&self, place: &Place, before: Vec<Told>) -> Vec<Told> {
        let told = self.watching.health.tell(&self.inventories.borrow());
        if told == before {
            return before;
        }
        let device = |name: &DeviceName| DeviceRef::new(place.pool.clone(), name.clone());
        place.health.report_all(told.iter().map(|(name, health, _)| (device(name), health.clone())));
        for (gone, ..) in before.iter().filter(|(old, ..)| !told.iter().any(|(name, ..)| name == old)) {
            place.health.forget(&device(gone));
        }
        let taints = told.iter().flat_map(|(name, _, taints)| {
            taints.iter().map(move |taint| ((place.pool.clone(), name.clone()), taint.clone()))
        });
        place.taints.set(SOURCE, taints);
        told
    }

    /// Says what is wrong, once for as long as it is the same.
    fn log(&mut self, reading: &Result<Reading, HardwareError>) {
        let troubles: Vec<String> = match reading {
            Ok(reading) => {
                let broken = reading.broken.iter();
                let broken = broken.map(|(index, error)| format!("GPU {index} does not answer: {error}"));
                broken.chain(reading.gpus.iter().filter_map(in_the_way)).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if troubles != self.logged {
            for trouble in &troubles {
                tracing::warn!("{trouble}");
            }
            self.logged = troubles;
        }
    }
}

/// The GPUs that are known after a look, and which of them do not answer, by UUID. One that does not answer stays as it was,
/// since nobody can tell that it is gone.
fn known(before: &[Gpu], reading: Result<Reading, HardwareError>) -> (Vec<Gpu>, BTreeMap<String, Lost>) {
    let reading = match reading {
        Ok(reading) => reading,
        Err(error) => {
            // Who has closed NVML for an operator says so, and has lost nothing.
            let lost = before.iter().filter(|_| !error.is_released()).map(|gpu| {
                let why = error.to_string();
                (gpu.uuid.clone(), Lost { why, off_the_bus: false })
            });
            return (before.to_vec(), lost.collect());
        }
    };
    let (mut gpus, mut lost) = (reading.gpus, BTreeMap::new());
    for (index, error) in reading.broken {
        if let Some(gpu) = before.iter().find(|gpu| gpu.index == index)
            && !gpus.iter().any(|found| found.uuid == gpu.uuid)
        {
            gpus.push(gpu.clone());
            let off_the_bus = error.is_gpu_lost();
            lost.insert(gpu.uuid.clone(), Lost { why: error.to_string(), off_the_bus });
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    (gpus, lost)
}

/// What somebody else has made of a GPU whose partitions are made as claims ask for them.
fn in_the_way(gpu: &Gpu) -> Option<String> {
    let places: Vec<_> = gpu.foreign.iter().map(|(_, place)| (place.start, place.size)).collect();
    (!places.is_empty()).then(|| {
        format!(
            "gpu-{} has MIG devices that no claim of this driver has; nothing is offered in their place (first memory \
             slice, and how many): {places:?}; to have it back, remove them by `nvidia-smi mig -dci` and `-dgi`",
            gpu.minor
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::{a100, h100};

    #[test]
    fn a_gpu_that_does_not_answer_stays_and_one_that_is_gone_goes() {
        let names = |gpus: &[Gpu]| -> Vec<u32> { gpus.iter().map(|gpu| gpu.minor).collect() };
        let before = [a100(), h100()];
        let (gpus, lost) = known(&before, Err(HardwareError::Gone));
        assert_eq!(names(&gpus), [0, 1]);
        assert_eq!(lost.into_keys().collect::<BTreeSet<_>>(), BTreeSet::from([a100().uuid, h100().uuid]));
        let one_left = Reading { gpus: vec![h100()], ..Reading::default() };
        let (gpus, lost) = known(&before, Ok(one_left));
        assert_eq!((names(&gpus), lost.len()), (vec![1], 0));
        assert_eq!(known(&[], Err(HardwareError::Gone)).0, []);
    }
}
