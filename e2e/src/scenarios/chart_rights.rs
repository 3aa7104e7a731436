//! What the accounts of the mock driver's chart may do: each right of their roles is used, and the rest is refused, by RBAC,
//! by the API server's own rules and by the chart's policies.
//!
//! The driver itself does not run: it would put right what is written here.

use std::{collections::BTreeSet, fmt::Debug};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Node, Pod, Secret},
        events::v1::Event,
        rbac::v1::{ClusterRole, PolicyRule, Role},
        resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    },
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::{AuthInfo, KubeConfigOptions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::gpu::DRIVER;
use crate::{
    account::Account,
    chart,
    context::Context,
    node,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const OTHER_DRIVER: &str = "other.example.com";
const OTHER_NODE: &str = "node-2";
/// Everything that comes with rights, and nothing that runs.
const VALUES: [&str; 5] = [
    "webhook.enabled=false",
    "gpu.bindingConditions=true",
    "healthAnnotations=true",
    "nodeSelector.runs=nowhere",
    "bindingController.nodeSelector.runs=nowhere",
];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("accounts_of_the_chart_may_write_what_is_theirs_and_use_each_right", |cx| {
            Box::pin(rights(cx))
        })
        .tier(Tier::Smoke),
    ]
}

async fn rights(cx: &Context) -> Result<()> {
    chart::apply(cx, &VALUES).await?;
    let controller = format!("{}-binding-controller", chart::NAME);
    let driver = Seat::take(cx, chart::NAME).await?;
    let controlling = Seat::take(cx, &controller).await?;
    let claims = Claims::make(cx).await?;

    let mut used = Used::default();
    slices_of_the_own_node(&driver.client, &mut used).await?;
    claims.of_the_own_node(&driver.client, &mut used).await?;
    node_events_and_health(&driver.client, &mut used).await?;
    let [events, health] = ["events", "health"].map(|role| format!("{}-{role}", chart::NAME));
    let namespaced = [("default", events.as_str()), (chart::NAMESPACE, &health)];
    ensure_all_used(&used, cx, chart::NAME, &namespaced).await?;

    refused_slices(cx, &driver.client).await?;
    claims.refused(&driver.client).await?;
    refused_others(cx, &driver.client).await?;

    let mut used = Used::default();
    claims.of_any_node(&controlling.client, &mut used).await?;
    ensure_all_used(&used, cx, &controller, &[]).await?;
    claims.refused_to_all(&controlling.client).await?;
    Ok(())
}

/// A client that is, to the API server, in a pod on the node that has this account.
struct Seat {
    client: Client,
}

impl Seat {
    async fn take(cx: &Context, account: &str) -> Result<Self> {
        let mut pod = ShellPod::new(&format!("seat-of-{account}"), "exec sleep 3600").build();
        if let Some(spec) = &mut pod.spec {
            spec.service_account_name = Some(account.to_owned());
            spec.node_name = Some(node::NAME.to_owned());
        }
        let pods: Api<Pod> = Api::namespaced(cx.client.clone(), chart::NAMESPACE);
        let pod = pods.create(&PostParams::default(), &pod).await.context("making a pod of the account")?;
        let token = Account::existing(cx, chart::NAMESPACE, account).token_with(&pod).await?;
        let mut config = Config::from_kubeconfig(&KubeConfigOptions::default()).await?;
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        Ok(Self { client: Client::try_from(config)? })
    }
}

/// Which rights were used with success, as `verb resource`.
#[derive(Default)]
struct Used(BTreeSet<String>);

impl Used {
    async fn allowed<T>(
        &mut self,
        verb: &str,
        resource: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        let right = format!("{verb} {resource}");
        let done = call.await.with_context(|| format!("{right} should be allowed"))?;
        self.0.insert(right);
        Ok(done)
    }
}

/// Every right of the account's roles has to be among those that were used, and the other way round. `namespaced` are its
/// roles in a namespace: that, and the role's name.
async fn ensure_all_used(
    used: &Used,
    cx: &Context,
    account: &str,
    namespaced: &[(&str, &str)],
) -> Result<()> {
    let of_cluster: Api<ClusterRole> = Api::all(cx.client.clone());
    let mut rules =
        of_cluster.get(account).await.context("reading a role of the chart")?.rules.unwrap_or_default();
    for (namespace, name) in namespaced {
        let in_namespace: Api<Role> = Api::namespaced(cx.client.clone(), namespace);
        let role = in_namespace.get(name).await.with_context(|| format!("reading the role {name}"))?;
        rules.extend(role.rules.unwrap_or_default());
    }
    let given: BTreeSet<_> = rules.iter().flat_map(rights_of).collect();
    ensure!(used.0 == given, "{account} has the rights {given:?}, and used were {:?}", used.0);
    Ok(())
}

fn rights_of(rule: &PolicyRule) -> Vec<String> {
    let resources = rule.resources.iter().flatten();
    resources.flat_map(|resource| rule.verbs.iter().map(move |verb| format!("{verb} {resource}"))).collect()
}

/// Watches until something is seen; there is something.
async fn first_event<K>(api: &Api<K>) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut seen = std::pin::pin!(api.watch(&WatchParams::default(), "0").await?);
    match seen.try_next().await? {
        Some(WatchEvent::Error(status)) => Err(kube::Error::Api(status)),
        Some(_) => Ok(()),
        None => Err(kube::Error::Service("the watch has ended".into())),
    }
}

/// Passes if the call is refused for want of rights, with these words.
async fn refused<T>(what: &str, told: &str, call: impl Future<Output = kube::Result<T>>) -> Result<()> {
    match call.await {
        Ok(_) => bail!("{what} is allowed"),
        // What the API server itself asks of entries in the status of claims, it tells as a fault of the field.
        Err(kube::Error::Api(status)) if status.code == 403 || status.message.contains(": Forbidden: ") => {
            ensure!(status.message.contains(told), "{what}: {:?} instead of {told:?}", status.message);
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("{what} should be forbidden")),
    }
}

fn slice(name: &str, driver: &str, node: Option<&str>) -> Result<ResourceSlice> {
    let mut slice = json!({
        "metadata": {"name": name},
        "spec": {
            "driver": driver, "devices": [{"name": "gpu-0"}],
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        },
    });
    match node {
        Some(node) => slice["spec"]["nodeName"] = node.into(),
        None => slice["spec"]["allNodes"] = true.into(),
    }
    Ok(serde_json::from_value(slice)?)
}

async fn slices_of_the_own_node(client: &Client, used: &mut Used) -> Result<()> {
    const KIND: &str = "resourceslices";
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let own = slice("own", DRIVER, Some(node::NAME))?;
    let made = used.allowed("create", KIND, slices.create(&PostParams::default(), &own)).await?;
    used.allowed("get", KIND, slices.get("own")).await?;
    used.allowed("list", KIND, slices.list(&ListParams::default())).await?;
    used.allowed("watch", KIND, first_event(&slices)).await?;
    let mut changed = made;
    changed.spec.pool.generation = 2;
    used.allowed("update", KIND, slices.replace("own", &PostParams::default(), &changed)).await?;
    used.allowed("delete", KIND, slices.delete("own", &DeleteParams::default())).await?;
    Ok(())
}

async fn refused_slices(cx: &Context, client: &Client) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let create = |name: &'static str, driver: &str, node: Option<&str>| {
        let (slices, slice) = (slices.clone(), slice(name, driver, node));
        async move { slices.create(&PostParams::default(), &slice.map_err(into_kube)?).await }
    };
    let told = "slice of node 'node-2', but the token is that of a pod on node 'node-1'";
    refused("a slice of another node", told, create("a", DRIVER, Some(OTHER_NODE))).await?;
    refused("a slice of all nodes", "slice of node ''", create("b", DRIVER, None)).await?;
    refused(
        "a slice of another driver",
        "devices of gpu.example.com only",
        create("c", OTHER_DRIVER, Some(node::NAME)),
    )
    .await?;

    let all: Api<ResourceSlice> = Api::all(cx.client.clone());
    let there = slice("of-another-node", DRIVER, Some(OTHER_NODE))?;
    let mut there = all.create(&PostParams::default(), &there).await?;
    there.spec.pool.generation = 2;
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    refused("updating another node's slice", told, slices.replace("of-another-node", &post, &there)).await?;
    refused("deleting another node's slice", told, slices.delete("of-another-node", &delete)).await?;
    all.delete("of-another-node", &DeleteParams::default()).await?;
    Ok(())
}

fn into_kube(error: anyhow::Error) -> kube::Error {
    kube::Error::Service(error.into())
}

/// Claims that are allocated, each with a device of this driver and one of another.
struct Claims<'a> {
    cx: &'a Context,
}

const HERE: &str = "here";
const THERE: &str = "there";

impl<'a> Claims<'a> {
    async fn make(cx: &'a Context) -> Result<Self> {
        for (name, node) in [(HERE, node::NAME), (THERE, OTHER_NODE)] {
            let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": DRIVER}});
            let claim: ResourceClaim = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"devices": {"requests": [request("gpu"), request("nic")]}},
            }))?;
            let claims = cx.api::<ResourceClaim>();
            claims.create(&PostParams::default(), &claim).await.context("making a claim")?;
            let on_node = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            let result = |request: &str, driver: &str| json!({"request": request, "driver": driver, "pool": node, "device": request});
            let allocation = json!({"status": {"allocation": {
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
                "devices": {"results": [result("gpu", DRIVER), result("nic", OTHER_DRIVER)]},
            }}});
            let allocated =
                claims.patch_status(name, &PatchParams::default(), &Patch::Merge(allocation)).await;
            allocated.with_context(|| format!("allocating {name}"))?;
        }
        Ok(Self { cx })
    }

    fn seen_by(&self, client: &Client) -> Api<ResourceClaim> {
        Api::namespaced(client.clone(), &self.cx.namespace)
    }

    /// Writes the entry of a driver's device, as the SDK does.
    async fn write(&self, client: &Client, claim: &str, driver: &str) -> kube::Result<ResourceClaim> {
        let (pool, device) = (
            if claim == HERE { node::NAME } else { OTHER_NODE },
            if driver == DRIVER { "gpu" } else { "nic" },
        );
        let entry = json!({"driver": driver, "pool": pool, "device": device, "data": {"a": 1}});
        let patch = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim}, "status": {"devices": [entry]},
        });
        let params = PatchParams::apply(driver).force();
        self.seen_by(client).patch_status(claim, &params, &Patch::Apply(patch)).await
    }

    async fn merge(&self, client: &Client, claim: &str, status: Value) -> kube::Result<ResourceClaim> {
        let patch = Patch::Merge(json!({"status": status}));
        self.seen_by(client).patch_status(claim, &PatchParams::default(), &patch).await
    }

    async fn of_the_own_node(&self, client: &Client, used: &mut Used) -> Result<()> {
        used.allowed("get", "resourceclaims", self.seen_by(client).get(HERE)).await?;
        used.allowed("patch", "resourceclaims/status", self.write(client, HERE, DRIVER)).await?;
        let right = "associated-node:patch";
        used.allowed(right, "resourceclaims/driver", self.write(client, HERE, DRIVER)).await.map(drop)
    }

    async fn of_any_node(&self, client: &Client, used: &mut Used) -> Result<()> {
        const KIND: &str = "resourceclaims";
        let claims = self.seen_by(client);
        used.allowed("get", KIND, claims.get(THERE)).await?;
        let all: Api<ResourceClaim> = Api::all(client.clone());
        used.allowed("list", KIND, all.list(&ListParams::default())).await?;
        used.allowed("watch", KIND, first_event(&all)).await?;
        used.allowed("patch", "resourceclaims/status", self.write(client, THERE, DRIVER)).await?;
        let right = "arbitrary-node:patch";
        used.allowed(right, "resourceclaims/driver", self.write(client, THERE, DRIVER)).await.map(drop)
    }

    /// What is refused to the driver: whatever is of another node, and what is refused to all.
    async fn refused(&self, client: &Client) -> Result<()> {
        let of_another_node = self.write(client, THERE, DRIVER);
        refused("an entry in the status of another node's claim", "", of_another_node).await?;
        self.refused_to_all(client).await
    }

    async fn refused_to_all(&self, client: &Client) -> Result<()> {
        refused("an entry of another driver", "", self.write(client, HERE, OTHER_DRIVER)).await?;
        let deallocated = self.merge(client, HERE, json!({"allocation": null, "devices": null}));
        refused("deallocating a claim", "", deallocated).await?;
        let pod = json!({"resource": "pods", "name": "p", "uid": "u"});
        let reserved = self.merge(client, HERE, json!({"reservedFor": [pod]}));
        refused("reserving a claim", "", reserved).await?;
        let (claims, params) = (self.seen_by(client), DeleteParams::default());
        refused("deleting a claim", "cannot delete", claims.delete(HERE, &params)).await
    }
}

async fn node_events_and_health(client: &Client, used: &mut Used) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    used.allowed("get", "nodes", nodes.get_metadata(node::NAME)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), chart::NAMESPACE);
    used.allowed("list", "pods", pods.list(&ListParams::default())).await?;
    used.allowed("watch", "pods", first_event(&pods)).await?;
    used.allowed("get", "pods", pods.get(&format!("seat-of-{}", chart::NAME))).await?;

    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event: Event = serde_json::from_value(json!({
        "metadata": {"generateName": "rights-"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reason": "Test", "action": "Test", "note": "a test", "reportingController": DRIVER,
        "reportingInstance": "test", "regarding": {"kind": "Node", "name": node::NAME},
    }))?;
    let made = used.allowed("create", "events", events.create(&PostParams::default(), &event)).await?;
    let name = made.metadata.name.context("an event without a name")?;
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let (params, series) = (PatchParams::default(), Patch::Merge(series));
    used.allowed("patch", "events", events.patch(&name, &params, &series)).await.map(drop)
}

/// Nothing else that matters on a node or in a cluster.
async fn refused_others(cx: &Context, client: &Client) -> Result<()> {
    fn of<K>(client: &Client, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned,
    {
        Api::namespaced(client.clone(), namespace)
    }
    let all = ListParams::default();
    for namespace in ["kube-system", chart::NAMESPACE, &cx.namespace] {
        let secrets = of::<Secret>(client, namespace);
        refused("listing secrets", "cannot list", secrets.list(&all)).await?;
        refused("reading a secret", "cannot get", secrets.get("s")).await?;
        let pod = ShellPod::new("p", "true").build();
        let pods = of::<Pod>(client, namespace);
        refused("making a pod", "cannot create", pods.create(&PostParams::default(), &pod)).await?;
        refused("deleting a pod", "cannot delete", pods.delete("p", &DeleteParams::default())).await?;
    }
    refused("listing pods elsewhere", "cannot list", of::<Pod>(client, &cx.namespace).list(&all)).await?;
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    refused("listing claims", "cannot list", claims.list(&all)).await?;
    let classes: Api<DeviceClass> = Api::all(client.clone());
    refused("deleting a device class", "cannot delete", classes.delete(DRIVER, &DeleteParams::default()))
        .await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    refused("changing a node", "cannot patch", nodes.patch(node::NAME, &PatchParams::default(), &label))
        .await?;
    refused("listing nodes", "cannot list", nodes.list(&all)).await
}
