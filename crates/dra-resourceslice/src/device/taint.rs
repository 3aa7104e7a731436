//! Device taints.

use std::{str::FromStr, time::SystemTime};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::IfDropped;

/// A taint: pods whose claims do not tolerate it are kept off the device, or evicted from it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct Taint {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) effect: TaintEffect,
    pub(crate) time_added: Option<Time>,
    pub(crate) if_dropped: IfDropped,
}

/// What a taint does to claims that do not tolerate it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TaintEffect {
    /// Nothing: the taint only informs.
    None,
    /// The device is not allocated.
    NoSchedule,
    /// The device is not allocated, and pods that use it are evicted.
    NoExecute,
}

impl TaintEffect {
    /// The text of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    pub(crate) fn from_api(text: &str) -> Option<Self> {
        [Self::None, Self::NoSchedule, Self::NoExecute].into_iter().find(|effect| effect.as_str() == text)
    }
}

/// A text that names no effect of a taint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no effect of a taint: None, NoSchedule or NoExecute")]
pub struct UnknownTaintEffect(String);

/// From the text of the API, for options of a driver.
impl FromStr for TaintEffect {
    type Err = UnknownTaintEffect;

    fn from_str(text: &str) -> Result<Self, UnknownTaintEffect> {
        Self::from_api(text).ok_or_else(|| UnknownTaintEffect(text.to_owned()))
    }
}

impl Taint {
    /// A taint with a key (a label key) and an effect.
    pub fn new(key: impl Into<String>, effect: TaintEffect) -> Self {
        Self { key: key.into(), value: None, effect, time_added: None, if_dropped: IfDropped::Keep }
    }

    /// A taint with effect `NoSchedule`.
    pub fn no_schedule(key: impl Into<String>) -> Self {
        Self::new(key, TaintEffect::NoSchedule)
    }

    /// A taint with effect `NoExecute`.
    pub fn no_execute(key: impl Into<String>) -> Self {
        Self::new(key, TaintEffect::NoExecute)
    }

    /// Sets the value (a label value).
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// Says since when the taint holds, in whole seconds. Without it the API server sets the time at which it
    /// first sees the taint, and that time is kept over updates.
    pub fn added_at(mut self, time: SystemTime) -> Self {
        self.time_added = Timestamp::try_from(time).ok().map(|time| Time(whole_seconds(time)));
        self
    }

    /// Says what becomes of the device if the API server drops the taint, because its gate `DRADeviceTaints` is off (the
    /// default before Kubernetes 1.36). By default it is published without the taint. With [`IfDropped::LeaveOut`] it is not in
    /// the slices for as long as it would have the taint, unless the effect is [`TaintEffect::None`]; pods that have the device
    /// keep it. [`Device::if_dropped`](crate::Device::if_dropped) says the same for all taints of a device.
    pub fn if_dropped(mut self, then: IfDropped) -> Self {
        self.if_dropped = then;
        self
    }

    /// Whether the device must not be published without the taint.
    pub(crate) fn is_essential(&self) -> bool {
        self.if_dropped == IfDropped::LeaveOut && self.effect != TaintEffect::None
    }

    /// The taint's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The taint's effect.
    #[must_use]
    pub fn effect(&self) -> TaintEffect {
        self.effect
    }

    /// Key and effect identify a taint; two with the same would contradict each other.
    pub(crate) fn same_slot(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// The API server keeps whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_read_as_the_api_spells_them() {
        for effect in [TaintEffect::None, TaintEffect::NoSchedule, TaintEffect::NoExecute] {
            assert_eq!(effect.as_str().parse(), Ok(effect));
        }
        let error = "noschedule".parse::<TaintEffect>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"noschedule\" is no effect of a taint: None, NoSchedule or NoExecute"
        );
    }
}
