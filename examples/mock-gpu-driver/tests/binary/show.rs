//! `state show`, as a person runs it.

use std::time::Duration;

use dra_kubeletplugin::state::{FindingKind, LockedBy, Report};

use crate::instance::Node;

#[tokio::test]
async fn a_node_is_shown_beside_a_living_driver_and_after_one_that_was_killed() {
    let node = Node::new().await;
    let nowhere = node.show(&[]);
    assert!(nowhere.code == Some(2) && nowhere.error().contains("does not exist"), "{}", nowhere.err);

    let claim = node.claim("one", "gpu-3");
    let instance = node.start("pod-1", Duration::ZERO).await;
    instance.prepare(&claim).await.expect("it lives").unwrap();
    // Whatever it does after its start, it comes to rest.
    let well = async {
        loop {
            let shown = node.show(&[]);
            if shown.succeeded {
                return shown;
            }
        }
    };
    let shown = tokio::time::timeout(Duration::from_secs(60), well).await.expect("all is well");
    let line = format!("{}  default/one  prepared", claim.uid);
    assert!(shown.out.contains(&line) && shown.out.ends_with("all of it is consistent\n"), "{}", shown.out);
    let shown = node.show(&["--json"]);
    let report: Report = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((shown.code, report.findings.len()), (Some(0), 0));
    let lock = report.snapshot.locks.iter().find(|lock| lock.by == LockedBy::Instances).unwrap();
    assert_eq!(lock.pids, [instance.pid()]);

    instance.kill();
    let shown = node.show(&["--json"]);
    let report: Report = serde_json::from_str(&shown.out).unwrap();
    let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    let expected = [FindingKind::DeadSocket, FindingKind::DeadSocket, FindingKind::NobodyServes];
    assert_eq!((shown.code, kinds.as_slice()), (Some(1), &expected[..]), "{}", shown.out);
    let shown = node.show(&[]);
    assert!(shown.out.contains("no instance of the driver lives"), "{}", shown.out);
}
