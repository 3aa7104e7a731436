//! How the GPUs are: what they report by themselves and what a look at them shows, made into taints and health reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dra_kubeletplugin::{DeviceHealth, DeviceName, Taint, TaintEffect};
use tokio::time::Instant;

use crate::inventory::{Inventory, Offer};

/// Mistakes of applications rather than of the GPU: a page fault, a stopped kernel.
const OF_APPLICATIONS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// What is told of a device.
pub(crate) type Told = (DeviceName, DeviceHealth, Vec<Taint>);

/// What is wrong with each GPU.
#[derive(Debug)]
pub(crate) struct Health {
    /// XIDs that taint nothing away.
    ignored: BTreeSet<u64>,
    /// How long an XID counts if none follows; for ever without.
    forgive_after: Option<Duration>,
    gpus: BTreeMap<String, Troubles>,
}

#[derive(Debug, Default)]
struct Troubles {
    lost: Option<String>,
    unmonitored: Option<String>,
    uncorrected_error: bool,
    xids: Vec<Xid>,
}

/// A critical error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Xid {
    code: u64,
    /// The GPU instance that it is about; none if it is about the whole GPU.
    gpu_instance: Option<u32>,
    seen: Instant,
}

impl Health {
    /// All is well. XIDs of applications are ignored, and these.
    pub(crate) fn new(also_ignored: impl IntoIterator<Item = u64>, forgive_after: Option<Duration>) -> Self {
        let ignored = OF_APPLICATIONS.into_iter().chain(also_ignored).collect();
        Self { ignored, forgive_after, gpus: BTreeMap::new() }
    }

    /// A GPU has reported a critical error.
    pub(crate) fn xid(&mut self, uuid: &str, code: u64, gpu_instance: Option<u32>, now: Instant) {
        let xids = &mut self.troubles(uuid).xids;
        xids.retain(|xid| (xid.code, xid.gpu_instance) != (code, gpu_instance));
        xids.push(Xid { code, gpu_instance, seen: now });
    }

    /// A GPU does not answer, for this reason; without one it does. What it did before it was lost is forgotten when it is
    /// back: it was reset.
    pub(crate) fn lost(&mut self, uuid: &str, why: Option<String>) {
        let troubles = self.troubles(uuid);
        if troubles.lost.is_some() && why.is_none() {
            troubles.xids.clear();
            troubles.uncorrected_error = false;
        }
        troubles.lost = why;
    }

    /// Memory of a GPU had an error that could not be corrected. The XID that comes with it says how bad it is.
    pub(crate) fn uncorrected_error(&mut self, uuid: &str) {
        self.troubles(uuid).uncorrected_error = true;
    }

    /// A GPU cannot report anything, for this reason; without one it can.
    pub(crate) fn unmonitored(&mut self, uuid: &str, why: Option<String>) {
        self.troubles(uuid).unmonitored = why;
    }

    /// The driver was loaded anew, which resets all GPUs.
    pub(crate) fn reset(&mut self) {
        self.gpus.clear();
    }

    /// Forgets what is long ago.
    pub(crate) fn forgive(&mut self, now: Instant) {
        if let Some(after) = self.forgive_after {
            for troubles in self.gpus.values_mut() {
                troubles.xids.retain(|xid| now.saturating_duration_since(xid.seen) < after);
            }
        }
    }

    /// What is to be told of each device.
    pub(crate) fn tell(&self, inventory: &Inventory) -> Vec<Told> {
        let tell = |(name, offer): (&DeviceName, &Offer)| {
            let (health, taints) = match offer.gpu().and_then(|gpu| self.gpus.get(&gpu.uuid)) {
                Some(troubles) => self.of_device(troubles, offer),
                None => (DeviceHealth::healthy(), Vec::new()),
            };
            (name.clone(), health, taints)
        };
        // Of a GPU that NVML does not see, nothing is known.
        inventory.offers().filter(|(_, offer)| offer.gpu().is_some()).map(tell).collect()
    }

    fn of_device(&self, troubles: &Troubles, offer: &Offer) -> (DeviceHealth, Vec<Taint>) {
        let mut taints = Vec::new();
        let mut health = DeviceHealth::healthy();
        if let Some(why) = &troubles.unmonitored {
            taints.push(Taint::new("gpu.nvidia.com/unmonitored", TaintEffect::None));
            health = DeviceHealth::unknown(format!("not monitored: {why}"));
        }
        if troubles.uncorrected_error {
            health = DeviceHealth::unhealthy("memory error that could not be corrected");
        }
        for xid in troubles.xids.iter().filter(|xid| concerns(xid, offer)) {
            let ignored = self.ignored.contains(&xid.code);
            let effect = if ignored { TaintEffect::None } else { TaintEffect::NoSchedule };
            // A device has one taint of a key and effect: the last error counts.
            taints.push(Taint::new("gpu.nvidia.com/xid", effect).value(xid.code.to_string()));
            if !ignored {
                health = DeviceHealth::unhealthy(format!("critical error XID {}", xid.code));
            }
        }
        if let Some(why) = &troubles.lost {
            taints.push(Taint::no_schedule("gpu.nvidia.com/gpu-lost"));
            health = DeviceHealth::unhealthy(why.as_str());
        }
        (health, taints)
    }

    fn troubles(&mut self, uuid: &str) -> &mut Troubles {
        self.gpus.entry(uuid.to_owned()).or_default()
    }
}

/// An error on one instance is no error of others. Which instance a partition will be that is not made yet, nobody knows.
fn concerns(xid: &Xid, offer: &Offer) -> bool {
    match (xid.gpu_instance, offer) {
        (None, _) => true,
        (Some(instance), Offer::Mig(_, mig)) => mig.gpu_instance == instance,
        (Some(_), Offer::Gpu(_) | Offer::NewMig(..) | Offer::Vfio(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::{a100, h100};

    fn told(health: &Health) -> Vec<(String, Vec<Taint>)> {
        let inventory = Inventory::of(&[a100(), h100()], &[], false).unwrap();
        let told = health.tell(&inventory).into_iter();
        told.filter(|(_, _, taints)| !taints.is_empty())
            .map(|(name, _, taints)| (name.to_string(), taints))
            .collect()
    }

    fn xid_taint(code: u64, effect: TaintEffect) -> Taint {
        Taint::new("gpu.nvidia.com/xid", effect).value(code.to_string())
    }

    const MIG: &str = "gpu-0-mig-1g5gb-19-2";

    #[test]
    fn an_error_of_the_whole_gpu_taints_all_of_it_and_those_of_applications_only_inform() {
        let mut health = Health::new([7], None);
        let now = Instant::now();
        health.xid(&a100().uuid, 79, None, now);
        health.xid(&h100().uuid, 13, None, now);
        health.xid(&h100().uuid, 7, None, now);
        let expected = [
            (MIG.to_owned(), vec![xid_taint(79, TaintEffect::NoSchedule)]),
            ("gpu-1".to_owned(), vec![xid_taint(13, TaintEffect::None), xid_taint(7, TaintEffect::None)]),
        ];
        assert_eq!(told(&health), expected);
    }

    #[test]
    fn an_error_of_one_instance_taints_nothing_else() {
        let mut health = Health::new([], None);
        health.xid(&a100().uuid, 79, Some(8), Instant::now());
        health.xid(&h100().uuid, 79, Some(9), Instant::now());
        assert_eq!(told(&health), []);
        health.xid(&a100().uuid, 79, Some(9), Instant::now());
        assert_eq!(told(&health), [(MIG.to_owned(), vec![xid_taint(79, TaintEffect::NoSchedule)])]);
    }

    #[test]
    fn errors_are_forgotten_after_a_reset_and_in_time_if_wanted() {
        let (uuid, now) = (h100().uuid, Instant::now());
        let mut health = Health::new([], Some(Duration::from_secs(60)));
        health.xid(&uuid, 79, None, now);
        health.forgive(now + Duration::from_secs(59));
        assert_eq!(told(&health).len(), 1);
        health.xid(&uuid, 79, None, now + Duration::from_secs(30));
        health.forgive(now + Duration::from_secs(61));
        assert_eq!(told(&health).len(), 1);
        health.forgive(now + Duration::from_secs(90));
        assert_eq!(told(&health), []);

        health.xid(&uuid, 79, None, now);
        health.lost(&uuid, Some("the GPU is lost".to_owned()));
        health.uncorrected_error(&uuid);
        assert_eq!(told(&health)[0].1.len(), 2);
        health.lost(&uuid, None);
        assert_eq!(told(&health), []);

        let mut health = Health::new([], None);
        health.xid(&uuid, 79, None, now);
        health.forgive(now + Duration::from_secs(1_000_000));
        health.lost(&uuid, None);
        assert_eq!(told(&health).len(), 1);
        health.reset();
        assert_eq!(told(&health), []);
    }
}
