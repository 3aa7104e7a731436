//! What the log tells of a call. Alone in its process: whether anybody listens is asked once for each place that logs,
//! so tests beside it that listen to nothing could have the answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

#[path = "driver/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of whole drivers, which use all of it")]
mod support;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::Value;

use support::{DRIVER, Rig, TestDriver, device, fail};

/// Lines of JSON, kept.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }

    /// The line with this message.
    fn with_message(&self, message: &str) -> Value {
        let bytes = self.bytes().clone();
        let text = String::from_utf8(bytes).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| line["fields"]["message"] == message).unwrap_or_else(|| panic!("{message}: {text}"))
    }
}

#[tokio::test]
async fn each_line_about_a_claim_carries_its_call_and_the_claim() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().json().with_writer(move || writer.clone()).init();
    let rig = Rig::new();
    let driver = TestDriver::new();
    let handle = rig.start(&driver).await;
    driver.on_prepare(|_, _| {
        tracing::info!("the driver at work");
        Box::pin(async { fail("no luck") })
    });
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap_err();
    rig.unprepare_one(&claim).await.unwrap();

    for message in ["the driver at work", "claim failed"] {
        let line = lines.with_message(message);
        let [call, of_claim] = &line["spans"].as_array().unwrap()[..] else { panic!("{line}") };
        assert_eq!((&call["name"], &call["driver"]), (&"call".into(), &DRIVER.into()));
        assert_eq!((&call["method"], &call["request"]), (&"NodePrepareResources".into(), &1.into()));
        assert_eq!((&of_claim["claim"], &of_claim["uid"]), (&"one".into(), &claim.uid.as_str().into()));
        assert_eq!(of_claim["namespace"], claim.namespace.as_str());
    }
    let line = lines.with_message("claim done");
    assert_eq!((&line["spans"][0]["request"], &line["spans"][1]["uid"]), (&2.into(), &claim.uid.into()));
    handle.shutdown().await.unwrap();
}
