//! What the drivers' charts have in common. A vendor copies one whole, so each has all of it, and a check keeps it the same.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Files that are for any driver.
const FILES: [&str; 7] = [
    ".helmignore",
    "templates/_helpers.tpl",
    "templates/daemonset.yaml",
    "templates/metrics-service.yaml",
    "templates/rbac.yaml",
    "templates/resource-quota.yaml",
    "templates/slice-policy.yaml",
];

/// Holds the files for any driver, and what both schemas say of a value, against each other.
///
/// # Errors
/// A file cannot be read, or something is not the same.
pub(super) fn check(one: &Path, other: &Path) -> Result<()> {
    for file in FILES {
        let [one, other] = [one, other].map(|chart| chart.join(file));
        ensure!(read(&one)? == read(&other)?, "{} and {} are not the same", one.display(), other.display());
    }
    let [one, other] = [one, other].map(|chart| chart.join("values.schema.json"));
    let different = different(&schema(&one)?, &schema(&other)?);
    ensure!(
        different.is_empty(),
        "{} and {} do not say the same of {different:?}",
        one.display(),
        other.display()
    );
    Ok(())
}

fn schema(file: &Path) -> Result<Value> {
    serde_json::from_str(&read(file)?).with_context(|| format!("reading {}", file.display()))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// The values that both schemas have and do not say the same of. Pure.
fn different(one: &Value, other: &Value) -> Vec<String> {
    let values = one["properties"].as_object().into_iter().flatten();
    let different = values.filter(|(name, said)| {
        let there = &other["properties"][name.as_str()];
        !there.is_null() && there != *said
    });
    different.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_charts_have_the_same_files_for_any_driver() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(&root.join(crate::chart::MOCK), &root.join(crate::chart::NVIDIA)).unwrap();
    }

    #[test]
    fn a_value_that_means_something_else_is_named() {
        let schema = |properties: Value| json!({ "properties": properties });
        let one = schema(json!({"a": {"type": "string"}, "b": {"type": "string"}, "c": {}}));
        let other = schema(json!({"a": {"type": "string"}, "b": {"type": "integer"}, "d": {}}));
        assert_eq!(different(&one, &other), ["b"]);
    }

    #[test]
    fn a_file_that_differs_is_named() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (number, folder) in folders.iter().enumerate() {
            fs::create_dir(folder.path().join("templates")).unwrap();
            for file in FILES {
                let differs = number == 1 && file.ends_with("rbac.yaml");
                fs::write(folder.path().join(file), if differs { "other" } else { "same" }).unwrap();
            }
        }
        let error = check(folders[0].path(), folders[1].path()).unwrap_err().to_string();
        assert!(error.contains("rbac.yaml") && error.contains("not the same"), "{error}");
    }
}
