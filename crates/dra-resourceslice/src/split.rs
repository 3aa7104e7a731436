//! Cutting a pool into slices.

use std::ops::Range;

use crate::{AttributeValue, Device, limits};

/// How many devices a slice may have; fewer once one of them has taints, consumes counters or has a list
/// attribute.
pub(crate) fn max_devices(advanced: bool) -> usize {
    if advanced { limits::MAX_DEVICES_ADVANCED } else { limits::MAX_DEVICES }
}

/// Whether the device lowers the number of devices that its slice may have.
pub(crate) fn is_advanced(device: &Device) -> bool {
    !device.taints.is_empty()
        || !device.consumes_counters.is_empty()
        || device.attributes.values().any(AttributeValue::is_list)
}

/// Cuts devices into runs that each fit into a slice, keeping their order, each as long as can be.
/// No devices make no run.
pub(crate) fn devices(devices: &[Device]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start < devices.len() {
        let end = start + first_run(&devices[start..]);
        runs.push(start..end);
        start = end;
    }
    runs
}

/// Cuts that many counter sets into runs that each fit into a slice.
pub(crate) fn counter_sets(count: usize) -> Vec<Range<usize>> {
    let starts = (0..count).step_by(limits::MAX_COUNTER_SETS);
    starts.map(|start| start..count.min(start + limits::MAX_COUNTER_SETS)).collect()
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
    use crate::Taint;
    use proptest::prelude::*;

    fn device(advanced: bool) -> Device {
        let device = Device::named("d").unwrap();
        if advanced { device.taint(Taint::no_schedule("t")) } else { device }
    }

    fn lengths(list: &[Device]) -> Vec<usize> {
        devices(list).iter().map(Range::len).collect()
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
        assert_eq!(counter_sets(17), [0..8, 8..16, 16..17]);
        assert_eq!(counter_sets(16), [0..8, 8..16]);
        assert!(counter_sets(0).is_empty());
    }

    proptest! {
        #[test]
        fn every_run_fits_and_no_device_is_lost(flags in prop::collection::vec(any::<bool>(), 0..600)) {
            let list: Vec<_> = flags.iter().map(|&advanced| device(advanced)).collect();
            let runs = devices(&list);
            let fits = |run: &[Device]| run.len() <= max_devices(run.iter().any(is_advanced));
            prop_assert!(runs.iter().all(|run| run.start < run.end && fits(&list[run.clone()])));
            prop_assert!(runs.into_iter().flatten().eq(0..list.len()));
        }
    }
}
