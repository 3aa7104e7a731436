//! Publishers that take turns.

use super::*;

fn standing_by(api: &FakeApi) -> Setup {
    Setup::new(api.clone(), node_scope(), Gate::Standby)
}

fn reads(api: &FakeApi) -> Vec<&'static str> {
    api.calls().into_iter().map(|call| call.verb).filter(|verb| *verb != "watch").collect()
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_stands_by_writes_nothing_and_says_since_when() {
    let api = FakeApi::new();
    let one = Setup::on(&api);
    one.publish(devices(&["gpu-0"])).await;
    api.forget_calls();
    let two = standing_by(&api);
    let _ticket = two.publisher.publish(devices(&["gpu-1"]));
    pass(120 * SECOND).await;
    assert!(api.writes().is_empty(), "{:?}", api.writes());
    let status = two.publisher.status().borrow().clone();
    assert!(status.standby_since.is_some() && !status.is_settled(), "{status:?}");
    let pool = &status.pools[&pool_name()];
    assert!((pool.state, pool.last_error.is_none()) == (PoolState::Pending, true), "{pool:?}");
    assert!(two.reported().is_empty());
    assert!(one.publisher.status().borrow().standby_since.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_served_once_the_wish_is_there_whoever_wrote_it() {
    let api = FakeApi::new();
    let (one, two) = (Setup::on(&api), standing_by(&api));
    let mut ticket = two.publisher.publish(devices(&["gpu-0"]));
    let waited = tokio::time::timeout(60 * SECOND, ticket.published()).await;
    assert!(waited.is_err(), "nothing is published yet: {waited:?}");
    one.publish(devices(&["gpu-0"])).await;
    assert_eq!(ticket.published().await.unwrap().generation, 1);
    assert_eq!(two.pool_status(&pool_name()).state, PoolState::Published);

    // What the other one does next is its business.
    one.publish(devices(&["gpu-1"])).await;
    pass(60 * SECOND).await;
    assert_eq!(two.pool_status(&pool_name()).state, PoolState::Pending);
    assert!(two.reported().is_empty(), "{:?}", two.reported());
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_nothing_waits_until_the_pools_of_the_other_are_gone() {
    let api = FakeApi::new();
    let one = Setup::on(&api);
    one.publish(devices(&["gpu-0"])).await;
    let two = standing_by(&api);
    let mut ticket = two.publisher.remove_all();
    let waited = tokio::time::timeout(60 * SECOND, ticket.published()).await;
    assert!(waited.is_err(), "{waited:?}");
    one.publisher.remove_all().published().await.unwrap();
    ticket.published().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn taking_over_begins_with_a_list_and_writes_nothing_for_an_equal_wish() {
    let api = FakeApi::new();
    let (one, two) = (Setup::on(&api), standing_by(&api));
    one.publish(slices(3, 0)).await;
    two.publish(slices(3, 0)).await;
    one.gate.send_replace(Gate::Standby);
    pass(SECOND).await;
    api.forget_calls();
    two.gate.send_replace(Gate::open(1));
    pass(SECOND).await;
    assert_eq!(reads(&api)[0], "list");
    assert!(api.writes().is_empty(), "{:?}", api.writes());
    let status = two.publisher.status().borrow().clone();
    assert!(status.is_settled() && status.standby_since.is_none(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn turns_may_change_between_any_two_writes() {
    for turn_after in 0..5 {
        let api = FakeApi::new();
        let (one, two) = (Setup::on(&api), standing_by(&api));
        one.publish(slices(4, 0)).await;
        let _ticket = two.publisher.publish(slices(4, 2));
        api.forget_calls();
        let gate = one.gate.clone();
        let mut updates = 0;
        api.faults(move |call| {
            updates += usize::from(call.verb == "update");
            if call.verb == "update" && updates == turn_after {
                gate.send_replace(Gate::Standby);
            }
            None
        });
        let _superseded = one.publisher.publish(slices(4, 1));
        if turn_after == 0 {
            one.gate.send_replace(Gate::Standby);
        }
        let mut status = one.publisher.status();
        status.wait_for(|status| status.standby_since.is_some()).await.unwrap();
        assert_eq!(api.writes().len(), turn_after, "the write under way is the last one");
        pass(10 * SECOND).await;
        assert_eq!(api.writes().len(), turn_after);

        two.gate.send_replace(Gate::open(1));
        pass(SECOND).await;
        assert!(two.publisher.status().borrow().is_settled());
        assert_eq!(api.writes().len(), turn_after + 4, "one update for each slice");
        // A generation that was never whole is gone on with.
        let generation = if turn_after < 4 { 2 } else { 3 };
        assert_eq!(two.pool_status(&pool_name()).generation, generation);
        assert!(one.reported().is_empty() && two.reported().is_empty());
    }
}

/// The lock changes hands once the publisher says that it stands by.
#[tokio::test(start_paused = true)]
async fn a_publisher_stands_by_only_once_its_write_has_ended_however_long_that_takes() {
    for takes in [1, 20, 60] {
        let api = FakeApi::new();
        api.slow(takes * SECOND);
        let setup = Setup::on(&api);
        let _ticket = setup.publisher.publish(devices(&["gpu-0"]));
        // Its first two tries are given up sooner, so that the one under way may take the longest time.
        pass(if takes > 5 { 40 * SECOND } else { SECOND / 10 }).await;
        setup.gate.send_replace(Gate::Standby);
        let start = tokio::time::Instant::now();
        let mut status = setup.publisher.status();
        status.wait_for(|status| status.standby_since.is_some()).await.unwrap();
        assert!(start.elapsed() <= Publisher::LONGEST_WRITE);
        let calls = api.writes().len();
        pass(120 * SECOND).await;
        assert_eq!(api.writes().len(), calls, "{takes}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_planned_after_a_take_over_before_a_list_has_worked() {
    let api = FakeApi::new();
    let (one, two) = (Setup::on(&api), standing_by(&api));
    one.publish(devices(&["gpu-0"])).await;
    let mut ticket = two.publisher.publish(devices(&["gpu-1"]));
    pass(SECOND).await;
    one.gate.send_replace(Gate::Standby);
    api.forget_calls();
    api.faults(|call| (call.verb == "list").then_some(fake::Fault::Status(500)));
    two.gate.send_replace(Gate::open(1));
    pass(60 * SECOND).await;
    assert!(api.writes().is_empty(), "{:?}", api.writes());
    assert!((2..20).contains(&api.count("list")), "{} lists", api.count("list"));
    let status = two.publisher.status().borrow().clone();
    assert!(!status.listed && status.last_error.is_some(), "{status:?}");
    api.no_faults();
    ticket.published().await.unwrap();
    assert_eq!(api.writes(), ["update"]);
    assert!(two.publisher.status().borrow().last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_after_a_stand_by_lets_existing_slices_be_put_right() {
    let api = FakeApi::new();
    let (one, two) = (Setup::on(&api), standing_by(&api));
    one.publish(devices(&["gpu-0"])).await;
    let mut ticket = two.publisher.publish(devices(&["gpu-1"]));
    one.gate.send_replace(Gate::Standby);
    two.gate.send_replace(Gate::Closed);
    ticket.published().await.unwrap();
    assert!(!two.publisher.status().borrow().gate_open);
}
