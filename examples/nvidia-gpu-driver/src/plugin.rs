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
use uuid::Uuid;

use crate::{
    cdi::{self, CdiHook, DriverFiles, Nodes},
    config::{self, Interval, Use},
    driver_root::DriverRoot,
    gpu::Gpu,
    hardware::{Hardware, HardwareError},
    inventory::{Inventory, Offer},
    made::Made,
    mps::{self, Daemon, Mps},
    partition::{self, Instances},
    records::Records,
    state::{Given, Partition, State, TimeSliced},
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
    /// The partitions that were made for claims.
    pub(crate) made: Made,
    pub(crate) records: Records,
    /// Whether a GPU that somebody uses past Kubernetes is kept from claims.
    pub(crate) check_processes: bool,
}

/// One device of a claim, and how it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) device: AllocatedDevice,
    pub(crate) offer: Offer,
    pub(crate) usage: Use,
    /// The configuration that says so.
    pub(crate) said_by: Option<usize>,
    /// By which it is shared.
    daemon: Option<Daemon>,
}

/// Whether GPUs may be changed for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Change,
    Look,
}

impl DriverPlugin for NvidiaGpus {
    type State = State;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<State>,
    ) -> Result<Prepared<State>, PluginError> {
        let wanted = self.wanted(claim)?;
        self.ensure_free(claim, &wanted).await.map_err(PluginError::new)?;
        let mut state = to_undo(&wanted);
        if state != State::default() {
            // Before anything is done, so that a crash leaves nothing behind that nobody knows of.
            cx.save(&state).await?;
        }
        for wanted in &wanted {
            if let (Use::TimeSlicing(interval), Some(gpu)) = (&wanted.usage, wanted.offer.gpu()) {
                self.share(gpu, *interval).await.map_err(PluginError::new)?;
            }
        }
        let edits = self.edits(&wanted, Access::Change).await.map_err(PluginError::new)?;
        for daemon in wanted.iter().filter_map(|wanted| wanted.daemon.as_ref()) {
            self.mps.start(daemon).await.map_err(PluginError::new)?;
        }
        state.given = given(&wanted, &edits);
        let devices = wanted.iter().zip(edits);
        Ok(devices
            .fold(Prepared::new(state), |prepared, (wanted, edits)| prepared.device(&wanted.device, edits)))
    }

    async fn is_current(&self, claim: &AllocatedClaim, state: Option<&State>) -> Result<bool, PluginError> {
        // Where the GPUs were not looked at yet, or are gone, nothing is known.
        let (Some(state), Ok(wanted)) = (state, self.wanted(claim)) else { return Ok(true) };
        for (before, now) in state.given.iter().zip(&wanted) {
            if now.offer.gpu().is_some_and(|gpu| gpu.uuid != before.gpu) {
                let (device, gpu) = (&before.device, &before.gpu);
                return Err(PluginError::new(format!(
                    "{device} was GPU {gpu} when the claim got it, and is another one now; delete the pod"
                )));
            }
        }
        match self.edits(&wanted, Access::Look).await {
            Ok(edits) => Ok(given(&wanted, &edits) == state.given),
            Err(error) if cannot_look(&error) => Ok(true),
            Err(error) => {
                let (claim, error) = (claim.claim_ref(), format!("{error:#}"));
                tracing::warn!(%claim, error, "a claim is not as it was prepared");
                Ok(false)
            }
        }
    }

    async fn unprepare(&self, claim: &HeldClaim<State>) -> Result<(), PluginError> {
        // Also without a state: what tells of a daemon is beside it.
        self.mps.stop(&claim.claim.uid).await.map_err(PluginError::new)?;
        let Some(state) = &claim.state else {
            // It may have had partitions.
            self.made.doubt();
            return Ok(());
        };
        if claim.reason == UnprepareReason::Reboot {
            // GPUs start as they are by default.
            return Ok(());
        }
        if !state.made.is_empty() {
            let (partitions, made) = (state.made.clone(), self.made.clone());
            let removed = self.hardware.run(move |library| {
                partitions.iter().try_for_each(|partition| partition::remove(library, partition, &made))
            });
            if let Err(error) = removed.await {
                if !is_without_hardware(&error) {
                    return Err(PluginError::new(error));
                }
                // Most likely they are gone with their GPU. If not, they are found when it is back.
                tracing::warn!(claim = %claim.claim, %error, "its partitions are not removed");
                self.made.doubt();
            }
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
            Ok(Wanted { device: (*device).clone(), offer: offer.clone(), usage, said_by, daemon: None })
        });
        let mut wanted = wanted.collect::<Result<Vec<_>, PluginError>>()?;
        let daemons = mps::daemons(claim.uid(), &wanted)?;
        for wanted in &mut wanted {
            wanted.daemon = wanted.said_by.and_then(|number| daemons.get(&number).cloned());
        }
        Ok(wanted)
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

    /// How each device gets into a container. With the right to change them they are made ready.
    async fn edits(&self, wanted: &[Wanted], access: Access) -> anyhow::Result<Vec<ContainerEdits>> {
        if wanted.iter().all(|wanted| wanted.offer.gpu().is_none()) {
            return Ok(wanted.iter().filter_map(vfio_edits).collect());
        }
        let (plugin, wanted) = (self.clone(), wanted.to_vec());
        let work = move |library: &Arc<Library>| {
            let version = library.driver_version()?;
            let hook = CdiHook::find(plugin.cdi_hook.as_deref(), &plugin.root);
            let common = plugin.driver_files(library, &version).edits(hook.as_ref());
            let edits = wanted.iter().enumerate().map(|(place, one)| {
                if let Some(edits) = vfio_edits(one) {
                    return Ok(edits);
                }
                let own = plugin.nvidia_edits(library, one, access, hook.as_ref())?;
                let edits = if is_first(&wanted, place) { common.clone().merge(own) } else { own };
                Ok(cdi::no_others(edits))
            });
            edits.collect()
        };
        self.hardware.run(work).await
    }

    /// The nodes of a GPU that NVIDIA's driver has, or of a part of it.
    fn nvidia_edits(
        &self,
        library: &Library,
        wanted: &Wanted,
        access: Access,
        hook: Option<&CdiHook>,
    ) -> anyhow::Result<ContainerEdits> {
        let is_admin = wanted.device.admin_access();
        let changes = access == Access::Change && !is_admin;
        let (gpu, instances) = match &wanted.offer {
            Offer::Vfio(_) => return Ok(ContainerEdits::new()),
            Offer::Gpu(gpu) => {
                if is_admin {
                    partition::find(library, gpu)?;
                } else if changes {
                    partition::make_whole(library, gpu)?;
                } else {
                    partition::check_whole(library, gpu)?;
                }
                (gpu, None)
            }
            Offer::Mig(gpu, mig) => (gpu, Some(partition::check_existing(library, gpu, mig)?)),
            Offer::NewMig(gpu, profile, place) if changes => {
                (gpu, Some(partition::make(library, gpu, profile, *place, &self.made)?))
            }
            Offer::NewMig(gpu, profile, place) => {
                let partition = Partition::new(gpu, profile, *place);
                (gpu, Some(partition::find_made(library, gpu, &partition)?))
            }
        };
        let shared = wanted.daemon.as_ref().map(|daemon| self.mps.edits(daemon)).unwrap_or_default();
        let nodes = self.nodes.of_gpu(gpu.minor)?.merge(shared);
        let Some(Instances { gpu_instance, compute_instance }) = instances else {
            let Some(pci) = &gpu.pci else { return Ok(nodes) };
            let (names, graphics) = self.nodes.of_graphics(pci.as_str());
            let links = hook.and_then(|hook| hook.by_path(pci.as_str(), &names));
            return Ok(links.into_iter().fold(nodes.merge(graphics), ContainerEdits::hook));
        };
        Ok(nodes.merge(self.nodes.of_mig(gpu.minor, gpu_instance, compute_instance)?))
    }

    fn driver_files(&self, library: &Library, version: &str) -> DriverFiles {
        let mut known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((known, files)) if known == version => files.clone(),
            _ => {
                let files = DriverFiles::find(&self.root, library.path(), version);
                // An installation that is still under way is looked at again.
                *known = files.has_cuda().then(|| (version.to_owned(), files.clone()));
                files
            }
        }
    }
}

/// Whether no device before it has the files of the driver for the same containers: those of one request go together.
fn is_first(wanted: &[Wanted], place: usize) -> bool {
    let request = |wanted: &Wanted| wanted.device.request().to_string();
    let mut before = wanted.iter().take(place).filter(|one| one.offer.gpu().is_some());
    wanted.get(place).is_some_and(|one| !before.any(|other| request(other) == request(one)))
}

/// What a claim will have changed.
fn to_undo(wanted: &[Wanted]) -> State {
    let mut state = State::default();
    // Who only looks changes nothing.
    for wanted in wanted.iter().filter(|wanted| !wanted.device.admin_access()) {
        if let Offer::NewMig(gpu, profile, placement) = &wanted.offer {
            state.made.push(Partition::new(gpu, profile, *placement));
        }
        if let (Use::TimeSlicing(_), Some(gpu)) = (&wanted.usage, wanted.offer.gpu()) {
            state
                .time_sliced
                .push(TimeSliced { device: wanted.device.device().to_string(), uuid: gpu.uuid.clone() });
        }
    }
    state
}

/// Whether nothing can be known now of what a claim has.
fn cannot_look(error: &anyhow::Error) -> bool {
    let cannot_look = |error: &HardwareError| error.is_without_hardware() || error.is_released();
    error.downcast_ref().is_some_and(cannot_look)
}

fn is_without_hardware(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(HardwareError::is_without_hardware)
}

fn vfio_edits(wanted: &Wanted) -> Option<ContainerEdits> {
    match (&wanted.offer, &wanted.usage) {
        (Offer::Vfio(gpu), Use::Vfio(usage)) => Some(cdi::no_others(gpu.edits(*usage))),
        _ => None,
    }
}

/// What containers are given, as it is remembered.
fn given(wanted: &[Wanted], edits: &[ContainerEdits]) -> Vec<Given> {
    let devices = wanted.iter().zip(edits);
    let given = devices.map(|(wanted, edits)| Given {
        device: wanted.device.device().to_string(),
        gpu: wanted.offer.gpu().map(|gpu| gpu.uuid.clone()).unwrap_or_default(),
        edits: Uuid::new_v5(&Uuid::NAMESPACE_OID, &serde_json::to_vec(edits).unwrap_or_default()).to_string(),
    });
    given.collect()
}

fn still_held(devices: &[HeldDevice], name: &str) -> bool {
    devices.iter().any(|held| held.device_ref().device.as_str() == name && !held.others.is_empty())
}
