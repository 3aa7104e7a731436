//! `state release`, as a person runs it.

use std::time::Duration;

use crate::instance::Node;

#[tokio::test]
async fn a_release_prints_what_became_of_each_claim_and_fails_if_one_is_unknown() {
    let node = Node::new().await;
    let claim = node.claim("one", "gpu-3");
    let instance = node.start("pod-1", Duration::ZERO).await;
    instance.prepare(&claim).await.expect("it lives").unwrap();

    let refused = node.release(&["--all"]);
    assert!(refused.error().contains("runs on this node") && refused.error().contains("pod-1"));
    instance.kill();
    let unknown = node.release(&["--claim", "nobody"]);
    assert!(unknown.error().contains("1 of the claims are not held"), "{}", unknown.err);
    assert!(unknown.out.contains("nobody  -      -        not held"), "{}", unknown.out);

    let released = node.release(&["--all"]);
    assert!(released.succeeded, "{}", released.err);
    let line = format!("{}  default/one  node-1/gpu-3  unprepared\n", claim.uid);
    assert!(released.out.contains(&line), "{}", released.out);
    assert!(released.out.contains("1 claims of") && released.out.contains("let go of"), "{}", released.out);
    assert_eq!(node.books(), [""; 0].map(std::path::PathBuf::from));
    assert!(node.release(&["--all"]).succeeded, "it may be repeated");
}
