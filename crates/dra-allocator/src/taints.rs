//! Taints that keep a device from being allocated.

use std::fmt;

use crate::model::{Device, Taint, Toleration};

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

    fn forbids(effect: &str, tolerations: &Value) -> bool {
        let device = json!({"name": "x", "taints": [{"key": "k", "value": "v", "effect": effect}]});
        let device = serde_json::from_value(device).expect("a device");
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
        forbid(&device, &tolerations)
    }
}
