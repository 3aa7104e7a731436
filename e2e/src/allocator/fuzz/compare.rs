//! What comes of an allocation, by the crate and by Go, and when both are the same.

use anyhow::{Context as _, Result};
use dra_testkit::scheduler::{AllocationError, Known, allocate};
use k8s_openapi::api::resource::v1::AllocationResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::world::World;
use crate::allocator::facts;

/// What comes of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// The facts of each claim's allocation.
    Allocated(Vec<Vec<String>>),
    /// The node has not the devices; the scheduler tries other nodes.
    NotHere,
    /// The scheduler tries no other node.
    Failed(String),
    /// The crate says that it does not know.
    Unsupported,
}

impl Outcome {
    pub(crate) fn allocated<'a>(allocations: impl IntoIterator<Item = &'a AllocationResult>) -> Self {
        Self::Allocated(allocations.into_iter().map(facts).collect())
    }

    /// Whether both say the same, apart from the words of an error. The stable allocator tries pools in any order: it may
    /// choose other devices, and come upon another fault first.
    pub(crate) fn is_same(&self, ours: &Self, allocator: &str) -> bool {
        match (self, ours) {
            (Self::Failed(_), Self::Failed(_)) | (_, Self::Unsupported) => true,
            (Self::Failed(_), _) | (_, Self::Failed(_)) | (Self::Allocated(_), Self::Allocated(_))
                if allocator == "stable" =>
            {
                true
            }
            _ => self == ours,
        }
    }
}

/// What the crate makes of it.
pub(crate) fn ours(world: &World) -> Outcome {
    match allocated(world) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn allocated(world: &World) -> Result<Outcome> {
    let (slices, classes) = (read(&world.slices)?, read(&world.classes)?);
    let (held, claims) = (read(&world.held)?, read(&world.claims)?);
    let node = serde_json::from_value(world.node.clone()).context("reading the node")?;
    let known = Known { slices: &slices, classes: &classes, claims: &held, taint_rules: &[] };
    Ok(match allocate(&known, &node, &claims) {
        Ok(allocations) => Outcome::allocated(&allocations),
        Err(AllocationError::Unsupported { .. }) => Outcome::Unsupported,
        Err(error) if error.is_final() => Outcome::Failed(error.to_string()),
        Err(_) => Outcome::NotHere,
    })
}

fn read<T: serde::de::DeserializeOwned>(objects: &[Value]) -> Result<Vec<T>> {
    let read =
        |object: &Value| serde_json::from_value(object.clone()).with_context(|| format!("reading {object}"));
    objects.iter().map(read).collect()
}
