//! What happens when others break what was published.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_deleted_slice_is_back_within_two_seconds_whenever_it_was_deleted() {
    for wait in [200, 2_000, 20_000] {
        for update_first in [false, true] {
            let setup = Setup::open();
            setup.publish(devices(&["gpu-0"])).await;
            if update_first {
                setup.publish(devices(&["gpu-1"])).await;
            }
            pass(Duration::from_millis(wait)).await;
            setup.api.delete_all();
            pass(2 * SECOND).await;
            assert_eq!(setup.api.slices().len(), 1, "{wait} ms, update: {update_first}");
        }
    }
}

/// As a Go helper does that publishes the same pool: it looks every half minute, so no repair of ours has to wait.
#[tokio::test(start_paused = true)]
async fn something_that_undoes_slices_slowly_is_reported_too() {
    let setup = Setup::open();
    setup.publish(slices(1, 0)).await;
    for undone in 1..=10 {
        setup.api.delete_all();
        pass(31 * SECOND).await;
        assert_eq!(setup.api.slices().len(), 1, "{undone}");
        let reported = match undone {
            ..4 => 0,
            4..8 => 1,
            _ => 2,
        };
        assert_eq!(setup.count_reported(PublishError::is_by_others), reported, "{undone}");
    }
    let status = setup.pool_status(&pool_name());
    assert!(status.published && status.last_error.is_none(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_comes_back_whole_three_times_and_then_once_in_thirty_seconds() {
    let setup = Setup::open();
    setup.publish(slices(4, 0)).await;
    setup.api.forget_calls();
    for _ in 0..3 {
        setup.api.delete_all();
        pass(SECOND).await;
        assert_eq!(setup.api.slices().len(), 4);
    }
    assert_eq!(setup.count_reported(PublishError::is_by_others), 0);
    let start = tokio::time::Instant::now();
    while start.elapsed() < 120 * SECOND {
        setup.api.delete_all();
        pass(SECOND).await;
    }
    assert!(setup.api.count("create") <= 4 * (3 + 4), "{} creates", setup.api.count("create"));
    assert!((1..=5).contains(&setup.count_reported(PublishError::is_by_others)), "{:?}", setup.reported());
    let status = setup.pool_status(&pool_name());
    assert!(matches!(status.last_error, Some(PublishError::DeletedByOthers { .. })), "{status:?}");

    setup.gate.send_replace(Gate::open(2));
    pass(SECOND).await;
    assert_eq!(setup.api.slices().len(), 4, "a registration fills the budget");
    setup.api.delete_all();
    pass(SECOND).await;
    assert_eq!(setup.api.slices().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_is_corrected_three_times_and_then_once_in_thirty_seconds() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    let spoil = || {
        let mut slice = setup.api.slices().remove(0);
        slice.spec.devices.as_mut().unwrap()[0].name = "foreign".into();
        setup.api.put(slice);
    };
    spoil();
    pass(SECOND).await;
    assert_eq!(setup.api.count("update"), 1);
    assert_eq!(setup.count_reported(PublishError::is_by_others), 0);
    for _ in 0..60 {
        spoil();
        pass(SECOND).await;
    }
    assert!((3..=6).contains(&setup.api.count("update")), "{} updates", setup.api.count("update"));
    assert!(setup.count_reported(PublishError::is_by_others) >= 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_wish_again_does_not_refill_the_budget() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    for _ in 0..60 {
        setup.api.delete_all();
        let _ = setup.publisher.publish(devices(&["gpu-0"]));
        pass(SECOND).await;
    }
    assert!(setup.api.count("create") <= 3 + 2, "{} creates", setup.api.count("create"));
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_changes_all_the_time_is_written_at_a_bounded_rate_and_as_it_is_in_the_end() {
    for count in [1, 4] {
        let setup = Setup::open();
        setup.publish(slices(count, 0)).await;
        setup.api.forget_calls();
        for value in 1..6000 {
            let _ = setup.publisher.publish(slices(count, value));
            pass(SECOND / 100).await;
        }
        let updates = setup.api.count("update");
        assert!((20 * count..=60 * count).contains(&updates), "{updates} updates in a minute");
        let mut last = setup.publisher.publish(slices(count, 6000));
        tokio::time::timeout(4 * SECOND, last.published()).await.expect("published soon").unwrap();
        assert!(setup.reported().is_empty(), "{:?}", setup.reported());
    }
}

#[tokio::test(start_paused = true)]
async fn late_events_lead_neither_to_duplicates_nor_to_failed_writes() {
    let api = FakeApi::new();
    api.be_late(10 * SECOND);
    let setup = Setup::on(&api);
    setup.publish(slices(3, 0)).await;
    setup.publish(slices(3, 1)).await;
    setup.publish(slices(2, 1)).await;
    pass(60 * SECOND).await;
    assert_eq!(api.slices().len(), 2);
    assert_eq!(api.count("create"), 3);
    assert_eq!(api.count("update"), 3 + 2);
    assert_eq!(api.count("delete"), 1);
    assert!(setup.reported().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_slice_of_an_index_goes_after_a_fresh_list() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    let mut twin = setup.api.slices().remove(0);
    twin.metadata.name = Some("00000-gpu.example.com-node-1-twin5".into());
    twin.metadata.uid = None;
    setup.api.forget_calls();
    setup.api.put(twin);
    pass(SECOND).await;
    let calls: Vec<_> =
        setup.api.calls().into_iter().map(|call| call.verb).filter(|verb| *verb != "watch").collect();
    assert_eq!(calls, ["list", "delete"]);
    assert_eq!(setup.api.slices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_somebody_else_has_is_not_touched() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    setup.publish(devices(&["gpu-0"])).await;
    setup.publisher.remove_all().published().await.unwrap();
    let name = api.calls().iter().find(|call| call.verb == "create").unwrap().name.clone();
    let mut foreign = k8s_openapi::api::resource::v1::ResourceSlice::default();
    foreign.metadata.name = Some(name.clone());
    foreign.spec.driver = "other.example.com".into();
    api.put(foreign);

    setup.publish(devices(&["gpu-0"])).await;
    assert_eq!(api.slices().len(), 2);
    assert!(
        api.slices()
            .iter()
            .any(|slice| slice.metadata.name.as_ref() == Some(&name)
                && slice.spec.driver == "other.example.com")
    );
    let told = setup.reported();
    assert!(matches!(told.as_slice(), [PublishError::NameTaken { .. }]), "{told:?}");
}
