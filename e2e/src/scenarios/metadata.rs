//! Device metadata: what a container reads, and that our files and the Go helper's are the same.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use dra_kubeletplugin::metadata::{ClaimMetadata, ROOT};
use serde_json::{Map, Value};

use super::gpu::{self, DRIVER};
use crate::{context::Context, eventually::eventually, node, pod::ShellPod, scenario::Scenario};

const WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("container_reads_the_metadata_of_its_gpu", |cx| Box::pin(in_a_container(cx))),
        Scenario::new("metadata_files_of_the_go_helper_read_and_written_are_the_same", |cx| {
            Box::pin(async move { fixtures(cx) })
        }),
    ]
}

async fn in_a_container(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    let script =
        format!("cat {ROOT}/resourceclaimtemplates/claim-0/*/{DRIVER}-metadata.json; exec sleep 3600");
    cx.create_pod(&ShellPod::new("reader", &script).template("one-gpu").build()).await?;
    cx.wait_running("reader", WITHIN).await?;
    let read = || async {
        let log = cx.pod_log("reader").await?;
        Ok(log.ends_with("}\n").then_some(log))
    };
    let text = eventually("the whole file in the pod's log", Duration::from_secs(10), read).await?;

    let metadata = ClaimMetadata::decode(text.as_bytes()).with_context(|| text.clone())?;
    ensure!(metadata.pod_claim_name.as_deref() == Some("claim-0"), "{text}");
    let [request] = &metadata.requests[..] else { bail!("not one request: {text}") };
    let [device] = &request.devices[..] else { bail!("not one device: {text}") };
    let told: Value = serde_json::from_str(&text).context("reading the file as JSON")?;
    let told = &told["requests"][0]["devices"][0]["attributes"];
    ensure!(*told == published(cx, device.device.device.as_str()).await?, "not as published: {told}");
    for name in ["uuid", "model"] {
        ensure!(device.metadata.attributes().contains_key(name), "no {name}: {told}");
    }
    let by_go = through_go(cx, &text, &["-validate"])?;
    ensure!(by_go == text, "the Go helper would have written {by_go} instead of {text}");

    let folder = Path::new(node::PLUGINS).join(DRIVER).join("metadata");
    ensure!(count(&folder)? == 1, "not one claim in {}", folder.display());
    cx.delete_pod("reader", WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(count(&folder)? == 0, "something is left in {}", folder.display());
    Ok(())
}

/// The attributes of a device as the API server has them.
async fn published(cx: &Context, name: &str) -> Result<Value> {
    let slices = cx.slices(DRIVER).await?;
    let mut devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let device = devices.find(|device| device.name == name);
    let device = device.with_context(|| format!("device {name} is in no slice"))?;
    serde_json::to_value(&device.attributes).context("writing attributes")
}

fn count(folder: &Path) -> Result<usize> {
    Ok(fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?.count())
}

/// The files that the Go helper is tested with. They have everything that can be said, so also what no driver says:
/// fields of the claim's object, and an attribute with all its values at once.
fn fixtures(cx: &Context) -> Result<()> {
    let folder = cx.helper("metadata-fixtures");
    let mut compared = 0;
    for file in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = file?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        // One object for each version that the helper knew.
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let object = object.with_context(|| format!("reading {}", path.display()))?;
            for text in what_a_driver_says(&object)? {
                let ours = ClaimMetadata::decode(text.as_bytes()).with_context(|| text.clone())?.encode();
                let go = through_go(cx, &text, &[])?;
                ensure!(ours == go, "{}: Go writes {go}, we write {ours}", path.display());
                compared += 1;
            }
        }
    }
    // Two versions at HEAD and one of 1.36, with eight forms of values each.
    ensure!(compared >= 24, "only {compared} objects compared");
    println!("    {compared} metadata objects, byte for byte as the Go helper writes them");
    Ok(())
}

/// One file for each value of the object's attribute, without fields that are none of a driver's business.
fn what_a_driver_says(object: &Value) -> Result<Vec<String>> {
    let mut file = object.clone();
    let fields = file["metadata"].as_object_mut().context("it has no metadata")?;
    fields.retain(|field, _| ["name", "namespace", "uid", "generation"].contains(&field.as_str()));
    let attribute = "/requests/0/devices/0/attributes/model";
    let values: Map<String, Value> =
        file.pointer(attribute).and_then(Value::as_object).context("it has no attribute model")?.clone();
    let files = values.into_iter().map(|(form, value)| {
        let mut file = file.clone();
        let model = file.pointer_mut(attribute).context("it has no attribute model")?;
        *model = Value::Object(Map::from_iter([(form, value)]));
        Ok(file.to_string())
    });
    files.collect()
}

/// What a Go workload reads, as the Go helper writes it.
fn through_go(cx: &Context, text: &str, arguments: &[&str]) -> Result<String> {
    let program = cx.helper("metadata-oracle");
    let mut child = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    // Dropped at once, which is the end of the file.
    child
        .stdin
        .take()
        .context("no standard input")?
        .write_all(text.as_bytes())
        .context("asking the oracle")?;
    let output = child.wait_with_output().context("hearing the oracle")?;
    ensure!(output.status.success(), "{}: {text}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("the oracle's answer is not UTF-8")
}
