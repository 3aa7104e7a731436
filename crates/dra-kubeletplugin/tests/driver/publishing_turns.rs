//! Several instances of a driver, of which one publishes.

use std::{fs, time::Duration};

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceSlice;
use dra_kubeletplugin::resourceslice::{Pool, PoolState, Slice};
use dra_kubeletplugin::{Device, DriverResources, Handle, Registration, SliceStatus, StartError};
use dra_testkit::api::{Matcher, Verb};
use http::Method;

use crate::support::{DRIVER, NODE, Rig, TestDriver, Writers, eventually, soon};

/// Longer than the holder needs to notice somebody who waits.
const A_WHILE: Duration = Duration::from_millis(2_500);

/// A node, and who writes to its API server.
struct Node {
    rig: Rig,
    writers: Writers,
}

impl Node {
    fn new() -> Self {
        Self { rig: Rig::new(), writers: Writers::default() }
    }

    /// Starts an instance in a pod of this UID, registered.
    async fn start(&self, pod_uid: &'static str) -> Handle {
        let client = self.writers.client(&self.rig.api.client(), pod_uid);
        self.rig.start_with(&TestDriver::new(), self.rig.options_with(client).rolling_update(pod_uid)).await
    }

    /// The same, and it publishes so many devices.
    async fn publishing(&self, pod_uid: &'static str, devices: usize) -> Handle {
        let handle = self.start(pod_uid).await;
        publish(&handle, devices).await;
        handle
    }

    /// The number of devices in the only slice.
    fn devices(&self) -> usize {
        let slices = self.rig.slices();
        let [slice] = &slices[..] else { panic!("{} slices", slices.len()) };
        slice.spec.devices.iter().flatten().count()
    }

    async fn wait_devices(&self, count: usize) {
        eventually(&format!("{count} devices"), || self.devices() == count).await;
    }

    fn generation(&self) -> i64 {
        self.rig.slices()[0].spec.pool.generation
    }
}

fn gpus(count: usize) -> DriverResources {
    let devices = (0..count).map(|i| Device::named(&format!("gpu-{i}")).unwrap());
    DriverResources::single_pool(NODE.parse().unwrap(), devices)
}

async fn publish(handle: &Handle, devices: usize) {
    soon("published", handle.publish(gpus(devices)).published()).await.unwrap();
}

/// Waits until this instance leaves publishing to another one.
async fn stands_by(handle: &Handle) {
    let mut status = handle.slices();
    soon("stands by", status.wait_for(|status| status.standby_since.is_some())).await.unwrap();
}

#[tokio::test]
async fn a_newer_instance_takes_over_with_its_own_devices_and_keeps_the_turn() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    let generation = node.generation();
    assert_eq!(node.writers.take(), [("old", Method::POST)]);

    let new = node.publishing("new", 3).await;
    assert_eq!(node.devices(), 3);
    assert_eq!(node.writers.take(), [("new", Method::PUT)]);
    assert!(node.generation() <= generation + 1);
    stands_by(&old).await;
    let mut status = old.slices();
    let pending = soon("seen", status.wait_for(|s| s.pools.values().all(|p| p.state == PoolState::Pending)));
    assert!(pending.await.unwrap().pools.values().all(|pool| pool.last_error.is_none()));
    assert!(new.slices().borrow().standby_since.is_none());

    soon("shut down", old.shutdown()).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!((node.devices(), node.writers.take()), (3, vec![]));
}

#[tokio::test]
async fn the_older_instance_goes_on_where_the_newer_one_was_shut_down() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    let new = node.publishing("new", 3).await;
    let generation = node.generation();
    node.writers.take();
    soon("shut down", new.shutdown()).await.unwrap();
    node.wait_devices(2).await;
    assert_eq!(node.writers.take(), [("old", Method::PUT)]);
    assert!(node.generation() <= generation + 1);
    assert!(old.slices().borrow().standby_since.is_none());
}

#[tokio::test]
async fn an_instance_that_dies_is_followed_by_the_other_one() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    let new = node.publishing("new", 3).await;
    node.writers.take();
    drop(new);
    node.wait_devices(2).await;
    assert_eq!(node.writers.take(), [("old", Method::PUT)]);

    let newest = node.start("newest").await;
    drop(old);
    publish(&newest, 4).await;
    assert_eq!(node.devices(), 4);
    assert_eq!(node.writers.take(), [("newest", Method::PUT)]);
}

#[tokio::test]
async fn equal_wishes_are_handed_over_without_a_write() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    node.writers.take();
    let new = node.publishing("new", 2).await;
    stands_by(&old).await;
    let newest = node.publishing("newest", 2).await;
    stands_by(&new).await;
    soon("shut down", newest.shutdown()).await.unwrap();
    let mut status = new.slices();
    soon("the turn", status.wait_for(|status| status.standby_since.is_none())).await.unwrap();
    soon("settled", status.wait_for(SliceStatus::is_settled)).await.unwrap();
    assert_eq!((node.writers.take(), node.devices()), (vec![], 2));
}

#[tokio::test]
async fn an_instance_without_a_wish_leaves_the_turn_where_it_is() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    let new = node.start("new").await;
    tokio::time::sleep(A_WHILE).await;
    assert!(old.slices().borrow().standby_since.is_none());
    assert!(new.slices().borrow().standby_since.is_some());
    publish(&old, 4).await;
    assert_eq!((node.devices(), node.writers.count("new")), (4, 0));
}

#[tokio::test]
async fn an_instance_that_is_not_registered_leaves_the_turn_where_it_is() {
    let node = Node::new();
    let old = node.publishing("old", 2).await;
    node.rig.kubelet.stop().await;
    let client = node.writers.client(&node.rig.api.client(), "new");
    let options = node.rig.options_with(client).rolling_update("new");
    let new = options.start(TestDriver::new()).await.unwrap();
    let mut ticket = new.publish(gpus(3));
    tokio::time::sleep(A_WHILE).await;
    assert!(old.slices().borrow().standby_since.is_none());
    assert_eq!((node.devices(), node.writers.count("new")), (2, 0));
    // A change of slices that are there needs no kubelet.
    publish(&old, 4).await;

    node.rig.kubelet.restart().await;
    soon("registered", new.registration().wait_for(Registration::is_registered)).await.unwrap();
    soon("published", ticket.published()).await.unwrap();
    assert_eq!(node.devices(), 3);
    node.writers.take();
}

#[tokio::test]
async fn of_three_instances_the_newest_publishes_and_then_the_next() {
    let node = Node::new();
    let one = node.publishing("one", 1).await;
    let (two, three) = (node.start("two").await, node.start("three").await);
    // Both want it at once.
    let (mut second, mut third) = (two.publish(gpus(2)), three.publish(gpus(3)));
    soon("published", third.published()).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(node.devices(), 3, "nobody takes the turn from the newest");
    let so_far = node.writers.take().len();
    assert!((2..=3).contains(&so_far), "{so_far} writes");

    drop(three);
    soon("published", second.published()).await.unwrap();
    node.wait_devices(2).await;
    assert_eq!(node.writers.take(), [("two", Method::PUT)], "the first had to leave it to the second");
    soon("shut down", two.shutdown()).await.unwrap();
    node.wait_devices(1).await;
    assert_eq!(node.writers.take(), [("one", Method::PUT)]);
    drop(one);
}

#[tokio::test]
async fn a_hand_over_between_two_of_many_writes_leaves_nothing_half_done() {
    let node = Node::new();
    let slices = |count: usize, value: i64| {
        let device = |i| Device::named(&format!("gpu-{i}")).unwrap().try_attribute("a", value).unwrap();
        let slices = (0..count).map(|i| Slice::new([device(i)]));
        DriverResources::new().pool(NODE.parse().unwrap(), Pool::from_slices(slices))
    };
    let old = node.start("old").await;
    soon("published", old.publish(slices(10, 0)).published()).await.unwrap();
    let new = node.start("new").await;
    node.writers.take();
    let writes = Matcher::any().verbs([Verb::Create, Verb::Update, Verb::Delete]).resource("resourceslices");
    let writes = writes.dry_run(false);
    let _slow = node.rig.api.delay(writes, Duration::from_millis(400));
    let _superseded = old.publish(slices(10, 1));
    eventually("the first write", || node.writers.count("old") > 0).await;
    soon("published", new.publish(slices(9, 2)).published()).await.unwrap();
    let written = node.writers.take();
    let change = written.iter().position(|(writer, _)| *writer == "new").unwrap();
    assert!(change < 10, "the old one gave way in the middle of its plan: {written:?}");
    assert!(written[change..].iter().all(|(writer, _)| *writer == "new"), "{written:?}");
    let found = node.rig.slices();
    let generations: Vec<_> = found.iter().map(|slice| slice.spec.pool.generation).collect();
    assert!(generations.len() == 9 && generations.iter().all(|g| *g == generations[0]), "{generations:?}");
}

#[tokio::test]
async fn slices_that_a_kubelet_wipes_are_put_back_by_one_of_two_instances() {
    let rig = Rig::with_kubelet(|kubelet, api| kubelet.wipe_slices(api, NODE));
    let node = Node { rig, writers: Writers::default() };
    let _old = node.publishing("old", 2).await;
    let new = node.publishing("new", 3).await;
    node.writers.take();
    for restart in 1..=3 {
        node.rig.kubelet.stop().await;
        node.rig.api.delete_where::<ResourceSlice>("").unwrap();
        node.rig.kubelet.restart().await;
        eventually("a slice", || !node.rig.slices().is_empty()).await;
        assert_eq!((node.devices(), node.writers.count("old")), (3, 0), "restart {restart}");
    }
    assert!(new.slices().borrow().standby_since.is_none());
    node.writers.take();
}

#[tokio::test]
async fn an_instance_without_rolling_updates_has_the_lock_too() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    publish(&handle, 2).await;
    let note = fs::read_to_string(rig.node.plugins().join(DRIVER).join("publish.lock")).unwrap();
    assert_eq!(note, format!("pid {}, rolling updates off\n", std::process::id()));
    assert!(handle.slices().borrow().standby_since.is_none());
}

#[tokio::test]
async fn a_lock_file_that_cannot_be_opened_fails_the_start_and_is_named() {
    let rig = Rig::new();
    let path = rig.node.plugins().join(DRIVER).join("publish.next");
    fs::create_dir_all(&path).unwrap();
    let error = rig.options().start(TestDriver::new()).await.unwrap_err();
    assert!(matches!(error, StartError::Lock(_)), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}
