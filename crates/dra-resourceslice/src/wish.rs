//! What one pool shall look like in the API, as the input of [`plan`](crate::plan).

use std::sync::Arc;

use k8s_openapi::{
    api::resource::v1::{CounterSet, Device, ResourcePool, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    Consequence, Fault, Placement, Pool, PoolName, Problem, Scope, Slice, Subject,
    compat::{self, Unsupported},
    convert,
    equal::{self, ContentDigest},
    features::Features,
    pool::PoolContent,
    validate,
};

/// A checked pool in terms of the API, still to be cut into slices.
#[derive(Clone, Debug)]
pub struct PoolWish {
    pub(crate) scope: Scope,
    pub(crate) pool: PoolName,
    /// The owner that every slice shall have; `None` leaves owners as they are.
    pub(crate) owner: Option<OwnerReference>,
    /// Shared by all copies.
    pub(crate) content: Arc<Content>,
    /// The generation does not fall below this.
    pub(crate) min_generation: i64,
    /// What the API server is known to drop.
    pub(crate) dropped: Features,
    /// Contents that the API server is known to store differently: as sent, and as stored.
    pub(crate) tolerated: Vec<(ContentDigest, ContentDigest)>,
    /// Changes the names of new slices, because somebody else has the first choice.
    pub(crate) salt: u32,
}

/// The content of a wish.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// To be cut.
    Whole {
        devices: Vec<Device>,
        counter_sets: Vec<CounterSet>,
        /// What every slice of devices has besides the devices.
        frame: Box<Frame>,
    },
    /// Cut by the driver.
    Slices(Vec<ResourceSliceSpec>),
}

/// What the slices of a pool have besides devices and counter sets.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    spec: ResourceSliceSpec,
    partition_type_attribute: Option<String>,
    skip_node_operations: Vec<String>,
}

impl PoolWish {
    /// Checks a pool, and leaves out what the API server would refuse. The wish is `None` if the pool as a whole
    /// is at fault.
    #[must_use]
    pub fn new(scope: &Scope, name: &PoolName, pool: &Pool) -> (Option<Self>, Vec<Problem>) {
        let (checked, mut problems) = validate::checked(scope, name, pool);
        let content = checked.as_ref().map(|pool| content(scope, name, pool));
        let content = match content {
            None => None,
            Some(Ok(content)) => Some(content),
            Some(Err(Unsupported { field, since })) => {
                problems.push(Problem {
                    pool: name.clone(),
                    subject: Subject::Pool,
                    field: field.to_owned(),
                    fault: Fault::NotInThisVersion { needs: since },
                    consequence: Consequence::PoolRefused,
                });
                None
            }
        };
        let wish = content.map(|content| Self {
            scope: scope.clone(),
            pool: name.clone(),
            owner: None,
            content: Arc::new(content),
            min_generation: pool.generation.max(1),
            dropped: Features::new(),
            tolerated: Vec::new(),
            salt: 0,
        });
        (wish, problems)
    }

    /// Sets the owner that every slice shall have, such as the node.
    #[must_use]
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Adopts the times that the API server has set for taints.
    pub(crate) fn adopt_times(&mut self, times: &equal::TaintTimes<'_>) {
        if times.is_empty() {
            return;
        }
        let devices: Box<dyn Iterator<Item = &mut Device>> = match Arc::make_mut(&mut self.content) {
            Content::Whole { devices, .. } => Box::new(devices.iter_mut()),
            Content::Slices(slices) => {
                Box::new(slices.iter_mut().flat_map(|spec| spec.devices.iter_mut().flatten()))
            }
        };
        devices.for_each(|device| times.adopt(device));
    }
}

impl Frame {
    fn new(scope: &Scope, pool: &PoolName, placement: &Placement, slice: &Slice) -> Self {
        let mut spec = ResourceSliceSpec {
            driver: scope.driver().to_string(),
            node_name: scope.node_name().map(ToString::to_string),
            pool: ResourcePool { name: pool.to_string(), ..Default::default() },
            ..Default::default()
        };
        match placement {
            Placement::Local => {}
            Placement::AllNodes => spec.all_nodes = Some(true),
            Placement::Selector(selector) => spec.node_selector = Some((**selector).clone()),
            Placement::PerDevice => spec.per_device_node_selection = Some(true),
        }
        Self {
            spec,
            partition_type_attribute: slice.partition_type_attribute.as_ref().map(ToString::to_string),
            skip_node_operations: slice
                .skip_node_operations
                .iter()
                .map(|op| op.as_str().to_owned())
                .collect(),
        }
    }

    /// Fails here, and not while planning, if the linked version lacks one of the fields.
    fn check(&self) -> Result<(), Unsupported> {
        let mut spec = self.spec.clone();
        compat::set_partition_type_attribute(&mut spec, self.partition_type_attribute.clone())?;
        compat::set_skip_node_operations(&mut spec, self.skip_node_operations.clone())
    }

    /// A slice of these devices.
    pub(crate) fn devices(&self, devices: Vec<Device>) -> Result<ResourceSliceSpec, Unsupported> {
        let mut spec = self.spec.clone();
        let partitions = devices.iter().any(|device| device.consumes_counters.is_some());
        compat::set_partition_type_attribute(
            &mut spec,
            self.partition_type_attribute.clone().filter(|_| partitions),
        )?;
        compat::set_skip_node_operations(&mut spec, self.skip_node_operations.clone())?;
        spec.devices = (!devices.is_empty()).then_some(devices);
        Ok(spec)
    }

    /// A slice of these counter sets.
    pub(crate) fn counter_sets(&self, sets: Vec<CounterSet>) -> ResourceSliceSpec {
        ResourceSliceSpec { shared_counters: Some(sets), ..self.spec.clone() }
    }
}

fn content(scope: &Scope, name: &PoolName, pool: &Pool) -> Result<Content, Unsupported> {
    match &pool.content {
        PoolContent::Whole(slice) => {
            let frame = Frame::new(scope, name, &pool.placement, slice);
            frame.check()?;
            let devices = devices(slice)?;
            let counter_sets = slice.counter_sets.iter().map(convert::counter_set).collect();
            Ok(Content::Whole { devices, counter_sets, frame: Box::new(frame) })
        }
        PoolContent::Slices(slices) => {
            let specs = slices.iter().map(|slice| {
                let frame = Frame::new(scope, name, &pool.placement, slice);
                if slice.counter_sets.is_empty() {
                    frame.devices(devices(slice)?)
                } else {
                    Ok(frame.counter_sets(slice.counter_sets.iter().map(convert::counter_set).collect()))
                }
            });
            Ok(Content::Slices(specs.collect::<Result<_, _>>()?))
        }
    }
}

fn devices(slice: &Slice) -> Result<Vec<Device>, Unsupported> {
    slice.devices.iter().map(convert::device).collect()
}
