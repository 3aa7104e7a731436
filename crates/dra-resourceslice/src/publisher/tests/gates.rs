//! Feature gates that are off or switched, and webhooks: what the API server does with what it is sent.

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::{fake::Fault, *};
use crate::{CounterConsumption, CounterSet, Feature, IfDropped, Taint};

fn versions(api: &FakeApi) -> Vec<Option<String>> {
    api.slices().into_iter().map(|slice| slice.metadata.resource_version).collect()
}

fn tainted(count: usize) -> DriverResources {
    let slice = |index| Slice::new([device(&format!("d{index}")).taint(Taint::no_schedule("k"))]);
    DriverResources::new().pool(pool_name(), Pool::from_slices((0..count).map(slice)))
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_told_once_and_not_sent_again_and_again() {
    let api = FakeApi::new();
    api.drop_fields_of(&[Feature::DeviceTaints]);
    let setup = Setup::on(&api);
    let published = setup.publish(tainted(3)).await;
    assert_eq!(published.dropped, [Feature::DeviceTaints]);
    pass(300 * SECOND).await;
    assert_eq!(api.writes(), ["create"; 3]);
    assert_eq!(setup.reported().len(), 1);
    setup.publisher.stop().await;

    // After a restart one dry run tells that there is nothing to write.
    api.forget_calls();
    let before = versions(&api);
    let setup = Setup::on(&api);
    let published = setup.publish(tainted(3)).await;
    assert_eq!(published.dropped, [Feature::DeviceTaints]);
    assert_eq!((api.count("dry-run"), api.writes().len()), (1, 0));
    assert_eq!(versions(&api), before);
}

/// The answer tells what the API server does now, whether it has been restarted with other gates before or not.
#[tokio::test(start_paused = true)]
async fn a_gate_that_is_switched_is_learned_from_the_next_answer() {
    #[derive(Clone, Copy, Debug)]
    enum Sign {
        BrokenWatch,
        EndedWatch,
        List,
        Registration,
    }
    for sign in [Sign::BrokenWatch, Sign::EndedWatch, Sign::List, Sign::Registration] {
        for count in [1, 3] {
            let api = FakeApi::new();
            api.drop_fields_of(&[Feature::DeviceTaints]);
            let setup = Setup::on(&api);
            setup.publish(tainted(count)).await;
            let switch = |off: &[Feature]| {
                api.drop_fields_of(off);
                api.forget_calls();
                match sign {
                    Sign::BrokenWatch => {
                        api.faults(|call| (call.verb == "watch").then_some(Fault::Status(503)));
                        api.end_watches();
                    }
                    Sign::EndedWatch => api.end_watches(),
                    Sign::List => api.expire_watches(),
                    Sign::Registration => {
                        setup.gate.send_modify(|gate| *gate = Gate::open(if off.is_empty() { 2 } else { 3 }));
                    }
                }
            };
            switch(&[]);
            pass(5 * SECOND).await;
            api.no_faults();
            pass(60 * SECOND).await;
            let has_taint = |slice: &ResourceSlice| slice.spec.devices.as_ref().unwrap()[0].taints.is_some();
            assert!(api.slices().iter().all(has_taint), "{sign:?}");
            assert_eq!(api.count("update"), count, "{sign:?}");
            let status = setup.pool_status(&pool_name());
            assert!(
                status.state == PoolState::Published && status.dropped.is_empty(),
                "{sign:?}: {status:?}"
            );

            // What is stored stays, and is as desired.
            switch(&[Feature::DeviceTaints]);
            pass(5 * SECOND).await;
            api.no_faults();
            pass(3600 * SECOND).await;
            assert!(api.writes().is_empty(), "{sign:?}: {:?}", api.writes());
            let told = setup.count_reported(|error| !matches!(error, PublishError::Api { .. }));
            assert_eq!(told, 1, "{sign:?}: {:?}", setup.reported());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mutating_webhook_is_told_as_one_and_its_content_left_alone() {
    let api = FakeApi::new();
    api.mutate(true);
    let setup = Setup::on(&api);
    setup.publish(slices(3, 0)).await;
    setup.publish(slices(3, 1)).await;
    pass(3600 * SECOND).await;
    assert!(api.writes().len() <= 2 * 3, "{:?}", api.writes());
    let told = setup.reported();
    assert_eq!(told.len(), 2, "once for each wish: {told:?}");
    assert!(told.iter().all(|error| matches!(error, PublishError::StoredDifferently { .. })), "{told:?}");
    assert!(setup.pool_status(&pool_name()).dropped.is_empty());

    // Once it is gone, the next sign of another API server brings the content in.
    api.mutate(false);
    api.expire_watches();
    pass(60 * SECOND).await;
    let is_pure = |slice: &ResourceSlice| {
        slice.spec.devices.as_ref().unwrap()[0].attributes.as_ref().unwrap().len() == 1
    };
    assert!(api.slices().iter().all(is_pure));
}

/// A GPU and its halves, of which the GPU may stay without counters.
fn partitions(kept: bool) -> DriverResources {
    let taken = |amount: i64| CounterConsumption::new("board").unwrap().counter("memory", amount).unwrap();
    let mut gpu = device("gpu").consumes(taken(8));
    if kept {
        gpu = gpu.if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
    }
    let halves = ["half-0", "half-1"].map(|name| device(name).consumes(taken(4)));
    let board = CounterSet::new("board").unwrap().counter("memory", 8).unwrap();
    let pool = Pool::new([gpu].into_iter().chain(halves)).counter_sets([board]);
    DriverResources::new().pool(pool_name(), pool)
}

fn device_names(api: &FakeApi) -> Vec<String> {
    let slices = api.slices();
    slices
        .iter()
        .flat_map(|slice| slice.spec.devices.iter().flatten())
        .map(|device| device.name.clone())
        .collect()
}

/// A feature, what is desired, the devices that are published without it, and how many are not.
type Row = (Feature, fn() -> DriverResources, &'static [&'static str], usize);

#[tokio::test(start_paused = true)]
async fn a_device_whose_exclusivity_is_dropped_is_never_there() {
    let bound = || {
        DriverResources::single_pool(
            pool_name(),
            [device("bound").binding_conditions(["ready"], ["failed"]), device("plain")],
        )
    };
    let shared = || {
        DriverResources::single_pool(
            pool_name(),
            [
                device("shared").allow_multiple_allocations(true),
                device("only-shared")
                    .allow_multiple_allocations(true)
                    .if_dropped(Feature::ConsumableCapacity, IfDropped::LeaveOut),
            ],
        )
    };
    let table: [Row; 4] = [
        (Feature::PartitionableDevices, || partitions(true), &["gpu"], 2),
        (Feature::PartitionableDevices, || partitions(false), &[], 3),
        (Feature::DeviceBindingConditions, bound, &["plain"], 1),
        (Feature::ConsumableCapacity, shared, &["shared"], 1),
    ];
    for (feature, wish, left, out) in table {
        let api = FakeApi::new();
        api.drop_fields_of(&[feature]);
        let setup = Setup::on(&api);
        let published = setup.publish(wish()).await;
        assert_eq!(device_names(&api), left, "{feature}");
        assert!(api.writes() == ["create"], "{feature}: {:?}", api.writes());
        assert_eq!((published.dropped.as_slice(), published.problems.len()), (&[feature][..], out));
        let told = setup.reported();
        assert!(
            matches!(told.as_slice(), [PublishError::DroppedFields { left_out, .. }] if left_out.len() == out),
            "{feature}: {told:?}"
        );

        // A restart changes nothing, and the gate brings the devices in.
        setup.publisher.stop().await;
        api.forget_calls();
        let setup = Setup::on(&api);
        setup.publish(wish()).await;
        assert!(api.writes().is_empty(), "{feature}: {:?}", api.writes());
        api.drop_fields_of(&[]);
        api.expire_watches();
        pass(60 * SECOND).await;
        assert_eq!(device_names(&api).len(), left.len() + out, "{feature}");
        assert!(setup.pool_status(&pool_name()).problems.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_if_only_some_of_the_fields_are_dropped() {
    let api = FakeApi::new();
    api.drop_fields_of(&[Feature::DeviceTaints, Feature::ConsumableCapacity]);
    let wish = || {
        let bound = device("a").binding_conditions(["ready"], ["failed"]).taint(Taint::no_schedule("k"));
        let bound = bound.if_dropped(Feature::DeviceBindingConditions, IfDropped::Keep);
        let shared = device("b").allow_multiple_allocations(true);
        DriverResources::new()
            .pool(pool_name(), Pool::from_slices([Slice::new([bound]), Slice::new([shared])]))
    };
    let setup = Setup::on(&api);
    setup.publish(wish()).await;
    setup.publisher.stop().await;
    api.forget_calls();
    let before = versions(&api);
    let setup = Setup::on(&api);
    let published = setup.publish(wish()).await;
    assert_eq!(published.dropped, [Feature::DeviceTaints, Feature::ConsumableCapacity]);
    // One for each slice that has a feature of its own; it changes nothing.
    assert_eq!(api.writes().len() + api.count("dry-run"), 2);
    assert_eq!(versions(&api), before);
}

/// The Go helper 0.35 leaves names without an index, so that a change would delete and create all slices.
#[tokio::test(start_paused = true)]
async fn taking_over_random_names_changes_nothing_even_if_fields_are_dropped() {
    for count in [1, 3] {
        let api = FakeApi::new();
        api.drop_fields_of(&[Feature::DeviceTaints]);
        let setup = Setup::on(&api);
        setup.publish(tainted(count)).await;
        setup.publisher.stop().await;
        for (mut slice, letter) in api.slices().into_iter().zip('a'..) {
            api.delete(slice.metadata.name.as_deref().unwrap());
            slice.metadata.name = Some(format!("node-1-gpu.example.com-{letter}x7k2"));
            api.put(slice);
        }
        api.forget_calls();
        let before = versions(&api);
        let setup = Setup::on(&api);
        let published = setup.publish(tainted(count)).await;
        assert_eq!(published.dropped, [Feature::DeviceTaints]);
        assert_eq!(api.writes().len() + api.count("dry-run"), 1, "{:?}", api.calls());
        assert_eq!(versions(&api), before);
    }
}

/// An API server without these gates does not store less, it refuses the slice.
#[tokio::test(start_paused = true)]
async fn what_an_api_server_without_the_gate_refuses_is_left_out() {
    let lists = || device("lists").try_attribute("list", crate::AttributeValue::Ints(vec![1])).unwrap();
    let fractions = || {
        let quantity = |text| crate::Quantity::parse(text).unwrap();
        let policy = crate::RequestPolicy::values(quantity("500m"), [quantity("500m"), quantity("1")]);
        let capacity = crate::Capacity::new(quantity("2")).with_policy(policy);
        device("fractions").try_capacity("c", capacity).unwrap().allow_multiple_allocations(true)
    };
    let wish = || DriverResources::single_pool(pool_name(), [lists(), fractions(), device("plain")]);
    let (list, fraction) = (Feature::ListTypeAttributes, Feature::FractionalCapacityRange);
    for off in [vec![list], vec![fraction], vec![list, fraction]] {
        let api = FakeApi::new();
        api.drop_fields_of(&off);
        let setup = Setup::on(&api);
        let published = setup.publish(wish()).await;
        assert_eq!(published.dropped, off);
        let mut expected = vec!["lists", "fractions", "plain"];
        expected.retain(|name| *name != "fractions" || !off.contains(&fraction));
        assert_eq!(device_names(&api), expected);
        assert_eq!((setup.reported().len(), published.problems.len()), (1, 3 - expected.len()));
        api.forget_calls();
        pass(600 * SECOND).await;
        assert!(api.writes().is_empty() && api.count("dry-run") == 0);
    }
}
