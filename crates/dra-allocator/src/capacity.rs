//! Shares of a device's capacity, for devices that several claims may have at once.

use std::collections::BTreeMap;

use crate::model::{Amount, Capacity, Device, RequestPolicy, ValidRange};
use crate::quantity;

/// Amounts by the capacity's name, in billionths.
pub(crate) type Consumed = BTreeMap<String, i128>;

/// The largest number that the scheduler computes ranges with: whole amounts, or thousandths.
const MAX_UNITS: i128 = i64::MAX as i128;

/// What a request takes of a device beside what is `consumed` already, or none if the device has not that much or does not
/// give such an amount.
///
/// # Errors
/// If an amount cannot be computed with: the scheduler gives the pod up then.
pub(crate) fn share(
    device: &Device,
    asked: &BTreeMap<String, Amount>,
    consumed: &Consumed,
) -> Result<Option<BTreeMap<String, Amount>>, String> {
    if asked.keys().any(|name| !device.capacity.contains_key(name)) {
        return Ok(None);
    }
    let mut shares = BTreeMap::new();
    for (name, capacity) in &device.capacity {
        let share =
            share_of(capacity, asked.get(name)).map_err(|reason| format!("capacity {name:?}: {reason}"))?;
        shares.insert(name.clone(), share);
    }
    let fits = |(name, share): (&String, &Amount)| {
        let capacity = &device.capacity[name];
        let before = consumed.get(name).copied().unwrap_or_default();
        allows(capacity.request_policy.as_ref(), share) && before + share.nanos <= capacity.value.nanos
    };
    Ok(shares.iter().all(fits).then_some(shares))
}

/// Why [`share`] has nothing to give, for people: empty if it has.
pub(crate) fn lacks(device: &Device, asked: &BTreeMap<String, Amount>, consumed: &Consumed) -> Vec<String> {
    let unknown = asked.keys().filter(|name| !device.capacity.contains_key(*name));
    let mut lacks: Vec<String> = unknown.map(|name| format!("has no capacity {name}")).collect();
    for (name, capacity) in &device.capacity {
        let share = match share_of(capacity, asked.get(name)) {
            Ok(share) => share,
            Err(reason) => {
                lacks.push(format!("capacity {name}: {reason}"));
                continue;
            }
        };
        let before = consumed.get(name).copied().unwrap_or_default();
        if !allows(capacity.request_policy.as_ref(), &share) {
            lacks.push(format!("its policy does not allow {} of capacity {name}", share.text));
        } else if before + share.nanos > capacity.value.nanos {
            let left = quantity::spelled_like(capacity.value.nanos - before, &capacity.value.text);
            lacks.push(format!(
                "{} of capacity {name} are needed, {left} of {} are left",
                share.text, capacity.value.text
            ));
        }
    }
    lacks
}

/// The amount that is taken: as asked, rounded up as the policy says, or its default, or all there is.
fn share_of(capacity: &Capacity, asked: Option<&Amount>) -> Result<Amount, String> {
    let policy = capacity.request_policy.as_ref();
    let Some(asked) = asked else {
        return Ok(policy
            .and_then(|policy| policy.default.clone())
            .unwrap_or_else(|| capacity.value.clone()));
    };
    let share = match policy.map(|policy| (&policy.valid_range, &policy.valid_values)) {
        Some((Some(range @ ValidRange { min: Some(min), .. }), _)) => rounded(asked, range, min)?,
        Some((None, values)) => {
            values.iter().find(|value| asked.nanos <= value.nanos).unwrap_or(asked).clone()
        }
        _ => asked.clone(),
    };
    if share.nanos < 0 { Err("the value is negative".into()) } else { Ok(share) }
}

/// At least `min`, and whole steps above it.
fn rounded(asked: &Amount, range: &ValidRange, min: &Amount) -> Result<Amount, String> {
    if asked.nanos < min.nanos {
        return Ok(min.clone());
    }
    let Some(step) = &range.step else { return Ok(asked.clone()) };
    let unit = Unit::of(range);
    let not_representable = || format!("{} cannot be represented", asked.text);
    let (units, min, step) = (unit.exact(asked), unit.up(min), unit.up(step));
    let units = units.ok_or_else(not_representable)?;
    if step <= 0 {
        return Ok(asked.clone());
    }
    let above = units - min;
    let rounded = min + (above / step + i128::from(above % step != 0)) * step;
    if rounded > MAX_UNITS {
        return Err(not_representable());
    }
    let nanos = rounded * unit.nanos();
    if nanos == asked.nanos {
        return Ok(asked.clone());
    }
    let text = format!("{nanos}n");
    Ok(Amount { nanos, text: quantity::canonical(&text).unwrap_or(text) })
}

/// What the scheduler computes ranges in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Milli,
    Whole,
}

impl Unit {
    /// Thousandths if the whole range can be written in them.
    fn of(range: &ValidRange) -> Self {
        let is_milli = |amount: &Amount| Self::Milli.exact(amount).is_some();
        let mut amounts = [&range.min, &range.max, &range.step].into_iter().flatten();
        let has_step = range.step.as_ref().is_none_or(|step| step.nanos > 0);
        if amounts.all(is_milli) && has_step { Self::Milli } else { Self::Whole }
    }

    fn nanos(self) -> i128 {
        match self {
            Self::Milli => 1_000_000,
            Self::Whole => 1_000_000_000,
        }
    }

    /// The amount in this unit, whole ones rounded up. None if it cannot be had so.
    fn exact(self, amount: &Amount) -> Option<i128> {
        let units = self.up(amount);
        let is_exact = self == Self::Whole || amount.nanos % self.nanos() == 0;
        (is_exact && amount.nanos <= MAX_UNITS * self.nanos()).then_some(units)
    }

    fn up(self, amount: &Amount) -> i128 {
        amount.nanos / self.nanos() + i128::from(amount.nanos % self.nanos() > 0)
    }
}

/// Whether the policy allows this amount.
fn allows(policy: Option<&RequestPolicy>, share: &Amount) -> bool {
    let Some(policy) = policy else { return true };
    if policy.default.as_ref().is_some_and(|default| default.nanos == share.nanos) {
        return true;
    }
    match &policy.valid_range {
        Some(range) => {
            range.max.as_ref().is_none_or(|max| share.nanos <= max.nanos) && is_on_a_step(range, share)
        }
        None => {
            policy.valid_values.is_empty()
                || policy.valid_values.iter().any(|value| value.nanos == share.nanos)
        }
    }
}

fn is_on_a_step(range: &ValidRange, share: &Amount) -> bool {
    let Some(step) = &range.step else { return true };
    let unit = Unit::of(range);
    let (min, step) = (range.min.as_ref().map_or(0, |min| unit.up(min)), unit.up(step));
    unit.exact(share).is_some_and(|units| step <= 0 || (units - min) % step == 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).expect("a good value")
    }

    /// The share of `memory`, as it is written.
    fn memory(policy: &Value, asked: &Value, consumed: &str) -> Result<Option<String>, String> {
        let capacity = json!({"memory": {"value": "100", "requestPolicy": policy}});
        let device = json!({"name": "x", "capacity": capacity, "allowMultipleAllocations": true});
        let device: Device = object(&device);
        let asked: BTreeMap<String, Amount> = object(asked);
        let consumed: Amount = object(&json!(consumed));
        let consumed = Consumed::from([("memory".into(), consumed.nanos)]);
        let shares = share(&device, &asked, &consumed)?;
        Ok(shares.map(|shares| shares["memory"].text.clone()))
    }

    #[test]
    fn a_share_follows_the_policy_and_what_is_left() {
        let range = json!({"default": "10", "validRange": {"min": "5", "max": "50", "step": "5"}});
        let values = json!({"default": "20", "validValues": ["10", "20", "40"]});
        let asked = |amount: &str| json!({"memory": amount});
        for (policy, asked, consumed, expected) in [
            (json!(null), json!({}), "0", Some("100")),
            (json!(null), json!({}), "1", None),
            (json!(null), asked("30"), "70", Some("30")),
            (json!(null), asked("30"), "71", None),
            (json!(null), json!({"other": "1"}), "0", None),
            (range.clone(), json!({}), "0", Some("10")),
            (range.clone(), asked("1"), "0", Some("5")),
            (range.clone(), asked("11"), "0", Some("15")),
            (range.clone(), asked("11500m"), "0", Some("15")),
            (range.clone(), asked("50"), "0", Some("50")),
            (range.clone(), asked("51"), "0", None),
            (range, asked("11"), "90", None),
            (values.clone(), asked("15"), "0", Some("20")),
            (values.clone(), asked("41"), "0", None),
            (values, json!({}), "0", Some("20")),
        ] {
            let told = memory(&policy, &asked, consumed);
            assert_eq!(told, Ok(expected.map(str::to_owned)), "{policy} {asked} {consumed}");
        }
    }

    #[test]
    fn an_amount_beyond_what_the_scheduler_computes_is_an_error() {
        let range = json!({"default": "10", "validRange": {"min": "5", "step": "5"}});
        let error = memory(&range, &json!({"memory": "100E"}), "0").expect_err("too large");
        assert!(error.contains("cannot be represented"), "{error}");
    }
}
