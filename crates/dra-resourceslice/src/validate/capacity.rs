//! Rules on capacities and their request policies.

use super::device::FieldFault;
use crate::{Capacity, Device, Fault, Quantity, RequestPolicy, ValidRequests, limits};

/// Once one amount of a range is a fraction, the API server computes with thousandths in 64 bits
/// (`DRAFractionalCapacityRange`).
const NANOS_PER_MILLI: i128 = 1_000_000;

pub(super) fn faults(device: &Device, faults: &mut Vec<FieldFault>) {
    for (name, capacity) in device.capacity.iter() {
        let Some(policy) = &capacity.request_policy else { continue };
        let field = format!("capacity[{name}].requestPolicy");
        if !device.allow_multiple_allocations {
            let rule = "is only for devices that allow multiple allocations";
            faults.push((field.clone(), Fault::Rule(rule)));
        }
        faults.extend(policy_fault(capacity, policy).map(|fault| (field, fault)));
    }
}

fn policy_fault(capacity: &Capacity, policy: &RequestPolicy) -> Option<Fault> {
    let rule = |rule| Some(Fault::Rule(rule));
    let Some(valid) = &policy.valid else { return None };
    let Some(default) = &policy.default else { return rule("needs a default") };
    match valid {
        ValidRequests::Values(values) => values_fault(&capacity.value, default, values),
        ValidRequests::Range { min, max, step } => {
            range_fault(&capacity.value, default, min, max.as_ref(), step.as_ref())
        }
    }
}

fn values_fault(capacity: &Quantity, default: &Quantity, values: &[Quantity]) -> Option<Fault> {
    let rule = |rule| Some(Fault::Rule(rule));
    if values.len() > limits::MAX_VALID_VALUES {
        return Some(Fault::TooMany { count: values.len(), limit: limits::MAX_VALID_VALUES });
    }
    if values.windows(2).any(|pair| pair[0] >= pair[1]) {
        return rule("valid values must be in ascending order, each once");
    }
    if values.iter().any(|value| value > capacity) {
        return rule("valid values must not be above the capacity");
    }
    // An empty list is none to the API server.
    if !values.is_empty() && !values.contains(default) {
        return rule("the default must be one of the valid values");
    }
    None
}

fn range_fault(
    capacity: &Quantity,
    default: &Quantity,
    min: &Quantity,
    max: Option<&Quantity>,
    step: Option<&Quantity>,
) -> Option<Fault> {
    let rule = |rule| Some(Fault::Rule(rule));
    let top = max.unwrap_or(capacity);
    let amounts = || [Some(default), Some(min), max, step].into_iter().flatten();
    let in_millis = |amount: &Quantity| {
        let nanos = amount.as_nanos();
        nanos % NANOS_PER_MILLI == 0 && i64::try_from(nanos / NANOS_PER_MILLI).is_ok()
    };
    if amounts().any(|amount| !amount.is_integer()) && !amounts().all(in_millis) {
        return rule(
            "with a fraction among them, amounts must have at most three decimals and be below 2^63/1000",
        );
    }
    if min.as_nanos() < 0 {
        return rule("the minimum must not be negative");
    }
    if top > capacity {
        return rule("the maximum must not be above the capacity");
    }
    if min > top {
        return rule("the minimum must not be above the maximum");
    }
    if default < min || default > top {
        return rule("the default must lie between minimum and maximum");
    }
    let step = step?.as_nanos();
    if step <= 0 {
        return rule("the step must be above zero");
    }
    if min.as_nanos() + step > capacity.as_nanos() {
        return rule("minimum and step together must not be above the capacity");
    }
    let aligned = |amount: &Quantity| (amount.as_nanos() - min.as_nanos()) % step == 0;
    if !aligned(default) || max.is_some_and(|max| !aligned(max)) {
        return rule("default and maximum must be the minimum plus a multiple of the step");
    }
    None
}
