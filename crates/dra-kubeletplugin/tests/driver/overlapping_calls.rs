//! Calls for one claim that meet: callers that go away, unprepares that overtake, prepares that wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::support::{Rig, TestDriver, device, eventually, fail, usual};

/// A driver whose prepares wait for a permit each.
fn held_up(driver: &TestDriver) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&gate);
    driver.on_prepare(move |claim, _| {
        let permits = Arc::clone(&permits);
        Box::pin(async move {
            permits.acquire().await.expect("open").forget();
            Ok(usual(claim))
        })
    });
    gate
}

#[tokio::test]
async fn a_prepare_whose_caller_goes_away_is_completed_and_replayed() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = held_up(&driver);
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    tokio::select! {
        answer = rig.prepare_one(&claim) => panic!("it is held up: {answer:?}"),
        () = driver.wait_for("prepare one: gpu-0") => {}
    }
    gate.add_permits(1);
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);
    assert_eq!(rig.files(), rig.files_of(&[&claim]));
}

#[tokio::test]
async fn a_prepare_whose_caller_goes_away_is_completed_without_another_call() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = held_up(&driver);
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    tokio::select! {
        answer = rig.prepare_one(&claim) => panic!("it is held up: {answer:?}"),
        () = driver.wait_for("prepare one: gpu-0") => {}
    }
    gate.add_permits(1);
    eventually("the CDI file and the finished record", || rig.files() == rig.files_of(&[&claim])).await;
}

#[tokio::test]
async fn two_prepares_of_one_claim_at_once_are_one_driver_call() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = held_up(&driver);
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let release = async {
        rig.wait_until_fetched(&claim, 2).await;
        driver.wait_for("prepare one: gpu-0").await;
        gate.add_permits(2);
    };
    let (first, second, ()) = tokio::join!(rig.prepare_one(&claim), rig.prepare_one(&claim), release);
    assert_eq!(first.as_ref().unwrap(), second.as_ref().unwrap());
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);
}

#[tokio::test]
async fn an_unprepare_cancels_a_running_prepare_waits_for_it_and_wins() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|claim, cx| {
        Box::pin(async move {
            assert!(!cx.is_cancelled());
            cx.cancelled().await;
            Ok(usual(claim))
        })
    });
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let unprepare = async {
        driver.wait_for("prepare one: gpu-0").await;
        rig.unprepare_one(&claim).await
    };
    let (prepared, unprepared) = tokio::join!(rig.prepare_one(&claim), unprepare);
    assert_eq!(prepared.unwrap().len(), 1, "the driver went on and finished");
    unprepared.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)"]);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn a_driver_that_gives_up_when_cancelled_is_rolled_back() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|_, cx| {
        Box::pin(async {
            cx.cancelled().await;
            fail("not wanted any more")
        })
    });
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let unprepare = async {
        driver.wait_for("prepare one: gpu-0").await;
        rig.unprepare_one(&claim).await
    };
    let (prepared, unprepared) = tokio::join!(rig.prepare_one(&claim), unprepare);
    assert_eq!(prepared, Err("not wanted any more".to_owned()));
    unprepared.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "rollback one: gpu-0 (Rollback)", "unknown one"]);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn an_unprepare_makes_a_waiting_prepare_of_the_claim_give_up() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    // It ends once the unprepare has asked, so the second prepare gets its turn after that.
    driver.on_prepare(|claim, cx| {
        Box::pin(async move {
            cx.cancelled().await;
            Ok(usual(claim))
        })
    });
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let later = async {
        driver.wait_for("prepare one: gpu-0").await;
        let unprepare = async {
            rig.wait_until_fetched(&claim, 2).await;
            rig.unprepare_one(&claim).await
        };
        tokio::join!(rig.prepare_one(&claim), unprepare)
    };
    let (first, (second, unprepared)) = tokio::join!(rig.prepare_one(&claim), later);
    first.unwrap();
    assert_eq!(second, Err("given up: the claim is to be unprepared".to_owned()));
    unprepared.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)"]);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn an_unprepare_that_cannot_wait_any_longer_says_that_prepare_still_runs() {
    // Unprepare keeps 5 s of its caller's time back.
    let rig = Rig::with_kubelet(|kubelet, _| kubelet.call_timeout(Duration::from_secs(6)));
    let driver = TestDriver::new();
    let gate = held_up(&driver);
    let _handle = rig.start(&driver).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    tokio::select! {
        answer = rig.prepare_one(&one) => panic!("it is held up: {answer:?}"),
        () = driver.wait_for("prepare one: gpu-0") => {}
    }
    let error = rig.unprepare_one(&one).await.unwrap_err();
    assert!(error.contains("prepare is still running"), "{error}");
    // Other claims do not wait for it.
    driver.prepare_as_usual();
    rig.prepare_one(&two).await.unwrap();
    gate.add_permits(1);
    rig.unprepare_one(&one).await.unwrap();
    assert_eq!(rig.files(), rig.files_of(&[&two]));
}

#[tokio::test]
async fn with_one_call_at_a_time_a_waiting_claim_gets_its_turn() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = held_up(&driver);
    let _handle = rig.start_with(&driver, rig.options().max_parallel(1)).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    let later = async {
        driver.wait_for("prepare one: gpu-0").await;
        let release = async {
            rig.wait_until_fetched(&two, 1).await;
            assert_eq!(driver.log(), ["prepare one: gpu-0"], "one at a time");
            gate.add_permits(2);
        };
        tokio::join!(rig.prepare_one(&two), release).0
    };
    let (first, second) = tokio::join!(rig.prepare_one(&one), later);
    first.unwrap();
    second.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "prepare two: gpu-1"]);
}
