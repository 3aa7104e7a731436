//! What happens when the watch does not tell the truth.

use super::{fake::Fault, *};
use crate::Placement;

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_gone_silent_is_replaced_within_a_minute() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.silence();
    setup.api.delete_all();
    pass(SECOND).await;
    setup.api.end_silence();
    pass(59 * SECOND).await;
    assert!(setup.api.slices().is_empty() || setup.api.slices().len() == 1);
    // The deletion itself was lost with the silent watch; only a new list can tell.
    setup.api.expire_watches();
    pass(2 * SECOND).await;
    assert_eq!(setup.api.slices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_new_list() {
    let setup = Setup::open();
    setup.publish(devices(&["gpu-0"])).await;
    setup.api.forget_calls();
    setup.api.faults(|call| (call.verb == "watch").then_some(Fault::Status(410)));
    setup.api.expire_watches();
    setup.api.delete_all();
    pass(SECOND).await;
    setup.api.no_faults();
    pass(5 * SECOND).await;
    assert!(setup.api.count("list") >= 1);
    assert_eq!(setup.api.slices().len(), 1);
}
