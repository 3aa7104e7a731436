//! Cutting a pool into slices.

use k8s_openapi::api::resource::v1::{CounterSet, Device};

use crate::{compat, limits};

/// How many devices a slice may have; fewer once one of them has taints, consumes counters or has a list
/// attribute.
pub(crate) fn max_devices(advanced: bool) -> usize {
    if advanced { limits::MAX_DEVICES_ADVANCED } else { limits::MAX_DEVICES }
}

/// Whether the device lowers the number of devices that its slice may have.
pub(crate) fn is_advanced(device: &Device) -> bool {
    device.taints.as_ref().is_some_and(|list| !list.is_empty())
        || device.consumes_counters.as_ref().is_some_and(|list| !list.is_empty())
        || device.attributes.iter().flatten().any(|(_, value)| compat::list(value).is_some())
}

/// Cuts devices into runs that each fit into a slice, keeping their order, each as long as can be.
/// No devices make no run.
pub(crate) fn devices(devices: &[Device]) -> Vec<&[Device]> {
    let mut runs = Vec::new();
    let mut rest = devices;
    while !rest.is_empty() {
        let (run, tail) = rest.split_at(first_run(rest));
        runs.push(run);
        rest = tail;
    }
    runs
}

/// Cuts counter sets into runs that each fit into a slice.
pub(crate) fn counter_sets(sets: &[CounterSet]) -> Vec<&[CounterSet]> {
    sets.chunks(limits::MAX_COUNTER_SETS).collect()
}

fn first_run(devices: &[Device]) -> usize {
    let first_advanced = devices.iter().take(limits::MAX_DEVICES).position(is_advanced);
    let length = match first_advanced {
        None => limits::MAX_DEVICES,
        // An advanced device beyond the lower limit ends the run in front of it.
        Some(index) => index.max(limits::MAX_DEVICES_ADVANCED),
    };
    length.min(devices.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::DeviceTaint;
    use proptest::prelude::*;

    fn device(advanced: bool) -> Device {
        Device { taints: advanced.then(|| vec![DeviceTaint::default()]), ..Default::default() }
    }

    fn lengths(list: &[Device]) -> Vec<usize> {
        devices(list).iter().map(|run| run.len()).collect()
    }

    #[test]
    fn plain_devices_are_cut_at_128() {
        let table: [(usize, &[usize]); 6] = [
            (0, &[]),
            (1, &[1]),
            (128, &[128]),
            (129, &[128, 1]),
            (300, &[128, 128, 44]),
            (256, &[128, 128]),
        ];
        for (count, expected) in table {
            assert_eq!(lengths(&vec![device(false); count]), expected, "{count}");
        }
        assert_eq!(lengths(&vec![device(false); 10_000]).len(), 79);
    }

    #[test]
    fn advanced_devices_are_cut_at_64() {
        assert_eq!(lengths(&vec![device(true); 129]), [64, 64, 1]);
    }

    #[test]
    fn one_advanced_device_lowers_only_its_own_slice() {
        let mut list = vec![device(false); 300];
        list[200] = device(true);
        assert_eq!(lengths(&list), [128, 72, 64, 36]);
        list[10] = device(true);
        // 0–63; then 64–191 have none; then 192–299 have number 200 and are cut in front of it at the least at 64.
        assert_eq!(lengths(&list), [64, 128, 64, 44]);
    }

    #[test]
    fn counter_sets_are_cut_at_8() {
        let sets = vec![CounterSet::default(); 17];
        assert_eq!(counter_sets(&sets).iter().map(|run| run.len()).collect::<Vec<_>>(), [8, 8, 1]);
    }

    proptest! {
        #[test]
        fn every_run_fits_and_no_device_is_lost(flags in prop::collection::vec(any::<bool>(), 0..600)) {
            let list: Vec<_> = flags.iter().map(|&advanced| device(advanced)).collect();
            let runs = devices(&list);
            prop_assert!(runs.iter().all(|run| !run.is_empty() && run.len() <= max_devices(run.iter().any(is_advanced))));
            prop_assert_eq!(runs.concat(), list);
        }
    }
}
