//! Drivers that block the only worker of their runtime: the kubelet gives `GetInfo` one second.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use dra_kubeletplugin::wire::registration::{InfoRequest, registration_client::RegistrationClient};
use dra_kubeletplugin::{Handle, Options};
use dra_testkit::api::ApiServer;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tonic::transport::Endpoint;

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, soon, usual};

/// The longest block; the tests end it as soon as they are done.
const LONG: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_millis(200);

/// Blocks the thread that waits for it, until the other half is dropped.
struct Block {
    entered: oneshot::Sender<()>,
    released: mpsc::Receiver<()>,
}

struct Blocked {
    entered: Option<oneshot::Receiver<()>>,
    /// Ends the block by being dropped.
    _release: mpsc::Sender<()>,
}

fn block() -> (Block, Blocked) {
    let ((entered, has_entered), (release, released)) = (oneshot::channel(), mpsc::channel());
    (Block { entered, released }, Blocked { entered: Some(has_entered), _release: release })
}

impl Block {
    fn wait(self) {
        self.entered.send(()).expect("the test waits");
        assert!(self.released.recv_timeout(LONG).is_err(), "nothing is ever sent");
    }
}

impl Blocked {
    /// Waits until the thread is blocked.
    async fn reached(&mut self) {
        soon("blocked", self.entered.take().expect("asked once")).await.expect("entered");
    }
}

/// A driver in a runtime of its own that has one worker.
async fn start_on_one_worker(rig: &Rig, driver: &TestDriver) -> (Runtime, Handle) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (driver, api, kubelet, cdi) = (driver.clone(), rig.api.clone(), rig.node.kubelet(), rig.node.cdi());
    let started = runtime.spawn(async move {
        let api: ApiServer = api;
        let options = Options::new(DRIVER.parse().unwrap(), NODE.parse().unwrap(), api.client());
        let options = options.kubelet_root(kubelet).cdi_root(cdi).kubelet_in_process(true);
        options.start(driver).await.unwrap()
    });
    let handle = soon("started", started).await.unwrap();
    eventually("registered", || handle.registration().borrow().is_registered()).await;
    (runtime, handle)
}

fn registration_socket(rig: &Rig) -> PathBuf {
    let mut entries = std::fs::read_dir(rig.node.plugins_registry()).unwrap();
    entries.next().expect("a socket").unwrap().path()
}

/// Asks five times over new connections, as the kubelet would; gives the shortest time.
async fn best_of_five(rig: &Rig, what: &str) -> Duration {
    let socket = registration_socket(rig);
    let mut best = LONG;
    for _ in 0..5 {
        let begin = Instant::now();
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let mut client = RegistrationClient::new(endpoint.connect().await.unwrap());
        let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
        best = best.min(begin.elapsed());
        assert_eq!(info.name, DRIVER);
    }
    println!("GetInfo while {what} blocks the only worker: {} ms", best.as_secs_f64() * 1000.0);
    best
}

#[tokio::test]
async fn get_info_answers_while_discovery_blocks_the_only_worker() {
    let rig = Rig::new();
    let (runtime, handle) = start_on_one_worker(&rig, &TestDriver::new()).await;
    let (block, mut blocked) = block();
    runtime.spawn(async move { block.wait() });
    blocked.reached().await;
    assert!(best_of_five(&rig, "discovery").await < LIMIT);
    drop(blocked);
    soon("shut down", handle.shutdown()).await.unwrap();
    runtime.shutdown_background();
}

#[tokio::test]
async fn get_info_answers_while_prepare_blocks_the_only_worker() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let (block, mut blocked) = block();
    let block = Arc::new(Mutex::new(Some(block)));
    driver.on_prepare(move |claim, _| {
        let block = block.lock().unwrap().take();
        Box::pin(async move {
            block.expect("called once").wait();
            Ok(usual(claim))
        })
    });
    let (runtime, handle) = start_on_one_worker(&rig, &driver).await;
    rig.kubelet.wait_registered(DRIVER, LONG).await.unwrap();
    let claim = rig.claim("one", &[device("gpu-0")]);
    let prepare = rig.prepare_one(&claim);
    let ask = async {
        blocked.reached().await;
        let best = best_of_five(&rig, "prepare").await;
        drop(blocked);
        best
    };
    let (prepared, best) = tokio::join!(prepare, ask);
    assert!(best < LIMIT);
    assert_eq!(prepared.unwrap().len(), 1, "it was only slow");
    soon("shut down", handle.shutdown()).await.unwrap();
    runtime.shutdown_background();
}
