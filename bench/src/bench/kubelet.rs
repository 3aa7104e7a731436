//! A restart of the kubelet, which deletes the slices of its node at its start.

use std::time::Duration;

use anyhow::Result;

use super::{CLAIMS, DRIVER, Run, milliseconds, say};
use crate::{measure::Measure, node, variant::Variant};

/// How long the kubelet may take to delete them, and a driver to put them back.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const BACK_WITHIN: Duration = Duration::from_secs(120);

const ROUNDS: usize = 3;

impl Run<'_> {
    pub(super) async fn kubelet_restarts(&mut self) -> Result<()> {
        let rounds = if self.bench.quick { 1 } else { ROUNDS };
        for _ in 0..rounds {
            for variant in [Variant::Ours, Variant::GoDefault] {
                say(&format!("restart of the kubelet: {}", variant.title()));
                self.kubelet_restart(variant).await?;
            }
        }
        Ok(())
    }

    async fn kubelet_restart(&mut self, variant: Variant) -> Result<()> {
        self.bench.clean().await?;
        let mut running = self.bench.start(variant, DRIVER, CLAIMS).await?;
        let (restarted, gone) =
            tokio::join!(node::restart_kubelet(), running.watch.wait_one_gone(GONE_WITHIN));
        restarted?;
        let gone = gone?;
        let back = running.watch.wait_there(running.slices, BACK_WITHIN).await?;
        self.samples.add(variant, Measure::BackAfterRestart, milliseconds(back - gone));
        running.program.stop().await
    }
}
