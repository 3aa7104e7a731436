//! JSON read without losing anything: a key that stands twice, a text that is none, or what is nested too deep is an error
//! with its path. `serde_json` takes the last of two equal keys.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};

use super::ConfigError;

/// As deep as `serde_json` reads (128), less the object around it.
const DEEPEST: usize = 100;

/// Reads the parameters of a configuration.
pub(super) fn read(json: &str) -> Result<Value, ConfigError> {
    let raw: &RawValue =
        serde_json::from_str(json).map_err(|error| ConfigError::new("", error.to_string()))?;
    value(raw, &Path::Root, 0)
}

/// The keys and values of an object as they are written, equal keys included.
pub(crate) struct Entries<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// The way to a value.
enum Path<'a> {
    Root,
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

fn value(raw: &RawValue, path: &Path<'_>, depth: usize) -> Result<Value, ConfigError> {
    let json = raw.get();
    let wrong = |error: serde_json::Error| ConfigError::new(&path.to_string(), error.to_string());
    if depth > DEEPEST {
        let reason = format!("nested deeper than {DEEPEST} levels");
        return Err(ConfigError::new(&path.to_string(), reason));
    }
    match json.as_bytes().first() {
        Some(b'{') => {
            let Entries(entries) = serde_json::from_str(json).map_err(wrong)?;
            let mut seen = HashSet::new();
            if let Some((key, _)) = entries.iter().find(|(key, _)| !seen.insert(key.as_str())) {
                return Err(ConfigError::new(&Path::Key(path, key).to_string(), "this key is written twice"));
            }
            let read = |(key, raw): &(String, &RawValue)| {
                Ok((key.clone(), value(raw, &Path::Key(path, key), depth + 1)?))
            };
            entries.iter().map(read).collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json).map_err(wrong)?;
            let read = |(index, raw): (usize, &&RawValue)| value(raw, &Path::Index(path, index), depth + 1);
            items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Value::Array)
        }
        _ => serde_json::from_str(json).map_err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_serde_json_would_lose_or_refuse_is_an_error_with_its_path() {
        let deep = r#"{"a":"#.repeat(200) + "1" + &"}".repeat(200);
        let table = [
            (r#"{"a":1,"a":2}"#, "parameters.a: this key is written twice"),
            (r#"{"a":{"b":[0,{"c":1,"d":2,"c":1}]}}"#, "parameters.a.b[1].c: this key is written twice"),
            (r#"{"a":1,"\u0061":2}"#, "parameters.a: this key is written twice"),
            (r#"{"a":["x\ud800y"]}"#, "parameters.a[0]: "),
            (r#"{"a\ud800":1}"#, "parameters: "),
            (r#"{"a":1e999}"#, "parameters.a: number out of range"),
            (deep.as_str(), "nested deeper than 100 levels"),
            ("{", "parameters: EOF"),
        ];
        for (json, expected) in table {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json:.60}: {error}");
        }
    }

    #[test]
    fn everything_else_is_read_as_it_is() {
        for value in [json!({"a": [1, -2, 1.5, null, true, "x\u{1F600}"], "b": {"a": {}}, "c": []}), json!(7)]
        {
            assert_eq!(read(&value.to_string()).unwrap(), value);
        }
    }
}
