//! Claims, and what may be written into their status.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{OTHER_DRIVER, OTHER_NODE, Used, first_event, refused};
use crate::{context::Context, eventually::eventually, node, scenarios::gpu::DRIVER};

/// Claims that are allocated, each with a device of this driver and one of another.
pub(super) struct Claims<'a> {
    cx: &'a Context,
}

const HERE: &str = "here";
const THERE: &str = "there";

impl<'a> Claims<'a> {
    pub(super) async fn make(cx: &'a Context) -> Result<Self> {
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
        self.write_with(client, claim, driver, PatchParams::apply(driver).force()).await
    }

    async fn write_with(
        &self,
        client: &Client,
        claim: &str,
        driver: &str,
        params: PatchParams,
    ) -> kube::Result<ResourceClaim> {
        let (pool, device) = (
            if claim == HERE { node::NAME } else { OTHER_NODE },
            if driver == DRIVER { "gpu" } else { "nic" },
        );
        let entry = json!({"driver": driver, "pool": pool, "device": device, "data": {"a": 1}});
        let patch = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim}, "status": {"devices": [entry]},
        });
        self.seen_by(client).patch_status(claim, &params, &Patch::Apply(patch)).await
    }

    async fn merge(&self, client: &Client, claim: &str, status: Value) -> kube::Result<ResourceClaim> {
        let patch = Patch::Merge(json!({"status": status}));
        self.seen_by(client).patch_status(claim, &PatchParams::default(), &patch).await
    }

    pub(super) async fn of_the_own_node(&self, client: &Client, used: &mut Used) -> Result<()> {
        used.allowed("get", "resourceclaims", self.seen_by(client).get(HERE)).await?;
        used.allowed("patch", "resourceclaims/status", self.write(client, HERE, DRIVER)).await?;
        let right = "associated-node:patch";
        used.allowed(right, "resourceclaims/driver", self.write(client, HERE, DRIVER)).await.map(drop)
    }

    pub(super) async fn of_any_node(&self, client: &Client, used: &mut Used) -> Result<()> {
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

    /// The API server takes policies up in the background.
    pub(super) async fn wait_for_the_policy(&self, client: &Client) -> Result<()> {
        const WITHIN: Duration = Duration::from_secs(30);
        eventually("entries of other drivers are refused", WITHIN, || async {
            let params = PatchParams::apply(OTHER_DRIVER).force().dry_run();
            let written = self.write_with(client, HERE, OTHER_DRIVER, params).await;
            Ok(written.is_err().then_some(()))
        })
        .await
    }

    /// What is refused to the driver: whatever is of another node, and what is refused to all.
    pub(super) async fn refused(&self, client: &Client) -> Result<()> {
        let of_another_node = self.write(client, THERE, DRIVER);
        refused("an entry in the status of another node's claim", "", of_another_node).await?;
        self.refused_to_all(client).await
    }

    pub(super) async fn refused_to_all(&self, client: &Client) -> Result<()> {
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
