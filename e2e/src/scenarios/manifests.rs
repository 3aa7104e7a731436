//! All YAML that users are given, shown to a real API server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    discovery,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    chart::{Chart, MOCK, NVIDIA},
    context::Context,
    scenario::{Scenario, Tier},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Whose files are given to users. Blocks in Markdown are, wherever they are.
const FOLDERS: [&str; 3] = ["demos", "docs", "examples"];
/// The newest version that is tested; older ones may lack a kind.
const NEWEST_MINOR: u32 = 37;
/// Kinds that this one has only with gates that are off.
const OFF_BY_DEFAULT: [&str; 1] = ["PodGroup"];
/// The API server's code for an object that is not valid.
const INVALID: u16 = 422;
/// Objects with a kind that are for other programs than the API server: clusters of kind, settings for a driver.
const OF_OTHERS: [&str; 2] = ["kind.x-k8s.io/", "resource.nvidia.com/"];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("all_yaml_of_chart_demos_and_docs_is_accepted_by_the_api_server", |cx| {
            Box::pin(accepted(cx))
        })
        .tier(Tier::Smoke),
    ]
}

/// A text with YAML, and where it is from.
struct Source {
    place: String,
    yaml: String,
}

async fn accepted(cx: &Context) -> Result<()> {
    let mut sources = Vec::new();
    collect(Path::new(WORKSPACE), Path::new(""), &mut sources)?;
    sources.push(rendered(cx, &MOCK, "gpu.bindingConditions=true").await?);
    sources.push(rendered(cx, &NVIDIA, "nvidiaDriverRoot=/x").await?);
    allow_admin_access(cx).await?;
    let (mut count, minor) = (0, cx.minor()?);
    let (mut wrong, mut unknown, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for source in &sources {
        let objects = objects(&source.yaml).with_context(|| format!("reading {}", source.place))?;
        for object in objects.into_iter().filter(is_for_the_api_server) {
            count += 1;
            let what = format!("{}: {} {}", source.place, object["kind"], object["metadata"]["name"]);
            let is_later = minor < since(&source.place);
            let may_be_unknown = is_later || OFF_BY_DEFAULT.iter().any(|kind| object["kind"] == *kind);
            match dry_run(cx, object).await {
                Ok(Answer::Accepted) => {}
                Ok(Answer::Unknown) if may_be_unknown => unknown.push(what),
                Ok(Answer::Unknown) => missed.push(what),
                Ok(Answer::Invalid(_)) if is_later && source.place.starts_with("demos/") => {
                    unknown.push(what);
                }
                Ok(Answer::Invalid(why)) => wrong.push(format!("{what}: {why}")),
                Err(error) => wrong.push(format!("{what}: {error:#}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {count} objects are refused:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(missed.is_empty(), "kinds or fields that there are not: {}", missed.join(", "));
    ensure!(count >= 100, "only {count} objects are found");
    println!(
        "    {count} objects are accepted, less {} whose kind or fields this cluster lacks: {unknown:?}",
        unknown.len()
    );
    Ok(())
}

/// The objects of a YAML text: its documents that have a kind, and what others of Kubernetes are a part of.
///
/// # Errors
/// It is no YAML.
fn objects(yaml: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml_ng::Deserializer::from_str(yaml).map(Value::deserialize);
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let has_kind = |value: &Value| value["apiVersion"].is_string() && value["kind"].is_string();
    Ok(documents
        .into_iter()
        .filter_map(|value| if has_kind(&value) { Some(value) } else { whole(&value) })
        .collect())
}

/// An object around a part that a document shows: rules of a role, or probes of a container.
fn whole(part: &Value) -> Option<Value> {
    if !part["rules"].is_null() {
        let mut role = part.clone();
        role["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        role["kind"] = json!("Role");
        role["metadata"] = json!({"name": "part"});
        return Some(role);
    }
    if !part["livenessProbe"].is_null() {
        let mut container = part.clone();
        container["name"] = json!("main");
        container["image"] = json!("image");
        let spec = json!({"containers": [container]});
        return Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "part"}, "spec": spec}));
    }
    None
}

fn is_for_the_api_server(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    !OF_OTHERS.iter().any(|others| group.starts_with(others))
}

/// The minor version from which on all of a source has to be known: that of its demo's scenario, or for other documents the
/// newest.
fn since(place: &str) -> u32 {
    let folder = place.strip_prefix("demos/").and_then(|rest| rest.split('/').next());
    let scenario = folder.map(|folder| format!("demos_{}", folder.replace('-', "_")));
    let all = super::all();
    let demo = all.iter().find(|known| scenario.as_deref() == Some(known.name));
    demo.map_or(NEWEST_MINOR, |demo| demo.since)
}

/// As the demo of admin access says, which is refused in other namespaces.
async fn allow_admin_access(cx: &Context) -> Result<()> {
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    let namespaces = Api::<Namespace>::all(cx.client.clone());
    let labelled = namespaces.patch(&cx.namespace, &PatchParams::default(), &Patch::Merge(label)).await;
    labelled.context("labelling the namespace").map(drop)
}

enum Answer {
    Accepted,
    /// This version has no such kind, or not all fields of the object.
    Unknown,
    /// It is wrong, or what is left of it once the fields of a gate that is off are dropped.
    Invalid(String),
}

/// Asks what would come of the object in the scenario's namespace.
async fn dry_run(cx: &Context, mut value: Value) -> Result<Answer> {
    if value["metadata"]["namespace"] != "default"
        && let Some(metadata) = value["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
    let object: DynamicObject = serde_json::from_value(value.clone())?;
    let kind = kube::core::GroupVersionKind::try_from(object.types.as_ref().context("no kind")?)?;
    match discovery::pinned_kind(&cx.client, &kind).await {
        Ok(_) => {}
        Err(kube::Error::Discovery(_)) => return Ok(Answer::Unknown),
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Answer::Unknown),
        Err(error) => return Err(error).context("looking for the kind"),
    }
    let (api, name) = cx.api_of(&object).await?;
    let params = PatchParams::apply("dry-run").force().dry_run().validation_strict();
    match api.patch(name, &params, &Patch::Apply(&value)).await {
        Ok(_) => Ok(Answer::Accepted),
        Err(kube::Error::Api(status)) if names_unknown_field(&status.message) => Ok(Answer::Unknown),
        Err(kube::Error::Api(status)) if status.code == INVALID => Ok(Answer::Invalid(status.message)),
        Err(error) => Err(error.into()),
    }
}

fn names_unknown_field(message: &str) -> bool {
    ["field not declared in schema", "unknown field"].iter().any(|text| message.contains(text))
}

/// A chart with all that it has.
async fn rendered(cx: &Context, chart: &Chart, values: &str) -> Result<Source> {
    let yaml = chart.helm(cx, &["template", chart.release, chart.folder, "--set", values]).await?;
    Ok(Source { place: format!("the chart {}", chart.name), yaml })
}

/// Goes through a folder of the workspace, but not what is built or hidden. Templates of the chart are no YAML yet.
fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let path = root.join(folder);
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
        entries.push(folder.join(entry?.file_name()));
    }
    entries.sort();
    for entry in entries {
        let path = root.join(&entry);
        if path.is_dir() {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with('.') && name != "target" && name != "templates" {
                collect(root, &entry, sources)?;
            }
            continue;
        }
        let read = || fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()));
        match entry.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") if FOLDERS.iter().any(|folder| entry.starts_with(folder)) => {
                sources.push(Source { place: entry.display().to_string(), yaml: read()? });
            }
            Some("md") => sources.extend(blocks(&entry.display().to_string(), &read()?)?),
            _ => {}
        }
    }
    Ok(())
}

/// The blocks of a Markdown text that are YAML.
fn blocks(file: &str, text: &str) -> Result<Vec<Source>> {
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```").map(str::trim);
        match (&mut block, fence) {
            (None, Some(language)) => {
                let is_yaml = ["yaml", "yml", "json"].contains(&language);
                block = Some((if is_yaml { number + 1 } else { 0 }, String::new()));
            }
            (Some(_), Some(_)) => {
                let (start, yaml) = block.take().unwrap_or_default();
                if start > 0 {
                    blocks.push(Source { place: format!("{file}:{start}"), yaml });
                }
            }
            (Some((_, yaml)), None) => {
                yaml.push_str(line);
                yaml.push('\n');
            }
            (None, None) => {}
        }
    }
    if let Some((start, _)) = block {
        bail!("{file}: the block of line {start} has no end");
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_yaml_are_taken_out_of_markdown() {
        let text = "a\n```yaml\nkind: A\n```\nb\n```sh\nkind: B\n```\n```\nkind: C\n```\n";
        let found = blocks("f", text).unwrap();
        let shown: Vec<_> =
            found.iter().map(|source| (source.place.as_str(), source.yaml.as_str())).collect();
        assert_eq!(shown, [("f:2", "kind: A\n")]);
        assert!(blocks("f", "```yaml\nkind: A\n").is_err());
    }

    #[test]
    fn the_yaml_of_the_workspace_is_found() {
        let mut sources = Vec::new();
        collect(Path::new(WORKSPACE), Path::new(""), &mut sources).unwrap();
        let has = |part: &str| sources.iter().any(|source| source.place.contains(part));
        for part in [
            "demos/taints/3-pods.yaml",
            "docs/writing-a-driver.md:",
            "docs/operations.md:",
            "docs/feature-gates.md:",
        ] {
            assert!(has(part), "{part}");
        }
        assert!(!has("templates") && !has("target/"));
    }

    #[test]
    fn documents_with_a_kind_and_parts_of_objects_are_objects() {
        let yaml = "kind: A\napiVersion: v1\n---\n# nothing\n---\napiVersion: v2\nname: a chart\n---\nrules: [{verbs: [get]}]\n\
                    ---\nlivenessProbe: {periodSeconds: 1}\n";
        let kinds: Vec<_> = objects(yaml).unwrap().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "Role", "Pod"]);
        assert!(objects("a: {").is_err());
    }

    /// An inventory, which the driver's tests read, and what `dra-doctor` writes, which its own tests do.
    const NO_OBJECT: [&str; 2] = ["- devices:\n  - name: gpu-0\n", "{\n  \"checks\": ["];

    #[test]
    fn all_yaml_of_documents_is_an_object_or_part_of_one() {
        let mut sources = Vec::new();
        collect(Path::new(WORKSPACE), Path::new(""), &mut sources).unwrap();
        for source in sources.iter().filter(|source| source.place.contains(".md:")) {
            let known = NO_OBJECT.iter().any(|begin| source.yaml.starts_with(begin));
            let is_inventory = source.place.contains("fake-nvml");
            let documents = serde_yaml_ng::Deserializer::from_str(&source.yaml).count();
            let found = objects(&source.yaml).unwrap().len();
            assert!(known || is_inventory || found == documents, "{}:\n{}", source.place, source.yaml);
        }
    }

    #[test]
    fn no_object_is_hidden_where_it_is_not_looked_for() {
        let mut hidden = Vec::new();
        for path in transcript::documents().unwrap() {
            let text = fs::read_to_string(Path::new(WORKSPACE).join(&path)).unwrap();
            let (mut language, mut fenced) = ("", false);
            for (number, line) in text.lines().enumerate() {
                if let Some(fence) = line.trim_start().strip_prefix("```") {
                    (language, fenced) = (if fenced { "" } else { fence }, !fenced);
                } else if line.trim_start().starts_with("apiVersion:") && language != "yaml" {
                    hidden.push(format!("{}:{}", path.display(), number + 1));
                }
            }
        }
        assert!(hidden.is_empty(), "objects belong into files, or fences of `yaml`: {hidden:?}");
    }

    #[test]
    fn a_demo_is_known_from_the_version_of_its_scenario_on() {
        assert_eq!(since("demos/claim-template/pod0.yaml"), 0);
        assert_eq!(since("demos/partitions/whole.yaml"), 36);
        assert_eq!(since("docs/operations.md:3"), NEWEST_MINOR);
    }

    #[test]
    fn clusters_of_kind_are_not_for_the_api_server() {
        assert!(!is_for_the_api_server(&json!({"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster"})));
        assert!(is_for_the_api_server(&json!({"apiVersion": "v1", "kind": "Pod"})));
    }
}
