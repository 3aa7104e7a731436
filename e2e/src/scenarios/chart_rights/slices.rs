//! Slices: those of the own node may be written.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{OTHER_DRIVER, OTHER_NODE, Used, first_event, refused};
use crate::{context::Context, eventually::eventually, node, scenarios::gpu::DRIVER};

fn slice(name: &str, driver: &str, node: Option<&str>) -> Result<ResourceSlice> {
    let mut slice = json!({
        "metadata": {"name": name},
        "spec": {
            "driver": driver, "devices": [{"name": "gpu-0"}],
            "pool": {"name": node.unwrap_or(name), "generation": 1, "resourceSliceCount": 1},
        },
    });
    match node {
        Some(node) => slice["spec"]["nodeName"] = node.into(),
        None => slice["spec"]["allNodes"] = true.into(),
    }
    Ok(serde_json::from_value(slice)?)
}

pub(super) async fn of_the_own_node(client: &Client, used: &mut Used) -> Result<()> {
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

/// The API server takes policies up in the background.
pub(super) async fn wait_for_the_policy(client: &Client) -> Result<()> {
    const WITHIN: Duration = Duration::from_secs(30);
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let (params, slice) =
        (PostParams { dry_run: true, ..PostParams::default() }, slice("policy", DRIVER, Some(OTHER_NODE))?);
    eventually("slices of another node are refused", WITHIN, || async {
        Ok(slices.create(&params, &slice).await.is_err().then_some(()))
    })
    .await
}

pub(super) async fn of_others_are_refused(cx: &Context, client: &Client) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let create = |slice: ResourceSlice| {
        let slices = slices.clone();
        async move { slices.create(&PostParams::default(), &slice).await }
    };
    let told = "slice of node 'node-2', but the token is that of a pod on node 'node-1'";
    refused("a slice of another node", told, create(slice("a", DRIVER, Some(OTHER_NODE))?)).await?;
    let mut foreign_pool = slice("p", DRIVER, Some(node::NAME))?;
    OTHER_NODE.clone_into(&mut foreign_pool.spec.pool.name);
    let pool = "slice of pool 'node-2', but the driver's pool on node 'node-1' has the name of the node";
    refused("a slice of another node's pool", pool, create(foreign_pool)).await?;
    refused("a slice of all nodes", "slice of node ''", create(slice("b", DRIVER, None)?)).await?;
    refused(
        "a slice of another driver",
        "devices of gpu.example.com only",
        create(slice("c", OTHER_DRIVER, Some(node::NAME))?),
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
