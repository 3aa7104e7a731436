//! Taints that are set beside the wish.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch as channel;

use super::Wish;
use crate::{DeviceName, DriverResources, Feature, IfDropped, PoolName, Taint, TaintEffect};

/// A device of a pool.
type Key = (PoolName, DeviceName);

/// Taints by their source.
pub(super) type Beside = BTreeMap<String, OfSource>;

/// The taints of one source by device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfSource {
    taints: BTreeMap<Key, Vec<Taint>>,
    /// Whether these devices are left out where the API server drops taints.
    or_left_out: bool,
}

/// Sets and clears taints of published devices, without a new wish: tickets of the wish stay good, and what is set here
/// also counts for the wishes that follow. Clones are the same.
///
/// ```
/// # fn example(publisher: &dra_resourceslice::Publisher) -> Result<(), dra_resourceslice::InvalidName> {
/// use dra_resourceslice::Taint;
///
/// let gpu = ("node-1".parse()?, "gpu-3".parse()?);
/// let taints = publisher.taints();
/// taints.set("maintenance", [(gpu, Taint::no_schedule("gpu.example.com/maintenance"))]);
/// // Later:
/// taints.set("maintenance", []);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DeviceTaints(pub(super) channel::Sender<Wish>);

impl DeviceTaints {
    /// Sets the taints of one source, all of them: those that it has set before and does not name are cleared.
    ///
    /// The source is a name that the caller chooses, so that several can set taints without knowing of each other. If a
    /// device gets several taints with the same key and effect, from the wish or from sources, the one of the source that
    /// comes last in the alphabet counts. A device that no pool has is no error: it may come.
    pub fn set(&self, source: &str, taints: impl IntoIterator<Item = ((PoolName, DeviceName), Taint)>) {
        self.replace(source, taints, false);
    }

    /// The same, for devices that pods must not get. An API server whose gate `DRADeviceTaints` is off (the default before
    /// Kubernetes 1.36) drops taints: there the devices are left out of the slices for as long as they have a taint from
    /// this source, unless its effect is [`TaintEffect::None`]. Pods that have such a device keep it.
    pub fn set_or_leave_out(
        &self,
        source: &str,
        taints: impl IntoIterator<Item = ((PoolName, DeviceName), Taint)>,
    ) {
        self.replace(source, taints, true);
    }

    fn replace(&self, source: &str, taints: impl IntoIterator<Item = (Key, Taint)>, or_left_out: bool) {
        let mut of_source = OfSource { or_left_out, ..OfSource::default() };
        for (device, taint) in taints {
            of_source.taints.entry(device).or_default().push(taint);
        }
        self.0.send_if_modified(|wish| {
            let before = wish.taints.get(source);
            if before.map_or(of_source.taints.is_empty(), |before| *before == of_source) {
                return false;
            }
            let beside = Arc::make_mut(&mut wish.taints);
            if of_source.taints.is_empty() {
                beside.remove(source);
            } else {
                beside.insert(source.to_owned(), of_source);
            }
            wish.revision = wish.revision.saturating_add(1);
            true
        });
    }
}

/// The wish with these taints. Pure.
pub(super) fn tainted(mut resources: DriverResources, beside: &Beside) -> DriverResources {
    for (name, pool) in &mut resources.pools {
        // A pool without taints is shared, not copied.
        if !beside.values().flat_map(|source| source.taints.keys()).any(|(tainted, _)| tainted == name) {
            continue;
        }
        for device in pool.slices_mut().iter_mut().flat_map(|slice| &mut slice.devices) {
            let key = (name.clone(), device.name.clone());
            for source in beside.values() {
                for taint in source.taints.get(&key).into_iter().flatten() {
                    device.set_taint(taint.clone());
                    if source.or_left_out && taint.effect != TaintEffect::None {
                        device.if_dropped.insert(Feature::DeviceTaints, IfDropped::LeaveOut);
                    }
                }
            }
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Pool, Slice, TaintEffect};

    fn key(pool: &str, device: &str) -> Key {
        (pool.parse().unwrap(), device.parse().unwrap())
    }

    fn devices(names: &[&str]) -> Slice {
        Slice::new(names.iter().map(|name| Device::named(name).unwrap()))
    }

    /// Key and value of each taint, by device.
    fn seen(resources: &DriverResources) -> Vec<(String, Vec<String>)> {
        let slices = resources.pools.values().flat_map(Pool::slices);
        let text = |taint: &Taint| format!("{}={}", taint.key, taint.value.as_deref().unwrap_or_default());
        let devices = slices.flat_map(|slice| &slice.devices).filter(|device| !device.taints.is_empty());
        devices.map(|device| (device.name.to_string(), device.taints.iter().map(text).collect())).collect()
    }

    #[test]
    fn taints_reach_their_devices_in_whole_and_in_split_pools() {
        let whole = Pool::new(devices(&["a", "b"]).devices);
        let split = Pool::from_slices([devices(&["a"]), devices(&["b"])]);
        let resources =
            DriverResources::new().pool("p".parse().unwrap(), whole).pool("q".parse().unwrap(), split);
        let taint = |value: &str| Taint::new("k", TaintEffect::NoSchedule).value(value);
        let one = [(key("p", "a"), vec![taint("1")]), (key("q", "b"), vec![taint("2")])];
        let two = [(key("p", "a"), vec![taint("3"), Taint::no_execute("k")]), (key("p", "none"), vec![])];
        let of = |taints: [(Key, Vec<Taint>); 2]| OfSource { taints: taints.into(), or_left_out: false };
        let beside = Beside::from([("one".into(), of(one)), ("two".into(), of(two))]);
        let expected = [("a".into(), vec!["k=3".into(), "k=".into()]), ("b".into(), vec!["k=2".into()])];
        assert_eq!(seen(&tainted(resources.clone(), &beside)), expected);
        assert_eq!(tainted(resources.clone(), &Beside::new()), resources);
    }

    #[test]
    fn devices_that_pods_must_not_get_depend_on_their_taints_if_the_source_says_so() {
        for (or_left_out, effect, depends) in [
            (true, TaintEffect::NoSchedule, true),
            (true, TaintEffect::NoExecute, true),
            (true, TaintEffect::None, false),
            (false, TaintEffect::NoSchedule, false),
        ] {
            let taints = [(key("p", "a"), vec![Taint::new("k", effect)])].into();
            let beside = Beside::from([("health".to_owned(), OfSource { taints, or_left_out })]);
            let pool = Pool::new(devices(&["a", "b"]).devices);
            let resources = tainted(DriverResources::new().pool("p".parse().unwrap(), pool), &beside);
            let devices = resources.pools.values().flat_map(Pool::devices);
            let depending: Vec<_> = devices.map(|device| device.depends_on(Feature::DeviceTaints)).collect();
            assert_eq!(depending, [depends, false], "{effect:?}");
        }
    }
}
