//! The mock GPU driver on the Go helper in scenarios: how it is started.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use super::gpu;
use crate::{context::Context, driver::Driver, node::ComponentLog};

/// The newest version of the Go helper.
pub(crate) const NEWEST: &str = "0.37";
/// The last whose slices have random names.
pub(crate) const RANDOM_NAMES: &str = "0.35";

/// Starts the driver on the Go helper of this minor version, and waits until the kubelet has registered it.
pub(crate) async fn start_registered(cx: &Context, helper: &str, arguments: &[&str]) -> Result<Driver> {
    let log = ComponentLog::of("kubelet")?;
    let driver = cx.start_program(&program(cx, helper)?, arguments)?;
    gpu::wait_registered(&log).await?;
    Ok(driver)
}

/// Ends it.
pub(crate) async fn stop(driver: &Driver) -> Result<()> {
    driver.terminate(Duration::from_secs(10)).await.map(drop)
}

/// Where it is.
pub(crate) fn program(cx: &Context, helper: &str) -> Result<PathBuf> {
    let mut found = cx.helpers_like(&format!("go-driver-{helper}."))?;
    match (found.pop(), found.is_empty()) {
        (Some((_, program)), true) => Ok(program),
        (program, _) => {
            bail!("one driver on Go helper {helper} should be there, not {program:?} and {found:?}")
        }
    }
}
