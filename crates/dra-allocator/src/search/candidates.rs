//! One device in a branch of the search: whether it can be had, and what that changes.

use std::collections::BTreeMap;

use super::{Chosen, Location, Search, State, Step, add};
use crate::capacity::{self, Consumed};
use crate::error::AllocationError;
use crate::model::{Amount, Device, DeviceKey, Slice};
use crate::requests::{self, Alternative};
use crate::{pools, taints};

/// Feature that a node declares if its kubelet can leave out calls to the driver.
const SKIPS_OPERATIONS: &str = "DRAOptionalNodeOperations";

impl<'a> Search<'a> {
    /// The devices of a pool from this slice and device on.
    pub(super) fn locations(
        &self,
        pool: usize,
        (first_slice, first_device): (usize, usize),
    ) -> Vec<Location> {
        let slices = self.pools[pool].slices.iter().enumerate().skip(first_slice);
        slices
            .flat_map(|(slice, content)| {
                let first = if slice == first_slice { first_device } else { 0 };
                (first..content.spec.devices.len()).map(move |device| (pool, slice, device))
            })
            .collect()
    }

    pub(super) fn device(&self, (pool, slice, device): Location) -> (&'a Slice, &'a Device, DeviceKey) {
        let slice = self.pools[pool].slices[slice];
        let device = &slice.spec.devices[device];
        (slice, device, self.pools[pool].key_of(device))
    }

    pub(super) fn asked(&self, step: Step) -> &'a Alternative<'a> {
        &self.claims[step.claim].requests[step.request].alternatives[step.alternative]
    }

    pub(super) fn is_free(&self, step: Step, location: Location, state: &State<'a>) -> bool {
        let key = self.device(location).2;
        let claims = state.taken.get(&key);
        if self.asked(step).is_admin {
            return !claims.is_some_and(|claims| claims.contains(&step.claim));
        }
        claims.is_none() && !self.in_use.devices.contains(&key)
    }

    pub(super) fn is_selectable(&mut self, step: Step, location: Location) -> Result<bool, AllocationError> {
        let key = (step.claim, step.request, step.alternative, location);
        if let Some(matches) = self.matches.get(&key) {
            return Ok(*matches);
        }
        let matches = self.matches_selectors(step, location)? && self.is_placed_here(location);
        self.matches.insert(key, matches);
        Ok(matches)
    }

    fn matches_selectors(&self, step: Step, location: Location) -> Result<bool, AllocationError> {
        let (slice, device, (driver, pool, name)) = self.device(location);
        let asked = self.asked(step);
        if asked.selectors.is_empty() {
            return Ok(true);
        }
        let place = format!("{driver}/{pool}/{name}");
        let fault = |at: &str, error| requests::selector_error(at, &place, error);
        let subject = device.subject(&slice.spec.driver).map_err(|error| fault("ResourceSlice", error))?;
        for (at, selector) in &asked.selectors {
            if !selector.matches(&subject).map_err(|error| fault(at, error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_placed_here(&self, location: Location) -> bool {
        let (slice, device, _) = self.device(location);
        !slice.spec.per_device_node_selection || pools::includes(&device.place, self.node)
    }

    pub(super) fn share(
        &self,
        step: Step,
        device: &Device,
        consumed: &Consumed,
    ) -> Result<Option<BTreeMap<String, Amount>>, AllocationError> {
        let asked = self.asked(step);
        capacity::share(device, &asked.ask.capacity.requests, consumed).map_err(|reason| {
            AllocationError::Capacity {
                claim: self.claims[step.claim].claim.metadata.name.clone(),
                request: asked.name.clone(),
                device: device.name.clone(),
                reason,
            }
        })
    }

    /// The share of a device that the step would take, or none if what is left of it does not suffice.
    pub(super) fn share_left(
        &self,
        step: Step,
        location: Location,
        state: &State<'a>,
    ) -> Result<Option<BTreeMap<String, Amount>>, AllocationError> {
        let (_, device, key) = self.device(location);
        let mut consumed = self.in_use.consumed(&key);
        for (name, nanos) in state.shared.get(&key).into_iter().flatten() {
            *consumed.entry(name.clone()).or_default() += nanos;
        }
        self.share(step, device, &consumed)
    }

    /// The state with this device too, or none if it cannot be had.
    pub(super) fn take(
        &self,
        step: Step,
        location: Location,
        state: &State<'a>,
    ) -> Result<Option<State<'a>>, AllocationError> {
        let (slice, device, key) = self.device(location);
        let asked = self.asked(step);
        let claim = &self.claims[step.claim];
        if !self.is_free(step, location, state) || !self.can_skip(slice) {
            return Ok(None);
        }
        let mut next = state.clone();
        let is_shared_already = self.in_use.shared.contains_key(&key) || state.shared.contains_key(&key);
        let pool = &self.pools[location.0];
        // A further share of a device takes no more counters.
        let is_further_share = device.allow_multiple_allocations && is_shared_already;
        let is_counted = !device.consumes_counters.is_empty() && !is_further_share;
        if is_counted {
            let counters = next.counters.entry(pool.key.clone()).or_default();
            match counters.with(pool, device) {
                Some(with) => *counters = with,
                None => return Ok(None),
            }
        }
        if taints::forbid(device, &asked.tolerations) {
            return Ok(None);
        }
        let request = claim.requests[step.request].name;
        for constraint in &mut next.constraints[step.claim] {
            match constraint.with(&slice.spec.driver, device, request, &asked.name) {
                Some(with) => *constraint = with,
                None if asked.count.is_none() => {
                    return Err(AllocationError::Constraint {
                        claim: claim.claim.metadata.name.clone(),
                        request: asked.name.clone(),
                        device: key.2,
                    });
                }
                None => return Ok(None),
            }
        }
        let Some(share) = self.share_left(step, location, state)? else { return Ok(None) };
        if device.allow_multiple_allocations {
            add(next.shared.entry(key).or_default(), &share);
        } else {
            next.taken.entry(key).or_default().insert(step.claim);
        }
        next.solution.devices[step.claim].push(Chosen {
            request: step.request,
            alternative: step.alternative,
            slice,
            device,
            share: device.allow_multiple_allocations.then_some(share),
        });
        Ok(Some(next))
    }

    /// Whether the node can do what the slice says of calls to the driver.
    fn can_skip(&self, slice: &Slice) -> bool {
        let status = serde_json::to_value(&self.node.status).unwrap_or_default();
        let declared = status["declaredFeatures"].as_array();
        slice.spec.skip_node_operations.is_empty()
            || declared.is_some_and(|features| features.iter().any(|feature| feature == SKIPS_OPERATIONS))
    }
}
