//! What is written, and when.

use super::{fake::Fault, *};
use crate::Placement;

#[tokio::test(start_paused = true)]
async fn writes_are_counted_by_what_they_did() {
    let setup = Setup::open();
    setup.publish(slices(2, 0)).await;
    setup.publish(slices(2, 1)).await;
    setup.publish(DriverResources::new()).await;
    let writes = setup.publisher.status().borrow().writes;
    let made = ["create", "update", "delete"].map(|verb| setup.api.count(verb) as u64);
    assert_eq!([writes.created, writes.updated, writes.deleted], made, "{writes:?}");
    assert_eq!((writes.created, writes.failed), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_published_with_the_node_as_owner() {
    let setup = Setup::open();
    let published = setup.publish(devices(&["gpu-0", "gpu-1"])).await;
    assert_eq!((published.generation, published.generations[&pool_name()]), (1, 1));

    let slices = setup.api.slices();
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    assert!(slice.metadata.name.as_deref().unwrap().starts_with("00000-gpu.example.com-node-1-"));
    assert_eq!(slice.spec.node_name.as_deref(), Some("node-1"));
    let owner = &slice.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "node-uid-1"));
    assert!(setup.reported().is_empty());
    assert!(setup.publisher.status().borrow().is_settled());
}

#[tokio::test(start_paused = true)]
async fn slices_are_created_only_once_the_gate_is_open() {
    let setup = Setup::new(FakeApi::new(), node_scope(), Gate::Closed);
    let mut ticket = setup.publisher.publish(devices(&["gpu-0"]));
    pass(20 * SECOND).await;
    assert!(setup.api.writes().is_empty() && setup.reported().is_empty());
    pass(20 * SECOND).await;
    assert!(setup.api.writes().is_empty());
    let told = setup.reported();
    assert!(matches!(told.as_slice(), [PublishError::NotRegistered { .. }]), "{told:?}");
    assert!(setup.pool_status(&pool_name()).last_error.is_some());

    setup.gate.send_replace(Gate::open(1));
    ticket.published().await.unwrap();
    assert_eq!(setup.api.writes(), ["create"]);
    assert_eq!(setup.reported().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_the_gate_deletes_nothing_and_what_is_there_is_kept_right() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.gate.send_replace(Gate::Closed);
    setup.publish(devices(&["gpu-1"])).await;
    assert_eq!(setup.api.writes(), ["create", "update"]);

    setup.api.delete_all();
    pass(10 * SECOND).await;
    assert!(setup.api.slices().is_empty(), "created while the gate is closed");
    setup.gate.send_replace(Gate::open(2));
    pass(SECOND / 100).await;
    assert_eq!(setup.api.slices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_in_the_steady_state() {
    let setup = Setup::open();
    setup.publish(slices(3, 0)).await;
    setup.api.forget_calls();
    pass(3600 * SECOND).await;
    assert!(setup.api.writes().is_empty());
    assert!(setup.api.calls().len() <= 91, "{} requests in an hour", setup.api.calls().len());
    setup.publish(slices(3, 0)).await;
    assert!(setup.api.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_but_repairs_what_was_missed() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    setup.publish(slices(3, 0)).await;
    setup.publisher.stop().await;
    api.forget_calls();
    let setup = Setup::on(&api);
    setup.publish(slices(3, 0)).await;
    assert!(api.writes().is_empty());
    setup.publisher.stop().await;

    let name = api.slices()[1].metadata.name.clone().unwrap();
    api.delete(&name);
    api.forget_calls();
    let setup = Setup::on(&api);
    assert_eq!(setup.publish(slices(3, 0)).await.generation, 1);
    assert_eq!(api.writes(), ["create"]);
    assert_eq!(api.slices()[1].metadata.name, Some(name));
}

#[tokio::test(start_paused = true)]
async fn pools_that_are_not_wished_for_are_deleted() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    let other = PoolName::new("other").unwrap();
    setup.publish(slices(2, 0).pool(other.clone(), Pool::new([device("x")]))).await;
    assert_eq!(api.slices().len(), 3);
    setup.publish(slices(2, 0)).await;
    assert!(api.slices().iter().all(|slice| slice.spec.pool.name == "node-1"));
    assert!(!setup.publisher.status().borrow().pools.contains_key(&other));
    setup.publisher.stop().await;

    let setup = Setup::on(&api);
    pass(5 * SECOND).await;
    assert_eq!(api.slices().len(), 2, "deleted before the first wish");
    setup.publisher.remove_all().published().await.unwrap();
    assert!(api.slices().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_later_wish_supersedes_an_earlier_one_and_a_stopped_publisher_says_so() {
    let setup = Setup::open();
    let mut first = setup.publisher.publish(devices(&["gpu-0"]));
    let mut second = setup.publisher.publish(devices(&["gpu-1"]));
    second.published().await.unwrap();
    assert!(matches!(first.published().await, Err(PublishError::Superseded)));
    assert_eq!(setup.api.writes(), ["create"]);

    setup.gate.send_replace(Gate::Closed);
    setup.api.delete_all();
    let mut third = setup.publisher.publish(devices(&["gpu-2"]));
    setup.publisher.stop().await;
    assert!(matches!(third.published().await, Err(PublishError::Stopped)));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_publisher_stops_it() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    drop(setup.publisher);
    pass(SECOND).await;
    setup.api.forget_calls();
    setup.api.delete_all();
    pass(100 * SECOND).await;
    assert!(setup.api.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bad_device_is_left_out_and_told_once() {
    let setup = Setup::open();
    let resources = || {
        let bad = device("bad").try_attribute("model", "x".repeat(65)).unwrap();
        DriverResources::single_pool(pool_name(), [device("good"), bad, device("fine")])
    };
    let published = setup.publish(resources()).await;
    assert_eq!(published.problems.len(), 1);
    setup.publish(resources()).await;
    let names: Vec<_> =
        setup.api.slices()[0].spec.devices.iter().flatten().map(|device| device.name.clone()).collect();
    assert_eq!(names, ["good", "fine"]);
    setup.publish(resources().pool(PoolName::new("p").unwrap(), Pool::new([]))).await;
    let told = setup.reported();
    assert!(matches!(told.as_slice(), [PublishError::Invalid(_)]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_pool_is_refused_and_others_are_published() {
    let setup = Setup::open();
    let bad = Pool::new([device("a")]).placement(Placement::AllNodes);
    let resources = devices(&["gpu-0"]).pool(PoolName::new("bad").unwrap(), bad);
    let refused = setup.publisher.publish(resources).published().await;
    assert!(matches!(refused, Err(PublishError::Invalid(_))), "{refused:?}");
    assert_eq!(setup.api.slices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_made_anew_becomes_the_owner() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.set_node("node-1", Some("node-uid-2"));
    // The garbage collector deletes what the old node owned.
    setup.api.delete_all();
    pass(2 * SECOND).await;
    let owner =
        |setup: &Setup| setup.api.slices()[0].metadata.owner_references.as_ref().unwrap()[0].uid.clone();
    assert_eq!(owner(&setup), "node-uid-2");

    setup.api.set_node("node-1", Some("node-uid-3"));
    setup.gate.send_replace(Gate::open(2));
    pass(SECOND).await;
    assert_eq!(owner(&setup), "node-uid-3");
    assert_eq!(setup.api.slices()[0].spec.pool.generation, 1);
}

#[tokio::test(start_paused = true)]
async fn where_the_node_may_not_be_read_slices_have_no_owner_until_it_may() {
    let api = FakeApi::new();
    api.faults(|call| (call.verb == "node").then_some(Fault::Status(403)));
    let setup = Setup::on(&api);
    setup.publish(devices(&["gpu-0"])).await;
    assert_eq!(api.slices()[0].metadata.owner_references, None);
    pass(200 * SECOND).await;
    assert_eq!(setup.reported().len(), 1, "{:?}", setup.reported());
    api.no_faults();
    pass(61 * SECOND).await;
    assert_eq!(api.slices()[0].metadata.owner_references.as_ref().unwrap()[0].uid, "node-uid-1");
}

/// The garbage collector deletes the slices with the node. One that was made after that would stay for ever.
#[tokio::test(start_paused = true)]
async fn slices_of_a_node_that_is_gone_are_not_made_until_it_is_back() {
    for pools in [1, 3] {
        let setup = Setup::open();
        let wish = |value| slices(pools, value);
        setup.publish(wish(0)).await;
        setup.api.set_node("node-1", None);
        setup.api.delete_all();
        pass(20 * SECOND).await;
        let _ = setup.publisher.publish(wish(1));
        pass(600 * SECOND).await;
        assert!(setup.api.slices().is_empty());
        assert!(setup.api.count("node") < 50, "{} reads of the node", setup.api.count("node"));
        assert_eq!(
            setup.count_reported(|error| matches!(error, PublishError::NoNode { .. })),
            setup.reported().len()
        );
        setup.api.set_node("node-1", Some("node-uid-2"));
        pass(31 * SECOND).await;
        let owners = setup
            .api
            .slices()
            .into_iter()
            .map(|slice| slice.metadata.owner_references.unwrap()[0].uid.clone());
        assert_eq!(owners.collect::<Vec<_>>(), vec!["node-uid-2"; pools]);
        assert!(setup.publisher.status().borrow().is_settled());
    }
}

#[tokio::test(start_paused = true)]
async fn slices_that_wait_for_the_gate_hold_up_neither_updates_nor_deletions() {
    let setup = Setup::open();
    setup.publish(slices(2, 0)).await;
    let name = setup.api.slices()[1].metadata.name.clone().unwrap();
    setup.gate.send_replace(Gate::Closed);
    setup.api.delete(&name);
    let mut old = setup.api.slices().remove(0);
    old.metadata.name = Some("old".into());
    old.metadata.uid = None;
    old.spec.pool.generation = 0;
    setup.api.put(old);
    pass(SECOND).await;
    setup.api.forget_calls();
    let mut ticket = setup.publisher.publish(slices(2, 1));
    pass(SECOND).await;
    assert_eq!(setup.api.writes(), ["update"], "the slice that is there");
    assert!(setup.api.slices().iter().all(|slice| slice.metadata.name.as_deref() != Some("old")));
    setup.gate.send_replace(Gate::open(2));
    ticket.published().await.unwrap();
    assert_eq!(setup.api.count("create"), 1);
}

#[tokio::test(start_paused = true)]
async fn two_scopes_of_one_driver_leave_each_other_alone() {
    let api = FakeApi::new();
    let node = Setup::on(&api);
    let network = Setup::new(api.clone(), Scope::network(node_scope().driver().clone()), Gate::open(0));
    node.publish(devices(&["gpu-0"])).await;
    let pool = Pool::new([device("nic-0")]).placement(Placement::AllNodes);
    network.publish(DriverResources::new().pool(PoolName::new("net").unwrap(), pool)).await;
    api.forget_calls();
    pass(120 * SECOND).await;
    assert!(api.writes().is_empty());
    assert_eq!(api.slices().len(), 2);
    network.publisher.remove_all().published().await.unwrap();
    assert_eq!(api.slices().len(), 1);
}

/// The times are printed: twice the pools take twice as long. With work for all pools at each of them it was four times.
#[tokio::test]
async fn thousands_of_pools_of_a_controller_are_published() {
    for count in [500, 1000, 2000] {
        let api = FakeApi::new();
        let scope = Scope::network(node_scope().driver().clone());
        let setup = Setup::new(api.clone(), scope, Gate::open(0));
        let pool = || Pool::new([device("d")]).placement(Placement::AllNodes);
        let names = (0..count).map(|n| PoolName::new(format!("pool-{n}")).unwrap());
        let resources = names.fold(DriverResources::new(), |all, name| all.pool(name, pool()));
        let start = std::time::Instant::now();
        setup.publish(resources.clone()).await;
        let first = start.elapsed();
        let start = std::time::Instant::now();
        setup.publish(resources).await;
        println!("{count} pools: {first:?}, again {:?}", start.elapsed());
        assert_eq!((api.count("create"), api.writes().len()), (count, count));
    }
}
