//! The driver, of which there is one instance, or two during an update.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::events::Change;
use crate::{context::Context, driver::Driver, scenarios::updates};

const DEVICES: &str = "12";
/// The kubelet may be about to start, and the machine is busy.
const REGISTERED_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct Fleet<'a> {
    cx: &'a Context,
    living: Driver,
    /// Whose pod it runs in.
    pod: u32,
    all: Vec<Driver>,
}

impl<'a> Fleet<'a> {
    /// Starts the first instance.
    pub(super) async fn start(cx: &'a Context) -> Result<Self> {
        let living = start(cx, 1).await?;
        Ok(Self { cx, all: vec![living.clone()], living, pod: 1 })
    }

    /// The instance that stays when nothing changes.
    pub(super) fn living(&self) -> &Driver {
        &self.living
    }

    /// Carries a change out, until the instance that stays is registered.
    pub(super) async fn change(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Replaced { gap } => {
                updates::end(&self.living).await?;
                tokio::time::sleep(gap).await;
                self.living = self.next_pod().await?;
            }
            Change::Crashes { gap } => {
                self.living.kill().await?;
                tokio::time::sleep(gap).await;
                self.living = self.started(self.pod).await?;
            }
            Change::Updated => {
                let new = self.next_pod().await?;
                updates::end(&self.living).await?;
                self.living = new;
            }
            Change::UpdatedAndKilled => {
                let new = self.next_pod().await?;
                self.living.kill().await?;
                self.living = new;
            }
            Change::TakenBack => {
                let new = self.next_pod().await?;
                updates::end(&new).await?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// An instance has panicked.
    pub(super) fn check_logs(&self) -> Result<()> {
        for driver in &self.all {
            let log = driver.log()?;
            let panic = log.lines().find(|line| line.contains("panicked at"));
            ensure!(panic.is_none(), "{}: {panic:?}", driver.log_path().display());
        }
        Ok(())
    }

    async fn next_pod(&mut self) -> Result<Driver> {
        self.pod += 1;
        self.started(self.pod).await
    }

    async fn started(&mut self, pod: u32) -> Result<Driver> {
        let driver = start(self.cx, pod).await?;
        self.all.push(driver.clone());
        Ok(driver)
    }
}

async fn start(cx: &Context, pod: u32) -> Result<Driver> {
    let arguments = ["--pod-uid", &updates::pod_uid(pod), "--num-devices", DEVICES];
    let driver = cx.start_driver("mock-gpu-driver", &arguments)?;
    let registered = driver.wait_log("registered by the kubelet", REGISTERED_WITHIN).await;
    registered.with_context(|| format!("the instance in pod {pod}"))?;
    Ok(driver)
}
