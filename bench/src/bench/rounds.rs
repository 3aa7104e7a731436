//! Rounds: each driver from its start through all calls to its end, the order rotated.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

use super::{AT_REST, CLAIMS, DRIVER, Run, Running, milliseconds, say};
use crate::{
    claims::Claim,
    load::{self, Figures},
    measure::{Measure, Phase, Shape},
    node,
    variant::Variant,
};

/// Of each driver.
const ROUNDS: usize = 9;
const ROUNDS_QUICK: usize = 3;

/// One of so many rounds has the driver that is limited, since it takes minutes.
const LIMITED_EVERY: usize = 3;
/// What a quick run asks it for.
const LIMITED_CLAIMS_QUICK: usize = 40;
const LIMITED_SHAPES_QUICK: [Shape; 2] = [Shape::SINGLE, Shape::TEN];

/// The bare program has nothing to answer from.
const FLOOR_PHASES: [Phase; 2] = [Phase::Prepare, Phase::Unprepare];

impl Run<'_> {
    pub(super) async fn rounds(&mut self) -> Result<()> {
        let rounds = if self.bench.quick { ROUNDS_QUICK } else { ROUNDS };
        for variant in Variant::DRIVERS {
            let program = self.bench.program(variant)?;
            let size = fs::metadata(&program).with_context(|| format!("reading {}", program.display()))?;
            self.samples.add(variant, Measure::Binary, bytes(size.len()));
        }
        for round in 0..rounds {
            let mut order = Variant::DRIVERS;
            order.rotate_left(round % Variant::DRIVERS.len());
            for variant in order {
                let limited = variant == Variant::GoDefault;
                if limited && round % LIMITED_EVERY != 0 {
                    continue;
                }
                say(&format!("round {} of {rounds}: {}", round + 1, variant.title()));
                let (claims, shapes) = if limited && self.bench.quick {
                    (LIMITED_CLAIMS_QUICK, &LIMITED_SHAPES_QUICK[..])
                } else {
                    (CLAIMS, &Shape::ALL[..])
                };
                self.round(variant, claims, shapes).await.with_context(|| variant.title())?;
            }
            self.floor_round().await.context("floor")?;
        }
        Ok(())
    }

    async fn round(&mut self, variant: Variant, claims: usize, shapes: &[Shape]) -> Result<()> {
        self.bench.clean().await?;
        let running = self.bench.start(variant, DRIVER, CLAIMS).await?;
        self.keep_start(variant, &running);
        tokio::time::sleep(AT_REST).await;
        let at_start = running.program.footprint()?;
        self.samples.add(variant, Measure::MemoryAtStart, bytes(at_start.memory));
        self.samples.add(variant, Measure::ThreadsAtStart, bytes(at_start.threads));
        for shape in shapes {
            let claims = &self.claims[..claims];
            let figures = self.load.at(&running.socket, claims, *shape, &Phase::ALL).await?;
            load::keep(&mut self.samples, variant, *shape, &Phase::ALL, &figures);
            if *shape == Shape::SINGLE {
                let memory = running.program.footprint()?.memory;
                self.samples.add(variant, Measure::MemoryAfter, bytes(memory));
            }
        }
        let threads = running.program.footprint()?.threads;
        self.samples.add(variant, Measure::ThreadsAfter, bytes(threads));
        running.program.stop().await
    }

    fn keep_start(&mut self, variant: Variant, running: &Running) {
        let registered = milliseconds(running.registered - running.program.started);
        let visible = milliseconds(running.visible - running.program.started);
        self.samples.add(variant, Measure::Registered, registered);
        self.samples.add(variant, Measure::Visible, visible);
        self.samples.add(variant, Measure::VisibleAfterRegistration, visible - registered);
    }

    async fn floor_round(&mut self) -> Result<()> {
        self.bench.clean().await?;
        for shape in Shape::ALL {
            let figures = self.run_floor(shape, &self.claims[..CLAIMS], Duration::ZERO).await?;
            load::keep(&mut self.samples, Variant::Floor, shape, &FLOOR_PHASES, &figures);
        }
        Ok(())
    }

    /// The bare program, whose first call comes after it has been silent for so long.
    pub(super) async fn run_floor(
        &self,
        shape: Shape,
        claims: &[Claim],
        silence: Duration,
    ) -> Result<Vec<Figures>> {
        let (records, silence) = (format!("{}/floor", node::PLUGINS), silence.as_secs().to_string());
        let target = ["--kubeconfig", node::DRIVER_KUBECONFIG, "--records", &records, "--cdi", node::CDI];
        let target = [&target[..], &["--silence", &silence]].concat();
        self.floor.run(&target, claims, shape, &FLOOR_PHASES).await
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts are far below 2^52")]
fn bytes(count: u64) -> f64 {
    count as f64
}
