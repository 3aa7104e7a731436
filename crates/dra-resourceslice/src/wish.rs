//! What one pool shall look like in the API, as the input of [`plan`](crate::plan).

use k8s_openapi::{
    api::resource::v1::{ResourcePool, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    Consequence, Device, DeviceName, Fault, Feature, Placement, Pool, PoolName, Problem, Scope, Slice,
    Subject,
    compat::{self, Unsupported},
    convert,
    equal::{ContentDigest, TaintTimes},
    features::Features,
    layout::Part,
    validate,
};

/// A checked pool, still to be cut into slices.
#[derive(Clone, Debug)]
pub struct PoolWish {
    pub(crate) scope: Scope,
    pub(crate) pool: PoolName,
    /// The owner that every slice shall have; `None` leaves owners as they are.
    pub(crate) owner: Option<OwnerReference>,
    pub(crate) content: Pool,
    /// The generation does not fall below this.
    pub(crate) min_generation: i64,
    /// What the API server is known to drop.
    pub(crate) dropped: Features,
    /// Contents that the API server is known to store differently: as sent, and as stored.
    pub(crate) tolerated: Vec<(ContentDigest, ContentDigest)>,
    /// Changes the names of new slices, because somebody else has the first choice.
    pub(crate) salt: u32,
}

impl PoolWish {
    /// Checks a pool, and leaves out what the API server would refuse. The wish is `None` if the pool as a whole
    /// is at fault.
    #[must_use]
    pub fn new(scope: &Scope, name: &PoolName, pool: &Pool) -> (Option<Self>, Vec<Problem>) {
        let (checked, mut problems) = validate::checked(scope, name, pool);
        let wish = checked.map(|content| Self {
            scope: scope.clone(),
            pool: name.clone(),
            owner: None,
            content,
            min_generation: pool.generation.max(1),
            dropped: Features::new(),
            tolerated: Vec::new(),
            salt: 0,
        });
        match wish.as_ref().map(Self::check_frames) {
            Some(Err(Unsupported { field, since })) => {
                problems.push(Problem {
                    pool: name.clone(),
                    subject: Subject::Pool,
                    field: field.to_owned(),
                    fault: Fault::NotInThisVersion { needs: since },
                    consequence: Consequence::PoolRefused,
                });
                (None, problems)
            }
            Some(Ok(())) | None => (wish, problems),
        }
    }

    /// Sets the owner that every slice shall have, such as the node.
    #[must_use]
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.owner = Some(owner);
        self
    }

    /// The devices that must not be published as the API server drops their fields.
    pub(crate) fn left_out(&self) -> Vec<(DeviceName, Feature)> {
        let why = |device: &Device| self.dropped.iter().copied().find(|feature| device.depends_on(*feature));
        let devices = self.content.devices();
        devices.filter_map(|device| why(device).map(|feature| (device.name.clone(), feature))).collect()
    }

    /// Without the devices that must not be published as the API server drops their fields, and without counters where
    /// it drops those: it would store slices with nothing in them.
    pub(crate) fn without_left_out(mut self) -> Self {
        let leaves = |device: &Device| self.dropped.iter().any(|feature| device.depends_on(*feature));
        let counters = self.dropped.contains(&Feature::PartitionableDevices)
            && self.content.slices().iter().any(|slice| !slice.counter_sets.is_empty());
        if !counters && !self.content.devices().any(leaves) {
            return self;
        }
        self.content.retain(|slice| {
            if counters {
                slice.counter_sets.clear();
            }
            slice.devices.retain(|device| !leaves(device));
        });
        self
    }

    /// A slice of the pool, with the times that the API server has set for taints; without generation and count. Made
    /// when it is needed: in the types of the API, a device takes several times the memory.
    pub(crate) fn spec(&self, part: &Part, times: &TaintTimes) -> ResourceSliceSpec {
        let Some(slice) = self.content.slices().get(part.slice()) else { return self.frame() };
        match part {
            Part::Devices { range, .. } => {
                let models = slice.devices.get(range.clone()).unwrap_or_default();
                // None fails: each was converted when it was checked.
                let mut devices: Vec<_> =
                    models.iter().filter_map(|model| convert::device(model).ok()).collect();
                for device in &mut devices {
                    times.adopt(device);
                }
                let mut spec = self.frame();
                let partitions = models.iter().any(|model| !model.consumes_counters.is_empty());
                // Neither fails, as `new` has tried.
                let _ = set_slice_fields(&mut spec, slice, partitions);
                spec.devices = (!devices.is_empty()).then_some(devices);
                spec
            }
            Part::CounterSets { places, .. } => {
                let sets = places.iter().filter_map(|place| slice.counter_sets.get(*place));
                let sets = sets.map(convert::counter_set).collect();
                ResourceSliceSpec { shared_counters: Some(sets), ..self.frame() }
            }
        }
    }

    /// What all slices of the pool have.
    fn frame(&self) -> ResourceSliceSpec {
        let mut spec = ResourceSliceSpec {
            driver: self.scope.driver().to_string(),
            node_name: self.scope.node_name().map(ToString::to_string),
            pool: ResourcePool { name: self.pool.to_string(), ..Default::default() },
            ..Default::default()
        };
        match &self.content.placement {
            Placement::Local => {}
            Placement::AllNodes => spec.all_nodes = Some(true),
            Placement::Selector(selector) => spec.node_selector = Some((**selector).clone()),
            Placement::PerDevice => spec.per_device_node_selection = Some(true),
        }
        spec
    }

    /// Fails here, and not while planning, if the linked version lacks a field of a slice.
    fn check_frames(&self) -> Result<(), Unsupported> {
        let mut slices = self.content.slices().iter();
        slices.try_for_each(|slice| set_slice_fields(&mut ResourceSliceSpec::default(), slice, true))
    }
}

/// Sets what a slice of devices has besides them.
fn set_slice_fields(
    spec: &mut ResourceSliceSpec,
    slice: &Slice,
    partitions: bool,
) -> Result<(), Unsupported> {
    let partition_type = slice.partition_type_attribute.as_ref().filter(|_| partitions);
    compat::set_partition_type_attribute(spec, partition_type.map(ToString::to_string))?;
    let skipped = slice.skip_node_operations.iter().map(|operation| operation.as_str().to_owned());
    compat::set_skip_node_operations(spec, skipped.collect())
}
