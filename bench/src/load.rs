//! Calls to a driver, by the load generator.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::{
    claims::{self, Claim},
    measure::{Measure, Phase, Shape},
    node,
    samples::Samples,
    variant::Variant,
};

/// The load generator, or the bare program that prints figures of the same form.
pub(crate) struct Load {
    pub(crate) program: PathBuf,
    /// A file to pass claims in.
    pub(crate) claims: PathBuf,
}

/// What it prints of a phase; times are in milliseconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    phase: String,
    claims: u32,
    total: f64,
    pub(crate) p50: f64,
    p99: f64,
}

impl Load {
    /// Does `phases` with all of the claims.
    pub(crate) async fn run(
        &self,
        target: &[&str],
        claims: &[Claim],
        shape: Shape,
        phases: &[Phase],
    ) -> Result<Vec<Figures>> {
        claims::write(claims, &self.claims)?;
        let names: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
        let mut command = Command::new(&self.program);
        command.args(target).arg("--claims").arg(&self.claims);
        command.arg(format!("--per-call={}", shape.per_call)).arg(format!("--at-once={}", shape.at_once));
        command.arg(format!("--phases={}", names.join(",")));
        let figures = parse(&node::run(command).await?)?;
        let said: Vec<_> = figures.iter().map(|figures| figures.phase.as_str()).collect();
        ensure!(said == names, "{} has done {said:?} instead of {names:?}", self.program.display());
        Ok(figures)
    }

    /// The same at a driver's socket.
    pub(crate) async fn at(
        &self,
        socket: &Path,
        claims: &[Claim],
        shape: Shape,
        phases: &[Phase],
    ) -> Result<Vec<Figures>> {
        let socket = socket.to_str().context("a socket whose path is no text")?;
        self.run(&["--socket", socket], claims, shape, phases).await
    }
}

/// Keeps the figures of a driver's phases.
pub(crate) fn keep(
    samples: &mut Samples,
    variant: Variant,
    shape: Shape,
    phases: &[Phase],
    figures: &[Figures],
) {
    for (phase, figures) in phases.iter().zip(figures) {
        samples.add(variant, Measure::P50(*phase, shape), figures.p50);
        samples.add(variant, Measure::P99(*phase, shape), figures.p99);
        samples.add(variant, Measure::Rate(*phase, shape), figures.rate());
    }
}

impl Figures {
    /// Claims a second.
    fn rate(&self) -> f64 {
        f64::from(self.claims) * 1000.0 / self.total
    }
}

fn parse(text: &str) -> Result<Vec<Figures>> {
    let figures = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    figures.with_context(|| format!("not figures of a phase, one a line: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_figures_of_a_phase() {
        let text = "{\"phase\":\"prepare\",\"claims\":100,\"total\":500,\"p50\":1.25,\"p99\":9}\n";
        let figures = parse(text).unwrap();
        assert_eq!(figures.len(), 1);
        assert!((figures[0].rate() - 200.0).abs() < 1e-9);
        assert!(parse("nonsense\n").is_err());
    }
}
