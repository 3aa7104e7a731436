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
use serde_json::{Value, json};

use crate::{
    chart::{Chart, MOCK, NVIDIA},
    context::Context,
    demo,
    scenario::{Scenario, Tier},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Files, and blocks of YAML in Markdown, of these folders.
const FOLDERS: [&str; 3] = ["demos", "docs", "examples"];
/// The newest version that is tested; older ones may lack a kind.
const NEWEST_MINOR: u32 = 37;
/// Kinds that this one has only with gates that are off.
const OFF_BY_DEFAULT: [&str; 1] = ["PodGroup"];

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
    for folder in FOLDERS {
        collect(Path::new(WORKSPACE), Path::new(folder), &mut sources)?;
    }
    sources.push(rendered(cx, &MOCK, "gpu.bindingConditions=true").await?);
    sources.push(rendered(cx, &NVIDIA, "nvidiaDevRoot=/x").await?);
    allow_admin_access(cx).await?;
    let (mut count, mut wrong, mut unknown) = (0, Vec::new(), Vec::new());
    for source in &sources {
        let objects = demo::objects(&source.yaml).with_context(|| format!("reading {}", source.place))?;
        for object in objects {
            count += 1;
            let what = format!("{}: {} {}", source.place, object["kind"], object["metadata"]["name"]);
            let off_by_default = OFF_BY_DEFAULT.iter().any(|kind| object["kind"] == *kind);
            match dry_run(cx, object).await {
                Ok(Answer::Accepted) => {}
                Ok(Answer::Unknown) => unknown.push((what, off_by_default)),
                Err(error) => wrong.push(format!("{what}: {error:#}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {count} objects are refused:\n{}", wrong.len(), wrong.join("\n"));
    let newest = cx.minor()? >= NEWEST_MINOR;
    let missed: Vec<_> =
        unknown.iter().filter(|(_, off)| newest && !off).map(|(what, _)| what.as_str()).collect();
    ensure!(missed.is_empty(), "kinds or fields that there are not: {}", missed.join(", "));
    ensure!(count >= 20, "only {count} objects are found");
    println!(
        "    {count} objects are accepted, less {} whose kind or fields this cluster lacks: {unknown:?}",
        unknown.len()
    );
    Ok(())
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

/// Templates of the chart are no YAML yet.
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
            if !entry.ends_with("templates") {
                collect(root, &entry, sources)?;
            }
            continue;
        }
        let read = || fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()));
        match entry.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => {
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
                let is_yaml = language == "yaml";
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
        for folder in FOLDERS {
            collect(Path::new(WORKSPACE), Path::new(folder), &mut sources).unwrap();
        }
        assert!(sources.iter().any(|source| source.place.ends_with("pod.yaml")));
        assert!(!sources.iter().any(|source| source.place.contains("templates")));
    }
}
