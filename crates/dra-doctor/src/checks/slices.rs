//! Drivers without slices, and pools that are not whole or contradict themselves.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::sockets::drivers_that_answer;
use super::subject::listed;
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    let unpublished = nothing_published(snapshot);
    let pools = snapshot.slices.check(|slices| {
        let is_wanted = |driver: &str| snapshot.driver.as_ref().is_none_or(|wanted| driver == wanted);
        findings(slices.iter().filter(|slice| is_wanted(&slice.spec.driver)))
    });
    match (unpublished, pools) {
        (Some(mut unpublished), Verdict::Looked(pools)) => {
            unpublished.extend(pools);
            Verdict::Looked(unpublished)
        }
        // A look at a node does not ask about the pools of all others.
        (Some(unpublished), Verdict::NotAsked(_)) => Verdict::Looked(unpublished),
        (_, pools) => pools,
    }
}

/// The drivers that answer here and have published nothing for this node; nothing if it is not known what they have.
fn nothing_published(snapshot: &Snapshot) -> Option<Vec<Finding>> {
    let (published, node) = (snapshot.published.seen()?, snapshot.node.as_ref()?);
    let without = drivers_that_answer(snapshot).into_iter().filter(|driver| !published.contains(*driver));
    let told = without.map(|driver| {
        Finding::new(
            FindingKind::NothingPublished,
            format!("driver {driver}"),
            format!("it has a socket on node {node}, and no ResourceSlice that could be for this node"),
            "look at the driver's log for slices that the API server refuses and for rights that are missing, which \
             `dra-doctor cluster --account NAMESPACE/NAME` names, too",
        )
    });
    Some(told.collect())
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
                FindingKind::SliceCountsDiffer,
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
                FindingKind::PoolIncomplete,
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
                FindingKind::OldGeneration,
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
            FindingKind::DeviceTwice,
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
    use crate::snapshot::{Answer, Looked, PluginInfo, RegistrationSocket};

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
    fn a_driver_without_slices_for_its_node_is_told() {
        let info = PluginInfo {
            kind: "DRAPlugin".into(),
            name: "gpu.example.com".into(),
            endpoint: "/dra.sock".into(),
            versions: Vec::new(),
        };
        let (answer, service) = (Answer::Good(info), Answer::Good(()));
        let mut snapshot = Snapshot {
            node: Some("node-1".into()),
            registry: Looked::At(vec![RegistrationSocket { path: "/r.sock".into(), answer, service }]),
            ..Snapshot::default()
        };
        assert!(matches!(check(&snapshot), Verdict::NotAsked(_)), "nobody knows what it has");
        snapshot.published = Looked::At(BTreeSet::from(["gpu.example.com".to_owned()]));
        assert_eq!(check(&snapshot), Verdict::HEALTHY);
        snapshot.published = Looked::At(BTreeSet::new());
        assert_eq!(only(&check(&snapshot)).kind, FindingKind::NothingPublished);
        snapshot.slices = Looked::At(Vec::new());
        assert_eq!(only(&check(&snapshot)).kind, FindingKind::NothingPublished);
        snapshot.driver = Some("net.example.com".into());
        assert_eq!(check(&snapshot), Verdict::HEALTHY, "another driver is of interest");
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
