//! Taints that keep a device from being allocated: those of its slice, and those of DeviceTaintRules.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::AllocationError;
use crate::model::{self, Device, Metadata, Slice, Taint, Toleration};

/// A DeviceTaintRule: the taint that an administrator gives to devices. Slices do not show it; the scheduler adds it before
/// it allocates (`resourceslice/tracker` in `k8s.io/dynamic-resource-allocation`).
#[derive(Debug, Clone, Deserialize)]
pub struct TaintRule {
    metadata: Metadata,
    spec: RuleSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleSpec {
    device_selector: Option<DeviceSelector>,
    taint: Taint,
}

/// All that is set has to be met; an empty selector selects all devices.
#[derive(Debug, Clone, Deserialize)]
struct DeviceSelector {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
}

impl TaintRule {
    /// Reads a DeviceTaintRule of any version of `resource.k8s.io` that has one.
    ///
    /// # Errors
    /// If it is none, or selects devices by class or CEL, which only `v1alpha3` of Kubernetes 1.33 and 1.34 could.
    pub fn read(rule: &impl Serialize) -> Result<Self, AllocationError> {
        let place = "a DeviceTaintRule";
        let value: Value = model::read(rule, place)?;
        let selector = &value["spec"]["deviceSelector"];
        for field in ["deviceClassName", "selectors"] {
            if selector.get(field).is_some_and(|value| !value.is_null()) {
                let name = value["metadata"]["name"].as_str().unwrap_or_default();
                let place = format!("DeviceTaintRule {name:?}");
                return Err(AllocationError::Unsupported {
                    place,
                    what: format!("spec.deviceSelector.{field}"),
                });
            }
        }
        model::read(&value, place)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    fn selects(&self, slice: &Slice, device: &Device) -> bool {
        let Some(selector) = &self.spec.device_selector else { return false };
        let is_met =
            |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        is_met(&selector.driver, &slice.spec.driver)
            && is_met(&selector.pool, &slice.spec.pool.name)
            && is_met(&selector.device, &device.name)
    }
}

/// Adds the taints of the rules to the devices that they select.
pub(crate) fn apply(rules: &[TaintRule], slices: &mut [Slice]) {
    for slice in slices {
        let mut devices = std::mem::take(&mut slice.spec.devices);
        for device in &mut devices {
            let selecting: Vec<&TaintRule> =
                rules.iter().filter(|rule| rule.selects(slice, device)).collect();
            for rule in selecting {
                device
                    .taints
                    .push(Taint { rule: Some(rule.metadata.name.clone()), ..rule.spec.taint.clone() });
            }
        }
        slice.spec.devices = devices;
    }
}

/// Whether a taint of the device is not tolerated.
pub(crate) fn forbid(device: &Device, tolerations: &[Toleration]) -> bool {
    forbidding(device, tolerations).next().is_some()
}

/// The taints of the device that are not tolerated. Unknown effects and `None` keep nobody away.
pub(crate) fn forbidding<'a>(
    device: &'a Device,
    tolerations: &'a [Toleration],
) -> impl Iterator<Item = &'a Taint> {
    let counts = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let is_tolerated = |taint: &Taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    device.taints.iter().filter(counts).filter(move |taint| !is_tolerated(taint))
}

/// `key=value:effect`
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { String::new() } else { format!("={}", self.value) };
        write!(f, "{}{value}:{}", self.key, self.effect)
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any_effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let any_key = toleration.key.is_empty() || toleration.key == taint.key;
    let value = match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    };
    any_effect && any_key && value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_taint_is_tolerated_by_effect_key_and_value() {
        for (tolerations, expected) in [
            (json!([]), true),
            (json!([{"operator": "Exists"}]), false),
            (json!([{"operator": "Exists", "key": "k"}]), false),
            (json!([{"operator": "Exists", "key": "other"}]), true),
            (json!([{"key": "k", "value": "v"}]), false),
            (json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]), false),
            (json!([{"key": "k", "value": "other"}]), true),
            (json!([{"operator": "Exists", "effect": "NoExecute"}]), true),
            (json!([{"operator": "Later"}]), true),
        ] {
            assert_eq!(forbids("NoSchedule", &tolerations), expected, "{tolerations}");
        }
        assert!(!forbids("None", &json!([])));
        assert!(forbids("NoExecute", &json!([])));
    }

    #[test]
    fn a_rule_taints_the_devices_that_it_selects() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {
            "driver": "d", "allNodes": true, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "taints": [{"key": "own", "effect": "NoSchedule"}]}, {"name": "y"}],
        }});
        for (selector, expected) in [
            (json!(null), [1, 0]),
            (json!({}), [2, 1]),
            (json!({"driver": "d"}), [2, 1]),
            (json!({"driver": "other"}), [1, 0]),
            (json!({"pool": "p", "device": "y"}), [1, 1]),
            (json!({"pool": "other", "device": "y"}), [1, 0]),
        ] {
            let taint = json!({"key": "k", "value": "v", "effect": "NoExecute"});
            let rule =
                json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}});
            let rules = [TaintRule::read(&rule).expect("a rule")];
            let mut slices: Vec<Slice> = vec![serde_json::from_value(slice.clone()).expect("a slice")];
            apply(&rules, &mut slices);
            let counts = slices[0].spec.devices.iter().map(|device| device.taints.len());
            assert!(counts.eq(expected), "{selector}");
        }
    }

    #[test]
    fn a_rule_that_selects_by_class_is_not_supported() {
        let selector = json!({"deviceClassName": "gpu"});
        let taint = json!({"key": "k", "effect": "NoExecute"});
        let rule = json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}});
        let error = TaintRule::read(&rule).expect_err("not supported").to_string();
        assert!(error.contains("DeviceTaintRule \"r\"") && error.contains("deviceClassName"), "{error}");
    }

    fn forbids(effect: &str, tolerations: &Value) -> bool {
        let device = json!({"name": "x", "taints": [{"key": "k", "value": "v", "effect": effect}]});
        let device = serde_json::from_value(device).expect("a device");
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
        forbid(&device, &tolerations)
    }
}
