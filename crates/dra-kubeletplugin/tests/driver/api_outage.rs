//! An API server that cannot be reached, or does not answer.

use std::time::{Duration, Instant};

use dra_kubeletplugin::{Device, DriverResources};
use dra_testkit::api::{ApiStatus, Matcher, Verb};

use crate::support::{DRIVER, NODE, Rig, SOON, TestDriver, device, soon};

fn reads() -> Matcher {
    Matcher::any().verb(Verb::Get).resource("resourceclaims")
}

/// During an outage: prepare fails for each claim in time, the rest works. Afterwards: all works.
async fn survives<Outage>(what: &str, begin: impl FnOnce(&Rig) -> Outage, end: impl FnOnce(&Rig, Outage)) {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let before = rig.claim("before", &[device("gpu-0")]);
    let claims =
        ["during-1", "during-2"].map(|name| rig.claim(name, &[device(&format!("gpu-{}", &name[7..]))]));
    rig.prepare_one(&before).await.unwrap();

    let outage = begin(&rig);
    rig.kubelet.restart().await;
    rig.kubelet.wait_registered(DRIVER, SOON).await.expect("registration needs no API server");
    let prepare = async {
        let begin = Instant::now();
        (rig.prepare(&[&claims[0], &claims[1]]).await, begin.elapsed())
    };
    let ((answer, took), unprepared) = tokio::join!(prepare, rig.unprepare_one(&before));
    unprepared.expect("unprepare needs no API server");
    println!("{what}: prepare answers after {:.1} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(10), "{what}: {took:?}");
    for claim in &claims {
        let error = answer[&claim.uid].clone().unwrap_err();
        assert!(error.contains("API server did not give the claim"), "{what}: {error}");
    }
    assert_eq!(driver.log(), ["prepare before: gpu-0", "unprepare before: gpu-0 (Unprepare)"], "{what}");
    assert_eq!(rig.files(), [""; 0], "{what}");

    end(&rig, outage);
    let answer = rig.prepare(&[&claims[0], &claims[1]]).await;
    assert!(answer.values().all(Result::is_ok), "{what}: {answer:?}");
}

/// All outages at once: each takes most of ten seconds.
#[tokio::test]
async fn an_outage_of_the_api_server_is_each_claims_error_in_ten_seconds_and_nothing_else_stops() {
    tokio::join!(
        survives("unreachable", |rig| rig.api.set_reachable(false), |rig, ()| rig.api.set_reachable(true)),
        survives("hanging", |rig| rig.api.hang(Matcher::any()), |_, outage| drop(outage)),
        survives(
            "failing",
            |rig| rig.api.fail_while(reads(), ApiStatus::unavailable()),
            |_, outage| drop(outage)
        ),
    );
}

#[tokio::test]
async fn a_short_outage_is_waited_out_by_the_same_call() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.api.fail_next(reads(), ApiStatus::unavailable());
    rig.api.fail_next(reads(), ApiStatus::unauthorized());
    rig.api.cut_next(reads());
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(rig.api.count(&reads()), 4);
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);
}

#[tokio::test]
async fn a_driver_starts_registers_and_unprepares_without_an_api_server() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    rig.api.set_reachable(false);
    let handle = rig.start(&driver).await;
    let gpu = Device::named("gpu-0").unwrap();
    let pool = NODE.parse().unwrap();
    let mut ticket = handle.publish(DriverResources::single_pool(pool, [gpu]));
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.unprepare_one(&claim).await.unwrap();
    rig.api.set_reachable(true);
    rig.prepare_one(&claim).await.unwrap();
    soon("published", ticket.published()).await.unwrap();
    assert_eq!(driver.log(), ["unknown one", "prepare one: gpu-0"]);
}
