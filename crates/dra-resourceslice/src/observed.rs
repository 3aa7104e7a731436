//! A slice in the API, as far as a plan needs to know it.

use k8s_openapi::{api::resource::v1::ResourceSlice, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::{
    equal::{ContentDigest, TaintTimes},
    features::{self, Features},
};

/// What is kept of a slice that was seen. The slice itself takes some 5 kB for each device, this a hundredth of it.
#[derive(Clone, Debug)]
pub(crate) struct ObservedSlice {
    /// Without the managed fields, which nobody here needs.
    pub(crate) metadata: ObjectMeta,
    pub(crate) driver: String,
    pub(crate) node_name: Option<String>,
    pub(crate) pool: String,
    pub(crate) generation: i64,
    /// How many slices the pool has, as the slice says.
    pub(crate) count: i64,
    pub(crate) content: ContentDigest,
    /// The names of the devices, in order.
    pub(crate) devices: Vec<Box<str>>,
    /// The names of the counter sets, in order.
    pub(crate) counter_sets: Vec<Box<str>>,
    pub(crate) taint_times: TaintTimes,
    /// The features that the content needs.
    pub(crate) features: Features,
}

impl ObservedSlice {
    /// What there is to know of a slice.
    pub(crate) fn of(slice: ResourceSlice) -> Self {
        let ResourceSlice { metadata, spec } = slice;
        Self {
            metadata: ObjectMeta { managed_fields: None, ..metadata },
            generation: spec.pool.generation,
            count: spec.pool.resource_slice_count,
            devices: names(spec.devices.iter().flatten().map(|device| &device.name)),
            counter_sets: names(spec.shared_counters.iter().flatten().map(|set| &set.name)),
            taint_times: TaintTimes::of(&spec),
            features: features::used(&spec),
            driver: spec.driver.clone(),
            node_name: spec.node_name.clone(),
            pool: spec.pool.name.clone(),
            content: ContentDigest::of(spec),
        }
    }

    /// The slice's name.
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Box<str>> {
    names.map(|name| name.as_str().into()).collect()
}
