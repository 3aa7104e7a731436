//! Requests and syncs for each claim, counted from outside.

use anyhow::Result;

use super::{CLAIMS, DRIVER, Run, say};
use crate::{
    measure::{Measure, Phase, Shape},
    variant::Variant,
    work::{SyncCounter, requests},
};

impl Run<'_> {
    pub(super) async fn work(&mut self) -> Result<()> {
        for variant in [Variant::Ours, Variant::GoFair, Variant::GoFairDurable] {
            say(&format!("requests and syncs: {}", variant.title()));
            self.work_of(variant).await?;
        }
        Ok(())
    }

    async fn work_of(&mut self, variant: Variant) -> Result<()> {
        self.bench.clean().await?;
        let running = self.bench.start(variant, DRIVER, CLAIMS).await?;
        let table = self.bench.scratch.join("strace");
        for phase in Phase::ALL {
            let counter = SyncCounter::start(running.program.pid, &table).await?;
            let before = requests(&self.bench.client).await?;
            let claims = &self.claims[..CLAIMS];
            self.load.at(&running.socket, claims, Shape::SINGLE, &[phase]).await?;
            let requests = requests(&self.bench.client).await? - before;
            let syncs = counter.stop(&table).await?;
            self.samples.add(variant, Measure::Requests(phase), per_claim(requests));
            self.samples.add(variant, Measure::Syncs(phase), per_claim(syncs));
        }
        running.program.stop().await
    }
}

#[expect(clippy::cast_precision_loss, reason = "a hundred")]
fn per_claim(count: f64) -> f64 {
    count / CLAIMS as f64
}
