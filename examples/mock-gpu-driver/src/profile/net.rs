//! Network interfaces. Claims share them, and each takes a part of the bandwidth.

use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, AttributeValue, ConfigError, Device, DeviceConfig, NodeName, Pool,
    Quantity,
    resourceslice::{Capacity, RequestPolicy},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Env, Profile, uuid};

/// The network interfaces of a node.
#[derive(Debug)]
pub(crate) struct Nics {
    pub(crate) node: NodeName,
    pub(crate) count: u32,
}

/// How far traffic may exceed its rate for a moment, in bits; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetConfig {
    bw_burst: Option<Burst>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Burst {
    ingress_burst: u64,
    egress_burst: u64,
}

impl DeviceConfig for NetConfig {
    const API_VERSION: &'static str = "net.resource.example.com/v1alpha1";
    const KIND: &'static str = "NetConfig";
}

impl Profile for Nics {
    fn class(&self) -> &'static str {
        "NET"
    }

    fn prefix(&self) -> &'static str {
        "nic-"
    }

    fn pool(&self) -> anyhow::Result<Pool> {
        let quantity = Quantity::parse;
        // A claim is one virtual function, whatever it asks for.
        let functions = Capacity::new(100.into()).with_policy(RequestPolicy::values(1.into(), [1.into()]));
        let (all, default, least, step) =
            (quantity("100G")?, quantity("1G")?, quantity("100M")?, quantity("1M")?);
        let policy = RequestPolicy::range(default, least, Some(all.clone()), Some(step));
        let bandwidth = Capacity::new(all).with_policy(policy);
        let nic = |index: u32| -> anyhow::Result<Device> {
            Ok(Device::named(&format!("nic-{index}"))?
                .try_attribute("index", i64::from(index))?
                .try_attribute("uuid", format!("net-{}", uuid(&self.node, index)))?
                .try_attribute("model", "LATEST-NET-MODEL")?
                .try_attribute("driverVersion", AttributeValue::version("1.0.0"))?
                .try_capacity("vfs", functions.clone())?
                .try_capacity("ingressBandwidth", bandwidth.clone())?
                .try_capacity("egressBandwidth", bandwidth.clone())?
                .allow_multiple_allocations(true))
        };
        Ok(Pool::new((0..self.count).map(nic).collect::<anyhow::Result<Vec<_>>>()?))
    }

    fn env(&self, claim: &AllocatedClaim, device: &AllocatedDevice) -> Result<Env, ConfigError> {
        let burst = claim.config::<NetConfig>(device)?.unwrap_or_default().bw_burst.unwrap_or_default();
        let bursts = [("_INGRESS_BURST", burst.ingress_burst), ("_EGRESS_BURST", burst.egress_burst)];
        let bursts = bursts.into_iter().filter(|(_, bits)| *bits > 0);
        let rates = [("_INGRESS_RATE", "ingressBandwidth"), ("_EGRESS_RATE", "egressBandwidth")];
        let rates = rates.into_iter().filter_map(|(variable, capacity)| {
            Some((variable, bits_per_second(device.consumed_capacity().get(capacity)?)?))
        });
        Ok(bursts.map(|(variable, bits)| (variable, bits.to_string())).chain(rates).collect())
    }
}

/// Reads a configuration for a driver of network interfaces.
///
/// # Errors
/// It is no `NetConfig`, or has a mistake; with the path of the field.
pub(crate) fn validate(parameters: &Value) -> Result<(), ConfigError> {
    NetConfig::decode(parameters).map(drop)
}

/// `10G` as programs want it: `10000000000`.
fn bits_per_second(quantity: &str) -> Option<String> {
    let nanos = Quantity::parse(quantity).ok()?.as_nanos();
    Some((nanos / 1_000_000_000).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_nic_is_shared_by_bandwidth() {
        let pool = Nics { node: "node-1".parse().unwrap(), count: 2 }.pool().unwrap();
        let nic = pool.devices().nth(1).unwrap();
        assert_eq!(nic.name().as_str(), "nic-1");
        let capacities: Vec<_> = nic.capacities().map(|(name, _)| name.as_str()).collect();
        assert_eq!(capacities, ["egressBandwidth", "ingressBandwidth", "vfs"]);
        assert!(nic.capacities().all(|(_, capacity)| capacity.request_policy.is_some()));
    }

    #[test]
    fn rates_are_told_in_bits_per_second() {
        for (quantity, bits) in [("10G", Some("10000000000")), ("1M", Some("1000000")), ("x", None)] {
            assert_eq!(bits_per_second(quantity).as_deref(), bits, "{quantity}");
        }
    }

    #[test]
    fn a_configuration_is_for_bursts() {
        let written = |bursts: Value| {
            validate(&json!({"apiVersion": NetConfig::API_VERSION, "kind": "NetConfig", "bwBurst": bursts}))
                .map_err(|error| error.to_string())
        };
        assert_eq!(written(json!({"ingressBurst": 7})), Ok(()));
        let error = written(json!({"ingressBurst": -1})).unwrap_err();
        assert!(error.starts_with("parameters.bwBurst.ingressBurst: invalid value"), "{error}");
        let error = written(json!({"burst": 1})).unwrap_err();
        assert_eq!(error, "parameters.bwBurst.burst: unknown field");
    }
}
