//! What every rendering has to be. Pure.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize as _;
use serde_yaml_ng::Value;

/// Looks through the objects that helm has rendered.
///
/// # Errors
/// A name is too long or there twice, the release is not named, a value did not come through, or a kind is missing or too
/// much.
pub(super) fn check(text: &str, release: &str, kinds: &[&str]) -> Result<()> {
    let (mut names, mut found) = (BTreeSet::new(), BTreeSet::new());
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).context("reading what was rendered")?;
        if object.is_null() {
            continue;
        }
        let kind = string(&object, &["kind"])?;
        let name = string(&object, &["metadata", "name"])?;
        let whole = format!("{kind} {name}");
        ensure!(name.len() <= 63, "{whole} has a name of {} letters", name.len());
        let instance = string(&object, &["metadata", "labels", "app.kubernetes.io/instance"]);
        ensure!(instance.as_deref().ok() == Some(release), "{whole} does not say of which release it is");
        ensure!(names.insert(whole.clone()), "{whole} is there twice");
        found.insert(kind);
    }
    ensure!(!text.contains("<no value>") && !text.contains("%!"), "a value did not come through: {text}");
    for kind in kinds {
        match kind.strip_prefix('!') {
            Some(kind) => ensure!(!found.contains(kind), "there is a {kind}"),
            None => ensure!(found.contains(*kind), "there is no {kind}, only {found:?}"),
        }
    }
    Ok(())
}

fn string(object: &Value, path: &[&str]) -> Result<String> {
    let found = path.iter().try_fold(object, |value, key| value.get(*key)).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("no {} in {object:?}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str) -> String {
        format!("---\nkind: {kind}\nmetadata: {{name: {name}, labels: {{app.kubernetes.io/instance: r}}}}\n")
    }

    #[test]
    fn objects_of_the_release_with_names_of_their_own_are_well() {
        let text = [object("A", "x"), object("B", "x"), "---\n# nothing\n".to_owned()].concat();
        check(&text, "r", &["A", "B", "!C"]).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = "n".repeat(64);
        for (text, kinds, told) in [
            (object("A", "x"), &["B"][..], "no B"),
            (object("A", "x"), &["!A"], "there is a A"),
            ([object("A", "x"), object("A", "x")].concat(), &[], "A x is there twice"),
            (object("A", &long), &[], "64 letters"),
            ("kind: A\nmetadata: {name: x}\n".to_owned(), &[], "of which release"),
            ("kind: A\n".to_owned(), &[], "no metadata.name"),
            (object("A", "\"<no value>\""), &[], "did not come through"),
            ("a: {".to_owned(), &[], "reading"),
        ] {
            let error = format!("{:#}", check(&text, "r", kinds).unwrap_err());
            assert!(error.contains(told), "{error}");
        }
    }
}
