//! What the driver was called for, by its log: all processes append to one file, so the order of the lines is the order in
//! which things happened, also between processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// A call of the driver. A device is used from the beginning of prepare to the end of unprepare, and that is when each of
/// them is logged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// `prepare` or `unprepare`.
    pub(crate) name: String,
    /// `namespace/name (uid)`.
    pub(crate) claim: String,
    pub(crate) device: String,
}

/// The calls so far.
///
/// # Panics
/// A driver has printed something else, such as a panic.
pub(crate) fn calls(log: &Path) -> Vec<Call> {
    let text = fs::read_to_string(log).unwrap();
    let mut calls = Vec::new();
    // Without its end a line is still being written, by a process that will be killed perhaps.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("a driver printed {line}"));
        let field = |name: &str| event["fields"][name].as_str().unwrap_or_default().to_owned();
        assert_eq!(event["level"], "DEBUG", "{line}");
        calls.push(Call { name: field("message"), claim: field("claim"), device: field("devices") });
    }
    calls
}

/// The devices that are in use after these calls, and the claims that use them.
///
/// # Errors
/// A device had two users at some time.
pub(crate) fn users(calls: &[Call]) -> Result<BTreeMap<String, String>, String> {
    let mut users = BTreeMap::new();
    for (at, Call { name, claim, device }) in calls.iter().enumerate() {
        let user = users.get(device);
        let legal = match name.as_str() {
            "prepare" => user.is_none(),
            // What a process that died had undone already may be undone again.
            "unprepare" => user.is_none_or(|user| user == claim),
            _ => false,
        };
        if !legal {
            return Err(format!("call {at} while {device} is used by {user:?}: {calls:#?}"));
        }
        if name == "prepare" {
            users.insert(device.clone(), claim.clone());
        } else {
            users.remove(device);
        }
    }
    Ok(users)
}

#[test]
fn a_second_user_of_a_device_is_noticed() {
    let call = |name: &str, claim: &str| Call {
        name: name.to_owned(),
        claim: claim.to_owned(),
        device: "gpu-0".to_owned(),
    };
    let (a, b, end_of_a) = (call("prepare", "a"), call("prepare", "b"), call("unprepare", "a"));
    let one_after_the_other = [a.clone(), end_of_a.clone(), end_of_a.clone(), b.clone()];
    assert_eq!(users(&one_after_the_other).unwrap()["gpu-0"], "b");
    for wrong in [[a.clone(), b.clone()], [a.clone(), a], [b, end_of_a]] {
        users(&wrong).unwrap_err();
    }
}
