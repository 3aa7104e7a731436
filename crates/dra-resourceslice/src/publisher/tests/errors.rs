//! What happens when the API server refuses, fails, or does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    fake::{Call, Fault},
    *,
};

fn writes(call: &Call) -> bool {
    matches!(call.verb, "create" | "update" | "delete")
}

/// A fault for the first requests of a verb.
fn first(count: usize, verb: &'static str, fault: Fault) -> impl FnMut(&Call) -> Option<Fault> + Send {
    let mut left = count;
    move |call| {
        let hit = call.verb == verb && left > 0;
        left -= usize::from(hit);
        hit.then_some(fault)
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_at_the_start_is_waited_for() {
    for fault in [Fault::Hang, Fault::Status(500), Fault::Status(401), Fault::Status(404)] {
        let api = FakeApi::new();
        api.faults(move |_| Some(fault));
        let setup = Setup::on(&api);
        let mut ticket = setup.publisher.publish(devices(&["gpu-0"]));
        pass(120 * SECOND).await;
        assert!(api.writes().is_empty());
        assert!(api.calls().len() < 15, "{fault:?}: {} requests in two minutes", api.calls().len());
        assert!(setup.publisher.status().borrow().last_error.is_some());
        api.no_faults();
        pass(61 * SECOND).await;
        assert!(setup.publisher.status().borrow().last_error.is_none());
        ticket.published().await.unwrap();
        assert_eq!(api.slices().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_given_up_and_tried_again() {
    for fault in [Fault::Hang, Fault::LostAnswer] {
        let api = FakeApi::new();
        api.faults(first(1, "create", fault));
        let setup = Setup::on(&api);
        let start = tokio::time::Instant::now();
        setup.publish(devices(&["gpu-0"])).await;
        assert!(start.elapsed() < 7 * SECOND, "{fault:?}: {:?}", start.elapsed());
        assert_eq!(api.slices().len(), 1);
        let told = setup.reported();
        assert!(matches!(told.as_slice(), [PublishError::Timeout { .. }]), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_in_the_middle_of_an_update_ends_with_one_generation_step() {
    for fault in [Fault::Status(503), Fault::Hang, Fault::LostAnswer, Fault::Status(409)] {
        let api = FakeApi::new();
        let setup = Setup::on(&api);
        setup.publish(slices(6, 0)).await;
        let done = AtomicUsize::new(0);
        let start = tokio::time::Instant::now();
        api.faults(move |call| {
            let failing =
                writes(call) && start.elapsed() < 60 * SECOND && done.fetch_add(1, Ordering::Relaxed) >= 3;
            failing.then_some(fault)
        });
        api.forget_calls();
        let published = setup.publish(slices(6, 1)).await;
        assert_eq!(published.generation, 2, "{fault:?}");
        assert!(api.slices().iter().all(|slice| slice.spec.pool.generation == 2), "{fault:?}");
        assert!(api.writes().iter().all(|verb| *verb == "update"), "{fault:?}: {:?}", api.writes());
        assert!(api.writes().len() < 6 + 20, "{fault:?}: {} writes", api.writes().len());
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_tried_again_ever_more_seldom_and_at_once_if_something_changes() {
    let api = FakeApi::new();
    api.faults(|call| {
        (call.verb == "create" && call.name.contains("-node-1-")).then_some(Fault::Status(422))
    });
    let setup = Setup::on(&api);
    let refused = setup.publisher.publish(devices(&["gpu-0"])).published().await;
    assert_eq!(refused.unwrap_err().http_status(), Some(422));
    pass(600 * SECOND).await;
    assert!((8..12).contains(&api.count("create")), "{} creates", api.count("create"));
    assert_eq!(setup.pool_status(&pool_name()).state, PoolState::Refused);

    // The same again is no reason to ask.
    api.forget_calls();
    setup.publisher.publish(devices(&["gpu-0"])).published().await.unwrap_err();
    assert_eq!(api.count("create"), 0);
    setup.gate.send_replace(Gate::open(2));
    pass(SECOND).await;
    assert_eq!(api.count("create"), 1, "a registration is a reason to try again");
    api.no_faults();
    setup.publish(devices(&["gpu-1"])).await;
    assert_eq!(api.slices().len(), 1);
}

/// Admission webhooks deny with 400 and policies with 422, if they do not say otherwise.
#[tokio::test(start_paused = true)]
async fn a_denial_that_lasts_for_a_minute_is_over_within_two() {
    for code in [400, 403, 413, 422, 500] {
        let api = FakeApi::new();
        let start = tokio::time::Instant::now();
        api.faults(move |call| {
            (call.verb == "create" && start.elapsed() < 60 * SECOND).then_some(Fault::Status(code))
        });
        let setup = Setup::on(&api);
        let _ = setup.publisher.publish(devices(&["gpu-0"]));
        pass(120 * SECOND).await;
        assert_eq!(api.slices().len(), 1, "{code}");
        assert!((4..16).contains(&api.count("create")), "{code}: {} creates", api.count("create"));
        let status = setup.pool_status(&pool_name());
        assert!(status.state == PoolState::Published && status.last_error.is_none(), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_slice_leaves_the_old_pool_whole() {
    for code in [400, 422] {
        let api = FakeApi::new();
        let setup = Setup::on(&api);
        setup.publish(slices(3, 0)).await;
        let before = api.slices();
        api.faults(move |call| {
            let writes = matches!(call.verb, "update" | "dry-run");
            (writes && call.name.starts_with("00001")).then_some(Fault::Status(code))
        });
        setup.publisher.publish(slices(3, 1)).published().await.unwrap_err();
        pass(600 * SECOND).await;
        assert_eq!(api.slices(), before, "{code}");
        api.no_faults();
        pass(310 * SECOND).await;
        assert!(api.slices().iter().all(|slice| slice.spec.pool.generation == 2), "{code}");
        assert_eq!(setup.pool_status(&pool_name()).state, PoolState::Published);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_a_webhook_does_not_allow_counts_for_nothing() {
    let api = FakeApi::new();
    api.refuse_dry_runs();
    let setup = Setup::on(&api);
    setup.publish(slices(3, 0)).await;
    assert_eq!(setup.publish(slices(3, 1)).await.generation, 2);
    assert_eq!(api.count("dry-run"), 1);
    assert!(setup.reported().is_empty(), "{:?}", setup.reported());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_refused_does_not_hold_up_another() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    api.faults(|call| (call.verb == "create").then_some(Fault::Status(422)));
    let mut ticket = setup.publisher.publish(devices(&["gpu-0"]));
    ticket.published().await.unwrap_err();
    api.no_faults();
    let resources = devices(&["gpu-0"]).pool(PoolName::new("another").unwrap(), Pool::new([device("x")]));
    let _ = setup.publisher.publish(resources);
    pass(SECOND / 10).await;
    assert_eq!(api.slices().len(), 1);
    pass(5 * SECOND).await;
    assert_eq!(api.slices().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn writes_that_take_long_are_waited_for() {
    for (takes, within) in [(4, 5), (6, 20), (25, 110)] {
        let api = FakeApi::new();
        api.slow(takes * SECOND);
        let setup = Setup::on(&api);
        let mut ticket = setup.publisher.publish(devices(&["gpu-0"]));
        let done = tokio::time::timeout(within * SECOND, ticket.published()).await;
        assert!(done.is_ok(), "{takes} s a write");
        assert_eq!(api.slices().len(), 1);
    }
}

/// What a driver does that publishes all the time, while the API server asks for peace.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_asks_for_holds_for_every_wish() {
    for (changes, fault, most) in [
        (false, Fault::RetryAfter(429, 30), 2),
        (true, Fault::RetryAfter(429, 30), 2),
        (true, Fault::Status(503), 12),
        (false, Fault::Status(422), 7),
        (true, Fault::Status(422), 33 + 20),
    ] {
        let api = FakeApi::new();
        api.faults(move |call| (call.verb == "create").then_some(fault));
        let setup = Setup::on(&api);
        for n in 0..600_i64 {
            let device = device("gpu-0").try_attribute("a", if changes { n } else { 0 }).unwrap();
            let _ = setup.publisher.publish(DriverResources::single_pool(pool_name(), [device]));
            let elsewhere = (pool_name(), crate::DeviceName::new("elsewhere").unwrap());
            let taint = (n % 2 == 0).then(|| (elsewhere, crate::Taint::no_schedule("k")));
            setup.publisher.taints().set("x", taint);
            pass(SECOND / 10).await;
        }
        let creates = api.count("create");
        assert!((1..=most).contains(&creates), "{fault:?}, changes {changes}: {creates} creates in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_publishes_in_its_callback_makes_no_hot_loop() {
    for (code, changes) in [(500, false), (500, true), (422, false), (422, true)] {
        let api = FakeApi::new();
        api.faults(move |call| (call.verb == "create").then_some(Fault::Status(code)));
        let wishes: Arc<Mutex<Option<Wishes>>> = Arc::default();
        let (used, told) = (wishes.clone(), AtomicUsize::new(0));
        let publisher = Publisher::start(api.client(), node_scope(), Gate::always_open(), move |_| {
            let n = if changes { told.fetch_add(1, Ordering::Relaxed) } else { 0 };
            let _ = used.lock().unwrap().as_ref().unwrap().publish(devices(&[&format!("gpu-{n}")]));
        });
        *wishes.lock().unwrap() = Some(publisher.wishes());
        let _ = publisher.publish(devices(&["gpu-0"]));
        pass(60 * SECOND).await;
        assert!(api.count("create") <= 60, "{code}: {} creates in a minute", api.count("create"));
        publisher.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_resolved_by_looking_again() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    setup.publish(devices(&["gpu-0"])).await;
    // Somebody writes a label, and the watch is too late to tell.
    api.be_late(10 * SECOND);
    let mut slice = api.slices().remove(0);
    slice.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    slice.spec.devices.as_mut().unwrap()[0].name = "other".into();
    api.put(slice);
    setup.publish(devices(&["gpu-1"])).await;
    assert!(setup.reported().is_empty());
    assert_eq!(api.slices()[0].spec.devices.as_ref().unwrap()[0].name, "gpu-1");
    assert!(api.slices()[0].metadata.labels.is_some(), "foreign metadata is kept");
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_end_do_not_become_a_hot_loop() {
    let api = FakeApi::new();
    let setup = Setup::on(&api);
    setup.publish(devices(&["gpu-0"])).await;
    api.faults(|call| (call.verb == "update").then_some(Fault::Status(409)));
    api.forget_calls();
    let _ = setup.publisher.publish(devices(&["gpu-1"]));
    pass(120 * SECOND).await;
    assert!(api.count("update") < 25, "{} updates", api.count("update"));
    assert!(!setup.reported().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_api_server_says_how_long_to_wait() {
    let api = FakeApi::new();
    api.faults(first(1, "create", Fault::RetryAfter(429, 12)));
    let setup = Setup::on(&api);
    let start = tokio::time::Instant::now();
    setup.publish(devices(&["gpu-0"])).await;
    assert!((12 * SECOND..13 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_callback_may_publish() {
    let api = FakeApi::new();
    api.faults(first(1, "create", Fault::Status(422)));
    let publisher: Arc<Mutex<Option<Publisher>>> = Arc::default();
    let used = publisher.clone();
    let started = Publisher::start(api.client(), node_scope(), Gate::always_open(), move |_| {
        let _ = used.lock().unwrap().as_ref().unwrap().publish(devices(&["gpu-1"]));
    });
    let mut first = started.publish(devices(&["gpu-0"]));
    *publisher.lock().unwrap() = Some(started);
    assert!(first.published().await.is_err());
    pass(SECOND).await;
    assert_eq!(api.slices()[0].spec.devices.as_ref().unwrap()[0].name, "gpu-1");
}
