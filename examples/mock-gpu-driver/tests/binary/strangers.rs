//! What others in the cluster can do to a driver: they reach its port of metrics.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::instance::{Instance, Node};

const LOG: &str = "off,dra_kubeletplugin::operations=info";

/// The soft limit of the usual container runtime.
const USUAL: u64 = 1024;
const MANY: usize = 1100;

/// Sets this process's soft limit, which its children get.
fn limit_files(soft: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard).unwrap();
}

async fn start(node: &Node) -> (Instance, String) {
    let instance = node.start_with("pod", Duration::ZERO, LOG, &["--metrics-address", "127.0.0.1:0"]).await;
    let served = async {
        loop {
            if let Some(address) = address(&fs::read_to_string(node.log()).unwrap()) {
                return address;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // Its sockets may be there before that line.
    let address = tokio::time::timeout(Duration::from_secs(60), served).await;
    (instance, address.expect("the log says where metrics are served"))
}

/// Where the log says that metrics are served.
fn address(log: &str) -> Option<String> {
    let mut addresses = log.lines().filter_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        Some(event["fields"]["address"].as_str()?.to_owned())
    });
    addresses.next_back()
}

#[tokio::test]
async fn idle_connections_keep_neither_claims_nor_probes_from_being_answered() {
    let node = Node::new().await;
    limit_files(USUAL);
    let (instance, address) = start(&node).await;
    limit_files(4 * USUAL);
    let mut idle = Vec::new();
    for _ in 0..MANY {
        idle.push(TcpStream::connect(&address).await.unwrap());
    }
    // Half a request each, on the last of them.
    for stream in idle.iter_mut().rev().take(32) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    }
    for number in 0..3 {
        let claim = node.claim(&format!("claim-{number}"), &format!("gpu-{number}"));
        instance.prepare(&claim).await.unwrap().unwrap();
        let mut probe = TcpStream::connect(&address).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        instance.unprepare(&claim).await.unwrap().unwrap();
    }
}
