//! What a control daemon is for.

use std::collections::{BTreeMap, BTreeSet};

use dra_kubeletplugin::{ClaimUid, ConfigError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    config::{MpsConfig, Use},
    inventory::Offer,
    plugin::Wanted,
};

/// The daemon of the devices of a claim that have one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Daemon {
    /// UID of the claim.
    pub(crate) claim: String,
    /// UUIDs of the devices, in the order of the claim.
    pub(crate) devices: Vec<String>,
    /// UUIDs of the whole GPUs among them, whose compute mode is set: a GPU in MIG mode has none (`nvml.h`,
    /// `nvmlDeviceSetComputeMode`).
    pub(crate) gpus: BTreeSet<String>,
    /// What it has to be told.
    pub(crate) commands: Vec<String>,
}

impl Daemon {
    /// Short, as there is little room in the path of a socket.
    pub(crate) fn id(&self) -> String {
        let text = format!("{} {}", self.claim, self.devices.join(" "));
        Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string().chars().take(12).collect()
    }
}

/// The daemons that a claim needs, by the configurations that ask for them.
///
/// # Errors
/// A configuration has a limit for a device that does not use it.
pub(crate) fn daemons(claim: &ClaimUid, wanted: &[Wanted]) -> Result<BTreeMap<usize, Daemon>, ConfigError> {
    let mut daemons = BTreeMap::new();
    for wanted in wanted {
        let (Use::Mps(config), Some(number)) = (&wanted.usage, wanted.said_by) else { continue };
        let (_, daemon) = daemons.entry(number).or_insert_with(|| (config, Daemon::default()));
        // As CUDA knows it.
        daemon.devices.extend(match &wanted.offer {
            Offer::Gpu(gpu) => Some(gpu.uuid.clone()),
            Offer::Mig(_, mig) => Some(mig.uuid.clone()),
            Offer::NewMig(..) | Offer::Vfio(_) => None,
        });
        if let Offer::Gpu(gpu) = &wanted.offer {
            daemon.gpus.insert(gpu.uuid.clone());
        }
    }
    let complete = |(number, (config, daemon)): (usize, (&MpsConfig, Daemon))| {
        let commands = config.commands(&daemon.devices)?;
        Ok((number, Daemon { claim: claim.to_string(), commands, ..daemon }))
    };
    daemons.into_iter().map(complete).collect()
}
