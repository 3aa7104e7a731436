//! The devices themselves, as far as anybody could damage them: they complain of every wrong touch.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    claim::{AllocatedClaim, AllocatedDevice, ClaimRef, DeviceRef},
    held::{HeldClaim, HeldDevice},
    names::ClaimUid,
};

#[derive(Default)]
pub(super) struct Hardware {
    /// What each claim has in use, from the first touch of a prepare to the end of a successful undo.
    in_use: BTreeMap<ClaimUid, Vec<AllocatedDevice>>,
    /// Devices that the driver is at work on, and for which claim.
    at_work: BTreeMap<DeviceRef, ClaimUid>,
    /// Devices that were powered up by their first user and wait for the last one to power them down.
    powered: BTreeSet<DeviceRef>,
    /// Which states the driver may be given at an undo: the last durable one, or one that a crash cut off.
    states: BTreeMap<ClaimUid, Vec<Option<u64>>>,
}

impl Hardware {
    /// Another program has prepared the claim.
    pub(super) fn prepared_before(&mut self, claim: &ClaimUid, devices: &[AllocatedDevice]) {
        let used = devices.iter().filter(|device| !device.admin_access());
        self.powered.extend(used.map(|device| device.device_ref().clone()));
        self.in_use.insert(claim.clone(), devices.to_vec());
        self.states.insert(claim.clone(), vec![Some(0)]);
    }

    /// What another program has prepared is over, and was never recorded.
    pub(super) fn forget_claim(&mut self, claim: &ClaimUid) {
        self.in_use.remove(claim);
        // What is recorded of the claim from now on has no state until a prepare saves one.
        self.states.insert(claim.clone(), vec![None]);
        let used: BTreeSet<_> = self
            .in_use
            .values()
            .flatten()
            .filter(|device| !device.admin_access())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|device| device.device_ref().clone())
            .collect();
        self.powered.retain(|device| used.contains(device));
    }

    /// A prepare begins, over what another program has prepared or not.
    pub(super) fn prepare(&mut self, claim: &AllocatedClaim, over: bool) -> Vec<String> {
        let (name, devices) = (claim.claim_ref(), claim.devices());
        let mut problems = self.start_work(name, devices.iter().map(AllocatedDevice::device_ref));
        if over {
            return problems;
        }
        if self.uses(claim.uid()) {
            problems.push(format!("{name} is prepared again without having been undone"));
        }
        for wanted in devices.iter().filter(|wanted| !wanted.admin_access()) {
            for (holder, held) in self.users(wanted.device_ref(), claim.uid()) {
                if !may_share(held, wanted) {
                    problems
                        .push(format!("{} is given to {name} while {holder} has it", wanted.device_ref()));
                }
            }
            self.powered.insert(wanted.device_ref().clone());
        }
        self.in_use.insert(claim.uid().clone(), devices.to_vec());
        self.states.insert(claim.uid().clone(), vec![None]);
        problems
    }

    /// The driver is about to have a state stored.
    pub(super) fn may_store(&mut self, claim: &ClaimUid, state: u64) {
        self.states.entry(claim.clone()).or_default().push(Some(state));
    }

    /// The driver was told that it is.
    pub(super) fn has_stored(&mut self, claim: &ClaimUid, state: u64) {
        self.states.insert(claim.clone(), vec![Some(state)]);
    }

    /// An undo begins. Only claims that are `known` can be told to the driver.
    pub(super) fn undo(&mut self, held: &HeldClaim<u64>, known: impl Fn(&ClaimUid) -> bool) -> Vec<String> {
        let name = &held.claim;
        let mut problems = self.start_work(name, held.devices.iter().map(HeldDevice::device_ref));
        if let Some(states) = self.states.get(&name.uid)
            && !states.contains(&held.state)
        {
            problems.push(format!("{name} is undone with state {:?}, not one of {states:?}", held.state));
        }
        for device in held.devices.iter().filter(|device| !device.result.admin_access()) {
            for (user, in_use) in self.users(device.device_ref(), &name.uid) {
                if !may_share(in_use, &device.result) {
                    problems
                        .push(format!("{} is taken from {name} while {user} has it", device.device_ref()));
                }
                if known(user)
                    && in_use.device_ref() == device.device_ref()
                    && !device.others.iter().any(|other| other.uid == *user)
                {
                    problems.push(format!(
                        "{name} leaves {} and is not told that {user} shares it",
                        device.device_ref()
                    ));
                }
            }
        }
        problems
    }

    /// It has succeeded.
    pub(super) fn undone(&mut self, held: &HeldClaim<u64>) -> Vec<String> {
        let in_use = self.in_use.remove(&held.claim.uid).unwrap_or_default();
        let was_told = |device: &AllocatedDevice| {
            held.devices.iter().any(|held| held.device_ref() == device.device_ref())
        };
        let forgotten = in_use.iter().filter(|device| !was_told(device));
        for device in held.devices.iter().filter(|device| !device.result.admin_access()) {
            if device.others.is_empty() {
                self.powered.remove(device.device_ref());
            }
        }
        // If the record outlives this, the next try may be for a prepare that never got to the driver.
        self.states.entry(held.claim.uid.clone()).or_default().push(None);
        forgotten.map(|device| format!("{} keeps {} for ever", held.claim, device.device_ref())).collect()
    }

    /// It loses power.
    pub(super) fn forget(&mut self) {
        self.in_use.clear();
        self.powered.clear();
    }

    /// A call has ended, one way or another.
    pub(super) fn end_work(&mut self, claim: &ClaimUid) {
        self.at_work.retain(|_, worker| worker != claim);
    }

    pub(super) fn uses(&self, claim: &ClaimUid) -> bool {
        self.in_use.contains_key(claim)
    }

    pub(super) fn in_use(&self) -> &BTreeMap<ClaimUid, Vec<AllocatedDevice>> {
        &self.in_use
    }

    pub(super) fn powered(&self) -> &BTreeSet<DeviceRef> {
        &self.powered
    }

    fn start_work<'a>(
        &mut self,
        claim: &ClaimRef,
        devices: impl Iterator<Item = &'a DeviceRef>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for device in devices {
            if let Some(other) = self.at_work.insert(device.clone(), claim.uid.clone()) {
                problems.push(format!("calls for {claim} and {other} overlap on {device}"));
            }
        }
        problems
    }

    /// Who else has the device, or one that excludes it; those with admin access are not counted.
    fn users(
        &self,
        device: &DeviceRef,
        but: &ClaimUid,
    ) -> impl Iterator<Item = (&ClaimUid, &AllocatedDevice)> {
        let all = self.in_use.iter().flat_map(|(uid, devices)| devices.iter().map(move |d| (uid, d)));
        let touches = move |used: &DeviceRef| used == device || exclude_each_other(used, device);
        all.filter(move |(uid, used)| *uid != but && !used.admin_access() && touches(used.device_ref()))
    }
}

/// Two of the devices are one card, whole and in part; the driver says so, as their names do not.
pub(super) fn exclude_each_other(one: &DeviceRef, other: &DeviceRef) -> bool {
    let is_card = |device: &DeviceRef| matches!(device.device.as_str(), "gpu-1" | "gpu-2");
    one != other && is_card(one) && is_card(other)
}

/// Whether two claims may have these at once.
pub(super) fn may_share(one: &AllocatedDevice, other: &AllocatedDevice) -> bool {
    let shares = one.share_id().is_some() && other.share_id().is_some();
    let same = one.device_ref() == other.device_ref();
    one.admin_access()
        || other.admin_access()
        || (same && shares)
        || !(same || exclude_each_other(one.device_ref(), other.device_ref()))
}
