//! Pools that are not whole, or that contradict themselves.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::subject::listed;
use crate::finding::{Finding, Verdict};
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.slices.check(|slices| {
        let is_wanted = |driver: &str| snapshot.driver.as_ref().is_none_or(|wanted| driver == wanted);
        findings(slices.iter().filter(|slice| is_wanted(&slice.spec.driver)))
    })
}

/// Whether nothing is wrong with any pool. While a driver changes one, something is.
pub(crate) fn are_whole(slices: &[ResourceSlice]) -> bool {
    findings(slices.iter()).is_empty()
}

fn findings<'a>(slices: impl Iterator<Item = &'a ResourceSlice>) -> Vec<Finding> {
    let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        pools.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
    }
    pools.into_iter().flat_map(|((driver, pool), slices)| of_pool(driver, pool, &slices)).collect()
}

fn of_pool(driver: &str, pool: &str, slices: &[&ResourceSlice]) -> Vec<Finding> {
    let subject = format!("pool {pool} of driver {driver}");
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
    let (current, old): (Vec<&ResourceSlice>, Vec<&ResourceSlice>) =
        slices.iter().copied().partition(|slice| slice.spec.pool.generation == newest);
    let mut findings = Vec::new();
    let counts: BTreeSet<i64> = current.iter().map(|slice| slice.spec.pool.resource_slice_count).collect();
    let wanted = counts.first().copied().unwrap_or_default();
    let names = || current.iter().map(|slice| name(slice)).collect();
    let republish =
        "restart the driver; if it stays so, look at its log for slices that the API server refuses";
    if counts.len() > 1 {
        findings.push(
            Finding::new(
                subject.clone(),
                format!(
                    "its slices of generation {newest} do not agree how many there are: {}",
                    listed(&Vec::from_iter(&counts))
                ),
                "see that only one program publishes this pool",
            )
            .details(names()),
        );
    } else if i64::try_from(current.len()).ok() != Some(wanted) {
        findings.push(
            Finding::new(
                subject.clone(),
                format!(
                    "it is incomplete: generation {newest} has {} slices of {wanted}, so no device of it is allocated",
                    current.len()
                ),
                republish,
            )
            .details(names()),
        );
    }
    if !old.is_empty() {
        findings.push(
            Finding::new(
                subject.clone(),
                format!(
                    "its slices are of several generations: {} are older than generation {newest} and not used",
                    old.len()
                ),
                republish,
            )
            .details(old.iter().map(|slice| name(slice)).collect()),
        );
    }
    let mut devices = BTreeSet::new();
    let all = current.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let twice: BTreeSet<&str> =
        all.map(|device| device.name.as_str()).filter(|name| !devices.insert(*name)).collect();
    if !twice.is_empty() {
        findings.push(Finding::new(
            subject,
            format!(
                "devices are in it twice, so none of it is allocated: {}",
                listed(&Vec::from_iter(twice))
            ),
            "see that only one program publishes this pool, and that names are unique in it",
        ));
    }
    findings
}

fn name(slice: &ResourceSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{cluster, only, slice};

    fn verdict(slices: &[Value]) -> Verdict {
        check(&cluster(slices))
    }

    #[test]
    fn whole_pools_are_healthy() {
        let [a, b] = [json!([{"name": "gpu-0"}]), json!([{"name": "gpu-1"}])];
        assert_eq!(verdict(&[]), Verdict::HEALTHY);
        assert_eq!(verdict(&[slice("a", 3, 2, &a), slice("b", 3, 2, &b)]), Verdict::HEALTHY);
    }

    #[test]
    fn what_is_wrong_with_a_pool_is_told() {
        let [a, b] = [json!([{"name": "gpu-0"}]), json!([{"name": "gpu-1"}])];
        for (slices, words) in [
            (vec![slice("a", 1, 2, &a)], "1 slices of 2"),
            (vec![slice("a", 2, 1, &a), slice("b", 1, 1, &b)], "several generations: 1 are older"),
            (vec![slice("a", 1, 2, &a), slice("b", 1, 3, &b)], "do not agree how many there are: 2, 3"),
            (
                vec![slice("a", 1, 2, &a), slice("b", 1, 2, &a)],
                "in it twice, so none of it is allocated: gpu-0",
            ),
        ] {
            let verdict = verdict(&slices);
            assert!(only(&verdict).problem.contains(words), "{verdict:?}");
        }
        let mut other = cluster(&[slice("a", 1, 2, &a)]);
        other.driver = Some("net.example.com".into());
        assert_eq!(check(&other), Verdict::HEALTHY, "another driver is of interest");
    }
}
