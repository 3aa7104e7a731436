//! The books of a Go driver that served the node before.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::instance::{LOG, Node};

#[tokio::test]
async fn nothing_is_prepared_before_a_bad_checkpoint_of_a_go_driver_is_put_right() {
    let node = Node::new().await;
    let (old, new) = (node.claim("old", "gpu-0"), node.claim("new", "gpu-0"));
    let checkpoint = node.checkpoint();
    fs::write(&checkpoint, "{").unwrap();
    let instance =
        node.start_with("pod-1", Duration::ZERO, LOG, &["--adopt-from", checkpoint.to_str().unwrap()]).await;
    let put_right = async {
        // The driver has looked at it by then, or it will; it must come to the same.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let device = json!({"PoolName": "node-1", "DeviceName": "gpu-0"});
        fs::write(&checkpoint, json!({ (old.uid.as_str()): [device] }).to_string()).unwrap();
    };
    let (refused, ()) = futures::future::join(instance.prepare(&new), put_right).await;
    let error = refused.expect("it lives").unwrap_err();
    assert!(error.contains("gpu-0") && error.contains(&old.uid), "{error}");

    instance.unprepare(&old).await.expect("it lives").unwrap();
    assert_eq!(fs::read_to_string(&checkpoint).unwrap(), "{}");
    instance.prepare(&new).await.expect("it lives").unwrap();
}
