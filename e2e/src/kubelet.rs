//! What the kubelet counts and what stands in its book of claims.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde::Deserialize;

use crate::node;

/// The kubelet's metrics, by way of the API server.
pub(crate) struct Metrics(String);

impl Metrics {
    /// As they are now.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let path = format!("/api/v1/nodes/{}/proxy/metrics", node::NAME);
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(Self(client.request_text(request).await.context("reading the kubelet's metrics")?))
    }

    /// The sum of the counts of this name that have all these labels; 0 if there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        let mut sum = 0;
        for line in self.0.lines() {
            let Some((found, value)) = series(line, name) else { continue };
            let has = |(label, value): &(&str, &str)| found.contains(&format!("{label}=\"{value}\""));
            if labels.iter().all(has) {
                let value: u64 = value.parse().with_context(|| format!("a count in {line:?}"))?;
                sum += value;
            }
        }
        Ok(sum)
    }
}

/// Labels and value of a line of this metric.
fn series<'a>(line: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")
}

/// A device as the kubelet has it in its book.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BookedDevice {
    pub(crate) device_name: String,
    #[serde(default, rename = "ShareID")]
    pub(crate) share_id: Option<String>,
    pub(crate) request_names: Vec<String>,
}

/// The devices of a claim that a driver has prepared, by the kubelet's book; none if the claim is not in it.
pub(crate) fn booked_devices(claim_uid: &str, driver: &str) -> Result<Vec<BookedDevice>> {
    let path = Path::new(node::KUBELET).join("dra_manager_state");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    in_book(&text, claim_uid, driver).with_context(|| format!("{} holds {text}", path.display()))
}

fn in_book(text: &str, claim_uid: &str, driver: &str) -> Result<Vec<BookedDevice>> {
    let outer: serde_json::Value = serde_json::from_str(text)?;
    let inner: serde_json::Value = serde_json::from_str(outer["Data"].as_str().context("no data")?)?;
    let entries = inner["ClaimInfoStateList"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut of_claim = entries.iter().filter(|entry| entry["ClaimUID"] == claim_uid);
    let Some(entry) = of_claim.next() else { return Ok(Vec::new()) };
    ensure!(of_claim.next().is_none(), "claim {claim_uid} has two entries");
    let devices = &entry["DriverState"][driver]["Devices"];
    if devices.is_null() { Ok(Vec::new()) } else { Ok(Vec::deserialize(devices)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_labels() {
        let metrics = Metrics(
            "# HELP in_use Claims\n\
             in_use{driver_name=\"a\"} 1\n\
             in_use{driver_name=\"b\"} 2\n\
             in_use_not{driver_name=\"a\"} 4\n\
             calls_count{driver_name=\"a\",method_name=\"/x.Y/Z\"} 3\n"
                .to_owned(),
        );
        let sum = |name, labels: &[(&str, &str)]| metrics.sum(name, labels).unwrap();
        assert_eq!(sum("in_use", &[("driver_name", "a")]), 1);
        assert_eq!(sum("in_use", &[]), 3);
        assert_eq!(sum("in_use", &[("driver_name", "c")]), 0);
        assert_eq!(sum("calls_count", &[("driver_name", "a"), ("method_name", "/x.Y/Z")]), 3);
    }

    #[test]
    fn the_book_names_devices_by_claim_and_driver() {
        let device = |share: &str| {
            format!(
                r#"{{"PoolName":"n","DeviceName":"gpu-0",{share}"RequestNames":["a"],"CDIDeviceIDs":[]}}"#
            )
        };
        let data = format!(
            r#"{{"ClaimInfoStateList":[{{"ClaimUID":"u","DriverState":{{"d":{{"Devices":[{},{}]}}}}}}]}}"#,
            device(""),
            device(r#""ShareID":"s","#)
        );
        let text = serde_json::json!({"Data": data, "Checksum": 1}).to_string();
        let shares = |uid, driver| -> Vec<Option<String>> {
            in_book(&text, uid, driver).unwrap().into_iter().map(|device| device.share_id).collect()
        };
        assert_eq!(shares("u", "d"), [None, Some("s".to_owned())]);
        assert_eq!((shares("u", "e"), shares("v", "d")), (Vec::new(), Vec::new()));
    }
}
