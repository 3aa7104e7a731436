//! How a driver stops, whatever its clients do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dra_kubeletplugin::{DeviceHealth, DeviceRef, Handle};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, soon, usual};

/// The default bound.
const BOUND: Duration = Duration::from_secs(5);
/// For a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(3);

/// A client that opens a connection, sends the beginning of something, and leaves it at that.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Client {
    async fn connect(socket: &Path, beginning: &[u8]) -> Self {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        Self::Unix(stream)
    }

    /// Reads until the other side has closed the connection, however it does that.
    async fn wait_closed(self) {
        let mut rest = Vec::new();
        let read = async {
            match self {
                Self::Unix(mut stream) => stream.read_to_end(&mut rest).await,
                Self::Tcp(mut stream) => stream.read_to_end(&mut rest).await,
            }
        };
        let _ = soon("the connection is closed", read).await;
    }
}

/// Nothing, half of what an HTTP/2 connection begins with, and all of it without anything further.
const BEGINNINGS: [&[u8]; 3] = [b"", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];

/// Such clients on both sockets.
async fn mute_clients(rig: &Rig) -> Vec<Client> {
    let mut clients = Vec::new();
    for socket in sockets(rig) {
        for beginning in BEGINNINGS {
            clients.push(Client::connect(&socket, beginning).await);
        }
    }
    assert_eq!(clients.len(), 6, "two sockets");
    clients
}

/// Those that the driver has on the node.
fn sockets(rig: &Rig) -> Vec<PathBuf> {
    let folders = [rig.node.plugins_registry(), rig.node.plugins().join(DRIVER)];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = files.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
}

/// Metrics that somebody has begun to ask for.
async fn half_a_request(handle: &Handle) -> Client {
    let [address] = handle.operations_addresses() else { panic!("one address") };
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    Client::Tcp(stream)
}

/// Prepares do not end before they have a permit each, cancelled or not.
fn ignore_cancellation(driver: &TestDriver) -> Arc<Semaphore> {
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

async fn shut_down(rig: &Rig, handle: Handle, within: Duration) {
    let stopped = timeout(within + SLACK, handle.shutdown()).await;
    stopped.unwrap_or_else(|_| panic!("it does not stop within {within:?}")).unwrap();
    assert_eq!(sockets(rig), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn connections_on_which_nothing_is_called_do_not_hold_up_a_stop_and_are_closed() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let clients = mute_clients(&rig).await;
    // Were they waited for, it would take the whole bound.
    shut_down(&rig, handle, Duration::from_millis(1500)).await;
    for client in clients {
        client.wait_closed().await;
    }
}

#[tokio::test]
async fn metrics_that_somebody_has_half_asked_for_do_not_hold_up_a_stop() {
    let rig = Rig::new();
    let options = rig.options().operations(([127, 0, 0, 1], 0).into());
    let handle = rig.start_with(&TestDriver::new(), options).await;
    let client = half_a_request(&handle).await;
    shut_down(&rig, handle, Duration::from_millis(1500)).await;
    client.wait_closed().await;
}

#[tokio::test]
async fn a_prepare_that_does_not_end_is_left_behind_after_the_time_that_was_set() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = ignore_cancellation(&driver);
    let handle = rig.start_with(&driver, rig.options().stop_within(Duration::from_secs(1))).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let stop = async {
        driver.wait_for("prepare one: gpu-0").await;
        let start = Instant::now();
        shut_down(&rig, handle, Duration::from_secs(1)).await;
        start.elapsed()
    };
    let call = rig.kubelet.prepare_unchecked(DRIVER, std::slice::from_ref(&claim));
    let (answer, took) = tokio::join!(call, stop);
    answer.expect_err("the connection is cut");
    assert!(took >= Duration::from_millis(500), "the call got only {took:?}");
    gate.add_permits(1);
}

#[tokio::test]
async fn with_everything_that_can_hold_it_up_at_once_a_stop_keeps_its_bound_and_the_claim_is_prepared_later()
{
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = ignore_cancellation(&driver);
    let options = rig.options().health(true).operations(([127, 0, 0, 1], 0).into());
    let handle = rig.start_with(&driver, options).await;
    let gpu = DeviceRef::new(NODE.parse().unwrap(), "gpu-0".parse().unwrap());
    handle.health().report(gpu, DeviceHealth::healthy());
    eventually("an open health stream", || rig.kubelet.health(DRIVER).len() == 1).await;
    let mut clients = mute_clients(&rig).await;
    clients.push(half_a_request(&handle).await);
    let claim = rig.claim("one", &[device("gpu-0")]);
    let stop = async {
        driver.wait_for("prepare one: gpu-0").await;
        shut_down(&rig, handle, BOUND).await;
    };
    let call = rig.kubelet.prepare_unchecked(DRIVER, std::slice::from_ref(&claim));
    let (answer, ()) = tokio::join!(call, stop);
    answer.expect_err("the connection is cut");
    for client in clients {
        client.wait_closed().await;
    }

    // The work has the driver's lock for as long as it goes on, and its record is there.
    gate.add_permits(2);
    let _handle = rig.start(&driver).await;
    assert_eq!(rig.prepare_one(&claim).await.unwrap().len(), 1);
    assert_eq!(rig.files(), rig.files_of(&[&claim]));
}
