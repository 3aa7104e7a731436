//! Plans that raise the generation: every slice is written once.
//!
//! The first write already hides the old pool, because consumers look only at the highest generation; the new one
//! is incomplete until its last slice is written.

use k8s_openapi::{api::resource::v1::ResourceSlice, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{Observed, Plan, Wished, Write, matching::Matching};
use crate::{PoolWish, slice_name::slice_name};

pub(super) fn plan(wish: &PoolWish, wished: &[Wished], observed: &Observed<'_>) -> Plan {
    let generation = wish.min_generation.max(observed.generation.saturating_add(1));
    let count = wished.len();
    // By index only: since every slice is written anyway, its name may as well tell the order of the devices.
    let matching = Matching::none(count, observed).by_index(observed);
    let write = |(index, slice): (usize, &Wished)| {
        let spec = slice.at(generation, count);
        match matching.matches[index] {
            Some(found) => observed.slices[found].update(wish, spec),
            None => create(wish, index, count, spec),
        }
    };
    let mut writes: Vec<_> = wished.iter().enumerate().map(write).collect();
    writes.extend(matching.left_over().map(|index| observed.slices[index].delete()));
    Plan { writes, generation, slices: count, needs_fresh_list: false }
}

pub(super) fn create(
    wish: &PoolWish,
    index: usize,
    count: usize,
    spec: k8s_openapi::api::resource::v1::ResourceSliceSpec,
) -> Write {
    let metadata = ObjectMeta {
        name: Some(slice_name(&wish.scope, &wish.pool, index, count, wish.salt)),
        owner_references: wish.owner.clone().map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Write::Create(Box::new(ResourceSlice { metadata, spec }))
}
