//! Calls with one claim while few and while many claims are prepared.

use anyhow::Result;

use super::{CLAIMS, DRIVER, MANY, Run, say};
use crate::{
    measure::{Measure, Phase, Shape},
    variant::Variant,
};

const FEW: usize = 10;

/// The phases that hold claims, time the others, and let go of them.
const HOLD: [Phase; 1] = [Phase::Prepare];
const TIMED: [Phase; 2] = [Phase::Prepare, Phase::Unprepare];
const RELEASE: [Phase; 1] = [Phase::Unprepare];

const ROUNDS: usize = 3;

impl Run<'_> {
    pub(super) async fn held(&mut self) -> Result<()> {
        let rounds = if self.bench.quick { 1 } else { ROUNDS };
        for _ in 0..rounds {
            for variant in [Variant::Ours, Variant::GoFair] {
                say(&format!("{FEW} and {MANY} held claims: {}", variant.title()));
                self.held_by(variant).await?;
            }
        }
        Ok(())
    }

    async fn held_by(&mut self, variant: Variant) -> Result<()> {
        self.bench.clean().await?;
        let running = self.bench.start(variant, DRIVER, MANY + CLAIMS).await?;
        let (held, timed) = self.claims.split_at(MANY);
        let mut so_far = 0;
        for count in [FEW, MANY] {
            self.load.at(&running.socket, &held[so_far..count], Shape::HUNDRED, &HOLD).await?;
            so_far = count;
            let figures = self.load.at(&running.socket, timed, Shape::SINGLE, &TIMED).await?;
            for (phase, figures) in TIMED.iter().zip(&figures) {
                self.samples.add(variant, Measure::Held(*phase, count), figures.p50);
            }
        }
        self.load.at(&running.socket, held, Shape::HUNDRED, &RELEASE).await?;
        running.program.stop().await
    }
}

/// What [`Measure::Held`] has.
pub(crate) const HELD: [usize; 2] = [FEW, MANY];
