//! The API server's limits on a `ResourceSlice` (resource.k8s.io/v1, Kubernetes 1.37).

/// Devices in a slice.
pub const MAX_DEVICES: usize = 128;
/// Devices in a slice once one of them has taints, consumes counters or has a list attribute.
pub const MAX_DEVICES_ADVANCED: usize = 64;
/// Counter sets in a slice.
pub const MAX_COUNTER_SETS: usize = 8;
/// Counters in a set, and in a device's consumption of one.
pub const MAX_COUNTERS: usize = 32;
/// Counter sets that a device draws on.
pub const MAX_CONSUMED_COUNTER_SETS: usize = 2;
/// Compatibility groups of a device in one counter set.
pub const MAX_COMPATIBILITY_GROUPS: usize = 2;
/// Attributes and capacities of a device, together.
pub const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
/// Attribute values of a device; a list counts as many as it holds.
pub const MAX_ATTRIBUTE_VALUES: usize = 48;
/// Bytes of a text or version attribute.
pub const MAX_ATTRIBUTE_LENGTH: usize = 64;
/// Taints of a device.
pub const MAX_TAINTS: usize = 16;
/// Binding conditions of a device, and the same number of failure conditions.
pub const MAX_BINDING_CONDITIONS: usize = 4;
/// Valid values of a request policy.
pub const MAX_VALID_VALUES: usize = 10;
