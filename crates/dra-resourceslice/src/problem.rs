//! What is wrong with a wish, found before anything is sent.

use std::fmt;

use crate::{DeviceName, Feature, PoolName};

/// A rule of the API that a wish breaks, with where and what.
///
/// It prints as one line, such as
/// `pool "node-1": device "gpu-0": taints: has 17 entries, at most 16 are allowed; the device is left out`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Problem {
    /// The pool.
    pub pool: PoolName,
    /// What in the pool.
    pub subject: Subject,
    /// The field, relative to the subject, such as `attributes[model]`.
    pub field: String,
    /// What is wrong with it.
    pub fault: Fault,
    /// What becomes of the wish.
    pub consequence: Consequence,
}

/// The part of a pool that a [`Problem`] is about.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Subject {
    /// The pool as a whole.
    Pool,
    /// A slice that the driver made itself, counted from 0.
    Slice(usize),
    /// A device by its name.
    Device(String),
    /// A counter set by its name.
    CounterSet(String),
}

/// What is wrong with a field.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// More entries than the API takes.
    #[non_exhaustive]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A longer text than the API takes.
    #[non_exhaustive]
    TooLong {
        /// The text.
        value: String,
        /// How many bytes are allowed.
        limit: usize,
    },
    /// A value that the API does not take.
    #[non_exhaustive]
    Invalid {
        /// The value.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A name that is there twice.
    #[non_exhaustive]
    Duplicate {
        /// The name.
        value: String,
    },
    /// A reference to something that is not in the pool.
    #[non_exhaustive]
    Unknown {
        /// The name.
        value: String,
    },
    /// A rule on the field as a whole.
    Rule(&'static str),
    /// The API server drops the field, and the device must not be published without it
    /// ([`Device::if_dropped`](crate::Device::if_dropped)).
    #[non_exhaustive]
    GateOff {
        /// The feature whose gate is off.
        feature: Feature,
    },
    /// A field that the linked k8s-openapi version does not have.
    #[non_exhaustive]
    NotInThisVersion {
        /// The k8s-openapi feature that has it.
        needs: &'static str,
    },
}

/// What becomes of the part of a wish that has a [`Problem`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Consequence {
    /// The attribute is left out; the device is published without it.
    AttributeLeftOut,
    /// The device is left out; the others are published.
    DeviceLeftOut,
    /// The counter set is left out, and so are the devices that draw on it.
    CounterSetLeftOut,
    /// The pool is left as it is in the cluster; other pools are published.
    PoolRefused,
}

impl Problem {
    /// The device must not be published without its fields of the feature, which the API server drops.
    pub(crate) fn gate_off(pool: &PoolName, device: &DeviceName, feature: Feature) -> Self {
        Self {
            pool: pool.clone(),
            subject: Subject::Device(device.to_string()),
            field: feature.fields().to_owned(),
            fault: Fault::GateOff { feature },
            consequence: Consequence::DeviceLeftOut,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {:?}: ", self.pool.as_str())?;
        match &self.subject {
            Subject::Pool => {}
            Subject::Slice(index) => write!(f, "slice {index}: ")?,
            Subject::Device(name) => write!(f, "device {name:?}: ")?,
            Subject::CounterSet(name) => write!(f, "counter set {name:?}: ")?,
        }
        write!(f, "{}: {}; {}", self.field, self.fault, self.consequence)?;
        if matches!((&self.subject, &self.fault), (Subject::Slice(_), Fault::TooMany { .. })) {
            f.write_str(". Give it as devices without slices (Pool::new) to have it split")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { count, limit } => write!(f, "has {count} entries, at most {limit} are allowed"),
            Self::TooLong { value, limit } => {
                write!(f, "{value:?} has {} bytes, at most {limit} are allowed", value.len())
            }
            Self::Invalid { value, rule } => write!(f, "{value:?} {rule}"),
            Self::Duplicate { value } => write!(f, "{value:?} is there twice"),
            Self::Unknown { value } => write!(f, "{value:?} is not in the pool"),
            Self::Rule(rule) => f.write_str(rule),
            Self::GateOff { feature } => {
                write!(f, "needs the feature gate {feature}, which is off in the API server")
            }
            Self::NotInThisVersion { needs } => {
                write!(f, "needs k8s-openapi built with feature {needs} or later")
            }
        }
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttributeLeftOut => "the attribute is left out",
            Self::DeviceLeftOut => "the device is left out",
            Self::CounterSetLeftOut => "the counter set is left out",
            Self::PoolRefused => "the pool is not published",
        })
    }
}

impl std::error::Error for Problem {}
