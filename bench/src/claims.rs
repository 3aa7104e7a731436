//! Claims with an allocation, as a scheduler would leave them.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::node;

const NAMESPACE: &str = "default";

/// How many are made at once.
const AT_ONCE: usize = 16;

/// What the kubelet says of a claim, and the load generator reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Makes `count` claims for a driver: the n-th has device `gpu-n`.
pub(crate) async fn make(client: &Client, driver: &str, count: usize) -> Result<Vec<Claim>> {
    let made = stream::iter(0..count).map(|index| make_one(client, driver, index));
    made.buffered(AT_ONCE).try_collect().await
}

async fn make_one(client: &Client, driver: &str, index: usize) -> Result<Claim> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let name = format!("{}-{index}", driver.replace('.', "-"));
    let wanted: ResourceClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": driver } }] } },
    }))?;
    let made = claims.create(&PostParams::default(), &wanted).await.context("making a claim")?;
    let allocation = json!({ "status": { "allocation": { "devices": { "results": [
        { "request": "gpu", "driver": driver, "pool": node::NAME, "device": format!("gpu-{index}") },
    ] } } } });
    let allocated = claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(allocation)).await;
    allocated.with_context(|| format!("allocating claim {name}"))?;
    Ok(Claim { namespace: NAMESPACE.to_owned(), uid: made.uid().context("a claim without a UID")?, name })
}

/// Removes all claims.
pub(crate) async fn remove_all(client: &Client) -> Result<()> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// Writes claims to a file for the load generator.
pub(crate) fn write(claims: &[Claim], file: &Path) -> Result<()> {
    fs::write(file, serde_json::to_vec(claims)?).with_context(|| format!("writing {}", file.display()))
}
