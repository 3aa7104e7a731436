//! Shares of one device that end at once: whoever is last, and nobody else, may switch the device off.

use dra_testkit::kubelet::ClaimRef;

use crate::support::{Direct, Rig, TestDriver, share};

const ROUNDS: usize = 50;

fn two_shares(rig: &Rig, round: usize) -> (ClaimRef, ClaimRef) {
    let [one, two] =
        [1, 2].map(|number| rig.claim(&format!("{number}-of-{round}"), &[share("gpu-0", number)]));
    (one, two)
}

/// Of the two unprepares, one must have seen the other's claim and one nobody.
fn exactly_one_was_last(claims: [&ClaimRef; 2], drivers: &[&TestDriver]) {
    let held = drivers.iter().flat_map(|driver| driver.held());
    let held: Vec<_> = held.filter(|held| claims.iter().any(|claim| claim.name == held.claim.name)).collect();
    let mut others: Vec<Vec<_>> = held
        .iter()
        .map(|held| held.devices[0].others.iter().map(|other| other.name.clone()).collect())
        .collect();
    others.sort();
    assert_eq!((held.len(), &others[0]), (2, &Vec::new()), "{others:?}");
    let last = held.iter().find(|held| held.devices[0].others.is_empty()).unwrap();
    assert_eq!(others[1], [last.claim.name.as_str()], "the first to leave sees the one that stays");
}

#[tokio::test]
async fn of_two_shares_unprepared_at_once_exactly_one_sees_no_others() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    for round in 0..ROUNDS {
        let (one, two) = two_shares(&rig, round);
        assert!(rig.prepare(&[&one, &two]).await.values().all(Result::is_ok));
        if round % 2 == 0 {
            let (first, second) = tokio::join!(rig.unprepare_one(&one), rig.unprepare_one(&two));
            assert_eq!((first, second), (Ok(()), Ok(())));
        } else {
            assert!(rig.unprepare(&[&one, &two]).await.values().all(Result::is_ok));
        }
        exactly_one_was_last([&one, &two], &[&driver]);
    }
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_shares_unprepared_at_once_by_two_instances_exactly_one_sees_no_others() {
    let (rig, old, new) = (Rig::new(), TestDriver::new(), TestDriver::new());
    let (_old, through_old) = Direct::start(&rig, old.clone(), rig.options().rolling_update("pod-old")).await;
    let (_new, through_new) = Direct::start(&rig, new.clone(), rig.options().rolling_update("pod-new")).await;
    for round in 0..ROUNDS {
        let (one, two) = two_shares(&rig, round);
        let prepared = tokio::join!(through_old.prepare_one(&one), through_new.prepare_one(&two));
        assert!(prepared.0.is_ok() && prepared.1.is_ok(), "{prepared:?}");
        let done = tokio::join!(through_new.unprepare_one(&one), through_old.unprepare_one(&two));
        assert_eq!(done, (Ok(()), Ok(())));
        exactly_one_was_last([&one, &two], &[&old, &new]);
    }
    assert_eq!(rig.files(), [""; 0]);
}
