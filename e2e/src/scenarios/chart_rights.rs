//! What the accounts of the mock driver's chart may do: each right of their roles is used, and the rest is refused, by RBAC,
//! by the API server's own rules and by the chart's policies.
//!
//! The driver itself does not run: it would put right what is written here.

mod claims;
mod slices;

use std::{collections::BTreeSet, fmt::Debug};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Node, Pod, Secret},
        events::v1::Event,
        rbac::v1::{ClusterRole, PolicyRule, Role},
        resource::v1::{DeviceClass, ResourceClaim},
    },
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::{AuthInfo, KubeConfigOptions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::claims::Claims;
use super::gpu::DRIVER;
use crate::{
    account::Account,
    chart::MOCK,
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
    MOCK.apply(cx, &VALUES).await?;
    let controller = format!("{}-binding-controller", MOCK.name);
    let driver = Seat::take(cx, MOCK.name).await?;
    let controlling = Seat::take(cx, &controller).await?;
    let claims = Claims::make(cx).await?;

    let mut used = Used::default();
    slices::of_the_own_node(&driver.client, &mut used).await?;
    claims.of_the_own_node(&driver.client, &mut used).await?;
    node_events_and_health(&driver.client, &mut used).await?;
    let [events, health] = ["events", "health"].map(|role| format!("{}-{role}", MOCK.name));
    let namespaced = [("default", events.as_str()), (MOCK.namespace, &health)];
    ensure_all_used(&used, cx, MOCK.name, &namespaced).await?;

    slices::wait_for_the_policy(&driver.client).await?;
    slices::of_others_are_refused(cx, &driver.client).await?;
    claims.wait_for_the_policy(&driver.client).await?;
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
        let pods: Api<Pod> = Api::namespaced(cx.client.clone(), MOCK.namespace);
        let pod = pods.create(&PostParams::default(), &pod).await.context("making a pod of the account")?;
        let token = Account::existing(cx, MOCK.namespace, account).token_with(&pod).await?;
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

async fn node_events_and_health(client: &Client, used: &mut Used) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    used.allowed("get", "nodes", nodes.get_metadata(node::NAME)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), MOCK.namespace);
    used.allowed("list", "pods", pods.list(&ListParams::default())).await?;
    used.allowed("watch", "pods", first_event(&pods)).await?;
    used.allowed("get", "pods", pods.get(&format!("seat-of-{}", MOCK.name))).await?;

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
    for namespace in ["kube-system", MOCK.namespace, &cx.namespace] {
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
