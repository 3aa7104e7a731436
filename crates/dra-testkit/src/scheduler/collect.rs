//! What happens to claims when their pods are gone.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus};

use super::error::SchedulerError;
use super::{FINALIZER, Scheduler, templates};
use crate::api::ObjectKey;

/// The end of pods.
impl Scheduler {
    /// Frees what pods that are gone, or have ended, leave behind: reservations, allocations that nobody holds any
    /// more, and claims that were made for a pod that is gone.
    ///
    /// Call it once the kubelet has unprepared the claims. Returns how many claims changed.
    ///
    /// # Errors
    /// If a write is refused.
    pub fn collect(&self) -> Result<usize, SchedulerError> {
        let pods = self.api.list::<Pod>();
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        let existing: BTreeSet<String> = pods.iter().filter_map(uid).collect();
        let active: BTreeSet<String> = pods.iter().filter(|pod| !has_ended(pod)).filter_map(uid).collect();
        let mut changed = 0;
        for claim in self.api.list::<ResourceClaim>() {
            changed += usize::from(self.collect_one(claim, &existing, &active)?);
        }
        Ok(changed)
    }

    /// Frees one claim as far as it can be freed; returns whether it changed. Somebody else may write the claim
    /// meanwhile (the driver its status): then all is decided again, as a controller does.
    fn collect_one(
        &self,
        mut claim: ResourceClaim,
        existing: &BTreeSet<String>,
        active: &BTreeSet<String>,
    ) -> Result<bool, SchedulerError> {
        loop {
            let is_leaving = claim.metadata.deletion_timestamp.is_some();
            let is_orphan =
                !is_leaving && templates::owner(&claim).is_some_and(|owner| !existing.contains(owner));
            let status = claim.status.clone().unwrap_or_default();
            let is_active = |consumer: &ResourceClaimConsumerReference| active.contains(&consumer.uid);
            let held: Vec<_> =
                status.reserved_for.iter().flatten().filter(|c| is_active(c)).cloned().collect();
            let leaves = held.len() < status.reserved_for.as_ref().map_or(0, Vec::len);
            let is_half_free = status.allocation.is_none() && is_protected(&claim);
            if !(leaves || is_half_free || is_orphan) {
                return Ok(false);
            }
            let key = key_of(&claim);
            match self.free(claim, held, is_orphan) {
                Err(error) if error.is_conflict() => match self.api.get(key) {
                    Some(newer) => claim = newer,
                    None => return Ok(true),
                },
                freed => return freed.map(|()| true),
            }
        }
    }

    /// Leaves only the reservations `held`; without any, gives the allocation back; deletes an orphan.
    fn free(
        &self,
        mut claim: ResourceClaim,
        held: Vec<ResourceClaimConsumerReference>,
        is_orphan: bool,
    ) -> Result<(), SchedulerError> {
        let is_free = held.is_empty();
        if is_free {
            claim.status = Some(ResourceClaimStatus::default());
        } else {
            claim.status.get_or_insert_default().reserved_for = Some(held);
        }
        let mut claim = self.put(&claim)?;
        if is_free {
            claim.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
            // Without the finalizer a claim that is being deleted disappears, so there is no status to write then.
            claim.status = None;
            claim = self.put(&claim)?;
        }
        if !is_orphan {
            return Ok(());
        }
        let key = key_of(&claim);
        let what = format!("ResourceClaim {key}");
        let deleted = self.api.delete::<ResourceClaim>(key);
        deleted.map_err(|status| SchedulerError::Api { what, status: Box::new(status) })
    }
}

fn is_protected(claim: &ResourceClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn key_of(claim: &ResourceClaim) -> ObjectKey {
    let metadata = &claim.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (text(&metadata.namespace).as_str(), text(&metadata.name).as_str()).into()
}
