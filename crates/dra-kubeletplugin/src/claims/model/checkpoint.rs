//! What another driver program has prepared before the first instance started: its checkpoint tells, until the claim is
//! unprepared or the machine is started again.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    api::Api,
    books::Books,
    dice::Dice,
    hardware::{Hardware, may_share},
    world::CLAIMS,
};
use crate::{
    Adopt, AdoptedClaim, AdoptedDevice,
    claim::{AllocatedDevice, ClaimRef},
    names::ClaimUid,
};

/// Claims and their devices, and whether their names are known.
#[derive(Default)]
pub(super) struct Checkpoint(BTreeMap<ClaimUid, (ClaimRef, Vec<AllocatedDevice>, bool)>);

impl Checkpoint {
    /// Some of the claims, as far as they may share their devices; marks them as in use.
    pub(super) fn random(dice: &Dice, api: &Api, hardware: &mut Hardware, books: &mut Books) -> Self {
        let mut checkpoint = Self::default();
        if !dice.one_in(3) {
            return checkpoint;
        }
        for index in 0..CLAIMS {
            let claim = api.current(index);
            let results = api.allocation(&claim).map(|allocation| allocation.results).unwrap_or_default();
            let taken = || checkpoint.0.values().flat_map(|(_, held, _)| held);
            let fits = results.iter().all(|wanted| taken().all(|held| may_share(held, wanted)));
            if results.is_empty() || !fits || dice.one_in(2) {
                continue;
            }
            let adopted = |result: AllocatedDevice| {
                let share = result.share_id().map(str::to_owned);
                AllocatedDevice::adopted(result.device_ref().clone(), share, result.admin_access())
            };
            let results: Vec<_> = results.into_iter().map(adopted).collect();
            hardware.prepared_before(&claim.uid, &results);
            books.prepared_before(&claim.uid);
            checkpoint.0.insert(claim.uid.clone(), (claim, results, dice.one_in(2)));
        }
        checkpoint
    }

    /// What the driver answers.
    pub(super) fn adopt(&self, which: Adopt<'_>) -> Vec<AdoptedClaim<u64>> {
        let wanted = |uid: &ClaimUid| match which {
            Adopt::All => true,
            Adopt::Claim(claim) => uid == claim,
        };
        let claims = self.0.iter().filter(|(uid, _)| wanted(uid));
        let adopted = claims.map(|(uid, (claim, results, named))| {
            let device = |result: &AllocatedDevice| {
                let device = AdoptedDevice::from(result.device_ref().clone());
                let device = device.admin_access(result.admin_access());
                match result.share_id() {
                    Some(share) => device.share(share),
                    None => device,
                }
            };
            let adopted = AdoptedClaim::new(uid.clone(), results.iter().map(device), 0);
            if *named { adopted.named(&*claim.namespace, &*claim.name) } else { adopted }
        });
        adopted.collect()
    }

    pub(super) fn has(&self, claim: &ClaimUid) -> bool {
        self.0.contains_key(claim)
    }

    /// Those without a record.
    pub(super) fn all_but(&self, recorded: &BTreeSet<ClaimUid>) -> BTreeSet<ClaimUid> {
        self.0.keys().filter(|claim| !recorded.contains(*claim)).cloned().collect()
    }

    pub(super) fn remove(&mut self, claim: &ClaimUid) {
        self.0.remove(claim);
    }

    /// Forgets all; gives which claims these were.
    pub(super) fn clear(&mut self) -> Vec<ClaimUid> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}
