//! Records of earlier and later writers of the format, as a pod that outlives an upgrade leaves them.

use std::fmt::Write as _;
use std::fs;

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_testkit::kubelet::{ClaimRef, PreparedDevice};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{DRIVER, Note, Rig, TestDriver, admin, device, share, soon};

/// A claim that one process prepared, with a bit of everything that a record can tell.
struct Left {
    rig: Rig,
    driver: TestDriver,
    claim: ClaimRef,
    answer: Vec<PreparedDevice>,
    payload: Value,
}

impl Left {
    async fn new() -> Self {
        let (rig, driver) = (Rig::new(), TestDriver::new());
        let handle = rig.start(&driver).await;
        let claim = rig.unallocated_claim("one");
        allocate(&rig, &claim);
        let answer = rig.prepare_one(&claim).await.unwrap();
        assert_eq!(answer.len(), 3);
        soon("shut down", handle.shutdown()).await.unwrap();
        let bytes = fs::read_to_string(rig.record(&claim)).unwrap();
        let payload = bytes.lines().nth(1).unwrap();
        assert_eq!(record(1, payload), bytes, "this test writes records as the driver does");
        let payload = serde_json::from_str(payload).unwrap();
        Self { rig, driver, claim, answer, payload }
    }

    /// Another writer's record takes the place; a later process answers as before and takes the claim out.
    async fn replays(&self, what: &str, payload: &str, state: Option<&Note>) {
        let Self { rig, driver, claim, .. } = self;
        let written = record(1, payload);
        let cdi = fs::read(rig.cdi_file(claim)).unwrap();
        assert_ne!(fs::read_to_string(rig.record(claim)).unwrap(), written, "{what}: nothing to test");
        fs::write(rig.record(claim), &written).unwrap();
        let handle = rig.start(driver).await;
        assert_eq!(rig.prepare_one(claim).await.as_ref(), Ok(&self.answer), "{what}");
        fs::remove_file(rig.cdi_file(claim)).unwrap();
        assert_eq!(rig.prepare_one(claim).await.as_ref(), Ok(&self.answer), "{what}");
        assert_eq!(fs::read(rig.cdi_file(claim)).unwrap(), cdi, "{what}");
        assert_eq!(fs::read_to_string(rig.record(claim)).unwrap(), written, "{what}: not written anew");
        assert_eq!(driver.log(), ["prepare one: gpu-0, gpu-1, gpu-2"], "{what}");

        // An unprepare that fails keeps all that the writer knew, for whichever version tries next.
        driver.fail_unprepare(Some("the GPU is wedged"));
        assert!(rig.unprepare_one(claim).await.unwrap_err().contains("wedged"), "{what}");
        let kept = fs::read_to_string(rig.record(claim).with_extension("unpreparing")).unwrap();
        assert_eq!(kept, written, "{what}");
        driver.fail_unprepare(None);
        rig.unprepare_one(claim).await.unwrap();
        assert_eq!(driver.last_held().state.as_ref(), state, "{what}");
        assert_eq!(driver.last_held().devices.len(), 3, "{what}");
        assert_eq!(rig.files(), [""; 0], "{what}");
        soon("shut down", handle.shutdown()).await.unwrap();
    }
}

/// Gives the claim a share, a device that it has alone and one to look on, with a configuration.
fn allocate(rig: &Rig, claim: &ClaimRef) {
    let mut first = share("gpu-0", 1);
    first["consumedCapacity"] = json!({"memory": "2Gi", "cores": "4"});
    let parameters = json!({"zoom": [1, {"b": null, "a": 1}], "color": "blue"});
    let devices = json!({
        "results": [first, device("gpu-1"), admin("gpu-2")],
        "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}],
    });
    let mut stored: ResourceClaim = rig.api.get((claim.namespace.as_str(), claim.name.as_str())).unwrap();
    stored.status = serde_json::from_value(json!({"allocation": {"devices": devices}})).unwrap();
    rig.api.put(&stored).unwrap();
}

/// A record of a prepared claim: header line, payload, SHA-256 over both.
fn record(format: u32, payload: &str) -> String {
    let mut text = format!("dra-claim-record {format} prepared {}\n{payload}", payload.len());
    let sum = Sha256::digest(text.as_bytes());
    text.push_str("\nsha256:");
    for byte in sum {
        write!(text, "{byte:02x}").unwrap();
    }
    text.push('\n');
    text
}

/// JSON with the keys of all objects in descending order.
fn descending(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_by(|a, b| b.cmp(a));
            let entries = keys.into_iter().map(|key| format!("{}:{}", json!(key), descending(&object[key])));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(descending).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn note() -> Note {
    Note("prepared one".into())
}

#[tokio::test]
async fn a_record_with_its_keys_in_another_order_replays() {
    let left = Left::new().await;
    left.replays("descending", &descending(&left.payload), Some(&note())).await;
}

#[tokio::test]
async fn a_record_laid_out_over_many_lines_replays() {
    let left = Left::new().await;
    let pretty = serde_json::to_string_pretty(&left.payload).unwrap();
    left.replays("pretty", &pretty, Some(&note())).await;
}

#[tokio::test]
async fn a_record_of_a_writer_that_kept_no_state_replays() {
    let left = Left::new().await;
    let mut payload = left.payload.clone();
    payload.as_object_mut().unwrap().remove("state").expect("the driver's state is recorded");
    left.replays("no state", &payload.to_string(), None).await;
}

#[tokio::test]
async fn a_record_that_spells_out_what_is_left_out_by_default_replays() {
    let left = Left::new().await;
    let mut payload = left.payload.clone();
    payload["adopted"] = json!(false);
    payload["allocation"]["results"][1]["adminAccess"] = json!(false);
    payload["allocation"]["results"][1]["consumedCapacity"] = json!({});
    payload["answer"][1]["shareId"] = json!(null);
    left.replays("defaults", &payload.to_string(), Some(&note())).await;
}

#[tokio::test]
async fn a_record_with_fields_of_a_later_version_replays_and_keeps_them() {
    let left = Left::new().await;
    let mut payload = left.payload.clone();
    for place in ["", "/claim", "/allocation", "/allocation/results/0", "/answer/0"] {
        let object = payload.pointer_mut(place).and_then(Value::as_object_mut).expect(place);
        object.insert("ofALaterVersion".into(), json!({"text": "ü", "list": [1, 2.5]}));
    }
    left.replays("later fields", &payload.to_string(), Some(&note())).await;
}

#[tokio::test]
async fn a_claim_that_is_allocated_anew_is_told_apart_whoever_wrote_its_record() {
    let left = Left::new().await;
    let Left { rig, driver, claim, .. } = &left;
    let mut payload = left.payload.clone();
    payload["ofALaterVersion"] = json!(true);
    fs::write(rig.record(claim), record(1, &descending(&payload))).unwrap();
    let _handle = rig.start(driver).await;
    rig.allocate_anew(claim, &[device("gpu-7")]);
    rig.prepare_one(claim).await.unwrap();
    let log = driver.log();
    assert_eq!(log[1..], ["unprepare one: gpu-0, gpu-1, gpu-2 (Reallocated)", "prepare one: gpu-7"]);
}

#[tokio::test]
async fn a_record_of_a_later_format_is_not_answered_for_but_can_be_unprepared() {
    let left = Left::new().await;
    let Left { rig, driver, claim, .. } = &left;
    let mut payload = left.payload.clone();
    payload["answer"] = json!({"now": "an object"});
    // What can be read of it holds its devices; what cannot holds them all.
    for (payload, devices) in [(left.payload.to_string(), 3), (payload.to_string(), 0)] {
        fs::write(rig.record(claim), record(2, &payload)).unwrap();
        let handle = rig.start(driver).await;
        let error = rig.prepare_one(claim).await.unwrap_err();
        assert!(error.contains("format 2") && error.contains("newer version of the driver"), "{error}");
        let other = rig.claim("other", &[device("gpu-1")]);
        rig.prepare_one(&other).await.unwrap_err();
        driver.fail_unprepare(Some("the GPU is wedged"));
        for _ in 0..2 {
            assert!(rig.unprepare_one(claim).await.unwrap_err().contains("wedged"));
        }
        driver.fail_unprepare(None);
        rig.unprepare_one(claim).await.unwrap();
        assert_eq!(driver.last_held().devices.len(), devices);
        rig.prepare_one(&other).await.unwrap();
        rig.unprepare_one(&other).await.unwrap();
        assert_eq!(rig.files(), [""; 0]);
        soon("shut down", handle.shutdown()).await.unwrap();
    }
    assert_eq!(driver.log().iter().filter(|call| call.starts_with("prepare one")).count(), 1);
}
