//! What happens when the watch ends, lies, or says nothing.

use super::{fake::Fault, *};
use crate::Placement;

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_gone_silent_is_replaced_soon() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.silence();
    setup.api.delete_all();
    pass(SECOND).await;
    assert!(setup.api.slices().is_empty(), "the watch is not silent");
    // The connection works again, but the watch that was open does not.
    setup.api.end_silence();
    pass(65 * SECOND).await;
    assert_eq!(setup.api.slices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_new_list() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    setup.api.delete_all();
    setup.api.expire_watches();
    pass(2 * SECOND).await;
    assert_eq!(setup.api.count("list"), 1);
    assert_eq!(setup.api.slices().len(), 1);
}

/// Versions and content go back, and what was written since never was.
#[tokio::test(start_paused = true)]
async fn a_restore_of_etcd_is_noticed() {
    let api = FakeApi::new();
    api.bump(800);
    let setup = Setup::on(&api);
    setup.publish(devices(&["gpu-0", "gpu-1"])).await;
    let backup = api.slices();
    api.bump(100);
    setup.publish(devices(&["gpu-0"])).await;
    for (slices, version) in [(Vec::new(), 850), (backup, 840)] {
        api.restore(version, slices);
        pass(61 * SECOND).await;
        let devices: Vec<_> =
            api.slices().iter().map(|slice| slice.spec.devices.as_ref().unwrap().len()).collect();
        assert_eq!(devices, [1], "{version}");
        assert_eq!(setup.pool_status(&pool_name()).state, PoolState::Published);
    }
    let mut ticket = setup.publisher.publish(devices(&["gpu-2"]));
    tokio::time::timeout(SECOND, ticket.published()).await.expect("published at once").unwrap();
}

/// All drivers of a cluster start their watches at once when an API server is restarted.
#[tokio::test(start_paused = true)]
async fn watches_end_at_different_times() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    let mut at = std::collections::BTreeSet::new();
    for _ in 0..200 {
        setup.api.forget_calls();
        let start = tokio::time::Instant::now();
        while setup.api.count("watch") == 0 {
            pass(SECOND / 10).await;
        }
        at.insert(start.elapsed().as_secs());
    }
    assert!(at.len() > 10 && at.iter().all(|seconds| (39..=61).contains(seconds)), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_watched_again_from_where_it_was() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    for code in [429, 500, 503] {
        setup.api.faults(move |call| (call.verb == "watch").then_some(Fault::Status(code)));
        setup.api.end_watches();
        pass(20 * SECOND).await;
        setup.api.no_faults();
        setup.api.delete_all();
        pass(31 * SECOND).await;
        assert_eq!((setup.api.count("list"), setup.api.slices().len()), (0, 1), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_fail_or_end_at_once_do_not_become_a_hot_loop() {
    for fault in [Fault::Status(410), Fault::Status(500), Fault::Status(403)] {
        let setup = Setup::open();
        setup.publish(devices(&["gpu-0"])).await;
        setup.api.faults(move |call| (call.verb == "watch").then_some(fault));
        setup.api.forget_calls();
        setup.api.expire_watches();
        pass(120 * SECOND).await;
        assert!(setup.api.calls().len() < 40, "{fault:?}: {} requests", setup.api.calls().len());
        setup.api.no_faults();
        setup.api.delete_all();
        pass(31 * SECOND).await;
        assert_eq!(setup.api.slices().len(), 1, "{fault:?}");
    }
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    for _ in 0..600 {
        setup.api.end_watches();
        pass(SECOND / 10).await;
    }
    assert!(setup.api.count("watch") < 20, "{} watches", setup.api.count("watch"));
}

#[tokio::test(start_paused = true)]
async fn a_change_during_an_outage_of_the_watch_is_seen_afterwards() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.faults(|_| Some(Fault::Status(503)));
    setup.api.end_watches();
    pass(5 * SECOND).await;
    setup.api.delete_all();
    pass(5 * SECOND).await;
    setup.api.no_faults();
    pass(31 * SECOND).await;
    assert_eq!(setup.api.slices().len(), 1);
    assert!(setup.publisher.status().borrow().last_error.is_none());
}

fn rack(pool: &str) -> (Scope, DriverResources) {
    let pool = PoolName::new(pool).unwrap();
    let content = Pool::new([device("nic-0")]).placement(Placement::AllNodes);
    (
        Scope::network_pool(node_scope().driver().clone(), pool.clone()),
        DriverResources::new().pool(pool, content),
    )
}

#[tokio::test(start_paused = true)]
async fn controllers_of_single_pools_share_a_driver() {
    for selects_by_pool in [true, false] {
        let api = FakeApi::new();
        if !selects_by_pool {
            // As before Kubernetes 1.37.
            api.faults(|call| call.selector.contains("pool.name").then_some(Fault::Status(400)));
        }
        let ((scope_a, wish_a), (scope_b, wish_b)) = (rack("rack/a"), rack("rack/b"));
        let a = Setup::new(api.clone(), scope_a, Gate::open(0));
        let b = Setup::new(api.clone(), scope_b, Gate::open(0));
        a.publish(wish_a.clone()).await;
        b.publish(wish_b).await;
        api.delete_all();
        pass(2 * SECOND).await;
        assert_eq!(api.slices().len(), 2);
        assert!(a.reported().is_empty() && b.reported().is_empty(), "{:?}", a.reported());

        let refused = b.publisher.publish(wish_a).published().await;
        assert!(matches!(refused, Err(PublishError::Invalid(_))), "{refused:?}");
        a.publisher.remove_all().published().await.unwrap();
        let left: Vec<_> = api.slices().iter().map(|slice| slice.spec.pool.name.clone()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
