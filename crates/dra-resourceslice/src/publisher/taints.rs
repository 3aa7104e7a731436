//! Taints that are set beside the wish.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch as channel;

use super::Wish;
use crate::{DeviceName, DriverResources, PoolName, Taint};

/// A device of a pool.
type Key = (PoolName, DeviceName);

/// Taints by who sets them and by device.
pub(super) type Beside = BTreeMap<String, BTreeMap<Key, Vec<Taint>>>;

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
        let mut of_source: BTreeMap<Key, Vec<Taint>> = BTreeMap::new();
        for (device, taint) in taints {
            of_source.entry(device).or_default().push(taint);
        }
        self.0.send_if_modified(|wish| {
            let before = wish.taints.get(source);
            if before.map_or(of_source.is_empty(), |before| *before == of_source) {
                return false;
            }
            let beside = Arc::make_mut(&mut wish.taints);
            if of_source.is_empty() {
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
        if !beside.values().flat_map(BTreeMap::keys).any(|(tainted, _)| tainted == name) {
            continue;
        }
        for device in pool.slices_mut().iter_mut().flat_map(|slice| &mut slice.devices) {
            let key = (name.clone(), device.name.clone());
            for taint in beside.values().filter_map(|devices| devices.get(&key)).flatten() {
                device.set_taint(taint.clone());
            }
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Feature, IfDropped, Pool, Slice, TaintEffect};

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
        let beside = Beside::from([("one".into(), one.into()), ("two".into(), two.into())]);
        let expected = [("a".into(), vec!["k=3".into(), "k=".into()]), ("b".into(), vec!["k=2".into()])];
        assert_eq!(seen(&tainted(resources.clone(), &beside)), expected);
        assert_eq!(tainted(resources.clone(), &Beside::new()), resources);
    }

    #[test]
    fn devices_that_pods_must_not_get_depend_on_their_taints_if_those_say_so() {
        for (then, effect, depends) in [
            (IfDropped::LeaveOut, TaintEffect::NoSchedule, true),
            (IfDropped::LeaveOut, TaintEffect::NoExecute, true),
            (IfDropped::LeaveOut, TaintEffect::None, false),
            (IfDropped::Keep, TaintEffect::NoSchedule, false),
        ] {
            let one = [(key("p", "a"), vec![Taint::new("k", effect).if_dropped(then)])];
            let beside = Beside::from([("health".into(), one.into())]);
            let pool = Pool::new(devices(&["a", "b"]).devices);
            let resources = tainted(DriverResources::new().pool("p".parse().unwrap(), pool), &beside);
            let devices = resources.pools.values().flat_map(Pool::devices);
            let depending: Vec<_> = devices.map(|device| device.depends_on(Feature::DeviceTaints)).collect();
            assert_eq!(depending, [depends, false], "{effect:?}");
        }
    }
}
