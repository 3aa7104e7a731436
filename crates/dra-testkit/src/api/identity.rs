//! Who an object is: name, UID, times, and what of its metadata only the server may change.

use std::hash::{BuildHasher, Hasher, RandomState};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::status::ApiStatus;

/// Letters of generated names: no vowels and no digits that look like letters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest kept prefix of a generated name.
const MAX_PREFIX: usize = 58;

/// Metadata that the server sets; a client cannot change it.
const SERVER_FIELDS: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// The current time in RFC 3339, whole seconds.
pub(crate) fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// The object's name; made from `generateName` if it has none, and written into the object.
pub(crate) fn name_for(object: &mut Value, taken: impl Fn(&str) -> bool) -> Option<String> {
    let metadata = &mut object["metadata"];
    if let Some(name) = metadata["name"].as_str().filter(|name| !name.is_empty()) {
        return Some(name.to_owned());
    }
    let prefix = metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty())?;
    let prefix: String = prefix.chars().take(MAX_PREFIX).collect();
    let name = std::iter::repeat_with(|| format!("{prefix}{}", suffix())).find(|name| !taken(name))?;
    metadata["name"] = json!(name);
    Some(name)
}

/// Gives a new object its UID, time and generation.
pub(crate) fn stamp_new(kind: &Kind, object: &mut Value) {
    let metadata = &mut object["metadata"];
    for field in SERVER_FIELDS {
        remove(metadata, field);
    }
    metadata["uid"] = json!(uuid());
    metadata["creationTimestamp"] = json!(now());
    if kind.counts_generation {
        metadata["generation"] = json!(1);
    }
}

/// Whether `new` may replace `old`: same name, same UID, and no older version than the stored one.
pub(crate) fn check_same(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), ApiStatus> {
    let given = new["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != name {
        return Err(ApiStatus::bad_request(format!("metadata.name is {given:?}, the path is of {name:?}")));
    }
    for field in ["uid", "resourceVersion"] {
        let (old, new) = (&old["metadata"][field], &new["metadata"][field]);
        if new.as_str().is_some_and(|new| !new.is_empty()) && old != new {
            let message = format!(
                "{} {name:?} has {field} {old}, the request started from {new}: read it again and repeat the change",
                kind.resource()
            );
            return Err(ApiStatus::conflict(message));
        }
    }
    Ok(())
}

/// Takes what only the server may change from the old object.
pub(crate) fn keep(old: &Value, new: &mut Value) {
    let name = old["metadata"]["name"].clone();
    new["metadata"]["name"] = name;
    for field in SERVER_FIELDS {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => remove(&mut new["metadata"], field),
        }
    }
}

/// A random UUID (version 4).
pub(crate) fn uuid() -> String {
    let (high, low) = (random(), random());
    let version = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
    let variant = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        version >> 32,
        (version >> 16) & 0xffff,
        version & 0xffff,
        variant >> 48,
        variant & 0xffff_ffff_ffff
    )
}

fn suffix() -> String {
    let mut bits = random();
    let mut next = || {
        let letter = ALPHABET[usize::try_from(bits % 27).unwrap_or(0)];
        bits /= 27;
        char::from(letter)
    };
    (0..5).map(|_| next()).collect()
}

/// The standard library seeds each `RandomState` anew; that is random enough for names.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(map) = object {
        map.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_58_letters_of_the_prefix_and_avoid_taken_ones() {
        let mut object = json!({"metadata": {"generateName": "x".repeat(80)}});
        let name = name_for(&mut object, |_| false).expect("named");
        assert_eq!(name.len(), 63);
        assert_eq!(object["metadata"]["name"], name);
        let mut tries = std::cell::Cell::new(0);
        let mut object = json!({"metadata": {"generateName": "a-"}});
        let taken = |_: &str| tries.replace(tries.get() + 1) < 3;
        name_for(&mut object, taken).expect("named");
        assert_eq!(*tries.get_mut(), 4);
        assert_eq!(name_for(&mut json!({"metadata": {}}), |_| false), None);
    }

    #[test]
    fn uuids_have_the_form_and_differ() {
        let (a, b) = (uuid(), uuid());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert_eq!(&a[14..15], "4");
        assert!(matches!(&a[19..20], "8" | "9" | "a" | "b"), "{a}");
    }

    #[test]
    fn times_have_whole_seconds() {
        let now = now();
        assert_eq!(now.len(), "2026-01-02T03:04:05Z".len(), "{now}");
    }
}
