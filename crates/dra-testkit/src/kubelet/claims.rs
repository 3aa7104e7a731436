//! Claims and devices as the kubelet speaks of them, and its checks of a driver's answer.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::error::KubeletError;

/// Names a claim in a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ClaimRef {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: String,
}

impl ClaimRef {
    /// Names a claim by its parts.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }
}

/// The name of a stored claim; parts that the object lacks are empty.
impl From<&ResourceClaim> for ClaimRef {
    fn from(claim: &ResourceClaim) -> Self {
        let metadata = &claim.metadata;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        Self::new(text(&metadata.namespace), text(&metadata.name), text(&metadata.uid))
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// A device that the driver made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedDevice {
    /// Requests of the claim that the device serves; empty means all.
    pub request_names: Vec<String>,
    /// Pool of the device.
    pub pool_name: String,
    /// Name of the device in its pool.
    pub device_name: String,
    /// CDI ids for the container runtime.
    pub cdi_device_ids: Vec<String>,
    /// Which share of the device, if it is shared. Never set over `v1beta1`.
    pub share_id: Option<String>,
}

impl PreparedDevice {
    /// Whether a container that uses this request of the claim (`None`: the whole claim) gets the device.
    #[must_use]
    pub fn serves(&self, request: Option<&str>) -> bool {
        request.is_none_or(|request| {
            self.request_names.is_empty() || self.request_names.iter().any(|name| name == request)
        })
    }
}

/// A driver's answer to a call, unchecked: by claim UID, what it did or the text of its error.
pub type Answer<T> = BTreeMap<String, Result<T, String>>;

/// The kubelet's checks: each claim answered, none that was not asked for, no error.
///
/// `method` is the call, for the error.
///
/// # Errors
/// The first thing that the kubelet would complain about.
pub(super) fn check<T>(
    method: &'static str,
    driver: &str,
    asked: &[ClaimRef],
    answer: Answer<T>,
) -> Result<BTreeMap<String, T>, KubeletError> {
    let mut done = BTreeMap::new();
    for (uid, result) in answer {
        let driver = driver.to_owned();
        let Some(claim) = asked.iter().find(|claim| claim.uid == uid) else {
            return Err(KubeletError::UnknownClaim { method, driver, uid });
        };
        match result {
            Ok(value) => done.insert(uid, value),
            Err(message) => {
                return Err(KubeletError::Claim { method, driver, claim: Box::new(claim.clone()), message });
            }
        };
    }
    let skipped: Vec<ClaimRef> =
        asked.iter().filter(|claim| !done.contains_key(&claim.uid)).cloned().collect();
    if skipped.is_empty() {
        return Ok(done);
    }
    Err(KubeletError::Skipped { method, driver: driver.to_owned(), claims: skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(uids: &[&str]) -> Vec<ClaimRef> {
        uids.iter().map(|uid| ClaimRef::new("default", format!("c-{uid}"), *uid)).collect()
    }

    fn answer(entries: &[(&str, Result<(), &str>)]) -> Answer<()> {
        entries.iter().map(|(uid, result)| ((*uid).to_owned(), result.map_err(str::to_owned))).collect()
    }

    #[test]
    fn a_full_answer_passes() {
        let done =
            check("M", "d", &claims(&["1", "2"]), answer(&[("1", Ok(())), ("2", Ok(()))])).expect("fine");
        assert_eq!(done.len(), 2);
    }

    #[test]
    fn errors_gaps_and_strangers_are_refused() {
        for (entries, text) in [
            (vec![("1", Ok(()))], "skipped 1 ResourceClaims"),
            (vec![], "skipped 2 ResourceClaims"),
            (vec![("1", Ok(())), ("2", Err("no power"))], "no power"),
            (vec![("1", Ok(())), ("2", Ok(())), ("3", Ok(()))], "unknown claim UID \"3\""),
        ] {
            let error =
                check("M", "d", &claims(&["1", "2"]), answer(&entries)).expect_err("refused").to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_device_serves_its_requests_and_without_any_all() {
        let device = |requests: &[&str]| PreparedDevice {
            request_names: requests.iter().map(|name| (*name).to_owned()).collect(),
            pool_name: "p".into(),
            device_name: "d".into(),
            cdi_device_ids: Vec::new(),
            share_id: None,
        };
        assert!(
            device(&["a"]).serves(Some("a")) && device(&[]).serves(Some("a")) && device(&["a"]).serves(None)
        );
        assert!(!device(&["a"]).serves(Some("b")));
    }
}
