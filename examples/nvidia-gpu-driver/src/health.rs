//! How the GPUs are: what they report by themselves and what a look at them shows, made into taints and health reports.

mod kept;
pub(crate) mod monitor;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use dra_kubeletplugin::{DeviceHealth, DeviceName, Taint, TaintEffect};
use serde::{Deserialize, Serialize};

use crate::inventory::{Inventory, Offer};

pub(crate) use kept::Kept;

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
    /// Why no GPU is looked at now.
    released: Option<String>,
}

/// What a driver that is started again has to know is in the file; the rest it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Troubles {
    #[serde(skip)]
    lost: Option<String>,
    #[serde(skip)]
    unmonitored: Option<String>,
    uncorrected_error: bool,
    xids: Vec<Xid>,
    /// Whether NVML has said since that it takes a reset or more: once it says that it takes nothing, there was one.
    needs_reset: bool,
}

/// A critical error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Xid {
    code: u64,
    /// What it is about; none if it is about the whole GPU.
    #[serde(default)]
    part: Option<Part>,
    seen: SystemTime,
}

/// The GPU instance that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    /// Its number.
    pub(crate) gpu_instance: u32,
    /// Its profile and first memory slice, which name a MIG device that was made for a claim; none if NVML did not tell.
    pub(crate) place: Option<(u32, u32)>,
}

/// Why a GPU does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) why: String,
    /// Whether it has fallen off the bus: it comes back by a reset only.
    pub(crate) off_the_bus: bool,
}

impl Health {
    /// All is well but what was kept. XIDs of applications are ignored, and these.
    pub(crate) fn new(
        also_ignored: impl IntoIterator<Item = u64>,
        forgive_after: Option<Duration>,
        kept: BTreeMap<String, Troubles>,
    ) -> Self {
        let ignored = OF_APPLICATIONS.into_iter().chain(also_ignored).collect();
        Self { ignored, forgive_after, gpus: kept, released: None }
    }

    /// What has to be kept for the next start: of each GPU with an error of its own.
    pub(crate) fn to_keep(&self) -> BTreeMap<String, Troubles> {
        let has_errors = |troubles: &Troubles| troubles.uncorrected_error || !troubles.xids.is_empty();
        let kept = self.gpus.iter().filter(|(_, troubles)| has_errors(troubles)).map(|(uuid, troubles)| {
            let troubles = Troubles { lost: None, unmonitored: None, ..troubles.clone() };
            (uuid.clone(), troubles)
        });
        kept.collect()
    }

    /// A GPU has reported a critical error.
    pub(crate) fn xid(&mut self, uuid: &str, code: u64, part: Option<Part>, now: SystemTime) {
        let xids = &mut self.troubles(uuid).xids;
        xids.retain(|xid| (xid.code, xid.part) != (code, part));
        xids.push(Xid { code, part, seen: now });
    }

    /// A GPU does not answer, for this reason; without one it does. That alone forgives nothing: any call may fail once.
    pub(crate) fn lost(&mut self, uuid: &str, why: Option<Lost>) {
        let troubles = self.troubles(uuid);
        troubles.needs_reset |= why.as_ref().is_some_and(|lost| lost.off_the_bus);
        troubles.lost = why.map(|lost| lost.why);
    }

    /// What NVML says that a GPU takes to be well again: nothing (0), a reset or more. If it took something and takes nothing
    /// any more, there was a reset, and errors of before are forgiven.
    pub(crate) fn recovery(&mut self, uuid: &str, action: u32) {
        let troubles = self.troubles(uuid);
        if action == 0 && troubles.needs_reset {
            troubles.xids.clear();
            troubles.uncorrected_error = false;
        }
        troubles.needs_reset = action != 0;
    }

    /// Nothing is looked at now, for this reason; without one it is.
    pub(crate) fn released(&mut self, why: Option<String>) {
        self.released = why;
    }

    /// Memory of a GPU had an error that could not be corrected. The XID that comes with it says how bad it is.
    pub(crate) fn uncorrected_error(&mut self, uuid: &str) {
        self.troubles(uuid).uncorrected_error = true;
    }

    /// A GPU cannot report anything, for this reason; without one it can.
    pub(crate) fn unmonitored(&mut self, uuid: &str, why: Option<String>) {
        self.troubles(uuid).unmonitored = why;
    }

    /// NVIDIA's driver was loaded again, which resets all GPUs.
    pub(crate) fn reset(&mut self) {
        self.gpus.clear();
    }

    /// Forgets what is long ago.
    pub(crate) fn forgive(&mut self, now: SystemTime) {
        if let Some(after) = self.forgive_after {
            for troubles in self.gpus.values_mut() {
                troubles.xids.retain(|xid| now.duration_since(xid.seen).unwrap_or_default() < after);
            }
        }
    }

    /// What is to be told of each device.
    pub(crate) fn tell(&self, inventory: &Inventory) -> Vec<Told> {
        let tell = |(name, offer): (&DeviceName, &Offer)| {
            let (mut health, mut taints) = match offer.gpu().and_then(|gpu| self.gpus.get(&gpu.uuid)) {
                Some(troubles) => self.of_device(troubles, offer),
                None => (DeviceHealth::healthy(), Vec::new()),
            };
            if let Some(why) = &self.released {
                taints.push(Taint::no_schedule("gpu.nvidia.com/released"));
                health = DeviceHealth::unknown(why.as_str());
            }
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

/// An error on one instance is no error of others. Where NVML did not tell which MIG device of a claim it was, it may be any.
fn concerns(xid: &Xid, offer: &Offer) -> bool {
    let Some(part) = xid.part else { return true };
    match offer {
        Offer::Mig(_, mig) => mig.gpu_instance == part.gpu_instance,
        Offer::NewMig(_, profile, placement) => {
            part.place.is_none_or(|place| place == (profile.shape.id, placement.start))
        }
        Offer::Gpu(_) => part.place.is_none(),
        Offer::Vfio(_) => false,
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

    /// One of which NVML did not tell the place.
    fn part(gpu_instance: u32) -> Part {
        Part { gpu_instance, place: None }
    }

    const MIG: &str = "gpu-0-mig-1g5gb-19-2";

    #[test]
    fn an_error_of_the_whole_gpu_taints_all_of_it_and_those_of_applications_only_inform() {
        let mut health = Health::new([7], None, BTreeMap::new());
        let now = SystemTime::now();
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
        let mut health = Health::new([], None, BTreeMap::new());
        health.xid(&a100().uuid, 79, Some(part(8)), SystemTime::now());
        let place = Some((19, 2));
        health.xid(&h100().uuid, 79, Some(Part { gpu_instance: 9, place }), SystemTime::now());
        assert_eq!(told(&health), []);
        health.xid(&a100().uuid, 79, Some(part(9)), SystemTime::now());
        assert_eq!(told(&health), [(MIG.to_owned(), vec![xid_taint(79, TaintEffect::NoSchedule)])]);
    }

    #[test]
    fn an_error_on_a_partition_that_was_made_for_a_claim_taints_that_one() {
        let mut gpu = h100();
        gpu.mig_enabled = Some(true);
        let inventory = Inventory::of(&[gpu.clone()], &[], true).unwrap();
        let tainted = |health: &Health| -> Vec<String> {
            let told = health.tell(&inventory).into_iter().filter(|(_, _, taints)| !taints.is_empty());
            told.map(|(name, ..)| name.to_string()).collect()
        };
        let mut health = Health::new([], None, BTreeMap::new());
        health.xid(&gpu.uuid, 94, Some(Part { gpu_instance: 9, place: Some((19, 2)) }), SystemTime::now());
        assert_eq!(tainted(&health), ["gpu-1-mig-1g5gb-19-2"]);
        health.reset();
        health.xid(&gpu.uuid, 94, Some(part(9)), SystemTime::now());
        assert_eq!(tainted(&health).len(), 9, "which one it was is not known");
    }

    #[test]
    fn errors_are_forgotten_in_time_if_asked() {
        let (uuid, now) = (h100().uuid, SystemTime::now());
        let mut health = Health::new([], Some(Duration::from_secs(60)), BTreeMap::new());
        health.xid(&uuid, 79, None, now);
        health.forgive(now + Duration::from_secs(59));
        assert_eq!(told(&health).len(), 1);
        health.xid(&uuid, 79, None, now + Duration::from_secs(30));
        health.forgive(now + Duration::from_secs(61));
        assert_eq!(told(&health).len(), 1);
        health.forgive(now + Duration::from_secs(90));
        assert_eq!(told(&health), []);

        let mut health = Health::new([], None, BTreeMap::new());
        health.xid(&uuid, 79, None, now);
        health.forgive(now + Duration::from_secs(1_000_000));
        assert_eq!(told(&health).len(), 1);
        health.reset();
        assert_eq!(told(&health), []);
    }

    #[test]
    fn only_evidence_of_a_reset_forgives_errors() {
        let uuid = h100().uuid;
        let broken = || {
            let mut health = Health::new([], None, BTreeMap::new());
            health.xid(&uuid, 48, None, SystemTime::now());
            health.uncorrected_error(&uuid);
            health
        };
        let is_forgiven = |health: &Health| health.to_keep().is_empty() && told(health).is_empty();
        let lost = |off_the_bus| Some(Lost { why: "no answer".to_owned(), off_the_bus });

        let mut health = broken();
        health.lost(&uuid, lost(false));
        health.lost(&uuid, None);
        health.recovery(&uuid, 0);
        assert!(!is_forgiven(&health), "a call has failed once");

        let mut health = broken();
        health.recovery(&uuid, 0);
        health.recovery(&uuid, 1);
        assert!(!is_forgiven(&health));
        health.recovery(&uuid, 0);
        assert!(is_forgiven(&health), "it took a reset, and takes none any more");

        let mut health = broken();
        health.lost(&uuid, lost(true));
        health.lost(&uuid, None);
        assert!(!is_forgiven(&health), "NVML does not say that it takes nothing");
        health.recovery(&uuid, 0);
        assert!(is_forgiven(&health), "it is back on the bus");
    }

    #[test]
    fn while_nvml_is_released_all_gpus_say_so() {
        let mut health = Health::new([], None, BTreeMap::new());
        health.released(Some("released".to_owned()));
        assert!(
            told(&health)
                .iter()
                .all(|(_, taints)| taints == &[Taint::no_schedule("gpu.nvidia.com/released")])
        );
        assert_eq!(told(&health).len(), 2);
        health.released(None);
        assert_eq!(told(&health), []);
    }
}
