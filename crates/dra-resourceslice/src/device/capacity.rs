//! Capacities and the policies of what may be requested of them.

use crate::Quantity;

/// A capacity of a device, such as its memory.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Capacity {
    /// How much there is in all.
    pub value: Quantity,
    /// What a request may take of it. Only for devices that allow multiple allocations.
    pub request_policy: Option<Box<RequestPolicy>>,
}

impl Capacity {
    /// A capacity without a request policy.
    #[must_use]
    pub fn new(value: Quantity) -> Self {
        Self { value, request_policy: None }
    }

    /// Sets the request policy.
    #[must_use]
    pub fn with_policy(mut self, policy: RequestPolicy) -> Self {
        self.request_policy = Some(Box::new(policy));
        self
    }
}

impl From<i64> for Capacity {
    fn from(value: i64) -> Self {
        Self::new(value.into())
    }
}

impl From<i32> for Capacity {
    fn from(value: i32) -> Self {
        Self::new(value.into())
    }
}

/// What one request may take of a capacity (`requestPolicy`).
///
/// ```
/// use dra_resourceslice::{Capacity, Quantity, RequestPolicy};
///
/// let gi = |n: i64| Quantity::from(n << 30);
/// let policy = RequestPolicy::range(gi(1), gi(1), Some(gi(40)), Some(gi(1)));
/// let memory = Capacity::new(gi(80)).with_policy(policy);
/// # assert!(memory.request_policy.is_some());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RequestPolicy {
    /// What a request takes that does not say how much.
    pub default: Option<Quantity>,
    /// Which amounts are valid; `None` means every amount up to the capacity.
    pub valid: Option<ValidRequests>,
}

/// The valid amounts of a [`RequestPolicy`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ValidRequests {
    /// These amounts, in ascending order; at most ten.
    Values(Vec<Quantity>),
    /// The amounts from `min` to `max` in steps.
    #[non_exhaustive]
    Range {
        /// The least amount.
        min: Quantity,
        /// The greatest amount; `None` means the capacity.
        max: Option<Quantity>,
        /// The distance between amounts; `None` means any.
        step: Option<Quantity>,
    },
}

impl RequestPolicy {
    /// Every amount is valid; a request without an amount takes `default`, or everything.
    #[must_use]
    pub fn any(default: Option<Quantity>) -> Self {
        Self { default, valid: None }
    }

    /// Only these amounts are valid, in ascending order; `default` is one of them.
    #[must_use]
    pub fn values(default: Quantity, values: impl IntoIterator<Item = Quantity>) -> Self {
        Self { default: Some(default), valid: Some(ValidRequests::Values(values.into_iter().collect())) }
    }

    /// The amounts from `min` to `max` in steps are valid; `default` is one of them.
    #[must_use]
    pub fn range(default: Quantity, min: Quantity, max: Option<Quantity>, step: Option<Quantity>) -> Self {
        Self { default: Some(default), valid: Some(ValidRequests::Range { min, max, step }) }
    }
}

impl RequestPolicy {
    /// Whether an API server refuses the policy that compares amounts rounded up to whole numbers. That is what
    /// `validateRequestPolicyValidValues` and `validateRequestPolicyRangeStep` of Kubernetes 1.37 do without
    /// `DRAFractionalCapacityRange`, and older versions always.
    pub(crate) fn needs_fractions(&self) -> bool {
        match (&self.valid, &self.default) {
            (Some(ValidRequests::Values(values)), _) => {
                values.windows(2).any(|pair| pair[0].rounded_up() == pair[1].rounded_up())
            }
            (Some(ValidRequests::Range { min, max, step: Some(step) }), Some(default)) => {
                let (min, step) = (min.rounded_up(), step.rounded_up());
                let is_off = |amount: &Quantity| step > 0 && (amount.rounded_up() - min) % step != 0;
                is_off(default) || max.as_ref().is_some_and(is_off)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn policies_that_are_sound_only_as_fractions_are_known() {
        let values = |list: &[&str]| RequestPolicy {
            default: Some(quantity(list[0])),
            valid: Some(ValidRequests::Values(list.iter().map(|text| quantity(text)).collect())),
        };
        let range = |default: &str, min: &str, max: Option<&str>, step: Option<&str>| RequestPolicy {
            default: Some(quantity(default)),
            valid: Some(ValidRequests::Range {
                min: quantity(min),
                max: max.map(quantity),
                step: step.map(quantity),
            }),
        };
        let table = [
            (values(&["500m", "1"]), true),
            (values(&["500m", "1500m"]), false),
            (values(&["1", "2"]), false),
            (range("500m", "0", None, Some("250m")), false),
            (range("3", "500m", None, Some("2500m")), true),
            (range("500m", "500m", Some("3"), Some("2500m")), true),
            (range("2", "500m", None, None), false),
            (range("4", "0", Some("8"), Some("2")), false),
        ];
        for (policy, expected) in table {
            assert_eq!(policy.needs_fractions(), expected, "{policy:?}");
        }
    }
}
