//! Two instances of one driver on one node.

use dra_kubeletplugin::{Options, StartError};
use dra_testkit::api::ApiServer;

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, soon};

const OLD: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a01";
const NEW: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a02";

/// Starts an instance on the rig's node in a runtime whose clock jumps ahead whenever it waits.
async fn start_hastily(rig: &Rig, pod_uid: Option<&'static str>) -> Result<(), StartError> {
    let (kubelet, cdi) = (rig.node.kubelet(), rig.node.cdi());
    let started = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let client = ApiServer::new().client();
            let mut options = Options::new(DRIVER.parse().unwrap(), NODE.parse().unwrap(), client)
                .kubelet_root(kubelet)
                .cdi_root(cdi);
            if let Some(uid) = pod_uid {
                options = options.rolling_update(uid);
            }
            options.start(TestDriver::new()).await.map(drop)
        })
    });
    started.await.unwrap()
}

#[tokio::test]
async fn without_rolling_updates_a_second_instance_is_refused_and_names_the_first() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _first = rig.start(&driver).await;
    for pod_uid in [None, Some(NEW)] {
        let error = start_hastily(&rig, pod_uid).await.unwrap_err();
        assert!(matches!(error, StartError::SecondInstance { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
        assert!(text.contains("stop it first") && text.contains("rolling updates"), "{text}");
    }
    // The first is none the worse for it.
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
}

#[tokio::test]
async fn a_second_instance_starts_once_the_first_has_ended() {
    let rig = Rig::new();
    let first = rig.start(&TestDriver::new()).await;
    soon("shut down", first.shutdown()).await.unwrap();
    let _second = rig.start(&TestDriver::new()).await;
}

#[tokio::test]
async fn instances_of_two_pods_run_side_by_side_and_know_each_others_claims() {
    let rig = Rig::new();
    let (old, new) = (TestDriver::new(), TestDriver::new());
    let old_handle = rig.start_with(&old, rig.options().rolling_update(OLD)).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    let answer = rig.prepare_one(&one).await.unwrap();

    let new_handle = rig.start_with(&new, rig.options().rolling_update(NEW)).await;
    assert_eq!(rig.kubelet.registered().len(), 2);
    assert_eq!(rig.prepare_one(&one).await, Ok(answer), "the kubelet calls the newer one");
    let error = rig.prepare_one(&two).await.unwrap_err();
    assert!(error.contains("default/one"), "{error}");
    assert_eq!(new.log(), [""; 0]);

    soon("shut down", new_handle.shutdown()).await.unwrap();
    eventually("one plugin", || rig.kubelet.registered().len() == 1).await;
    rig.unprepare_one(&one).await.unwrap();
    rig.prepare_one(&two).await.unwrap();
    assert_eq!(old.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)", "prepare two: gpu-0"]);
    drop(old_handle);
}

#[tokio::test]
async fn what_one_instance_freed_is_free_for_the_other() {
    let rig = Rig::new();
    let (old, new) = (TestDriver::new(), TestDriver::new());
    let _old = rig.start_with(&old, rig.options().rolling_update(OLD)).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    rig.prepare_one(&one).await.unwrap();
    let new_handle = rig.start_with(&new, rig.options().rolling_update(NEW)).await;
    rig.unprepare_one(&one).await.unwrap();
    rig.prepare_one(&two).await.unwrap();
    assert_eq!(new.log(), ["unprepare one: gpu-0 (Unprepare)", "prepare two: gpu-0"]);

    // Back to the old one, which has not seen any of this.
    soon("shut down", new_handle.shutdown()).await.unwrap();
    eventually("one plugin", || rig.kubelet.registered().len() == 1).await;
    let error = rig.prepare_one(&one).await.unwrap_err();
    assert!(error.contains("default/two"), "{error}");
    rig.unprepare_one(&two).await.unwrap();
    rig.prepare_one(&one).await.unwrap();
}
