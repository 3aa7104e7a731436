//! What the driver does for a claim.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, ConfigError, ContainerEdits, DeviceRef, DriverPlugin, HeldClaim,
    HeldDevice, OpaqueConfig, PluginError, PrepareContext, Prepared, UnprepareReason,
};
use nvidia_nvml::{ComputeMode, Library};
use tokio::sync::watch;

use crate::{
    cdi::{self, DriverFiles, Nodes},
    config::{self, Interval, Use},
    driver_root::DriverRoot,
    gpu::Gpu,
    hardware::{Hardware, HardwareError},
    inventory::{Inventory, Offer},
    mps::{self, Mps},
    partition::{self, Instances},
    state::{Partition, State, TimeSliced},
    time_slice::NvidiaSmi,
};

/// NVIDIA's GPUs of a node.
#[derive(Clone, Debug)]
pub(crate) struct NvidiaGpus {
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) hardware: Hardware,
    pub(crate) root: DriverRoot,
    pub(crate) nodes: Nodes,
    pub(crate) mps: Mps,
    pub(crate) cdi_hook: Option<PathBuf>,
    /// What of the driver containers get, with the version that it was found for: looking takes long.
    pub(crate) files: Arc<Mutex<Option<(String, DriverFiles)>>>,
}

/// One device of a claim, and how it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    device: AllocatedDevice,
    pub(crate) offer: Offer,
    pub(crate) usage: Use,
    /// The configuration that says so.
    pub(crate) said_by: Option<usize>,
}

impl DriverPlugin for NvidiaGpus {
    type State = State;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<State>,
    ) -> Result<Prepared<State>, PluginError> {
        let wanted = self.wanted(claim)?;
        let daemons = mps::daemons(claim.uid(), &wanted)?;
        let state = to_undo(&wanted);
        if state != State::default() {
            // Before anything is done, so that a crash leaves nothing behind that nobody knows of.
            cx.save(&state).await?;
        }
        for wanted in &wanted {
            if let (Use::TimeSlicing(interval), Some(gpu)) = (&wanted.usage, wanted.offer.gpu()) {
                self.share(gpu, *interval).await.map_err(PluginError::new)?;
            }
        }
        let mut ready = self.ready(&wanted).await.map_err(PluginError::new)?.into_iter();
        for daemon in daemons.values() {
            self.mps.start(daemon).await.map_err(PluginError::new)?;
        }
        let prepared = Prepared::new(state);
        Ok(wanted.iter().fold(prepared, |prepared, wanted| {
            let edits = match (&wanted.offer, &wanted.usage) {
                (Offer::Vfio(gpu), Use::Vfio(usage)) => cdi::no_others(gpu.edits(*usage)),
                _ => ready.next().unwrap_or_default(),
            };
            let daemon = wanted.said_by.and_then(|number| daemons.get(&number));
            let shared = daemon.map(|daemon| self.mps.edits(daemon)).unwrap_or_default();
            prepared.device(&wanted.device, edits.merge(shared))
        }))
    }

    async fn unprepare(&self, claim: &HeldClaim<State>) -> Result<(), PluginError> {
        // Also without a state: what tells of a daemon is beside it.
        self.mps.stop(&claim.claim.uid).await.map_err(PluginError::new)?;
        let Some(state) = &claim.state else { return Ok(()) };
        if claim.reason == UnprepareReason::Reboot {
            // GPUs start as they are by default.
            return Ok(());
        }
        if !state.made.is_empty() {
            let made = state.made.clone();
            let removed = self
                .hardware
                .run(move |library| made.iter().try_for_each(|made| partition::remove(library, made)));
            removed.await.map_err(PluginError::new)?;
        }
        for sliced in &state.time_sliced {
            if !still_held(&claim.devices, &sliced.device) {
                self.unshare(&sliced.uuid).await.map_err(PluginError::new)?;
            }
        }
        Ok(())
    }

    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        held.pool == wanted.pool && self.inventory.borrow().conflict(&held.device, &wanted.device)
    }

    fn validate(&self, config: &OpaqueConfig) -> Result<(), ConfigError> {
        config::validate(config)
    }
}

impl NvidiaGpus {
    fn wanted(&self, claim: &AllocatedClaim) -> Result<Vec<Wanted>, PluginError> {
        let inventory = Arc::clone(&self.inventory.borrow());
        let offers = claim.devices().iter().map(|device| {
            let unknown = || {
                PluginError::new(format!(
                    "this node has no device {} now: its GPU is gone, or is partitioned in another way",
                    device.device()
                ))
            };
            Ok((device, inventory.get(device.device()).ok_or_else(unknown)?.clone()))
        });
        let offers: Vec<(&AllocatedDevice, Offer)> = offers.collect::<Result<_, PluginError>>()?;
        let wanted = offers.iter().map(|(device, offer)| {
            let (usage, said_by) = match config::use_of(claim, (device, offer), &offers)? {
                (Use::TimeSlicing(_) | Use::Mps(_), _) if device.admin_access() => (Use::Plain, None),
                used => used,
            };
            Ok(Wanted { device: (*device).clone(), offer: offer.clone(), usage, said_by })
        });
        wanted.collect()
    }

    /// Lets processes share a GPU in turn.
    async fn share(&self, gpu: &Arc<Gpu>, interval: Interval) -> anyhow::Result<()> {
        let smi = self.nvidia_smi()?;
        let shared = Arc::clone(gpu);
        let mode = self.hardware.run(move |library| {
            let device = partition::find(library, &shared)?;
            device.set_compute_mode(ComputeMode::Default).context("setting the compute mode")
        });
        mode.await?;
        smi.set_time_slice(&gpu.uuid, interval).await
    }

    /// Takes the time slice back. A GPU that is gone, or whose driver is, has lost it.
    async fn unshare(&self, uuid: &str) -> anyhow::Result<()> {
        let gpu = uuid.to_owned();
        let found =
            self.hardware.run(move |library| Ok::<_, HardwareError>(library.device_by_uuid(&gpu).map(drop)?));
        match found.await {
            Ok(()) => self.nvidia_smi()?.set_time_slice(uuid, Interval::Default).await,
            Err(error) if error.is_without_hardware() => {
                tracing::warn!(gpu = uuid, %error, "the time slice of a GPU that is gone is not taken back");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn nvidia_smi(&self) -> anyhow::Result<NvidiaSmi> {
        let program = self.root.find_program("nvidia-smi").context("time slicing")?;
        Ok(NvidiaSmi { program, library: self.root.find_library()? })
    }

    /// Makes the devices ready that NVML knows of, and says how each gets into a container, in their order.
    async fn ready(&self, wanted: &[Wanted]) -> anyhow::Result<Vec<ContainerEdits>> {
        let known: Vec<Wanted> =
            wanted.iter().filter(|wanted| wanted.offer.gpu().is_some()).cloned().collect();
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let plugin = self.clone();
        self.hardware.run(move |library| plugin.make_ready(library, &known)).await
    }

    fn make_ready(&self, library: &Library, wanted: &[Wanted]) -> anyhow::Result<Vec<ContainerEdits>> {
        let version = library.driver_version()?;
        let ready = wanted.iter().filter_map(|wanted| Some((wanted, wanted.offer.gpu()?)));
        let ready = ready.map(|(wanted, gpu)| {
            let only_looks = wanted.device.admin_access();
            let own = match &wanted.offer {
                Offer::Gpu(gpu) => {
                    // Who looks at a GPU changes nothing of it.
                    if only_looks {
                        partition::find(library, gpu)?;
                    } else {
                        partition::make_whole(library, gpu)?;
                    }
                    ContainerEdits::new()
                }
                Offer::Mig(gpu, mig) => self.mig_nodes(gpu, partition::check_existing(library, gpu, mig)?)?,
                Offer::NewMig(gpu, profile, placement) if only_looks => {
                    self.mig_nodes(gpu, partition::find_made(library, gpu, profile, *placement)?)?
                }
                Offer::Vfio(_) => ContainerEdits::new(),
                Offer::NewMig(gpu, profile, placement) => {
                    self.mig_nodes(gpu, partition::make(library, gpu, profile, *placement)?)?
                }
            };
            let common = cdi::common(&self.root, &self.driver_files(library, &version));
            Ok(common.merge(self.nodes.of_gpu(gpu.minor)?).merge(own))
        });
        ready.collect()
    }

    fn mig_nodes(&self, gpu: &Gpu, instances: Instances) -> anyhow::Result<ContainerEdits> {
        self.nodes.of_mig(gpu.minor, instances.gpu_instance, instances.compute_instance)
    }

    fn driver_files(&self, library: &Library, version: &str) -> DriverFiles {
        let mut known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((known, files)) if known == version => files.clone(),
            _ => {
                let files = DriverFiles::find(&self.root, library.path(), version, self.cdi_hook.clone());
                // An installation that is still under way is looked at again.
                *known = files.has_cuda().then(|| (version.to_owned(), files.clone()));
                files
            }
        }
    }
}

/// What a claim will have changed.
fn to_undo(wanted: &[Wanted]) -> State {
    let mut state = State::default();
    // Who only looks changes nothing.
    for wanted in wanted.iter().filter(|wanted| !wanted.device.admin_access()) {
        if let Offer::NewMig(gpu, profile, placement) = &wanted.offer {
            state.made.push(Partition {
                parent: gpu.uuid.clone(),
                profile_id: profile.shape.id,
                start: placement.start,
                size: placement.size,
            });
        }
        if let (Use::TimeSlicing(_), Some(gpu)) = (&wanted.usage, wanted.offer.gpu()) {
            state
                .time_sliced
                .push(TimeSliced { device: wanted.device.device().to_string(), uuid: gpu.uuid.clone() });
        }
    }
    state
}

fn still_held(devices: &[HeldDevice], name: &str) -> bool {
    devices.iter().any(|held| held.device_ref().device.as_str() == name && !held.others.is_empty())
}
