//! Whether the driver's records say what the API says: no device in two of them, none that was not allocated.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;

use super::Soak;
use crate::scenarios::gpu;

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Devices by the UID of the claim that has them.
type Holders = BTreeMap<String, BTreeSet<String>>;

/// Compares again and again while pods come and go.
///
/// # Errors
/// There is a fault in two looks, one after the other: within one, a device may pass from one claim to the next.
pub(super) async fn keep_watch(soak: &Soak<'_>, busy: &Cell<bool>) -> Result<()> {
    let mut before = BTreeSet::new();
    while busy.get() && !soak.failed.get() {
        tokio::time::sleep(LOOK_EVERY).await;
        let records = records()?;
        let mut now = shared(&records);
        // Without an API server there is nothing to compare with.
        if let Ok(claims) = soak.cx.api::<ResourceClaim>().list(&ListParams::default()).await {
            now.extend(not_allocated(&records, &allocations(&claims.items)));
        }
        if let Some(fault) = now.intersection(&before).next() {
            bail!("the driver's records: {fault}");
        }
        before = now;
    }
    Ok(())
}

/// Each device that stands in two records, with both claims.
fn shared(records: &Holders) -> BTreeSet<String> {
    let mut holders = BTreeMap::<&String, &String>::new();
    let mut faults = BTreeSet::new();
    for (claim, devices) in records {
        for device in devices {
            if let Some(other) = holders.insert(device, claim) {
                faults.insert(format!("{device} is held by the claims {other} and {claim}"));
            }
        }
    }
    faults
}

/// Each record of a claim that has something else, according to the API.
fn not_allocated(records: &Holders, allocations: &Holders) -> BTreeSet<String> {
    let differs = |(claim, devices): (&String, &BTreeSet<String>)| {
        let allocated = allocations.get(claim)?;
        (allocated != devices)
            .then(|| format!("claim {claim} holds {devices:?}, and {allocated:?} are allocated"))
    };
    records.iter().filter_map(differs).collect()
}

fn allocations(claims: &[ResourceClaim]) -> Holders {
    let of = |claim: &ResourceClaim| {
        let results = claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?.results.as_ref()?;
        let devices = results.iter().map(|result| format!("{}/{}", result.pool, result.device)).collect();
        Some((claim.metadata.uid.clone()?, devices))
    };
    claims.iter().filter_map(of).collect()
}

/// What the records on disk say.
fn records() -> Result<Holders> {
    let mut holders = Holders::new();
    for path in
        gpu::files()?.records.into_iter().filter(|path| path.extension().is_some_and(|end| end != "tmp"))
    {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let (claim, devices) = read(&text).with_context(|| format!("reading {}", path.display()))?;
                holders.insert(claim, devices);
            }
            // Its claim has been unprepared since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
    Ok(holders)
}

/// The payload is the second line.
fn read(record: &str) -> Result<(String, BTreeSet<String>)> {
    let payload = record.lines().nth(1).context("it has one line")?;
    let payload: serde_json::Value = serde_json::from_str(payload).context("its payload is no JSON")?;
    let uid = payload["claim"]["uid"].as_str().context("it names no claim")?;
    let results = payload["allocation"]["results"].as_array().context("it has no results")?;
    let devices = results.iter().map(|result| {
        let text = |field: &str| result[field].as_str().with_context(|| format!("a result without {field}"));
        Ok(format!("{}/{}", text("pool")?, text("device")?))
    });
    Ok((uid.to_owned(), devices.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(rows: &[(&str, &[&str])]) -> Holders {
        let row = |(claim, devices): &(&str, &[&str])| {
            ((*claim).to_owned(), devices.iter().map(|device| (*device).to_owned()).collect())
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_device_in_two_records_is_a_fault() {
        assert!(shared(&holders(&[("a", &["p/0", "p/1"]), ("b", &["p/2"])])).is_empty());
        let faults = shared(&holders(&[("a", &["p/0"]), ("b", &["p/0"])]));
        assert_eq!(faults.into_iter().collect::<Vec<_>>(), ["p/0 is held by the claims a and b"]);
    }

    #[test]
    fn a_record_of_something_else_than_was_allocated_is_a_fault() {
        let records = holders(&[("a", &["p/0"]), ("gone", &["p/1"])]);
        assert!(not_allocated(&records, &holders(&[("a", &["p/0"]), ("later", &["p/3"])])).is_empty());
        assert_eq!(not_allocated(&records, &holders(&[("a", &["p/2"])])).len(), 1);
    }

    #[test]
    fn a_record_tells_its_claim_and_its_devices() {
        let payload =
            r#"{"claim":{"uid":"u"},"allocation":{"results":[{"request":"r","pool":"p","device":"d"}]}}"#;
        let text = format!("dra-claim-record 1 prepared 99\n{payload}\nsha256:00\n");
        assert_eq!(read(&text).unwrap(), ("u".to_owned(), BTreeSet::from(["p/d".to_owned()])));
        assert!(read("dra-claim-record 1 prepared 0\n").is_err());
    }
}
