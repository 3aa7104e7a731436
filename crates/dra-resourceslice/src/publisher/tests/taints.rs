//! Taints that are set beside the wish.

use super::*;
use crate::Taint;

const KEY: &str = "gpu.example.com/unhealthy";

fn gpu(name: &str) -> (PoolName, crate::DeviceName) {
    (pool_name(), name.parse().unwrap())
}

/// Names of the devices that have the taint in the API, with the time since when.
fn tainted(api: &FakeApi) -> Vec<(String, Option<String>)> {
    let slices = api.slices();
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let taint = |device: &k8s_openapi::api::resource::v1::Device| {
        let taint = device.taints.iter().flatten().find(|taint| taint.key == KEY)?;
        Some((device.name.clone(), taint.time_added.as_ref().map(|time| time.0.to_string())))
    };
    devices.filter_map(taint).collect()
}

#[tokio::test(start_paused = true)]
async fn a_taint_is_set_and_cleared_without_a_new_wish_and_keeps_its_time() {
    let setup = Setup::open();
    let mut ticket = setup.publisher.publish(devices(&["gpu-0", "gpu-1"]));
    ticket.published().await.unwrap();
    let taints = setup.publisher.taints();
    taints.set("health", [(gpu("gpu-1"), Taint::no_schedule(KEY))]);
    pass(SECOND).await;
    let since = tainted(&setup.api);
    assert_eq!(since.len(), 1);
    assert_eq!(since[0].0, "gpu-1");
    ticket.published().await.expect("the wish is the same");

    // Another wish, and another taint, leave it as it is.
    setup.publish(devices(&["gpu-0", "gpu-1", "gpu-2"])).await;
    taints.set("other", [(gpu("gpu-0"), Taint::no_execute("other"))]);
    pass(SECOND).await;
    assert_eq!(tainted(&setup.api), since);

    taints.set("health", []);
    pass(SECOND).await;
    assert_eq!(tainted(&setup.api), []);
    assert!(setup.reported().is_empty(), "{:?}", setup.reported());
}

#[tokio::test(start_paused = true)]
async fn taints_that_are_set_before_the_first_wish_come_with_it_and_write_nothing_when_set_again() {
    let setup = Setup::open();
    let taint = || [(gpu("gpu-0"), Taint::no_schedule(KEY))];
    setup.publisher.taints().set("health", taint());
    pass(SECOND).await;
    assert!(setup.api.writes().is_empty());
    setup.publish(devices(&["gpu-0"])).await;
    setup.publisher.taints().set("health", taint());
    pass(SECOND).await;
    assert_eq!((setup.api.writes(), tainted(&setup.api).len()), (vec!["create"], 1));
}
