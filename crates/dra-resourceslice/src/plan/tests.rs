//! Properties that hold for every plan, whatever the wish and whatever is observed.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{
    CounterSet, Device, DriverName, NodeName, Pool, PoolName, PoolWish, Scope, Slice, Taint, layout::Part,
    slice_name::index_of, test_api::TestApi,
};

/// A device of the test: its number, the value of its attribute, and whether it has a taint.
type Item = (u16, u8, bool);

fn scope() -> Scope {
    Scope::node(DriverName::new("gpu.example.com").unwrap(), NodeName::new("node-1").unwrap())
}

fn device((number, value, tainted): Item) -> Device {
    let device = Device::named(&format!("d{number}")).unwrap().try_attribute("a", i64::from(value)).unwrap();
    if tainted { device.taint(Taint::no_schedule("t")) } else { device }
}

fn wish(pool: &Pool) -> PoolWish {
    let (wish, problems) = PoolWish::new(&scope(), &PoolName::new("pool").unwrap(), pool);
    assert_eq!(problems, []);
    wish.unwrap()
}

/// What a consumer sees of a pool.
#[derive(Debug, PartialEq)]
enum View {
    Unusable,
    Whole(Vec<ResourceSliceSpec>),
}

fn view(slices: &[ResourceSlice]) -> View {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    let current: Vec<_> = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest).collect();
    let length = i64::try_from(current.len()).unwrap();
    // Taken as loosely as a consumer could: one slice with the right count is enough.
    if !current.iter().any(|slice| slice.spec.pool.resource_slice_count == length) {
        return View::Unusable;
    }
    let mut specs: Vec<_> = current.iter().map(|slice| crate::equal::canonical(slice.spec.clone())).collect();
    specs.sort_by_key(|spec| format!("{spec:?}"));
    View::Whole(specs)
}

/// The names of the devices in the order of the slices that the plan would match to the wish.
fn devices(slices: &[ResourceSlice]) -> BTreeSet<(String, String)> {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest);
    let devices = current.flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.map(|device| (device.name.clone(), format!("{:?}", device.attributes))).collect()
}

/// Checks everything that shall be true of the plan for a wish, and returns the state after it.
fn check(wish: &PoolWish, before: &TestApi) -> Result<TestApi, TestCaseError> {
    let plan = plan(wish, before.slices());
    let newest = before.slices().iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0);
    prop_assert!(plan.generation >= newest, "the generation falls from {newest} to {}", plan.generation);

    let mut states = vec![before.clone()];
    for write in &plan.writes {
        let mut next = states.last().unwrap().clone();
        next.apply(write);
        states.push(next);
    }
    let after = states.last().unwrap().clone();
    if !plan.needs_fresh_list {
        prop_assert_eq!(&super::plan(wish, after.slices()).writes, &[], "applying the plan leaves writes");
        let parts = layout(wish, &[]).into_iter().filter(|part| matches!(part, Part::Devices { .. }));
        let wished: usize = parts.map(|part| part.len()).sum();
        prop_assert_eq!(devices(after.slices()).len(), wished);
    }
    let (old, new) = (view(before.slices()), view(after.slices()));
    for (done, state) in states.iter().enumerate() {
        let seen = view(state.slices());
        // Deleting all slices of a pool that others have made inconsistent cannot but pass through odd states.
        let odd_ones_go = after.slices().is_empty() && !is_consistent(before.slices());
        prop_assert!(
            odd_ones_go || seen == View::Unusable || seen == old || seen == new,
            "after {done} of {} writes consumers see a mix",
            plan.writes.len()
        );
        prop_assert!(twins(state) <= twins(before), "after {done} writes two slices have one index");
    }
    Ok(after)
}

/// Whether the slices of the newest generation say the same count, and are not more than that.
fn is_consistent(slices: &[ResourceSlice]) -> bool {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest);
    let counts: Vec<_> = current.map(|slice| slice.spec.pool.resource_slice_count).collect();
    counts.iter().all(|&count| count == counts[0] && count >= i64::try_from(counts.len()).unwrap())
}

/// How many slices of the newest generation share their index with another one.
fn twins(api: &TestApi) -> usize {
    let newest = api.slices().iter().map(|slice| slice.spec.pool.generation).max();
    let current = api.slices().iter().filter(|slice| Some(slice.spec.pool.generation) == newest);
    let indices: Vec<_> =
        current.filter_map(|slice| index_of(slice.metadata.name.as_deref().unwrap(), 1)).collect();
    indices.len() - indices.iter().collect::<BTreeSet<_>>().len()
}

/// Something that happens to a pool.
#[derive(Clone, Debug)]
enum Event {
    /// The driver wishes for these slices, and this part of the plan is carried out.
    Slices(Vec<Vec<Item>>, Index),
    /// Somebody deletes a slice.
    Delete(Index),
    /// Somebody changes the first device of a slice.
    Change(Index),
    /// Somebody adds a slice of an older or the same generation.
    Add { older: bool, name: &'static str, item: Item },
}

fn event() -> impl Strategy<Value = Event> {
    let item = (0_u16..12, 0_u8..3, Just(false));
    let slice = prop::collection::vec(item.clone(), 0..3);
    let names = prop::sample::select(vec!["00000-foreign", "00001-foreign", "random-x7", "0000f-foreign"]);
    prop_oneof![
        4 => (prop::collection::vec(slice, 0..5), any::<Index>()).prop_map(|(slices, done)| Event::Slices(slices, done)),
        1 => any::<Index>().prop_map(Event::Delete),
        1 => any::<Index>().prop_map(Event::Change),
        1 => (any::<bool>(), names, item).prop_map(|(older, name, item)| Event::Add { older, name, item }),
    ]
}

/// Slices of unique devices, in the order of the wish.
fn slices(items: &[Vec<Item>]) -> Pool {
    let mut seen = BTreeSet::new();
    let slices = items.iter().map(|items| {
        let fresh: Vec<_> = items.iter().filter(|item| seen.insert(item.0)).collect();
        Slice::new(fresh.into_iter().map(|item| device(*item)))
    });
    Pool::from_slices(slices.collect::<Vec<_>>())
}

fn happen(event: Event, api: &mut TestApi) -> Result<(), TestCaseError> {
    match event {
        Event::Slices(items, done) => {
            let wish = wish(&slices(&items));
            check(&wish, api)?;
            let writes = plan(&wish, api.slices()).writes;
            let done = done.index(writes.len() + 1);
            writes.iter().take(done).for_each(|write| api.apply(write));
            // Going on from here ends where the plan would have ended.
            check(&wish, api)?;
        }
        Event::Delete(index) if !api.slices().is_empty() => api.remove(index.index(api.slices().len())),
        Event::Change(index) if !api.slices().is_empty() => {
            let mut slice = api.slices()[index.index(api.slices().len())].clone();
            slice.spec.devices.iter_mut().flatten().take(1).for_each(|device| device.attributes = None);
            api.apply(&Write::Update(Box::new(slice)));
        }
        Event::Delete(_) | Event::Change(_) => {}
        Event::Add { older, name, item } => {
            let newest = api.slices().iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(2);
            let foreign = wish(&slices(&[vec![item]]));
            let Write::Create(mut slice) = plan(&foreign, &[]).writes.remove(0) else { unreachable!() };
            slice.metadata.name = Some(name.to_owned());
            slice.spec.pool.generation = if older { (newest - 1).max(1) } else { newest };
            if api.slices().iter().all(|other| other.metadata.name != slice.metadata.name) {
                api.apply(&Write::Create(slice));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn plans_are_complete_and_every_state_in_between_is_safe(events in prop::collection::vec(event(), 1..12)) {
        let mut api = TestApi::default();
        for event in events {
            happen(event, &mut api)?;
        }
    }

    #[test]
    fn an_interrupted_plan_goes_on_without_another_generation(
        old in prop::collection::vec(prop::collection::vec((0_u16..9, 0_u8..3, Just(false)), 1..3), 1..5),
        new in prop::collection::vec(prop::collection::vec((0_u16..9, 0_u8..3, Just(false)), 1..3), 1..5),
    ) {
        let before = check(&wish(&slices(&old)), &TestApi::default())?;
        let wish = wish(&slices(&new));
        let whole = plan(&wish, before.slices());
        for done in 0..=whole.writes.len() {
            let mut api = before.clone();
            whole.writes.iter().take(done).for_each(|write| api.apply(write));
            let rest = plan(&wish, api.slices());
            prop_assert_eq!(rest.writes.len(), whole.writes.len() - done);
            prop_assert!(rest.writes.is_empty() || rest.generation == whole.generation);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pools_that_are_split_by_themselves_change_as_safely(
        steps in prop::collection::vec((prop::collection::vec((0_u16..400, 0_u8..2), 0..6), 0_u16..400, 0..20, any::<Index>()), 1..5),
    ) {
        let mut api = TestApi::default();
        for (changes, length, sets, done) in steps {
            let mut items: Vec<Item> = (0..length).map(|number| (number, 0, false)).collect();
            for (number, value) in changes {
                match items.iter().position(|item| item.0 == number) {
                    Some(index) if value == 0 => { items.remove(index); }
                    Some(index) => items[index] = (number, value, true),
                    None => items.push((number, value, false)),
                }
            }
            let sets = (0..sets).map(|n| CounterSet::new(&format!("s{n}")).unwrap().counter("c", 1).unwrap());
            let wish = wish(&Pool::new(items.into_iter().map(device)).counter_sets(sets));
            check(&wish, &api)?;
            let writes = plan(&wish, api.slices()).writes;
            writes.iter().take(done.index(writes.len() + 1)).for_each(|write| api.apply(write));
            check(&wish, &api)?;
        }
    }
}
