//! Limits of the request policy of a capacity, with fractions as since Kubernetes 1.37.

use serde_json::Value;

use dra_allocator::quantity::uncapped_nanos;

use super::super::status::Cause;
use super::{Findings, items};

const MAX_VALUES: usize = 10;
const UNIT: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;

/// Checks the policy of a `capacity` of a device.
pub(super) fn check(found: &mut Findings, at: &str, capacity: &Value, shared: bool) {
    let policy = &capacity["requestPolicy"];
    let at = format!("{at}.requestPolicy");
    if policy.is_null() {
        return;
    }
    if !shared {
        found.add(Cause::invalid(at, "allowMultipleAllocations must be true"));
        return;
    }
    let (Some(capacity), values, range) =
        (amount(&capacity["value"]), items(&policy["validValues"]), &policy["validRange"])
    else {
        return;
    };
    let default = amount(&policy["default"]);
    match (values.is_empty(), range.is_null(), default) {
        (true, true, _) => {}
        (false, false, _) => found.add(Cause::invalid(at, "validValues and validRange exclude each other")),
        (_, _, None) => found.add(Cause::required(format!("{at}.default"), "must be set")),
        (false, true, Some(default)) => {
            let values: Vec<i128> = values.iter().filter_map(amount).collect();
            valid_values(found, &format!("{at}.validValues"), capacity, default, &values);
        }
        (true, false, Some(default)) => {
            for reason in range_faults(capacity, default, range) {
                found.add(Cause::invalid(format!("{at}.validRange"), reason));
            }
        }
    }
}

/// Checks the policy as an API server without `DRAFractionalCapacityRange` does, with amounts rounded up to whole numbers:
/// `quantityKeyInt` and `validateRequestPolicyRangeStep`.
pub(super) fn check_rounded(found: &mut Findings, at: &str, policy: &Value) {
    let rounded = |value: &Value| {
        amount(value).map(|nanos| nanos.div_euclid(UNIT) + i128::from(nanos.rem_euclid(UNIT) > 0))
    };
    let values: Vec<i128> = items(&policy["validValues"]).iter().filter_map(rounded).collect();
    if values.windows(2).any(|pair| pair[0] == pair[1]) {
        found.add(Cause::invalid(format!("{at}.validValues"), "must have each value once"));
    }
    let range = &policy["validRange"];
    if let (Some(min), Some(step)) =
        (rounded(&range["min"]), rounded(&range["step"]).filter(|step| *step > 0))
    {
        let amounts = [rounded(&policy["default"]), rounded(&range["max"])];
        if amounts.into_iter().flatten().any(|amount| (amount - min) % step != 0) {
            found.add(Cause::invalid(format!("{at}.validRange"), "default or maximum is off the steps"));
        }
    }
}

/// The value of a quantity in billionths.
fn amount(value: &Value) -> Option<i128> {
    uncapped_nanos(value.as_str()?)
}

fn valid_values(found: &mut Findings, at: &str, capacity: i128, default: i128, values: &[i128]) {
    found.at_most(at, values.len(), MAX_VALUES);
    if values.windows(2).any(|pair| pair[0] >= pair[1]) {
        found.add(Cause::invalid(at, "must ascend, each value once"));
    }
    if values.iter().any(|value| *value > capacity) {
        found.add(Cause::invalid(at, "must not be above the capacity"));
    }
    if !values.contains(&default) {
        found.add(Cause::invalid(at, "must have the default among them"));
    }
}

fn range_faults(capacity: i128, default: i128, range: &Value) -> Vec<&'static str> {
    let (max, step) = (amount(&range["max"]), amount(&range["step"]));
    let Some(min) = amount(&range["min"]) else { return vec!["needs a minimum"] };
    let amounts = || [Some(default), Some(min), max, step].into_iter().flatten();
    let fractional = amounts().any(|amount| amount % UNIT != 0);
    let in_millis = |amount: i128| amount % MILLI == 0 && i64::try_from(amount / MILLI).is_ok();
    if fractional && !amounts().all(in_millis) {
        return vec!["a value cannot be told in thousandths"];
    }
    let in_units = |amount: i128| amount >= 0 && i64::try_from(amount / UNIT).is_ok();
    let aligned = |step: i128, amount: i128| (amount - min) % step == 0;
    let rules = [
        (min > capacity, "the minimum is above the capacity"),
        (max.is_some_and(|max| max > capacity), "the maximum is above the capacity"),
        (max.is_some_and(|max| min > max), "the minimum is above the maximum"),
        (default < min, "the default is below the minimum"),
        (max.is_some_and(|max| default > max), "the default is above the maximum"),
        (step.is_some_and(|step| step <= 0), "the step is not above zero"),
        (step.is_some_and(|step| min + step > capacity), "one step leads beyond the capacity"),
        (step.is_some() && !fractional && !amounts().all(in_units), "a value does not fit 64 bits"),
        (
            step.filter(|step| *step > 0)
                .is_some_and(|step| !aligned(step, default) || max.is_some_and(|max| !aligned(step, max))),
            "default or maximum is off the steps",
        ),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, reason)| reason).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(value: &str, policy: &Value, shared: bool) -> usize {
        let mut found = Findings::default();
        check(&mut found, "c", &json!({"value": value, "requestPolicy": policy}), shared);
        found.causes.len()
    }

    #[test]
    fn sound_policies_pass_on_devices_to_share() {
        for policy in [
            json!({}),
            json!({"default": "11"}),
            json!({"default": "1", "validValues": ["1", "2", "10"]}),
            json!({"default": "4", "validRange": {"min": "2", "max": "10", "step": "2"}}),
            json!({"default": "500m", "validRange": {"min": "0", "step": "250m"}}),
        ] {
            assert_eq!(faults("10", &policy, true), 0, "{policy}");
            assert_eq!(faults("10", &policy, false), 1, "{policy}");
        }
    }

    #[test]
    fn each_rule_refuses() {
        for policy in [
            json!({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}),
            json!({"validValues": ["1"]}),
            json!({"default": "1", "validValues": ["1", "1000m"]}),
            json!({"default": "1", "validValues": ["1", "11"]}),
            json!({"default": "3", "validValues": ["1", "2"]}),
            json!({"default": "1", "validRange": {"min": "2"}}),
            json!({"default": "9", "validRange": {"min": "2", "max": "8"}}),
            json!({"default": "2", "validRange": {"min": "2", "max": "11"}}),
            json!({"default": "2", "validRange": {"min": "2", "step": "0"}}),
            json!({"default": "2", "validRange": {"min": "2", "step": "9"}}),
            json!({"default": "3", "validRange": {"min": "2", "step": "2"}}),
            json!({"default": "0.0005", "validRange": {"min": "0"}}),
        ] {
            assert_eq!(faults("10", &policy, true), 1, "{policy}");
        }
    }
}
