//! A GPU that somebody uses past Kubernetes is not given to a claim that has it alone.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::ensure;
use dra_kubeletplugin::{AllocatedClaim, DeviceName};
use nvidia_nvml::Library;

use crate::{
    hardware::HardwareError,
    inventory::Offer,
    partition,
    plugin::{NvidiaGpus, Wanted},
};

/// The processes of a pod that has just ended may be told of for a moment longer.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

impl NvidiaGpus {
    /// Makes sure that nobody computes on what the claim is to have for itself.
    ///
    /// # Errors
    /// Somebody does, and no claim lets it: not this one, from an earlier time, and none with admin access.
    pub(crate) async fn ensure_free(&self, claim: &AllocatedClaim, wanted: &[Wanted]) -> anyhow::Result<()> {
        if !self.check_processes {
            return Ok(());
        }
        let is_alone = |wanted: &&Wanted| !wanted.device.admin_access() && wanted.device.share_id().is_none();
        let alone: Vec<Wanted> = wanted.iter().filter(is_alone).cloned().collect();
        let mut users = self.users(&alone).await;
        for _ in 1..TRIES {
            if users.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
            users = self.users(&alone).await;
        }
        let inventory = self.inventory.borrow().clone();
        let overlaps = |name: &DeviceName| {
            let mut devices = alone.iter().map(|wanted| wanted.device.device());
            devices.any(|device| device == name || inventory.conflict(device, name))
        };
        ensure!(
            users.is_empty() || self.records.may_be_used(claim, overlaps).await?,
            "{}; no claim has it: end what uses the GPU past Kubernetes, or let this driver give used GPUs away by \
             --check-processes false",
            users.join(", ")
        );
        Ok(())
    }

    /// Who computes on these now; nobody where that cannot be told.
    async fn users(&self, wanted: &[Wanted]) -> Vec<String> {
        let (wanted, proc) = (wanted.to_vec(), self.nodes.proc.clone());
        // A server of this driver's daemons is no user: those whom it serves are listed too.
        let servers = self.mps.pids().await.unwrap_or_else(|error| {
            tracing::debug!(error = format!("{error:#}"), "cannot tell which processes are of MPS");
            BTreeSet::new()
        });
        let looking = self.hardware.run(move |library| {
            let users = wanted.iter().filter_map(|wanted| {
                let (gpu, device) = (&wanted.offer.gpu()?.uuid, wanted.device.device());
                let pids = processes(library, &wanted.offer);
                let pids = pids
                    .inspect_err(|error| tracing::debug!(%device, %error, "cannot tell who uses it"))
                    .ok();
                let mut others = pids?.into_iter().filter(|pid| !servers.contains(pid));
                let (pid, program) = others.find_map(|pid| Some((pid, program(&proc, pid)?)))?;
                Some(format!("{device} ({gpu}) is used by process {pid}, {program}"))
            });
            Ok::<_, HardwareError>(users.collect())
        });
        looking.await.unwrap_or_default()
    }
}

/// The processes that compute on what is to be given away.
fn processes(library: &Library, offer: &Offer) -> anyhow::Result<Vec<u32>> {
    let device = match offer {
        Offer::Vfio(_) => return Ok(Vec::new()),
        Offer::Gpu(gpu) => partition::find(library, gpu)?,
        Offer::Mig(_, mig) => library.device_by_uuid(&mig.uuid)?,
        Offer::NewMig(gpu, ..) => {
            let device = partition::find(library, gpu)?;
            // Those on other partitions are of no concern; those on the whole GPU are.
            if partition::is_partitioned(&device)? {
                return Ok(Vec::new());
            }
            device
        }
    };
    Ok(device.compute_processes()?)
}

/// The name of a process, if it still lives and this process may see it.
fn program(proc: &Path, pid: u32) -> Option<String> {
    let name = fs::read(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim().to_owned())
}
