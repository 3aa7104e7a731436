//! Claims that get no devices: why, device by device.

use std::collections::{BTreeMap, BTreeSet};

use dra_allocator::{Explanation, Known, RequestExplanation, explain};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use super::subject::{claims_of, find, is_allocated, listed, name_of, waits_for_a_node};
use crate::finding::{Device, Finding, Verdict};
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    waiting(snapshot, |cluster| {
        let pods = cluster.waiting.iter().filter_map(|(pod, claims)| of_pod(cluster, pod, claims));
        pods.chain(unused(snapshot)).collect()
    })
}

/// What the decisions of the scheduler rest on.
pub(super) struct Cluster<'a> {
    slices: &'a [ResourceSlice],
    classes: &'a [DeviceClass],
    claims: &'a [ResourceClaim],
    nodes: &'a [Node],
    /// The pods that wait for a node, with their claims that are not allocated.
    pub(super) waiting: Vec<(&'a Pod, Vec<ResourceClaim>)>,
}

/// Looks at the pods that wait for devices, if all is seen that says why.
pub(super) fn waiting(snapshot: &Snapshot, look: impl FnOnce(&Cluster<'_>) -> Vec<Finding>) -> Verdict {
    snapshot.pods.verdict(|pods| {
        snapshot.claims.verdict(|claims| {
            snapshot.slices.verdict(|slices| {
                snapshot.classes.verdict(|classes| {
                    snapshot.nodes.check(|nodes| {
                        let waiting = pods.iter().filter(|pod| waits_for_a_node(pod));
                        let waiting = waiting.filter_map(|pod| {
                            let names = claims_of(pod).into_iter();
                            let wanted: Vec<ResourceClaim> = names
                                .filter_map(|(_, name)| find(claims, &name))
                                .filter(|claim| !is_allocated(claim))
                                .cloned()
                                .collect();
                            (!wanted.is_empty()).then_some((pod, wanted))
                        });
                        let waiting = waiting.collect();
                        look(&Cluster { slices, classes, claims, nodes, waiting })
                    })
                })
            })
        })
    })
}

impl Cluster<'_> {
    /// Why the claims get nothing, for each node that has devices, or nothing if they can be had on one.
    ///
    /// # Errors
    /// If it is not about nodes and devices: a class that does not exist, a selector that does not parse.
    pub(super) fn explain(&self, claims: &[ResourceClaim]) -> Result<Option<Vec<Explanation>>, String> {
        let mut explanations = Vec::new();
        let mut with_slices: Vec<(&Node, Vec<ResourceSlice>)> =
            self.nodes.iter().map(|node| (node, self.slices_for(node))).collect();
        with_slices.retain(|(_, slices)| !slices.is_empty());
        if with_slices.is_empty() {
            // What is wrong with the claim itself is told on any node.
            with_slices.extend(self.nodes.first().map(|node| (node, Vec::new())));
        }
        for (node, slices) in with_slices {
            let holders = self.claims_of(&slices);
            let known = Known { slices: &slices, classes: self.classes, claims: &holders };
            let explanation = explain(&known, node, claims).map_err(|error| error.to_string())?;
            match &explanation.error {
                None => return Ok(None),
                Some(error) if error.is_final() => return Err(error.to_string()),
                Some(_) => explanations.push(explanation),
            }
        }
        Ok(Some(explanations))
    }

    /// The slices of the pools that a node can have devices of.
    fn slices_for(&self, node: &Node) -> Vec<ResourceSlice> {
        let elsewhere = |slice: &&ResourceSlice| {
            slice.spec.node_name.is_some() && slice.spec.node_name != node.metadata.name
        };
        self.slices.iter().filter(|slice| !elsewhere(slice)).cloned().collect()
    }

    /// The claims that hold devices of the pools of these slices. On a large cluster that is a small part of all.
    fn claims_of(&self, slices: &[ResourceSlice]) -> Vec<ResourceClaim> {
        let pools: BTreeSet<(&str, &str)> =
            slices.iter().map(|slice| (slice.spec.driver.as_str(), slice.spec.pool.name.as_str())).collect();
        let holds = |claim: &&ResourceClaim| {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
            let mut results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
            results.any(|result| pools.contains(&(result.driver.as_str(), result.pool.as_str())))
        };
        self.claims.iter().filter(holds).cloned().collect()
    }
}

fn of_pod(cluster: &Cluster<'_>, pod: &Pod, claims: &[ResourceClaim]) -> Option<Finding> {
    let names: Vec<String> = claims.iter().map(|claim| name_of(&claim.metadata).to_string()).collect();
    let subject = format!("Pod {}, claim {}", name_of(&pod.metadata), listed(&names));
    let explanations = match cluster.explain(claims) {
        Ok(explanations) => explanations?,
        Err(error) => {
            let advice = "correct the claim or the class; a claim cannot be changed, so make it anew";
            return Some(Finding::new(subject, format!("the scheduler gives the pod up: {error}"), advice));
        }
    };
    let details = details(&explanations);
    let devices = devices(&explanations);
    let problem = if devices.is_empty() {
        "no node has devices of a usable pool".to_owned()
    } else if explanations.iter().any(|explanation| each_request_is_served(&explanation.requests)) {
        "there are devices for each request, but they do not go together: see the claim's constraints, and the counters \
         that devices share"
            .to_owned()
    } else {
        format!("no device can be had: each of {} is kept away", devices.len())
    };
    let advice = if devices.is_empty() {
        "see that the driver runs on a node and publishes devices: `kubectl get resourceslices`"
    } else {
        "free a device, publish more, or ask for less: what is said of each device tells which"
    };
    Some(Finding { devices, ..Finding::new(subject, problem, advice).details(details) })
}

fn each_request_is_served(requests: &[RequestExplanation]) -> bool {
    !requests.is_empty() && requests.iter().all(|request| request.free() >= request.wanted.unwrap_or(1))
}

fn devices(explanations: &[Explanation]) -> Vec<Device> {
    let requests = explanations.iter().flat_map(|explanation| &explanation.requests);
    requests
        .flat_map(|request| {
            request.devices.iter().map(|device| Device {
                claim: request.claim.clone(),
                request: request.request.clone(),
                driver: device.driver.clone(),
                pool: device.pool.clone(),
                device: device.device.clone(),
                reasons: device.obstacles.iter().map(ToString::to_string).collect(),
            })
        })
        .collect()
}

/// A line for each reason, with the devices that it holds for; pools without use; what the scheduler would say.
fn details(explanations: &[Explanation]) -> Vec<String> {
    let mut by_reason: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut lines = Vec::new();
    for device in devices(explanations) {
        let reason = if device.reasons.is_empty() { "free".to_owned() } else { device.reasons.join("; ") };
        let key = (format!("{}, request {}", device.claim, device.request), reason);
        by_reason.entry(key).or_default().push(format!("{}/{}", device.pool, device.device));
    }
    for ((request, reason), devices) in by_reason {
        lines.push(format!("{request}: {}: {reason}", listed(&devices)));
    }
    for (pool, reason) in explanations.iter().flat_map(|explanation| &explanation.unusable_pools) {
        lines.push(format!("pool {pool} is not usable: {reason}"));
    }
    lines
}

/// A claim that was asked about, and that no pod uses.
fn unused(snapshot: &Snapshot) -> Option<Finding> {
    let name = snapshot.claim.as_ref()?;
    let claim = find(snapshot.claims.seen()?, name)?;
    let is_used = snapshot.pods.seen()?.iter().any(|pod| claims_of(pod).iter().any(|(_, used)| used == name));
    (!is_allocated(claim) && !is_used).then(|| {
        Finding::new(
            format!("ResourceClaim {name}"),
            "no pod uses it: a claim is allocated only when a pod needs it",
            "name it in `spec.resourceClaims` of a pod in the same namespace",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{claim, class, cluster, held, node, only, pod, slice};
    use crate::snapshot::{Looked, ObjectName};

    fn gpus(more: &Value) -> Value {
        let mut gpu = json!({"name": "gpu-0"});
        for (field, value) in more.as_object().expect("fields") {
            gpu[field] = value.clone();
        }
        slice("s", 1, 1, &json!([gpu]))
    }

    #[test]
    fn a_pod_whose_devices_can_be_had_is_healthy() {
        let objects = [node(), class(), gpus(&json!({})), claim("c", &json!({})), pod("p", "c", 0)];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY);
    }

    #[test]
    fn each_device_is_told_with_its_reason() {
        let taint = gpus(&json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}));
        let verdict = check(&cluster(&[node(), class(), taint, claim("c", &json!({})), pod("p", "c", 0)]));
        let finding = only(&verdict);
        assert_eq!(finding.devices[0].reasons, ["taint k:NoSchedule is not tolerated"]);
        assert_eq!(finding.details, ["c, request gpu: node-1/gpu-0: taint k:NoSchedule is not tolerated"]);

        let held = claim("d", &held("gpu-0", "q"));
        let verdict = check(&cluster(&[
            node(),
            class(),
            gpus(&json!({})),
            held,
            claim("c", &json!({})),
            pod("p", "c", 0),
        ]));
        assert_eq!(only(&verdict).devices[0].reasons, ["held by claim ns/d"]);
    }

    #[test]
    fn what_is_wrong_beside_devices_is_told() {
        let verdict = check(&cluster(&[node(), class(), claim("c", &json!({})), pod("p", "c", 0)]));
        assert!(only(&verdict).problem.contains("no node has devices"), "{verdict:?}");

        let incomplete = slice("s", 1, 2, &json!([{"name": "gpu-0"}]));
        let verdict =
            check(&cluster(&[node(), class(), incomplete, claim("c", &json!({})), pod("p", "c", 0)]));
        assert!(only(&verdict).details[0].contains("some of its ResourceSlices are missing"), "{verdict:?}");

        let mut matching = claim("c", &json!({}));
        matching["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(2);
        matching["spec"]["devices"]["constraints"] = json!([{"matchAttribute": "gpu.example.com/numa"}]);
        let numa = |name: &str, value: i64| json!({"name": name, "attributes": {"numa": {"int": value}}});
        let two = slice("s", 1, 1, &json!([numa("a", 0), numa("b", 1)]));
        let verdict = check(&cluster(&[node(), class(), two, matching, pod("p", "c", 0)]));
        assert!(only(&verdict).problem.contains("do not go together"), "{verdict:?}");

        let mut failing = class();
        failing["spec"] = json!({"selectors": [{"cel": {"expression": "device.attributes['x'].y == 'z'"}}]});
        let verdict =
            check(&cluster(&[node(), failing, gpus(&json!({})), claim("c", &json!({})), pod("p", "c", 0)]));
        assert!(only(&verdict).problem.contains("no such key: y"), "{verdict:?}");
    }

    #[test]
    fn a_claim_that_no_pod_uses_is_told_only_if_asked_for() {
        let mut snapshot = cluster(&[node(), class(), claim("c", &json!({}))]);
        assert_eq!(check(&snapshot), Verdict::HEALTHY);
        snapshot.claim = Some(ObjectName::new("ns", "c"));
        assert!(only(&check(&snapshot)).problem.contains("no pod uses it"));
    }

    #[test]
    fn without_the_slices_nothing_is_said() {
        let snapshot = Snapshot { slices: Looked::CouldNot("403".into()), ..cluster(&[]) };
        assert_eq!(check(&snapshot), Verdict::CouldNot("403".into()));
    }
}
