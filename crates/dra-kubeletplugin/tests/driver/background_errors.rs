//! Errors that belong to no call: the driver hears of each once, and may do what it likes then.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dra_kubeletplugin::{BackgroundError, Device, DriverResources, Handle, RunError};
use dra_testkit::api::{ApiStatus, FaultGuard, Matcher, Verb};
use tokio::runtime;

use crate::support::{DRIVER, NODE, Rig, SOON, TestDriver, device, eventually, soon};

fn gpus(names: &[&str]) -> DriverResources {
    let devices = names.iter().map(|name| Device::named(name).unwrap());
    DriverResources::single_pool(NODE.parse().unwrap(), devices)
}

/// Slices cannot be made; each try is an error of the background.
fn outage(rig: &Rig) -> FaultGuard {
    rig.api.fail_while(Matcher::any().verb(Verb::Create).resource("resourceslices"), ApiStatus::unavailable())
}

/// A handle that the driver's own code can get at.
type Shared = Arc<Mutex<Option<Handle>>>;

/// How many errors of this class there were, by the metrics.
fn counted(handle: &Handle, class: &str) -> u64 {
    let series = format!("dra_plugin_background_errors_total{{driver=\"{DRIVER}\",class=\"{class}\"}} ");
    let metrics = handle.metrics().unwrap();
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("no {series}in {metrics}")).parse().unwrap()
}

#[tokio::test]
async fn an_error_is_told_once_with_its_class_and_counted() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let classes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&classes);
    driver.on_background(move |error| noted.lock().unwrap().push(error.class()));
    let handle = rig.start(&driver).await;
    assert_eq!(counted(&handle, "publish"), 0);
    // The same device twice: one is left out, and that is told.
    let mut ticket = handle.publish(gpus(&["gpu-0", "gpu-0"]));
    driver.wait_for_background_error("publishing ResourceSlices").await;
    let _ = soon("settled", ticket.published()).await;
    assert_eq!(driver.background_errors().len(), 1, "{:?}", driver.background_errors());
    assert_eq!(*classes.lock().unwrap(), ["publish"]);
    assert_eq!((counted(&handle, "publish"), counted(&handle, "recovery")), (1, 0));
}

#[tokio::test]
async fn a_driver_may_publish_when_it_hears_of_an_error() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    let (wishes, outage) = (handle.wishes(), Mutex::new(Some(outage(&rig))));
    driver.on_background(move |_| {
        if outage.lock().unwrap().take().is_some() {
            drop(wishes.publish(gpus(&["gpu-0", "gpu-1"])));
        }
    });
    drop(handle.publish(gpus(&["gpu-0"])));
    eventually("the second wish", || {
        rig.slices().iter().any(|slice| slice.spec.devices.iter().flatten().count() == 2)
    })
    .await;
    soon("stopped", handle.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_driver_may_stop_and_wait_for_the_end_when_it_hears_of_an_error() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let shared = Shared::default();
    let (ended, end) = mpsc::channel::<Result<(), RunError>>();
    let of_driver = Arc::clone(&shared);
    driver.on_background(move |_| {
        let handle = of_driver.lock().unwrap().take();
        if let Some(handle) = handle {
            ended.send(runtime::Handle::current().block_on(handle.shutdown())).unwrap();
        }
    });
    *shared.lock().unwrap() = Some(rig.start(&driver).await);
    let _outage = outage(&rig);
    let ticket = shared.lock().unwrap().as_ref().map(|handle| handle.publish(gpus(&["gpu-0"])));
    let ended = tokio::task::spawn_blocking(move || end.recv_timeout(SOON)).await.unwrap();
    assert_eq!(ended.expect("it has stopped"), Ok(()));
    drop(ticket);
}

#[tokio::test]
async fn a_driver_that_does_not_return_from_an_error_holds_nothing_up() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    driver.on_background(move |_| {
        let _ = released.lock().unwrap().recv();
    });
    let handle = rig.start(&driver).await;
    let outage = outage(&rig);
    let mut ticket = handle.publish(gpus(&["gpu-0"]));
    driver.wait_for_background_error("publishing ResourceSlices").await;
    drop(outage);
    soon("published", ticket.published()).await.unwrap();
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(5), handle.shutdown()).await;
    stopped.expect("it waits for the driver").unwrap();
    drop(release);
}

#[tokio::test]
async fn a_driver_that_panics_over_an_error_hears_of_the_next() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_background(|error: &BackgroundError| panic!("cannot stand {error}"));
    let handle = rig.start(&driver).await;
    for (names, count) in [(["gpu-0", "gpu-0"], 1), (["gpu-1", "gpu-1"], 2)] {
        drop(handle.publish(gpus(&names)));
        eventually("another error", || driver.background_errors().len() == count).await;
    }
}
