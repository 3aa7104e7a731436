//! Claims that get no devices: why, device by device.

use std::collections::{BTreeMap, BTreeSet};

use dra_allocator::{
    Explanation, Known, RequestExplanation, TaintRule, asks_for_extended_resources, explain, implicit_claim,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use super::subject::{claims_of, find, is_allocated, listed, name_of, waits_for_a_node};
use crate::finding::{Device, Finding, Reason, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{ObjectName, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    waiting(snapshot, |cluster| {
        let pods = cluster.waiting.iter().filter_map(|(pod, claims)| of_pod(cluster, pod, claims));
        pods.chain(unused(snapshot)).collect()
    })
}

/// Driver and name.
type PoolName<'a> = (&'a str, &'a str);

/// What the decisions of the scheduler rest on, found by node and by pool: a large cluster has thousands of both.
pub(super) struct Cluster<'a> {
    /// The pools that a node may have devices of, by the node; under the empty name those that are not for a single one.
    pools: BTreeMap<&'a str, BTreeSet<PoolName<'a>>>,
    /// The slices of each pool: whether it is whole depends on those for other nodes too.
    slices: BTreeMap<PoolName<'a>, Vec<&'a ResourceSlice>>,
    /// The claims that hold devices, by driver and pool.
    holders: BTreeMap<PoolName<'a>, Vec<&'a ResourceClaim>>,
    classes: &'a [DeviceClass],
    taint_rules: &'a [TaintRule],
    nodes: &'a [Node],
    /// The pods that wait for a node, with their claims that are not allocated. What they ask for as extended resources
    /// depends on the node.
    pub(super) waiting: Vec<(&'a Pod, Vec<ResourceClaim>)>,
}

/// Looks at the pods that wait for devices, if all is seen that says why.
pub(super) fn waiting(snapshot: &Snapshot, look: impl FnOnce(&Cluster<'_>) -> Vec<Finding>) -> Verdict {
    snapshot.pods.verdict(|pods| {
        snapshot.claims.verdict(|claims| {
            snapshot.slices.verdict(|slices| {
                snapshot.classes.verdict(|classes| {
                    snapshot.taint_rules.verdict(|taint_rules| {
                        snapshot.nodes.check(|nodes| {
                            let waiting =
                                pods.iter().filter_map(|pod| with_open_claims(pod, claims)).collect();
                            look(&Cluster {
                                pools: pools_by_node(slices),
                                slices: by_pool(slices),
                                holders: holders_by_pool(claims),
                                classes,
                                taint_rules,
                                nodes,
                                waiting,
                            })
                        })
                    })
                })
            })
        })
    })
}

/// The pod with its claims that are not allocated, if it waits for a node and has such claims.
fn with_open_claims<'a>(pod: &'a Pod, claims: &[ResourceClaim]) -> Option<(&'a Pod, Vec<ResourceClaim>)> {
    if !waits_for_a_node(pod) {
        return None;
    }
    let named = claims_of(pod).into_iter().filter_map(|(_, name)| find(claims, &name));
    let open: Vec<ResourceClaim> = named.filter(|claim| !is_allocated(claim)).cloned().collect();
    (!open.is_empty() || asks_for_extended_resources(pod)).then_some((pod, open))
}

fn pool_of(slice: &ResourceSlice) -> PoolName<'_> {
    (&slice.spec.driver, &slice.spec.pool.name)
}

fn pools_by_node(slices: &[ResourceSlice]) -> BTreeMap<&str, BTreeSet<PoolName<'_>>> {
    let mut by_node: BTreeMap<&str, BTreeSet<PoolName<'_>>> = BTreeMap::new();
    for slice in slices {
        by_node
            .entry(slice.spec.node_name.as_deref().unwrap_or_default())
            .or_default()
            .insert(pool_of(slice));
    }
    by_node
}

fn by_pool(slices: &[ResourceSlice]) -> BTreeMap<PoolName<'_>, Vec<&ResourceSlice>> {
    let mut by_pool: BTreeMap<PoolName<'_>, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        by_pool.entry(pool_of(slice)).or_default().push(slice);
    }
    by_pool
}

fn holders_by_pool(claims: &[ResourceClaim]) -> BTreeMap<PoolName<'_>, Vec<&ResourceClaim>> {
    let mut by_pool: BTreeMap<PoolName<'_>, Vec<&ResourceClaim>> = BTreeMap::new();
    for claim in claims {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        for result in devices.into_iter().flat_map(|devices| devices.results.iter().flatten()) {
            by_pool.entry((&result.driver, &result.pool)).or_default().push(claim);
        }
    }
    by_pool
}

impl Cluster<'_> {
    /// Why the claims get nothing, for each node that has devices, or nothing if they can be had on one.
    ///
    /// # Errors
    /// If it is not about nodes and devices: a class that does not exist, a selector that does not parse.
    pub(super) fn explain(
        &self,
        pod: &Pod,
        claims: &[ResourceClaim],
    ) -> Result<Option<Vec<Explanation>>, String> {
        let mut explanations = Vec::new();
        let mut nodes: Vec<&Node> =
            self.nodes.iter().filter(|node| self.slices_for(node).next().is_some()).collect();
        if nodes.is_empty() {
            // What is wrong with the claim itself is told on any node.
            nodes.extend(self.nodes.first());
        }
        for node in nodes {
            let slices: Vec<ResourceSlice> = self.slices_for(node).cloned().collect();
            let holders = self.holders_in(&slices);
            let known = Known {
                slices: &slices,
                classes: self.classes,
                claims: &holders,
                taint_rules: self.taint_rules,
            };
            let implicit = implicit_claim(pod, self.classes, node).map_err(|error| error.to_string())?;
            let claims: Vec<ResourceClaim> = claims.iter().cloned().chain(implicit).collect();
            if claims.is_empty() {
                // The node gives the resources by a device plugin, or no class is for them.
                return Ok(None);
            }
            let explanation = explain(&known, node, &claims).map_err(|error| error.to_string())?;
            match &explanation.error {
                None => return Ok(None),
                Some(error) if error.is_final() && !error.is_temporary() => return Err(error.to_string()),
                Some(_) => explanations.push(explanation),
            }
        }
        Ok(Some(explanations))
    }

    /// The slices of the pools that a node can have devices of.
    fn slices_for(&self, node: &Node) -> impl Iterator<Item = &ResourceSlice> {
        let places = [node.metadata.name.as_deref().unwrap_or_default(), ""];
        let pools: BTreeSet<&PoolName<'_>> =
            places.into_iter().flat_map(|place| self.pools.get(place).into_iter().flatten()).collect();
        pools.into_iter().flat_map(|pool| self.slices.get(pool).into_iter().flatten().copied())
    }

    /// The claims that hold devices of the pools of these slices.
    fn holders_in(&self, slices: &[ResourceSlice]) -> Vec<ResourceClaim> {
        let pools: BTreeSet<PoolName<'_>> = slices.iter().map(pool_of).collect();
        let holders = pools.iter().filter_map(|pool| self.holders.get(pool)).flatten();
        // One may hold devices of several pools.
        let holders: BTreeMap<ObjectName, &ResourceClaim> =
            holders.map(|claim| (name_of(&claim.metadata), *claim)).collect();
        holders.into_values().cloned().collect()
    }
}

fn of_pod(cluster: &Cluster<'_>, pod: &Pod, claims: &[ResourceClaim]) -> Option<Finding> {
    let mut names: Vec<String> = claims.iter().map(|claim| name_of(&claim.metadata).to_string()).collect();
    if asks_for_extended_resources(pod) {
        names.push("of its extended resources".to_owned());
    }
    let subject = format!("Pod {}, claim {}", name_of(&pod.metadata), listed(&names));
    let explanations = match cluster.explain(pod, claims) {
        Ok(explanations) => explanations?,
        Err(error) => {
            let advice = "correct the claim or the class; a claim cannot be changed, so make it anew";
            let problem = format!("the scheduler gives the pod up: {error}");
            return Some(Finding::new(FindingKind::ClaimInvalid, subject, problem, advice));
        }
    };
    let details = details(&explanations);
    let devices = devices(&explanations);
    let (kind, problem, advice) = if devices.is_empty() {
        (
            FindingKind::NoDevices,
            "no node has devices of a usable pool".to_owned(),
            "see that the driver runs on a node and publishes devices: `kubectl get resourceslices`, `dra-doctor node` there"
                .to_owned(),
        )
    } else if explanations.iter().any(|explanation| each_request_is_served(&explanation.requests)) {
        (
            FindingKind::NoCombination,
            "there are devices for each request, but they do not go together".to_owned(),
            "see the claim's constraints, and the counters and capacity that devices share; ask for less, or free devices \
             that fit"
                .to_owned(),
        )
    } else {
        (
            FindingKind::NoFreeDevice,
            format!("no node has enough devices{}", shortages(&explanations)),
            "free a device, publish more, or ask for less: what is said of each device tells which"
                .to_owned(),
        )
    };
    Some(Finding { devices, ..Finding::new(kind, subject, problem, advice).details(details) })
}

/// Of a request with alternatives one has to be served.
fn each_request_is_served(requests: &[RequestExplanation]) -> bool {
    let mut served: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for request in requests {
        let (name, _) = request.request.split_once('/').unwrap_or((&request.request, ""));
        *served.entry((&request.claim, name)).or_default() |= request.free() >= request.wanted.unwrap_or(1);
    }
    !served.is_empty() && served.into_values().all(|is_served| is_served)
}

/// The requests that no node has enough devices for, with what the best node has.
fn shortages(explanations: &[Explanation]) -> String {
    let mut requests: BTreeMap<(&str, &str), (Option<usize>, usize)> = BTreeMap::new();
    for request in explanations.iter().flat_map(|explanation| &explanation.requests) {
        let best = requests.entry((&request.claim, &request.request)).or_insert((request.wanted, 0));
        best.1 = best.1.max(request.free());
    }
    let short = requests.into_iter().filter(|(_, (wanted, free))| *free < wanted.unwrap_or(1));
    let short = short.map(|((claim, request), (wanted, free))| {
        let wanted = wanted.map_or_else(|| "all devices".to_owned(), |count| count.to_string());
        format!("{claim}, request {request} asks for {wanted} and can have {free}")
    });
    let short: Vec<String> = short.collect();
    if short.is_empty() { " for all requests".to_owned() } else { format!(": {}", short.join("; ")) }
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
                reasons: device.obstacles.iter().map(Reason::from).collect(),
            })
        })
        .collect()
}

/// A line for each reason, with the devices that it holds for; pools without use; what the scheduler would say.
fn details(explanations: &[Explanation]) -> Vec<String> {
    let mut by_reason: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut lines = Vec::new();
    for device in devices(explanations) {
        let reasons: Vec<&str> = device.reasons.iter().map(|reason| reason.text.as_str()).collect();
        let reason = if reasons.is_empty() { "free".to_owned() } else { reasons.join("; ") };
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
            FindingKind::ClaimUnused,
            format!("ResourceClaim {name}"),
            "no pod uses it: a claim is allocated only when a pod needs it",
            "name it in `spec.resourceClaims` of a pod in the same namespace",
        )
    })
}

#[cfg(test)]
mod tests {
    use dra_allocator::ObstacleKind;
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{claim, class, cluster, held, node, only, pod, slice};
    use crate::snapshot::Looked;

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
        assert_eq!(finding.kind, FindingKind::NoFreeDevice);
        assert!(finding.problem.ends_with("c, request gpu asks for 1 and can have 0"), "{finding:?}");
        let reason = &finding.devices[0].reasons[0];
        assert_eq!(
            (reason.kind, reason.text.as_str()),
            (ObstacleKind::Taint, "taint k:NoSchedule is not tolerated")
        );
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
        assert_eq!(only(&verdict).devices[0].reasons[0].text, "held by claim ns/d");
    }

    #[test]
    fn a_device_that_an_administrator_has_tainted_is_told_with_the_rule() {
        let taint = json!({"key": "maintenance", "effect": "NoSchedule"});
        let rule = json!({"kind": "DeviceTaintRule", "metadata": {"name": "swap-fans"},
            "spec": {"deviceSelector": {"pool": "node-1"}, "taint": taint}});
        let mut objects =
            vec![node(), class(), gpus(&json!({})), rule, claim("c", &json!({})), pod("p", "c", 0)];
        let verdict = check(&cluster(&objects));
        let reason = &only(&verdict).devices[0].reasons[0];
        assert_eq!(
            (reason.kind, reason.text.as_str()),
            (
                ObstacleKind::Taint,
                "taint maintenance:NoSchedule of DeviceTaintRule swap-fans is not tolerated"
            )
        );
        objects.remove(3);
        let unseen = Snapshot { taint_rules: Looked::CouldNot("403".into()), ..cluster(&objects) };
        assert_eq!(check(&unseen), Verdict::CouldNot("403".into()), "a rule may be the reason");
    }

    #[test]
    fn a_pod_that_asks_for_an_extended_resource_is_told_what_keeps_its_devices_away() {
        let mut class = class();
        class["spec"]["extendedResourceName"] = json!("example.com/gpu");
        let mut pod = pod("p", "none", 0);
        pod["spec"]["resourceClaims"] = json!([]);
        pod["spec"]["containers"] =
            json!([{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]);
        let objects = [node(), class.clone(), gpus(&json!({})), pod.clone()];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY);

        let held = claim("d", &held("gpu-0", "q"));
        let objects = [node(), class.clone(), gpus(&json!({})), held.clone(), pod.clone()];
        let verdict = check(&cluster(&objects));
        let finding = only(&verdict);
        assert_eq!(finding.subject, "Pod ns/p, claim of its extended resources");
        assert_eq!(finding.devices[0].reasons[0].text, "held by claim ns/d");

        let mut plugin = node();
        plugin["status"] = json!({"allocatable": {"example.com/gpu": "2"}});
        let objects = [plugin, class, gpus(&json!({})), held, pod];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY, "not a matter of DRA");
    }

    #[test]
    fn a_pool_is_whole_with_the_slices_of_other_nodes() {
        let first = slice("s", 1, 2, &json!([{"name": "gpu-0"}]));
        let mut second = slice("t", 1, 2, &json!([{"name": "gpu-1"}]));
        second["spec"]["nodeName"] = json!("node-2");
        let objects = [node(), class(), first, second, claim("c", &json!({})), pod("p", "c", 0)];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY);
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
    fn of_alternatives_one_has_to_be_served() {
        let mut choosy = claim("c", &json!({}));
        let alternative =
            |name: &str, count: u8| json!({"name": name, "deviceClassName": "gpu", "count": count});
        let request =
            json!({"name": "gpu", "firstAvailable": [alternative("many", 3), alternative("two", 2)]});
        choosy["spec"]["devices"]["requests"] = json!([request]);
        choosy["spec"]["devices"]["constraints"] = json!([{"matchAttribute": "gpu.example.com/numa"}]);
        let numa = |name: &str, value: i64| json!({"name": name, "attributes": {"numa": {"int": value}}});
        let two = slice("s", 1, 1, &json!([numa("a", 0), numa("b", 1)]));
        let verdict = check(&cluster(&[node(), class(), two, choosy, pod("p", "c", 0)]));
        assert_eq!(only(&verdict).kind, FindingKind::NoCombination, "{verdict:?}");
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
