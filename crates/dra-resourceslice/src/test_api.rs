//! What an API server does with slices, as far as tests need it, without any I/O.

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use crate::{
    Write,
    features::{self, Features},
};

/// The slices of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestApi {
    slices: Vec<ResourceSlice>,
    version: u64,
    /// The features whose gates are off.
    drops: Features,
}

impl TestApi {
    /// These slices, and an API server that drops these features from now on.
    pub(crate) fn with(slices: Vec<ResourceSlice>, drops: Features) -> Self {
        Self { slices, version: 1000, drops }
    }

    /// The slice of this name.
    pub(crate) fn get(&self, name: &str) -> &ResourceSlice {
        &self.slices[self.find(name).expect("the slice is there")]
    }

    pub(crate) fn slices(&self) -> &[ResourceSlice] {
        &self.slices
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.slices.remove(index);
    }

    /// Carries out a write, and panics where an API server would refuse it.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Create(slice) => {
                assert!(self.find(write.name()).is_none(), "{} is there already", write.name());
                let mut slice = (**slice).clone();
                self.version += 1;
                slice.metadata.uid = Some(format!("uid-{}", self.version));
                self.store(slice);
            }
            Write::Update(slice) => {
                let index = self.find(write.name()).expect("the slice to update is there");
                let old = self.slices.remove(index);
                assert_eq!(old.metadata.resource_version, slice.metadata.resource_version, "conflict");
                assert_eq!(old.metadata.uid, slice.metadata.uid);
                assert_eq!(old.spec.pool.name, slice.spec.pool.name);
                self.store_over((**slice).clone(), &features::used(&old.spec));
            }
            Write::Delete { name, uid, resource_version } => {
                let index = self.find(name).expect("the slice to delete is there");
                let old = self.slices.remove(index);
                assert_eq!((&old.metadata.uid, &old.metadata.resource_version), (uid, resource_version));
            }
        }
    }

    /// Carries out all writes of a plan.
    pub(crate) fn apply_all(&mut self, writes: &[Write]) {
        for write in writes {
            self.apply(write);
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.slices.iter().position(|slice| slice.metadata.name.as_deref() == Some(name))
    }

    fn store(&mut self, slice: ResourceSlice) {
        self.store_over(slice, &Features::new());
    }

    /// Stores in place of a slice that has fields of these features, which stay.
    fn store_over(&mut self, mut slice: ResourceSlice, before: &Features) {
        self.version += 1;
        slice.metadata.resource_version = Some(self.version.to_string());
        slice.spec = stored(&slice.spec, &(&self.drops - before), i64::try_from(self.version).unwrap());
        self.slices.push(slice);
        self.slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    }
}

/// What an API server stores: quantities in its own form, taints with a time, without what it drops.
pub(crate) fn stored(spec: &ResourceSliceSpec, drops: &Features, now: i64) -> ResourceSliceSpec {
    let mut spec = features::without(spec.clone(), drops);
    for device in spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added.get_or_insert_with(|| Time(Timestamp::from_second(now).unwrap()));
        }
        for capacity in device.capacity.iter_mut().flat_map(|map| map.values_mut()) {
            capacity.value = crate::quantity::canonical(&capacity.value);
        }
    }
    spec
}
