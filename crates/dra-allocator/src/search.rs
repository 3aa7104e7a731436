//! The search for devices: depth first, the first fit, in the scheduler's order.
//!
//! Claims and requests are satisfied one after the other, and each device of a request comes from behind the one before it.
//! A step that leads nowhere is undone by forgetting its state.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Node;

use crate::capacity::Consumed;
use crate::constraints::Constraint;
use crate::counters::Counters;
use crate::error::AllocationError;
use crate::model::{Allocated, Amount, Device, DeviceKey, Slice};
use crate::pools::{Pool, PoolKey, PoolState};
use crate::requests::{Alternative, Wanted};

/// Most results that an allocation can have.
const MAX_RESULTS: usize = 32;

/// A device that was chosen.
#[derive(Debug, Clone)]
pub(crate) struct Chosen<'a> {
    pub(crate) request: usize,
    pub(crate) alternative: usize,
    pub(crate) slice: &'a Slice,
    pub(crate) device: &'a Device,
    /// The share of its capacity, if the device may be shared.
    pub(crate) share: Option<BTreeMap<String, Amount>>,
}

/// A whole solution.
#[derive(Debug, Clone)]
pub(crate) struct Solution<'a> {
    /// For each claim.
    pub(crate) devices: Vec<Vec<Chosen<'a>>>,
    /// The alternative of each request that has a list of them, by claim and request.
    pub(crate) alternatives: BTreeMap<(usize, usize), usize>,
}

/// What other claims hold.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    devices: BTreeSet<DeviceKey>,
    shared: BTreeMap<DeviceKey, Consumed>,
}

impl InUse {
    /// Access for administrators holds nothing.
    pub(crate) fn new<'a>(allocated: impl Iterator<Item = &'a Allocated>) -> Self {
        let mut in_use = Self::default();
        for result in allocated.filter(|result| !result.admin_access) {
            let key = (result.driver.clone(), result.pool.clone(), result.device.clone());
            if result.share_id.is_none() {
                in_use.devices.insert(key);
                continue;
            }
            let consumed = in_use.shared.entry(key).or_default();
            add(consumed, &result.consumed_capacity);
        }
        in_use
    }

    /// Whether a claim holds the whole device.
    pub(crate) fn holds_whole(&self, key: &DeviceKey) -> bool {
        self.devices.contains(key)
    }

    /// What shares of the device are taken.
    pub(crate) fn consumed(&self, key: &DeviceKey) -> Consumed {
        self.shared.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn has(&self, key: &DeviceKey) -> bool {
        self.devices.contains(key) || self.shared.contains_key(key)
    }
}

fn add(consumed: &mut Consumed, share: &BTreeMap<String, Amount>) {
    for (name, amount) in share {
        *consumed.entry(name.clone()).or_default() += amount.nanos;
    }
}

/// The search itself: what does not change while it runs.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    node: &'a Node,
    pools: &'a [Pool<'a>],
    claims: &'a [Wanted<'a>],
    in_use: &'a InUse,
    /// The devices of requests for all devices, by claim, request and alternative.
    all_devices: BTreeMap<(usize, usize, usize), Vec<Location>>,
    /// What selectors said, by claim, request, alternative and device.
    matches: HashMap<(usize, usize, usize, Location), bool>,
}

/// Pool, slice and device by number.
type Location = (usize, usize, usize);

/// The next device to find.
#[derive(Debug, Clone, Copy)]
struct Step {
    claim: usize,
    request: usize,
    alternative: usize,
    /// Number of the device within the request.
    device: usize,
}

/// What a branch of the search has chosen.
#[derive(Debug, Clone)]
struct State<'a> {
    solution: Solution<'a>,
    /// Devices that are not shared, with the claims that they are for.
    taken: BTreeMap<DeviceKey, BTreeSet<usize>>,
    shared: BTreeMap<DeviceKey, Consumed>,
    counters: BTreeMap<PoolKey, Counters>,
    constraints: Vec<Vec<Constraint>>,
}

/// Where a branch ends.
enum End<'a> {
    Found(Box<State<'a>>),
    Nothing,
    /// Nothing, because a claim would have too many results: other devices do not help, other alternatives may.
    TooMany,
}

impl<'a> Search<'a> {
    /// In the pools with devices for the node.
    ///
    /// # Errors
    /// If a request for all devices cannot know them, or a selector fails.
    pub(crate) fn new(
        pools: &'a [Pool<'a>],
        node: &'a Node,
        claims: &'a [Wanted<'a>],
        in_use: &'a InUse,
    ) -> Result<Self, AllocationError> {
        let (all_devices, matches) = (BTreeMap::new(), HashMap::new());
        let mut search = Self { node, pools, claims, in_use, all_devices, matches };
        for (number, claim) in claims.iter().enumerate() {
            search.count(number, claim)?;
        }
        Ok(search)
    }

    /// The first solution, or why there is none.
    ///
    /// # Errors
    /// As [`Search::new`], and if there is no solution.
    pub(crate) fn run(mut self) -> Result<Solution<'a>, AllocationError> {
        let state = State {
            solution: Solution {
                devices: vec![Vec::new(); self.claims.len()],
                alternatives: BTreeMap::new(),
            },
            taken: BTreeMap::new(),
            shared: BTreeMap::new(),
            counters: self.pools.iter().map(|pool| (pool.key.clone(), self.counters_in_use(pool))).collect(),
            constraints: self.claims.iter().map(|claim| claim.constraints.clone()).collect(),
        };
        match self.request(0, 0, &state)? {
            End::Found(state) => Ok(state.solution),
            End::Nothing | End::TooMany => Err(self.reason(&state)),
        }
    }

    fn counters_in_use(&self, pool: &Pool<'a>) -> Counters {
        let devices = pool.slices.iter().chain(&pool.elsewhere).flat_map(|slice| &slice.spec.devices);
        Counters::in_use(devices.filter(|device| self.in_use.has(&pool.key_of(device))))
    }

    /// Finds the devices of requests for all, and refuses claims with too many results.
    fn count(&mut self, number: usize, claim: &'a Wanted<'a>) -> Result<(), AllocationError> {
        let mut total = 0_usize;
        for (request, asked) in claim.requests.iter().enumerate() {
            let mut least = usize::MAX;
            for (index, alternative) in asked.alternatives.iter().enumerate() {
                let count = match alternative.count {
                    Some(count) => count,
                    None => self.all(number, request, index, alternative)?,
                };
                least = least.min(count);
            }
            total = total.saturating_add(least);
            if total > MAX_RESULTS {
                let (claim, request) = (claim.claim.metadata.name.clone(), asked.name.to_owned());
                return Err(AllocationError::TooMany { claim, request, limit: MAX_RESULTS });
            }
        }
        Ok(())
    }

    fn all(
        &mut self,
        claim: usize,
        request: usize,
        index: usize,
        alternative: &'a Alternative<'a>,
    ) -> Result<usize, AllocationError> {
        let step = Step { claim, request, alternative: index, device: 0 };
        let mut found = Vec::new();
        for pool in 0..self.pools.len() {
            let why = match &self.pools[pool].state {
                PoolState::Usable => None,
                PoolState::Incomplete => Some("being updated".to_owned()),
                PoolState::Invalid(reason) => Some(format!("invalid: {reason}")),
            };
            if let Some(why) = why {
                let (driver, name) = &self.pools[pool].key;
                return Err(AllocationError::AllOfPool {
                    claim: self.claims[claim].claim.metadata.name.clone(),
                    request: alternative.name.clone(),
                    pool: format!("{driver}/{name}"),
                    why,
                });
            }
            for location in self.locations(pool, (0, 0)) {
                let fits = self.is_selectable(step, location)? && {
                    let device = self.device(location).1;
                    self.share(step, device, &Consumed::new())?.is_some()
                };
                if fits {
                    found.push(location);
                }
            }
        }
        let count = found.len();
        self.all_devices.insert((claim, request, index), found);
        Ok(count)
    }

    /// Goes on with a request, or with the next claim.
    fn request(
        &mut self,
        claim: usize,
        request: usize,
        state: &State<'a>,
    ) -> Result<End<'a>, AllocationError> {
        let Some(wanted) = self.claims.get(claim) else { return Ok(End::Found(Box::new(state.clone()))) };
        let Some(asked) = wanted.requests.get(request) else {
            return Ok(match self.request(claim + 1, 0, state)? {
                // Another choice for an earlier claim may leave an alternative with fewer devices.
                End::TooMany => End::Nothing,
                end => end,
            });
        };
        if !asked.is_list {
            return self.devices(Step { claim, request, alternative: 0, device: 0 }, (0, 0, 0), state);
        }
        let mut all_too_many = true;
        for alternative in 0..asked.alternatives.len() {
            let mut state = state.clone();
            state.solution.alternatives.insert((claim, request), alternative);
            match self.devices(Step { claim, request, alternative, device: 0 }, (0, 0, 0), &state)? {
                End::TooMany => {}
                End::Nothing => all_too_many = false,
                found @ End::Found(_) => return Ok(found),
            }
        }
        Ok(if all_too_many { End::TooMany } else { End::Nothing })
    }

    /// Finds the step's device, from `start` on, and all that come after it.
    fn devices(
        &mut self,
        step: Step,
        start: Location,
        state: &State<'a>,
    ) -> Result<End<'a>, AllocationError> {
        let asked = self.asked(step);
        let all = self.all_devices.get(&(step.claim, step.request, step.alternative)).cloned();
        let count = match (asked.count, &all) {
            (Some(count), _) => count,
            (None, Some(all)) if !all.is_empty() => all.len(),
            // All devices are at least one.
            (None, _) => return Ok(End::Nothing),
        };
        if step.device >= count {
            return self.request(step.claim, step.request + 1, state);
        }
        if count - step.device > MAX_RESULTS - state.solution.devices[step.claim].len() {
            return Ok(End::TooMany);
        }
        let next = Step { device: step.device + 1, ..step };
        if let Some(location) = all.as_ref().and_then(|all| all.get(step.device)) {
            return match self.take(step, *location, state)? {
                Some(state) => self.devices(next, (0, 0, 0), &state),
                None => Ok(End::Nothing),
            };
        }
        for pool in start.0..self.pools.len() {
            if self.pools[pool].state != PoolState::Usable {
                continue;
            }
            let from = if pool == start.0 { (start.1, start.2) } else { (0, 0) };
            for location in self.locations(pool, from) {
                if !self.is_free(step, location, state)
                    || !self.is_selectable(step, location)?
                    || self.share_left(step, location, state)?.is_none()
                {
                    continue;
                }
                let Some(state) = self.take(step, location, state)? else { continue };
                match self.devices(next, (location.0, location.1, location.2 + 1), &state)? {
                    End::Nothing => {}
                    end => return Ok(end),
                }
            }
        }
        Ok(End::Nothing)
    }

    /// Why there is no solution: a request that cannot have its devices even alone, or that nothing fits together.
    fn reason(&mut self, state: &State<'a>) -> AllocationError {
        if let Some(pool) = self.pools.iter().find(|pool| matches!(pool.state, PoolState::Invalid(_))) {
            let PoolState::Invalid(reason) = &pool.state else { return AllocationError::NoCombination };
            let name = format!("{}/{}", pool.key.0, pool.key.1);
            return AllocationError::InvalidPool { pool: name, reason: reason.clone() };
        }
        for (number, claim) in self.claims.iter().enumerate() {
            for (request, asked) in claim.requests.iter().enumerate() {
                let step = Step { claim: number, request, alternative: 0, device: 0 };
                let wanted = asked.alternatives[0].count.unwrap_or(1);
                let found = self.alone(step, state);
                if asked.alternatives.len() == 1 && found < wanted {
                    let (claim, request) = (claim.claim.metadata.name.clone(), asked.name.to_owned());
                    return AllocationError::NotEnough { claim, request, wanted, found };
                }
            }
        }
        AllocationError::NoCombination
    }

    /// How many devices the step could have, each by itself.
    fn alone(&mut self, step: Step, state: &State<'a>) -> usize {
        let usable = |pool: &usize| self.pools[*pool].state == PoolState::Usable;
        let pools: Vec<usize> = (0..self.pools.len()).filter(usable).collect();
        let locations: Vec<Location> =
            pools.into_iter().flat_map(|pool| self.locations(pool, (0, 0))).collect();
        let mut count = 0;
        for location in locations {
            let is_selectable = self.is_selectable(step, location).unwrap_or(false);
            count += usize::from(is_selectable && matches!(self.take(step, location, state), Ok(Some(_))));
        }
        count
    }
}
