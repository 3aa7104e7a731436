//! What the API server is: its version and its feature gates.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::Feature;
use kube::Client;

/// An API server's version, and the feature gates that are on.
#[derive(Debug)]
pub(crate) struct Server {
    /// The 37 of Kubernetes 1.37.
    pub(crate) minor: u32,
    gates: BTreeSet<String>,
}

impl Server {
    /// Asks the real API server: it shows its gates among its metrics.
    pub(crate) async fn ask(client: &Client) -> Result<Self> {
        let version = client.apiserver_version().await.context("asking for the version")?;
        let minor =
            version.minor.parse().with_context(|| format!("{:?} is no minor version", version.minor))?;
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = client.request_text(request).await.context("reading the metrics")?;
        let gates: BTreeSet<String> = metrics.lines().filter_map(enabled_gate).map(str::to_owned).collect();
        ensure!(gates.contains("DynamicResourceAllocation"), "the metrics show no feature gates: {gates:?}");
        Ok(Self { minor, gates })
    }

    /// One that is known.
    #[cfg(test)]
    pub(crate) fn known(minor: u32, gates: impl IntoIterator<Item = String>) -> Self {
        Self { minor, gates: gates.into_iter().collect() }
    }

    /// Whether fields of this feature are stored.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.has_gate(feature.gate())
    }

    /// Whether the gate of this name is on.
    pub(crate) fn has_gate(&self, gate: &str) -> bool {
        self.gates.contains(gate)
    }

    /// Those of the features that are off, in order. Groups go with the counters that have them: without counters nobody can
    /// tell whether groups would be stored.
    pub(crate) fn lacks(&self, features: &[Feature]) -> Vec<Feature> {
        let mut off: BTreeSet<_> = features.iter().copied().filter(|&feature| !self.has(feature)).collect();
        if off.contains(&Feature::PartitionableDevices) {
            off.remove(&Feature::DeviceCompatibilityGroups);
        }
        off.into_iter().collect()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dra: Vec<_> =
            self.gates.iter().filter(|gate| gate.starts_with("DRA")).map(String::as_str).collect();
        write!(f, "1.{} with {}", self.minor, dra.join(", "))
    }
}

/// The gate of a line like `kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 1`.
fn enabled_gate(line: &str) -> Option<&str> {
    let (labels, value) = line.strip_prefix("kubernetes_feature_enabled{")?.split_once('}')?;
    let (_, name) = labels.split_once("name=\"")?;
    let (name, _) = name.split_once('"')?;
    (value.trim() == "1").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_the_metrics() {
        let on = "kubernetes_feature_enabled{name=\"DRADeviceTaints\",stage=\"BETA\"} 1";
        assert_eq!(enabled_gate(on), Some("DRADeviceTaints"));
        assert_eq!(enabled_gate(&on.replace("} 1", "} 0")), None);
        assert_eq!(enabled_gate("# TYPE kubernetes_feature_enabled gauge"), None);
    }
}
