//! The first call after two minutes in which nobody has asked for anything.

use std::time::Duration;

use anyhow::Result;

use super::{Run, say};
use crate::{
    claims,
    measure::{Measure, Phase, Shape},
    variant::Variant,
};

const SILENCE: Duration = Duration::from_secs(120);
const BATCH: usize = 10;
const PHASES: [Phase; 2] = [Phase::Prepare, Phase::Unprepare];
const ROUNDS: usize = 3;

/// They run at once, each under a name of its own, but each silence is ended by one only: the first wakes the API server.
const DRIVERS: [(Variant, &str); 2] =
    [(Variant::Ours, "ours.bench.example.com"), (Variant::GoFair, "go.bench.example.com")];

impl Run<'_> {
    pub(super) async fn silence(&mut self) -> Result<()> {
        self.bench.clean().await?;
        let mut all = Vec::new();
        for (variant, driver) in DRIVERS {
            let claims = claims::make(&self.bench.client, driver, BATCH).await?;
            let running = self.bench.start(variant, driver, BATCH).await?;
            self.load.at(&running.socket, &claims, Shape::TEN, &PHASES).await?;
            all.push((variant, claims, running));
        }
        for round in 0..ROUNDS {
            for (variant, claims, running) in &all {
                say(&silent(*variant, round));
                tokio::time::sleep(SILENCE).await;
                let figures = self.load.at(&running.socket, claims, Shape::TEN, &PHASES).await?;
                self.samples.add(*variant, Measure::FirstBatch, figures[0].p50);
            }
            say(&silent(Variant::Floor, round));
            let figures = self.run_floor(Shape::TEN, &self.claims[..BATCH], SILENCE).await?;
            self.samples.add(Variant::Floor, Measure::FirstBatch, figures[0].p50);
        }
        for (_, _, running) in all {
            running.program.stop().await?;
        }
        Ok(())
    }
}

fn silent(variant: Variant, round: usize) -> String {
    format!("two minutes of silence, {} of {ROUNDS}: {}", round + 1, variant.title())
}
