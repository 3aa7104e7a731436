//! Which devices go into which slice: where they are already if that is legal, else as few slices as can be.

use std::{collections::BTreeMap, ops::Range};

use crate::{CounterSet, Device, PoolWish, Slice, limits, observed::ObservedSlice, pool::PoolContent, split};

/// What of a pool is the content of one slice. Places count within a slice of the wish, of which there is one unless
/// the driver has cut the pool itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Devices { slice: usize, range: Range<usize> },
    CounterSets { slice: usize, places: Vec<usize> },
}

impl Part {
    /// All of a slice that the driver has made.
    fn whole(index: usize, slice: &Slice) -> Self {
        if slice.counter_sets.is_empty() {
            Self::Devices { slice: index, range: 0..slice.devices.len() }
        } else {
            Self::CounterSets { slice: index, places: (0..slice.counter_sets.len()).collect() }
        }
    }

    fn devices(range: Range<usize>) -> Self {
        Self::Devices { slice: 0, range }
    }

    fn counter_sets(places: Vec<usize>) -> Self {
        Self::CounterSets { slice: 0, places }
    }

    /// The slice of the wish.
    pub(crate) fn slice(&self) -> usize {
        match self {
            Self::Devices { slice, .. } | Self::CounterSets { slice, .. } => *slice,
        }
    }

    /// How many devices or counter sets it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Devices { range, .. } => range.len(),
            Self::CounterSets { places, .. } => places.len(),
        }
    }

    /// Whether an observed slice has the same, by name.
    fn has_names_of(&self, wished: &Slice, observed: &ObservedSlice) -> bool {
        if observed.devices.len() + observed.counter_sets.len() != self.len() {
            return false;
        }
        match self {
            Self::Devices { range, .. } => {
                let names = wished.devices[range.clone()].iter().map(|device| device.name.as_str());
                names.eq(observed.devices.iter().map(AsRef::as_ref))
            }
            Self::CounterSets { places, .. } => {
                let names = places.iter().map(|place| wished.counter_sets[*place].name.as_str());
                names.eq(observed.counter_sets.iter().map(AsRef::as_ref))
            }
        }
    }

    fn is_legal(&self, wished: &Slice) -> bool {
        match self {
            Self::Devices { range, .. } => {
                let advanced = wished.devices[range.clone()].iter().any(split::is_advanced);
                range.len() <= split::max_devices(advanced)
            }
            Self::CounterSets { places, .. } => places.len() <= limits::MAX_COUNTER_SETS,
        }
    }
}

/// What each slice of the pool shall have, in order. `observed` has the oldest generation first.
///
/// Moving a device from one slice to another costs two writes and, for consumers, the pool while they last. So
/// each device stays in its observed slice while the order and the limits allow it, whoever made the slices.
pub(crate) fn layout(wish: &PoolWish, observed: &[&ObservedSlice]) -> Vec<Part> {
    match &*wish.content.content {
        PoolContent::Slices(slices) => {
            slices.iter().enumerate().map(|(index, slice)| Part::whole(index, slice)).collect()
        }
        PoolContent::Whole(slice) => {
            let fresh = fresh(slice);
            // An interrupted change to fresh slices goes on; what is left of the old ones does not matter.
            if is_under_way(slice, &fresh, observed) { fresh } else { kept(slice, observed).unwrap_or(fresh) }
        }
    }
}

/// Whether every slice of the newest generation has what one of these parts has, by name.
fn is_under_way(wished: &Slice, parts: &[Part], observed: &[&ObservedSlice]) -> bool {
    let newest = observed.last().map(|slice| slice.generation);
    let mut current = observed.iter().filter(|slice| Some(slice.generation) == newest);
    current.all(|slice| parts.iter().any(|part| part.has_names_of(wished, slice)))
}

/// Counter sets first, then devices; a pool without either has one empty slice.
fn fresh(wished: &Slice) -> Vec<Part> {
    let counters = split::counter_sets(wished.counter_sets.len()).into_iter();
    let counters = counters.map(|places| Part::counter_sets(places.collect()));
    let devices = split::devices(&wished.devices).into_iter().map(Part::devices);
    let mut parts: Vec<_> = counters.chain(devices).collect();
    if parts.is_empty() {
        parts.push(Part::devices(0..0));
    }
    parts
}

/// The observed cut with the wished content, or nothing if that is not legal or not in order.
fn kept(wished: &Slice, observed: &[&ObservedSlice]) -> Option<Vec<Part>> {
    let mut observed = observed.to_vec();
    sort_by_wished_order(&mut observed, &wished.devices);
    let mut parts: Vec<Part> = observed.iter().map(|slice| empty_part(slice)).collect();
    place_devices(&wished.devices, &observed, &mut parts)?;
    place_counter_sets(&wished.counter_sets, &observed, &mut parts)?;
    parts.retain(|part| part.len() > 0);
    (!parts.is_empty() && parts.iter().all(|part| part.is_legal(wished))).then_some(parts)
}

/// Puts slices in the order in which the wish has their devices, because names need not tell the order.
/// Slices that have none of them keep their places in front.
fn sort_by_wished_order(observed: &mut [&ObservedSlice], devices: &[Device]) {
    let position: BTreeMap<&str, usize> =
        devices.iter().enumerate().map(|(index, device)| (device.name.as_str(), index)).collect();
    observed
        .sort_by_key(|slice| slice.devices.iter().filter_map(|name| position.get(&**name)).min().copied());
}

fn empty_part(slice: &ObservedSlice) -> Part {
    if slice.counter_sets.is_empty() { Part::devices(0..0) } else { Part::counter_sets(Vec::new()) }
}

/// Puts each device where it is, and a new one behind the device in front of it. Gives up when the order of the
/// slices is not the order of the devices.
fn place_devices(devices: &[Device], observed: &[&ObservedSlice], parts: &mut [Part]) -> Option<()> {
    let places = places(observed, |slice| &slice.devices);
    let first = devices.iter().find_map(|device| places.get(device.name.as_str()));
    let Some(mut current) = first.copied() else { return devices.is_empty().then_some(()) };
    for (index, device) in devices.iter().enumerate() {
        let place = places.get(device.name.as_str()).copied().unwrap_or(current);
        if place < current {
            return None;
        }
        current = place;
        match parts.get_mut(place)? {
            Part::Devices { range, .. } if range.start == range.end => *range = index..index + 1,
            Part::Devices { range, .. } => range.end = index + 1,
            Part::CounterSets { .. } => return None,
        }
    }
    Some(())
}

/// Puts each counter set where it is, and a new one into the last slice of counter sets.
fn place_counter_sets(sets: &[CounterSet], observed: &[&ObservedSlice], parts: &mut [Part]) -> Option<()> {
    let known = places(observed, |slice| &slice.counter_sets);
    let last = parts.iter().rposition(|part| matches!(part, Part::CounterSets { .. }));
    for (index, set) in sets.iter().enumerate() {
        let place = known.get(set.name.as_str()).copied().or(last)?;
        match parts.get_mut(place)? {
            Part::CounterSets { places, .. } => places.push(index),
            Part::Devices { .. } => return None,
        }
    }
    Some(())
}

/// In which of the slices each name is.
fn places<'a>(
    observed: &[&'a ObservedSlice],
    names: impl Fn(&'a ObservedSlice) -> &'a [Box<str>],
) -> BTreeMap<&'a str, usize> {
    let slices = observed.iter().enumerate();
    slices.flat_map(|(index, slice)| names(slice).iter().map(move |name| (&**name, index))).collect()
}
