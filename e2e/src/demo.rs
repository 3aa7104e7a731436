//! The demos: what users are given to try.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize as _;
use serde_json::Value;

use crate::context::Context;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos");

/// Applies a file of the demos, or all YAML files of a folder in the order of their names, as `kubectl apply` would in the
/// scenario's namespace: `claim-template` or `taints/1-running.yaml`.
///
/// # Errors
/// There is no such demo, or the API server refuses an object.
pub(crate) async fn apply(cx: &Context, demo: &str) -> Result<()> {
    for file in files(&Path::new(FOLDER).join(demo))? {
        let yaml = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        cx.apply(&yaml).await.with_context(|| format!("applying {}", file.display()))?;
    }
    Ok(())
}

fn files(demo: &Path) -> Result<Vec<PathBuf>> {
    if demo.is_file() {
        return Ok(vec![demo.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(demo).with_context(|| format!("reading the demo {}", demo.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "{} has no YAML file", demo.display());
    Ok(files)
}

/// The documents of a YAML text that are objects of Kubernetes.
///
/// # Errors
/// It is no YAML.
pub(crate) fn objects(yaml: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let value = Value::deserialize(document)?;
        if value["apiVersion"].is_string() && value["kind"].is_string() {
            objects.push(value);
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_documents_with_a_kind_are_objects() {
        let yaml = "kind: A\napiVersion: v1\n---\n# nothing\n---\napiVersion: v2\nname: a chart\n";
        assert_eq!(objects(yaml).unwrap(), [json!({"kind": "A", "apiVersion": "v1"})]);
        assert!(objects("a: {").is_err());
    }

    #[test]
    fn a_demo_is_a_file_or_the_files_of_a_folder_in_order() {
        let names = |demo: &str| -> Vec<String> {
            let files = files(&Path::new(FOLDER).join(demo)).unwrap();
            files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names("claim-template"), ["pod0.yaml", "pod1.yaml", "template.yaml"]);
        assert_eq!(names("claim-template/pod1.yaml"), ["pod1.yaml"]);
        assert!(files(&Path::new(FOLDER).join("no-such-demo")).is_err());
    }
}
