//! Objects that are missing, or contradict each other.

use anyhow::Result;
use dra_doctor::FindingKind;
use serde_json::json;

use super::{Doctor, claims::apply_claim};
use crate::{context::Context, pod::ShellPod, scenarios::gpu::DRIVER};

/// Claims, templates, classes and slices that are not there, and slices that do not go together.
pub(super) async fn missing(cx: &Context) -> Result<()> {
    let pod = |name: &str| ShellPod::print_env(name);
    cx.create_pod(&pod("no-claim").claim("nothing").build()).await?;
    cx.create_pod(&pod("no-template").template("nothing").build()).await?;
    let request = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]});
    apply_claim(cx, "classless", &request).await?;
    cx.create_pod(&pod("no-class").claim("classless").build()).await?;
    for (name, pool, generation, count, device) in [
        ("half", "half", 1, 2, "a"),
        ("old", "mixed", 1, 1, "a"),
        ("new", "mixed", 2, 1, "a"),
        ("one-of-two", "disagreeing", 1, 2, "a"),
        ("one-of-three", "disagreeing", 1, 3, "b"),
        ("here", "twice", 1, 2, "a"),
        ("here-too", "twice", 1, 2, "a"),
    ] {
        let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": count});
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {
                "driver": "nobody.example.com", "allNodes": true, "pool": pool, "devices": [{"name": device}],
            },
        });
        cx.apply(&slice.to_string()).await?;
    }
    let said = Doctor::run(cx, &["cluster"]).await?;
    let claim = format!("ResourceClaim {}/nothing, which does not exist", cx.namespace);
    said.names(FindingKind::ClaimMissing, &claim)?;
    said.names(FindingKind::TemplateMissing, "ResourceClaimTemplate \"nothing\", which does not exist")?;
    said.names(FindingKind::ClassMissing, &format!("DeviceClass \"{DRIVER}\", which does not exist"))?;
    said.names(FindingKind::PoolIncomplete, "generation 1 has 1 slices of 2")?;
    said.names(FindingKind::OldGeneration, "several generations: 1 are older than generation 2")?;
    said.names(FindingKind::SliceCountsDiffer, "do not agree how many there are: 2, 3")?;
    said.names(FindingKind::DeviceTwice, "devices are in it twice, so none of it is allocated: a")?;
    Doctor::of_claim(cx, "nothing").await?.names(FindingKind::ClaimMissing, "it does not exist")
}
