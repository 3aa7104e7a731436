//! Claims that cannot be prepared: an error of their own, nothing written, and the others of the call prepared.

use dra_kubeletplugin::Handle;
use dra_testkit::api::{ApiStatus, Matcher, Verb};
use dra_testkit::kubelet::ClaimRef;

use serde_json::{Value, json};

use crate::support::{DRIVER, Rig, TestDriver, device, fail, share, usual};

/// Prepares `bad` between two good claims; gives its error.
async fn refused(rig: &Rig, driver: &TestDriver, bad: &ClaimRef) -> String {
    let (one, two) = (rig.claim("good-1", &[device("gpu-6")]), rig.claim("good-2", &[device("gpu-7")]));
    let mut answer = rig.prepare(&[&one, bad, &two]).await;
    assert_eq!(answer.len(), 3, "{answer:?}");
    let error = answer.remove(&bad.uid).expect("the bad claim is answered").unwrap_err();
    assert!(answer.values().all(Result::is_ok), "{answer:?}");
    assert_eq!(rig.files(), rig.files_of(&[&one, &two]), "nothing is written for the bad one");
    let mut log = driver.log();
    log.sort();
    assert_eq!(log, ["prepare good-1: gpu-6", "prepare good-2: gpu-7"]);
    error
}

async fn rig() -> (Rig, TestDriver, Handle) {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    (rig, driver, handle)
}

#[tokio::test]
async fn a_missing_claim_is_that_claims_error() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.delete_claim(&claim);
    let error = refused(&rig, &driver, &claim).await;
    assert!(error.contains("no such claim"), "{error}");
}

#[tokio::test]
async fn a_replaced_claim_is_told_as_such_although_the_new_one_is_not_allocated() {
    let (rig, driver, _handle) = rig().await;
    let old = rig.claim("one", &[device("gpu-0")]);
    rig.delete_claim(&old);
    let new = rig.unallocated_claim("one");
    let error = refused(&rig, &driver, &old).await;
    assert!(error.contains("replaced") && error.contains(&new.uid), "{error}");
}

#[tokio::test]
async fn a_replaced_claim_is_not_prepared_with_the_devices_of_the_new_one() {
    let (rig, driver, _handle) = rig().await;
    let old = rig.claim("one", &[device("gpu-0")]);
    rig.delete_claim(&old);
    rig.claim("one", &[device("gpu-1")]);
    let error = refused(&rig, &driver, &old).await;
    assert!(error.contains("replaced"), "{error}");
}

#[tokio::test]
async fn a_claim_that_is_not_allocated_is_that_claims_error() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.unallocated_claim("one");
    let error = refused(&rig, &driver, &claim).await;
    assert!(error.contains("not allocated"), "{error}");
}

#[tokio::test]
async fn a_claim_that_the_driver_may_not_read_is_that_claims_error_and_says_what_to_do() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let reads = Matcher::any().verb(Verb::Get).resource("resourceclaims").name("one");
    let _refusal = rig.api.fail_while(reads, ApiStatus::forbidden());
    let error = refused(&rig, &driver, &claim).await;
    assert!(error.contains("may not get resourceclaims") && error.contains("permission"), "{error}");
}

#[tokio::test]
async fn a_device_that_stands_twice_in_a_claim_is_that_claims_error() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.claim("one", &[device("gpu-0"), device("gpu-0")]);
    let error = refused(&rig, &driver, &claim).await;
    assert!(error.contains("gpu-0 stands twice"), "{error}");
}

fn config(driver: &str, placeholder: &str) -> Value {
    json!({"source": "FromClaim", "opaque": {"driver": driver, "parameters": placeholder}})
}

#[tokio::test]
async fn parameters_of_another_driver_that_only_go_reads_do_not_matter() {
    let (rig, _, _handle) = rig().await;
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    for (name, foreign) in [("surrogate", r#"{"name":"x\ud800y"}"#), ("deep", deep.as_str())] {
        let placeholder = format!("placeholder of {name}");
        rig.api.set_raw_json(&placeholder, foreign);
        let configs = [config("nic.example.com", &placeholder)];
        let claim = rig.claim_with_configs(name, &[device("gpu-0")], &configs);
        rig.prepare_one(&claim).await.unwrap();
        rig.unprepare_one(&claim).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_that_stands_twice_in_parameters_for_the_driver_is_that_claims_error_with_its_path() {
    let (rig, driver, _handle) = rig().await;
    rig.api.set_raw_json("ours", r#"{"sharing":{"strategy":"A","strategy":"B"}}"#);
    let configs = [config("nic.example.com", "x"), config(DRIVER, "ours")];
    let claim = rig.claim_with_configs("one", &[device("gpu-0")], &configs);
    let error = refused(&rig, &driver, &claim).await;
    assert!(error.contains("devices.config[1].opaque.parameters.sharing.strategy: this key is"), "{error}");
}

#[tokio::test]
async fn two_shares_of_one_device_in_one_claim_are_fine() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.claim("one", &[share("gpu-0", 1), share("gpu-0", 2)]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_ne!(devices[0].share_id, devices[1].share_id);
    assert_ne!(devices[0].cdi_device_ids, devices[1].cdi_device_ids);
    assert_eq!(driver.log(), ["prepare one: gpu-0, gpu-0"]);
}

#[tokio::test]
async fn uids_that_could_leave_a_folder_are_those_claims_errors() {
    let (rig, driver, _handle) = rig().await;
    let outside = rig.node.root().join("x");
    let bad = ["../x", "../../../../x", "", ".", "a/b", "-x", &outside.display().to_string()];
    let bad = bad.map(|uid| ClaimRef::new("default", "one", uid));
    let good = rig.claim("good", &[device("gpu-0")]);
    let mut claims: Vec<&ClaimRef> = bad.iter().collect();
    claims.push(&good);
    let prepared = rig.prepare(&claims).await;
    let unprepared = rig.unprepare(&bad.iter().collect::<Vec<_>>()).await;
    for claim in &bad {
        for error in [prepared[&claim.uid].clone().unwrap_err(), unprepared[&claim.uid].clone().unwrap_err()]
        {
            assert!(
                error.contains("illegal claim UID") && error.contains(&format!("{:?}", claim.uid)),
                "{error}"
            );
        }
    }
    assert!(prepared[&good.uid].is_ok());
    assert_eq!(rig.files(), rig.files_of(&[&good]));
    assert_eq!(driver.log(), ["prepare good: gpu-0"]);
    assert!(!outside.exists() && !rig.node.plugins().join("x.json").exists());
}

#[tokio::test]
async fn names_that_would_lead_to_another_api_object_are_those_claims_errors() {
    let (rig, driver, _handle) = rig().await;
    let good = rig.claim("one", &[device("gpu-0")]);
    rig.api.clear_calls();
    for (namespace, name) in
        [("default", "../secrets/x"), ("..", "one"), ("default", "one?watch=1"), ("", "one")]
    {
        let claim = ClaimRef::new(namespace, name, good.uid.as_str());
        let error = rig.prepare_one(&claim).await.unwrap_err();
        assert!(error.contains("illegal"), "{error}");
    }
    let gets = Matcher::any().verb(Verb::Get).resource("resourceclaims");
    assert_eq!((rig.api.count(&gets), driver.log().len()), (0, 0));
}

#[tokio::test]
async fn a_uid_named_twice_in_one_call_is_one_piece_of_work() {
    let (rig, driver, _handle) = rig().await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let answer = rig.prepare(&[&claim, &claim, &claim]).await;
    assert!(answer.len() == 1 && answer[&claim.uid].is_ok(), "{answer:?}");
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);
    let answer = rig.unprepare(&[&claim, &claim]).await;
    assert!(answer.len() == 1 && answer[&claim.uid].is_ok(), "{answer:?}");
    assert_eq!(driver.log().len(), 2);
}

#[tokio::test]
async fn a_device_that_the_driver_does_not_know_is_that_claims_error() {
    let (rig, driver, _handle) = rig().await;
    driver.on_prepare(|claim, _| {
        Box::pin(async move {
            if claim.devices()[0].device().as_str() == "gpu-99" {
                return fail("this node has no GPU gpu-99");
            }
            Ok(usual(claim))
        })
    });
    let (bad, good) = (rig.claim("bad", &[device("gpu-99")]), rig.claim("good", &[device("gpu-0")]));
    let answer = rig.prepare(&[&bad, &good]).await;
    assert_eq!(answer[&bad.uid], Err("this node has no GPU gpu-99".to_owned()));
    assert!(answer[&good.uid].is_ok());
    assert_eq!(rig.files(), rig.files_of(&[&good]));
}
