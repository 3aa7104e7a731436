//! What is seen of a cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dra_allocator::{TaintRule, asks_for_extended_resources};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceSlice};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use super::{ClusterWanted, access, lists::Lists};
use crate::snapshot::{CLAIM_NOT_MADE, Event, Looked, NOT_PREPARED, ObjectName, Snapshot};

/// Pods that are looked at one by one.
const MOST_HOLDERS: usize = 100;
const SETTLES_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const GROUP: &str = "resource.k8s.io";
const NOT_FOUND: u16 = 404;
/// Versions of the API that have DeviceTaintRules: from Kubernetes 1.37, 1.36 and 1.33 on.
const RULE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];

pub(super) async fn look(client: &Client, wanted: &ClusterWanted, snapshot: &mut Snapshot) {
    snapshot.claim.clone_from(&wanted.claim);
    snapshot.versions = Looked::from_result(versions(client).await, "asking for the API groups");
    snapshot.access = match &wanted.account {
        None => Looked::NotAsked("name the driver's account with --account".into()),
        Some(account) => {
            let answer = access::look(client, account, wanted.writes_claim_status).await;
            Looked::from_result(answer, "asking what the account may do")
        }
    };
    let lists = Lists::new(client);
    snapshot.nodes = lists.all(ListParams::default(), "Nodes").await;
    snapshot.node_events = node_events(&lists).await;
    look_at_group(&lists, wanted, snapshot).await;
    snapshot.left_out = lists.into_left_out();
}

/// The objects of the group, and the pods that need them.
async fn look_at_group(lists: &Lists<'_>, wanted: &ClusterWanted, snapshot: &mut Snapshot) {
    let Some(versions) = snapshot.versions.seen().cloned() else {
        no_objects(snapshot, "the API groups are not known", true);
        return;
    };
    if !versions.iter().any(|version| version == "v1") {
        no_objects(snapshot, "resource.k8s.io/v1 is not served", false);
        return;
    }
    snapshot.slices = slices(lists).await;
    if let (Some(node), Some(slices)) = (&snapshot.node, snapshot.slices.seen()) {
        snapshot.drivers_here = Looked::At(drivers_of(slices, node));
    }
    snapshot.published = published(lists.client(), snapshot).await;
    snapshot.classes = lists.all(ListParams::default(), "DeviceClasses").await;
    snapshot.taint_rules = taint_rules(lists, &versions).await;
    snapshot.claims = lists.all(ListParams::default(), "ResourceClaims").await;
    snapshot.pods = pods(lists, wanted).await;
    snapshot.templates = templates(lists, wanted).await;
    snapshot.holders = holders(lists.client(), snapshot).await;
    snapshot.pod_events = pod_events(lists, wanted).await;
}

/// What a look at a node wants to know of the cluster; it goes on without.
pub(super) async fn look_for_node(client: &Client, snapshot: &mut Snapshot) {
    let lists = Lists::new(client);
    snapshot.node_events = node_events(&lists).await;
    if let Some(node) = &snapshot.node {
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let slices: Looked<Vec<ResourceSlice>> = lists.all(here, "ResourceSlices").await;
        snapshot.drivers_here = slices.map(|slices| drivers_of(&slices, node));
    }
    snapshot.left_out = lists.into_left_out();
    snapshot.published = published(client, snapshot).await;
}

/// Of the drivers that answer here, those that have a slice for this node or for no single one. One that has just begun is
/// given the time to publish.
async fn published(client: &Client, snapshot: &Snapshot) -> Looked<BTreeSet<String>> {
    let Some(node) = &snapshot.node else { return Looked::NotAsked("name the node with --node-name".into()) };
    let drivers = crate::checks::drivers_that_answer(snapshot);
    let end = Instant::now() + SETTLES_WITHIN;
    loop {
        let mut published = BTreeSet::new();
        for driver in &drivers {
            for place in [node.as_str(), ""] {
                let fields = format!("spec.driver={driver},spec.nodeName={place}");
                let parameters = ListParams::default().fields(&fields).limit(1);
                match Api::<ResourceSlice>::all(client.clone()).list(&parameters).await {
                    Ok(slices) if slices.items.is_empty() => {}
                    Ok(_) => {
                        published.insert((*driver).to_owned());
                    }
                    Err(error) => return Looked::CouldNot(format!("listing ResourceSlices: {error}")),
                }
            }
        }
        if published.len() == drivers.len() || Instant::now() >= end {
            return Looked::At(published);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn drivers_of(slices: &[ResourceSlice], node: &str) -> BTreeSet<String> {
    let here = slices.iter().filter(|slice| slice.spec.node_name.as_deref() == Some(node));
    here.map(|slice| slice.spec.driver.clone()).collect()
}

/// All slices. A driver that is changing a pool is given the time to end that.
async fn slices(lists: &Lists<'_>) -> Looked<Vec<ResourceSlice>> {
    let slices: Looked<Vec<ResourceSlice>> = lists.all(ListParams::default(), "ResourceSlices").await;
    if slices.seen().is_none_or(|slices| crate::checks::are_whole(slices)) {
        return slices;
    }
    tokio::time::sleep(SETTLES_WITHIN).await;
    lists.all(ListParams::default(), "ResourceSlices").await
}

/// Marks the objects of the group, and what needs them, as not seen.
fn no_objects(snapshot: &mut Snapshot, why: &str, is_failure: bool) {
    fn unseen<T>(why: &str, is_failure: bool) -> Looked<T> {
        if is_failure { Looked::CouldNot(why.to_owned()) } else { Looked::NotAsked(why.to_owned()) }
    }
    snapshot.slices = unseen(why, is_failure);
    snapshot.classes = unseen(why, is_failure);
    snapshot.taint_rules = unseen(why, is_failure);
    snapshot.claims = unseen(why, is_failure);
    snapshot.templates = unseen(why, is_failure);
    snapshot.pods = unseen(why, is_failure);
    snapshot.holders = unseen(why, is_failure);
    snapshot.pod_events = unseen(why, is_failure);
}

/// Those that are told of and served: an API server may tell of a version that another one has left in the cluster's
/// storage.
async fn versions(client: &Client) -> Result<Vec<String>, kube::Error> {
    let groups = client.list_api_groups().await?.groups;
    let group = groups.into_iter().find(|group| group.name == GROUP);
    let mut served = Vec::new();
    for version in group.into_iter().flat_map(|group| group.versions) {
        match client.list_api_group_resources(&version.group_version).await {
            Ok(_) => served.push(version.version),
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(served)
}

/// The DeviceTaintRules, by the newest version of the API that has them; none if no served version has.
async fn taint_rules(lists: &Lists<'_>, versions: &[String]) -> Looked<Vec<TaintRule>> {
    let what = "listing DeviceTaintRules";
    for version in RULE_VERSIONS.into_iter().filter(|version| versions.iter().any(|served| served == version))
    {
        let kind = GroupVersionKind::gvk(GROUP, version, "DeviceTaintRule");
        let resource = ApiResource::from_gvk_with_plural(&kind, "devicetaintrules");
        let api: Api<DynamicObject> = Api::all_with(lists.client().clone(), &resource);
        match lists.pages(&api, ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
            Err(error) => return Looked::CouldNot(format!("{what}: {error}")),
            Ok(rules) => {
                let read: Result<Vec<TaintRule>, _> = rules.iter().map(TaintRule::read).collect();
                return Looked::from_result(read, what);
            }
        }
    }
    Looked::At(Vec::new())
}

/// The pods to examine: the one that was named, those that use the claim that was named, or all that are pending.
async fn pods(lists: &Lists<'_>, wanted: &ClusterWanted) -> Looked<Vec<Pod>> {
    if let Some(name) = &wanted.pod {
        let api: Api<Pod> = Api::namespaced(lists.client().clone(), &name.namespace);
        return match api.get_opt(&name.name).await {
            Ok(Some(pod)) => Looked::At(vec![pod]),
            Ok(None) => Looked::CouldNot(format!("there is no pod {name}")),
            Err(error) => Looked::CouldNot(format!("reading pod {name}: {error}")),
        };
    }
    let pending = ListParams::default().fields("status.phase=Pending");
    let listed = match &wanted.claim {
        Some(claim) => {
            let api = Api::<Pod>::namespaced(lists.client().clone(), &claim.namespace);
            lists.pages(&api, ListParams::default()).await
        }
        None => lists.pages(&Api::<Pod>::all(lists.client().clone()), pending).await,
    };
    let uses_claims = |pod: &Pod| {
        let used = crate::checks::claims_of(pod);
        wanted.claim.as_ref().map_or_else(
            || {
                pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some())
                    || asks_for_extended_resources(pod)
            },
            |claim| used.iter().any(|(_, name)| name == claim),
        )
    };
    let listed = listed.map(|pods| pods.into_iter().filter(uses_claims).collect());
    Looked::from_result(listed, "listing Pods")
}

async fn templates(lists: &Lists<'_>, wanted: &ClusterWanted) -> Looked<Vec<ResourceClaimTemplate>> {
    let namespace = wanted.pod.as_ref().or(wanted.claim.as_ref()).map(|name| name.namespace.as_str());
    match namespace {
        None => lists.all(ListParams::default(), "ResourceClaimTemplates").await,
        Some(namespace) => {
            let api = Api::namespaced(lists.client().clone(), namespace);
            let listed = lists.pages(&api, ListParams::default()).await;
            Looked::from_result(listed, "listing ResourceClaimTemplates")
        }
    }
}

/// The pods that hold what others wait for.
async fn holders(client: &Client, snapshot: &Snapshot) -> Looked<Vec<Pod>> {
    let is_anybody_waiting = snapshot.pods.seen().is_some_and(|pods| !pods.is_empty());
    let claims = snapshot.claims.seen().into_iter().flatten().filter(|_| is_anybody_waiting);
    let names: BTreeSet<ObjectName> = claims.flat_map(crate::checks::reserved_for).collect();
    let mut holders = Vec::new();
    for name in names.into_iter().take(MOST_HOLDERS) {
        let api: Api<Pod> = Api::namespaced(client.clone(), &name.namespace);
        match api.get_opt(&name.name).await {
            Ok(pod) => holders.extend(pod),
            Err(error) => return Looked::CouldNot(format!("reading pod {name}: {error}")),
        }
    }
    Looked::At(holders)
}

async fn node_events(lists: &Lists<'_>) -> Looked<Vec<Event>> {
    // Events about nodes, which are in no namespace, are in this one.
    let api = Api::namespaced(lists.client().clone(), "default");
    events(lists, api, "regarding.kind=Node").await.map(|events| {
        let without_namespace = |event: Event| {
            let about = ObjectName::new("", event.about.name);
            Event { about, ..event }
        };
        events.into_iter().map(without_namespace).collect()
    })
}

/// The Events about pods whose claims cannot be made, or whose devices cannot be prepared.
async fn pod_events(lists: &Lists<'_>, wanted: &ClusterWanted) -> Looked<Vec<Event>> {
    let api = match wanted.pod.as_ref().or(wanted.claim.as_ref()) {
        Some(name) => Api::namespaced(lists.client().clone(), &name.namespace),
        None => Api::all(lists.client().clone()),
    };
    let of =
        async |reason: &str| events(lists, api.clone(), &format!("regarding.kind=Pod,reason={reason}")).await;
    match (of(CLAIM_NOT_MADE).await, of(NOT_PREPARED).await) {
        (Looked::At(mut not_made), Looked::At(not_prepared)) => {
            not_made.extend(not_prepared);
            Looked::At(not_made)
        }
        (Looked::At(_), unseen) | (unseen, _) => unseen,
    }
}

async fn events(lists: &Lists<'_>, api: Api<ApiEvent>, fields: &str) -> Looked<Vec<Event>> {
    let listed = lists.pages(&api, ListParams::default().fields(fields)).await;
    let listed = listed.map(|events| events.into_iter().map(event).collect());
    Looked::from_result(listed, "listing Events")
}

/// Programs that are older than this API leave its fields empty, and the API server fills in others.
fn event(event: ApiEvent) -> Event {
    let last = event.series.map(|series| series.last_observed_time).or(event.event_time);
    let last = last.map(|time| time.0.as_nanosecond());
    let last = last.or_else(|| event.deprecated_last_timestamp.map(|time| time.0.as_nanosecond()));
    let regarding = event.regarding.unwrap_or_default();
    Event {
        about: ObjectName::new(regarding.namespace.unwrap_or_default(), regarding.name.unwrap_or_default()),
        reason: event.reason.unwrap_or_default(),
        note: event.note.unwrap_or_default(),
        when: last.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// As an API server that does not serve v1 over the storage of one that does.
    async fn answer(request: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let version =
            |version: &str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
        let body = match request.uri().path() {
            "/apis" => {
                let versions = [version("v1"), version("v1beta1")];
                let group = json!({"name": GROUP, "versions": versions, "preferredVersion": versions[0]});
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}).to_string()
            }
            "/apis/resource.k8s.io/v1beta1" => {
                json!({"kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1beta1", "resources": []})
                    .to_string()
            }
            _ => {
                let mut nothing = Response::new(Body::from("404 page not found".as_bytes().to_vec()));
                *nothing.status_mut() = StatusCode::NOT_FOUND;
                return Ok(nothing);
            }
        };
        Ok(Response::new(Body::from(body.into_bytes())))
    }

    /// As an API server of 1.36, in which v1 has no DeviceTaintRules.
    async fn answer_rules(request: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let rule = |name: &str| {
            let spec =
                json!({"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "k", "effect": "NoExecute"}});
            json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec})
        };
        let (code, body) = match request.uri().path() {
            "/apis/resource.k8s.io/v1beta2/devicetaintrules" => {
                let list = json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRuleList", "metadata": {}, "items": [rule("a"), rule("b")]});
                (StatusCode::OK, list)
            }
            _ => (
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404}),
            ),
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = code;
        Ok(response)
    }

    #[tokio::test]
    async fn taint_rules_are_read_in_the_newest_version_that_has_them() {
        let client = Client::new(tower::service_fn(answer_rules), "default");
        let of = async |versions: &[&str]| {
            let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let rules = taint_rules(&Lists::new(&client), &versions).await;
            rules.seen().map(|rules| rules.iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["v1", "v1beta2", "v1beta1"]).await, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(of(&["v1", "v1beta1"]).await, Some(Vec::new()), "none is served, so there are none");
    }

    #[tokio::test]
    async fn a_version_that_is_told_of_and_not_served_is_none() {
        let client = Client::new(tower::service_fn(answer), "default");
        assert_eq!(versions(&client).await.unwrap(), ["v1beta1"]);
    }
}
