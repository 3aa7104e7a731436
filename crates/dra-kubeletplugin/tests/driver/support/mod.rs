//! A node with stand-ins around it, and a driver that tells what it was asked.

mod direct;
mod driver;
mod rig;
mod writers;

use std::time::Duration;

pub(crate) use direct::Direct;
pub(crate) use driver::{Answer, Note, TestDriver, fail, usual};
pub(crate) use rig::{DRIVER, NODE, Rig, admin, device, share};
pub(crate) use writers::Writers;

/// Far longer than anything here takes, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Waits until something is so; for what can only be looked at.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}
