//! How the process ends when it is asked to.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::instance::{Instance, Node};

/// What a stop may take, and slack for a busy machine.
const BOUND: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(5);
/// Longer than any test.
const HANGS: Duration = Duration::from_secs(600);
const LOG: &str = "off,mock_gpu_driver::plugin=debug,dra_kubeletplugin::signals=debug";

/// A process that prepares a claim for longer than anybody waits, beside the call that waits for it.
async fn with_a_prepare_that_hangs(node: &Node, work: impl AsyncFnOnce(&Instance)) {
    let instance = start(node, HANGS).await;
    let claim = node.claim("one", "gpu-0");
    let call = instance.prepare(&claim);
    let rest = async {
        logged(node, "\"message\":\"prepare\"").await;
        work(&instance).await;
    };
    let (answer, ()) = tokio::join!(call, rest);
    assert_eq!(answer, None, "the process has ended");
}

/// Starts a process and waits until signals stop it.
async fn start(node: &Node, prepare_delay: Duration) -> Instance {
    let instance = node.start_with("pod", prepare_delay, LOG, &[]).await;
    logged(node, "SIGTERM and SIGINT stop the process").await;
    instance
}

/// Waits until the log has this text.
async fn logged(node: &Node, text: &str) {
    while !fs::read_to_string(node.log()).unwrap().contains(text) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn either_signal_stops_it_with_code_0_and_its_sockets_go() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let node = Node::new().await;
        let instance = start(&node, Duration::ZERO).await;
        assert_eq!(node.all_sockets().len(), 2);
        instance.signal(signal);
        let (code, took) = instance.wait_ended(BOUND + SLACK).await;
        assert_eq!((code, node.all_sockets().len()), (Some(0), 0), "after {signal} and {took:?}");
    }
}

#[tokio::test]
async fn a_prepare_that_hangs_keeps_it_for_its_bound_and_no_longer() {
    let node = Node::new().await;
    with_a_prepare_that_hangs(&node, async |instance| {
        instance.signal(Signal::SIGTERM);
        let (code, took) = instance.wait_ended(BOUND + SLACK).await;
        assert_eq!((code, node.all_sockets().len()), (Some(0), 0), "after {took:?}");
    })
    .await;
    // What it began is undone, and done again, by the next.
    let next = node.start("pod", Duration::ZERO).await;
    let claim = node.claim("one", "gpu-0");
    assert!(next.prepare(&claim).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for (first, second) in [(Signal::SIGTERM, Signal::SIGINT), (Signal::SIGINT, Signal::SIGTERM)] {
        let node = Node::new().await;
        with_a_prepare_that_hangs(&node, async |instance| {
            instance.signal(first);
            // It has understood.
            logged(&node, "a second signal ends the process at once").await;
            instance.signal(second);
            let (code, took) = instance.wait_ended(BOUND + SLACK).await;
            assert_eq!(code, Some(1), "after {took:?}");
            assert!(took < Duration::from_secs(3), "it took {took:?}");
        })
        .await;
    }
}

/// The Go helper logs everything if its verbosity is negative, which should turn the log off.
#[tokio::test]
async fn go_fault_6_a_log_that_is_off_has_no_line() {
    let node = Node::new().await;
    let instance = node.start_with("pod", Duration::ZERO, "off", &[]).await;
    let claim = node.claim("one", "gpu-0");
    instance.prepare(&claim).await.unwrap().unwrap();
    instance.unprepare(&claim).await.unwrap().unwrap();
    instance.kill();
    assert_eq!(fs::read_to_string(node.log()).unwrap(), "");
}
