//! What the Node's Events say of the registration.

use dra_kubeletplugin::k8s_openapi::api::events::v1::Event;
use dra_kubeletplugin::{Handle, Registration};
use dra_testkit::api::{ApiStatus, Matcher, Verb};
use dra_testkit::kubelet::Kubelet;

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, soon};

/// A node whose kubelet speaks no version that the driver knows.
fn refusing() -> Rig {
    Rig::with_kubelet(|kubelet, _| kubelet.services([]))
}

async fn refused(handle: &Handle) {
    let mut registration = handle.registration();
    soon("refused", registration.wait_for(|state| matches!(state, Registration::Refused { .. })))
        .await
        .unwrap();
}

fn events(rig: &Rig) -> Vec<Event> {
    rig.api.list()
}

/// How often a driver has tried to write one.
fn tries(rig: &Rig) -> usize {
    rig.api.count(&Matcher::any().verbs([Verb::Create, Verb::Patch]).resource("events"))
}

#[tokio::test]
async fn a_refusal_and_its_end_stand_at_the_node() {
    let rig = refusing();
    let handle = rig.options().node_events(true).start(TestDriver::new()).await.unwrap();
    eventually("an event", || events(&rig).len() == 1).await;
    let event = events(&rig).remove(0);
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Node"), Some(NODE)));
    assert_eq!(
        (event.type_.as_deref(), event.reason.as_deref()),
        (Some("Warning"), Some("DRADriverRefused"))
    );
    assert_eq!(event.reporting_controller.as_deref(), Some(DRIVER));
    let note = event.note.unwrap();
    assert!(note.contains("RegisterPlugin error") && note.contains(DRIVER), "{note}");

    rig.kubelet.stop().await;
    let _newer = Kubelet::new(rig.node.kubelet());
    let mut registration = handle.registration();
    soon("registered", registration.wait_for(Registration::is_registered)).await.unwrap();
    eventually("another event", || events(&rig).len() == 2).await;
    let reasons = events(&rig).into_iter().map(|event| event.reason.unwrap_or_default());
    assert!(reasons.collect::<Vec<_>>().contains(&"DRADriverRegistered".to_owned()));
}

#[tokio::test]
async fn without_the_option_and_without_trouble_there_are_none() {
    let rig = refusing();
    let handle = rig.options().start(TestDriver::new()).await.unwrap();
    refused(&handle).await;
    assert_eq!(tries(&rig), 0);

    let rig = Rig::new();
    let _handle = rig.start_with(&TestDriver::new(), rig.options().node_events(true)).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(tries(&rig), 0);
}

#[tokio::test]
async fn events_that_cannot_be_written_are_told_and_nothing_waits_for_them() {
    let rig = refusing();
    let _forbidden = rig.api.fail_while(Matcher::any().resource("events"), ApiStatus::forbidden());
    let driver = TestDriver::new();
    let handle = rig.options().node_events(true).start(driver.clone()).await.unwrap();
    driver.wait_for_background_error("create and patch on events of events.k8s.io").await;
    rig.kubelet.stop().await;
    let _newer = Kubelet::new(rig.node.kubelet());
    let mut registration = handle.registration();
    soon("registered", registration.wait_for(Registration::is_registered)).await.unwrap();
    soon("stopped", handle.shutdown()).await.unwrap();
}
