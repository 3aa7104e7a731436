//! What those who run a driver see of it: metrics, liveness, readiness.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dra_kubeletplugin::prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use dra_kubeletplugin::{
    Device, DeviceHealth, DeviceRef, DriverResources, Handle, Options, Readiness, Registration, StartError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, soon};

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn two_gpus() -> DriverResources {
    let devices = ["gpu-0", "gpu-1"].map(|name| Device::named(name).unwrap());
    DriverResources::single_pool(NODE.parse().unwrap(), devices)
}

/// The value of a metric of the plugin with these labels behind the driver's.
fn value(metrics: &str, name: &str, labels: &str) -> String {
    let labels = if labels.is_empty() { String::new() } else { format!(",{labels}") };
    let series = format!("dra_plugin_{name}{{driver=\"{DRIVER}\"{labels}}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&series));
    found.unwrap_or_else(|| panic!("no {series}in\n{metrics}")).to_owned()
}

/// Status and content of a page.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(path, stream.read_to_string(&mut answer)).await.unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let content = answer.split_once("\r\n\r\n").map(|(_, content)| content.to_owned());
    (status.expect("a status"), content.expect("a content"))
}

/// Waits until the plugin is not live, as what a probe was answered counts for a second; gives the reason.
async fn not_live(address: SocketAddr) -> String {
    loop {
        let (status, reason) = get(address, "/healthz").await;
        if status == 503 {
            return reason;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn probe(address: SocketAddr, service: &str) -> Result<ServingStatus, tonic::Code> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel).check(request).await;
    answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
}

async fn wait_ready(handle: &Handle) {
    soon("ready", handle.readiness().wait_for(Readiness::is_ready)).await.unwrap();
}

async fn wait_not_ready(handle: &Handle, text: &str) {
    let because =
        |now: &Readiness| matches!(now, Readiness::NotReady { reason, .. } if reason.contains(text));
    soon(text, handle.readiness().wait_for(because)).await.unwrap();
}

fn remove_registration_socket(rig: &Rig) {
    for entry in std::fs::read_dir(rig.node.plugins_registry()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[tokio::test]
async fn metrics_tell_of_calls_claims_slices_registration_and_health() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let mut ticket = handle.publish(two_gpus());
    soon("published", ticket.published()).await.unwrap();
    wait_ready(&handle).await;
    let gpu = |name: &str| DeviceRef::new(NODE.parse().unwrap(), name.parse().unwrap());
    handle.health().report(gpu("gpu-0"), DeviceHealth::unhealthy("hot"));
    let [one, same, two] = [("one", "gpu-0"), ("same", "gpu-0"), ("two", "gpu-1")]
        .map(|(name, gpu)| rig.claim(name, &[device(gpu)]));
    rig.prepare(&[&one, &two]).await;
    rig.prepare_one(&same).await.expect_err("it is taken");
    rig.unprepare_one(&two).await.unwrap();

    let metrics = handle.metrics().unwrap();
    let (prepare, unprepare) = ("method=\"NodePrepareResources\"", "method=\"NodeUnprepareResources\"");
    let outcome = |method: &str, outcome: &str| format!("{method},outcome=\"{outcome}\"");
    for (name, labels, expected) in [
        ("call_duration_seconds_count", prepare, "2"),
        ("call_duration_seconds_count", unprepare, "1"),
        ("claim_duration_seconds_count", prepare, "3"),
        ("claim_outcomes_total", &outcome(prepare, "ok"), "2"),
        ("claim_outcomes_total", &outcome(prepare, "held"), "1"),
        ("claim_outcomes_total", &outcome(unprepare, "ok"), "1"),
        ("claims", "state=\"started\"", "0"),
        ("claims", "state=\"prepared\"", "1"),
        ("claims", "state=\"unpreparing\"", "0"),
        ("claims", "state=\"damaged\"", "0"),
        ("registration", "state=\"registered\"", "1"),
        ("registration", "state=\"lost\"", "0"),
        ("ready", "", "1"),
        ("publishing", "", "1"),
        ("pools", "state=\"published\"", "1"),
        ("slices", &format!("pool=\"{NODE}\""), "1"),
        ("slice_problems", &format!("pool=\"{NODE}\""), "0"),
        ("slice_writes_total", "result=\"created\"", "1"),
        ("slice_writes_total", "result=\"failed\"", "0"),
        ("device_health", "health=\"unhealthy\"", "1"),
        ("device_health", "health=\"healthy\"", "0"),
    ] {
        assert_eq!(value(&metrics, name, labels), expected, "{name} {labels}\n{metrics}");
    }
    let seconds = value(&metrics, "claim_duration_seconds_sum", prepare);
    assert!(seconds.parse::<f64>().unwrap() > 0.0, "{seconds}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}

#[tokio::test]
async fn claims_are_counted_anew_after_a_restart_with_those_that_are_stuck() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let handle = rig.start(&driver).await;
    let [one, two] = [("one", "gpu-0"), ("two", "gpu-1")].map(|(name, gpu)| rig.claim(name, &[device(gpu)]));
    rig.prepare(&[&one, &two]).await;
    driver.fail_unprepare(Some("stuck"));
    rig.unprepare_one(&two).await.unwrap_err();
    let states = |handle: &Handle| {
        let metrics = handle.metrics().unwrap();
        let of = |state| value(&metrics, "claims", &format!("state=\"{state}\""));
        ["started", "prepared", "unpreparing", "damaged"].map(of)
    };
    assert_eq!(states(&handle), ["0", "1", "1", "0"]);
    handle.shutdown().await.unwrap();
    std::fs::write(rig.record(&one), "nonsense").unwrap();
    let handle = rig.start(&driver).await;
    assert_eq!(states(&handle), ["0", "0", "1", "1"]);
}

#[tokio::test]
async fn registries_go_together_either_way_round() {
    let rig = Rig::new();
    let temperature = Gauge::<i64>::default();
    temperature.set(36);
    let mut own = Registry::default();
    own.register("gpu_temperature_celsius", "How hot it is", temperature);
    let handle = rig.start_with(&TestDriver::new(), rig.options().metrics(Arc::new(own))).await;
    let metrics = handle.metrics().unwrap();
    assert!(metrics.contains("\ngpu_temperature_celsius 36\n"), "{metrics}");
    assert_eq!((value(&metrics, "ready", ""), metrics.matches("# EOF").count()), ("0".to_owned(), 1));

    let mut theirs = Registry::default();
    handle.register_metrics(&mut theirs);
    // The registry outlives the plugin, and keeps nothing of it: another one can start.
    handle.shutdown().await.unwrap();
    let _next = rig.start(&TestDriver::new()).await;
    let mut text = String::new();
    dra_kubeletplugin::prometheus_client::encoding::text::encode(&mut text, &theirs).unwrap();
    assert_eq!(value(&text, "claims", "state=\"prepared\""), "0");
    assert_eq!(value(&text, "ready", ""), "0");
}

#[tokio::test]
async fn a_plugin_without_its_registration_socket_is_not_live() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    handle.check_live().await.unwrap();
    remove_registration_socket(&rig);
    let error = handle.check_live().await.unwrap_err();
    assert_eq!(error.service, "GetInfo");
    assert!(error.to_string().contains("-reg.sock") && error.to_string().contains("No such file"), "{error}");
}

#[tokio::test]
async fn liveness_checks_are_neither_counted_nor_taken_for_the_kubelet() {
    let rig = Rig::new();
    rig.kubelet.stop().await;
    let handle = rig.options().kubelet_in_process(false).start(TestDriver::new()).await.unwrap();
    handle.check_live().await.unwrap();
    // Long enough for an event to get through, if there wrongly was one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(*handle.registration().borrow(), Registration::Waiting { asked: false });
    let metrics = handle.metrics().unwrap();
    let calls = value(&metrics, "call_duration_seconds_count", "method=\"NodePrepareResources\"");
    assert_eq!(calls, "0");
}

#[tokio::test]
async fn a_plugin_whose_runtime_is_blocked_says_that_it_is_not_live() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options = rig.options().operations(anywhere());
    let handle = soon("started", runtime.spawn(options.start(TestDriver::new()))).await.unwrap().unwrap();
    let [address] = *handle.operations_addresses() else { panic!("one address") };
    assert_eq!(get(address, "/healthz").await, (200, "live\n".to_owned()));
    let (release, released) = mpsc::channel::<()>();
    let (entered, has_entered) = tokio::sync::oneshot::channel();
    runtime.spawn(async move {
        entered.send(()).unwrap();
        // Ends when the other half is dropped.
        let _ = released.recv();
    });
    soon("blocked", has_entered).await.unwrap();
    let reason = soon("not live", not_live(address)).await;
    assert!(
        reason.contains("NodePrepareResources on ") && reason.contains("no answer within 3 s"),
        "{reason}"
    );
    assert_eq!(probe(address, "").await, Ok(ServingStatus::NotServing));
    assert_eq!(get(address, "/metrics").await.0, 200);
    drop(release);
    soon("shut down", handle.shutdown()).await.unwrap();
    runtime.shutdown_background();
}

#[tokio::test]
async fn metrics_and_probes_are_served_by_http_and_grpc() {
    let rig = Rig::new();
    let handle = rig.start_with(&TestDriver::new(), rig.options().operations(anywhere())).await;
    let [address] = *handle.operations_addresses() else { panic!("one address") };
    let (status, reason) = get(address, "/readyz").await;
    assert_eq!((status, reason.as_str()), (503, "the driver has not published yet\n"));
    assert_eq!(probe(address, "readiness").await, Ok(ServingStatus::NotServing));
    handle.publish(two_gpus());
    wait_ready(&handle).await;
    assert_eq!(get(address, "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(get(address, "/healthz").await, (200, "live\n".to_owned()));
    let (status, metrics) = get(address, "/metrics").await;
    assert_eq!((status, value(&metrics, "ready", "")), (200, "1".to_owned()));
    assert_eq!(get(address, "/").await.0, 404);
    for service in ["", "liveness", "readiness"] {
        assert_eq!(probe(address, service).await, Ok(ServingStatus::Serving), "{service}");
    }
    assert_eq!(probe(address, "other").await, Err(tonic::Code::NotFound));

    remove_registration_socket(&rig);
    soon("not live", not_live(address)).await;
    assert_eq!(probe(address, "liveness").await, Ok(ServingStatus::NotServing));
    // A connection that is left open does not hold up the stop.
    let _open = TcpStream::connect(address).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    TcpStream::connect(address).await.expect_err("it is closed");
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_at_start_that_leaves_nothing() {
    let rig = Rig::new();
    let taken = TcpListener::bind(anywhere()).unwrap();
    let address = taken.local_addr().unwrap();
    let options = || -> Options { rig.options().operations(address) };
    let error = options().start(TestDriver::new()).await.unwrap_err();
    assert!(matches!(error, StartError::Operations { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(taken);
    let _next = rig.start_with(&TestDriver::new(), options()).await;
}

#[tokio::test]
async fn ready_is_lost_with_the_registration_only_and_comes_back_with_it() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    wait_not_ready(&handle, "has not published").await;
    let mut ticket = handle.publish(two_gpus());
    soon("published", ticket.published()).await.unwrap();
    wait_ready(&handle).await;
    rig.kubelet.stop().await;
    wait_not_ready(&handle, "it had registered the plugin and is gone").await;
    rig.kubelet.restart().await;
    wait_ready(&handle).await;
    let mut readiness = handle.readiness();
    handle.shutdown().await.unwrap();
    soon("not ready", readiness.wait_for(|now| !now.is_ready())).await.unwrap();
}

#[tokio::test]
async fn an_instance_is_ready_if_another_one_has_published_its_wish() {
    let rig = Rig::new();
    let old = rig.start_with(&TestDriver::new(), rig.options().rolling_update("old")).await;
    old.publish(two_gpus());
    wait_ready(&old).await;
    let new = rig.start_with(&TestDriver::new(), rig.options().rolling_update("new")).await;
    new.publish(two_gpus());
    wait_ready(&new).await;
    eventually("the new one publishes", || value(&new.metrics().unwrap(), "publishing", "") == "1").await;
    assert_eq!(value(&old.metrics().unwrap(), "publishing", ""), "0");
    assert_eq!(value(&new.metrics().unwrap(), "slice_writes_total", "result=\"created\""), "0");
    assert!(old.readiness().borrow().is_ready(), "it waits, and the devices are there");
}
