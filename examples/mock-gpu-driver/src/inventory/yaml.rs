//! Reads YAML, and so JSON, strictly: a slip of the pen must not be a device without the field that was meant. Mistakes are
//! told with line and field.

use std::fmt;

use anyhow::{anyhow, bail};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A step on the way to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Reads text in which every field is known.
///
/// # Errors
/// Something else; the text begins with line and field.
pub(super) fn strict<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let mut track = serde_path_to_error::Track::new();
    let yaml = serde_yaml_ng::Deserializer::from_str(text);
    let tracked = serde_path_to_error::Deserializer::new(yaml, &mut track);
    let mut unknown = None;
    let read = serde_ignored::deserialize(tracked, |path| {
        unknown.get_or_insert_with(|| steps(&path));
    });
    match (read, unknown) {
        (Ok(_), Some(path)) => bail!("{}: unknown field", place(text, &path)),
        (Ok(read), None) => Ok(read),
        (Err(error), _) => Err(mistake(&track.path().to_string(), &error)),
    }
}

/// Where a value is, for people: `line 3: [1].attributes`.
pub(super) fn place(text: &str, path: &[Step]) -> String {
    let spelled: String = path
        .iter()
        .map(|step| match step {
            Step::Key(key) => format!(".{key}"),
            Step::Index(index) => format!("[{index}]"),
        })
        .collect();
    let spelled = spelled.trim_start_matches('.');
    match line_of(text, path) {
        Some(line) => format!("line {line}: {spelled}"),
        None => spelled.to_owned(),
    }
}

/// The error names its place itself, in a form of its own.
fn mistake(path: &str, error: &serde_yaml_ng::Error) -> anyhow::Error {
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
    let text = text.rsplit_once(" at line ").map_or(text, |(what, _)| what);
    // What has not been read to its end has no name yet.
    let path = path.trim_end_matches(".?");
    let path = if path == "." { String::new() } else { format!("{path}: ") };
    match error.location() {
        Some(location) => anyhow!("line {}: {path}{text}", location.line()),
        None => anyhow!("{path}{text}"),
    }
}

fn steps(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Step::Index(*index))),
        Path::Map { parent, key } => (parent, Some(Step::Key(key.clone()))),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut all = steps(parent);
    all.extend(step);
    all
}

/// The line in which a value begins.
fn line_of(text: &str, path: &[Step]) -> Option<usize> {
    let found = Find(path).deserialize(serde_yaml_ng::Deserializer::from_str(text));
    found.err()?.location().map(|location| location.line())
}

/// Goes along a path and takes nothing at its end: the error has the place.
struct Find<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.0.is_empty() {
            deserializer.deserialize_any(Nothing)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or a mapping")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let next = if self.0[0] == Step::Index(index) {
                seq.next_element_seed(Find(&self.0[1..]))?
            } else {
                seq.next_element::<IgnoredAny>()?.map(drop)
            };
            if next.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.0[0] == Step::Key(key) {
                map.next_value_seed(Find(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Takes no value at all.
struct Nothing;

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_value_is_found_by_its_path() {
        let text = "- a: 1\n  b:\n  - x\n  - y: z\n- null\n";
        let key = |key: &str| Step::Key(key.to_owned());
        let table = [
            (vec![Step::Index(0)], Some(1)),
            (vec![Step::Index(0), key("b")], Some(3)),
            (vec![Step::Index(0), key("b"), Step::Index(1), key("y")], Some(4)),
            (vec![Step::Index(1)], Some(5)),
            (vec![Step::Index(2)], None),
            (vec![key("a")], None),
        ];
        for (path, line) in table {
            assert_eq!(line_of(text, &path), line, "{path:?}");
        }
        assert_eq!(place(text, &[Step::Index(0), key("b"), Step::Index(0)]), "line 3: [0].b[0]");
        assert_eq!(place(text, &[Step::Index(7), key("b")]), "[7].b");
    }
}
