//! What a publisher makes of an API server that refuses, fails or vanishes: on the stand-in, in paused time.

use std::time::Duration;

use dra_resourceslice::{DriverName, DriverResources, NodeName, Pool, PoolName, PublishError, Scope};
use dra_testkit::api::{ApiServer, ApiStatus, Matcher, Verb};
use tokio::time::{Instant, sleep};

use super::{Rig, Start, devices, slices_of_one};

const SECOND: Duration = Duration::from_secs(1);
/// The publisher's back-off is half a minute at most.
const RECOVERS_WITHIN: Duration = Duration::from_secs(40);

fn rig(api: &ApiServer) -> Rig {
    api.node("node-1").unwrap();
    let driver = DriverName::new("faults.example.com").unwrap();
    let scope = Scope::node(driver, NodeName::new("node-1").unwrap());
    Rig::start(&Start { driver_client: api.client(), admin: api.client(), scope })
}

fn wish(slices: usize, value: i64) -> DriverResources {
    DriverResources::new().pool(PoolName::new("node-1").unwrap(), slices_of_one(slices, value).unwrap())
}

fn status(code: u16) -> ApiStatus {
    ApiStatus::new(code, "Fault", "a fault of the test")
}

/// How many writes the stand-in was asked for.
fn writes(api: &ApiServer) -> usize {
    let writes = Matcher::any().verbs([Verb::Create, Verb::Update, Verb::Delete]).resource("resourceslices");
    api.count(&writes.dry_run(false))
}

/// Waits until a wish is published, and says how long that took.
async fn published(ticket: &mut dra_resourceslice::Ticket, within: Duration) -> Duration {
    let start = Instant::now();
    let ended = tokio::time::timeout(within, ticket.published()).await;
    ended.expect("published in time").expect("published");
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_everything_is_asked_seldom_and_told_about_with_what_to_do() {
    for (code, hint) in [
        (401, "token"),
        (403, "service account get, list, watch, create, update and delete"),
        (404, "does the cluster serve resource.k8s.io/v1? it needs Kubernetes 1.34"),
        (410, "a fault of the test"),
        (429, "a fault of the test"),
        (500, "a fault of the test"),
        (503, "a fault of the test"),
    ] {
        let api = ApiServer::new();
        let rig = rig(&api);
        let outage = api.fail_while(Matcher::any(), status(code));
        let mut ticket = rig.publisher.publish(wish(3, 0));
        sleep(120 * SECOND).await;
        assert!(api.calls().len() < 15, "{code}: {} requests in two minutes", api.calls().len());
        let told = rig.reported().last().expect("a report").to_string();
        assert!(told.contains(&format!("({code})")) && told.contains(hint), "{told}");
        assert!(rig.publisher.status().borrow().last_error.is_some(), "{code}: the status says nothing");
        drop(outage);
        published(&mut ticket, RECOVERS_WITHIN).await;
        assert_eq!(rig.slices().await.unwrap().len(), 3, "{code}");
        assert!(rig.publisher.status().borrow().last_error.is_none(), "{code}: the status still complains");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_a_few_times_is_done_in_the_end() {
    for verb in [Verb::Create, Verb::Update, Verb::Delete] {
        for code in [401, 403, 409, 429, 500, 503] {
            let api = ApiServer::new();
            let rig = rig(&api);
            published(&mut rig.publisher.publish(wish(3, 0)), SECOND).await;
            api.clear_calls();
            api.fail_times(3, Matcher::any().verb(verb).dry_run(false), status(code));
            // Creates one slice, or updates all of them, or deletes one.
            let wish = match verb {
                Verb::Create => wish(4, 0),
                Verb::Delete => wish(2, 0),
                _ => wish(3, 1),
            };
            published(&mut rig.publisher.publish(wish), 10 * SECOND).await;
            let needed = 4;
            assert!(writes(&api) <= needed + 3, "{verb:?} {code}: {} writes", writes(&api));
            let slices = rig.slices().await.unwrap();
            assert!(slices.iter().all(|slice| slice.spec.pool.generation == 2), "{verb:?} {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_servers_own_wish_for_a_pause_is_fulfilled() {
    let api = ApiServer::new();
    let rig = rig(&api);
    let mut busy = status(429);
    busy.retry_after = Some(12 * SECOND);
    api.fail_next(Matcher::any().verb(Verb::Create), busy);
    let took = published(&mut rig.publisher.publish(wish(1, 0)), 20 * SECOND).await;
    assert!((12 * SECOND..15 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_its_content_is_sent_again_ever_more_seldom() {
    for code in [400, 413, 422] {
        let api = ApiServer::new();
        let rig = rig(&api);
        let refusing = api.fail_while(Matcher::any().verb(Verb::Create), status(code));
        let error = rig.publisher.publish(wish(1, 0)).published().await.unwrap_err();
        assert_eq!(error.http_status(), Some(code));
        sleep(600 * SECOND).await;
        assert!((8..12).contains(&writes(&api)), "{code}: {} writes", writes(&api));
        drop(refusing);
        published(&mut rig.publisher.publish(wish(1, 1)), SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_refused_or_breaks_is_made_again() {
    let api = ApiServer::new();
    api.set_reachable(false);
    let rig = rig(&api);
    let mut ticket = rig.publisher.publish(wish(3, 0));
    sleep(60 * SECOND).await;
    let told = rig.reported().first().expect("a report").clone();
    assert!(matches!(told, PublishError::Api { .. }) && told.http_status().is_none(), "{told}");
    api.set_reachable(true);
    published(&mut ticket, RECOVERS_WITHIN).await;

    // In the middle of an update, without and with the write being done.
    for lost in [false, true] {
        let value = if lost { 2 } else { 1 };
        let update = || Matcher::any().verb(Verb::Update);
        if lost {
            api.lose_next_answer(update(), status(504));
        } else {
            api.cut_next(update());
        }
        published(&mut rig.publisher.publish(wish(3, value)), RECOVERS_WITHIN).await;
        let generations: Vec<_> =
            rig.slices().await.unwrap().iter().map(|slice| slice.spec.pool.generation).collect();
        assert_eq!(generations, [value + 1; 3], "lost: {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_to_start_again_misses_nothing() {
    let api = ApiServer::new();
    let rig = rig(&api);
    published(&mut rig.publisher.publish(wish(3, 0)), SECOND).await;
    let victim = rig.slices().await.unwrap().remove(1);
    rig.delete(&victim).await.unwrap();
    api.expire_history();
    sleep(3 * SECOND).await;
    assert_eq!(rig.slices().await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_not_waited_for() {
    let api = ApiServer::new();
    let rig = rig(&api);
    let silence = api.hang(Matcher::any().verbs([Verb::Create, Verb::Update]));
    let pool = Pool::new(devices(1).unwrap());
    let mut ticket =
        rig.publisher.publish(DriverResources::new().pool(PoolName::new("node-1").unwrap(), pool));
    sleep(30 * SECOND).await;
    assert!(matches!(rig.reported().first(), Some(PublishError::Timeout { .. })), "{:?}", rig.reported());
    drop(silence);
    published(&mut ticket, RECOVERS_WITHIN).await;
    assert_eq!(rig.slices().await.unwrap().len(), 1);
}
