//! What the scenarios of several clusters print at once, put in order.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};

use super::plan::Leg;

/// Prints what belongs to one scenario without a line of another cluster in between.
#[derive(Default)]
pub(super) struct Output {
    /// The leg that printed last.
    last: Mutex<Option<String>>,
}

impl Output {
    /// Runs the scenarios of a leg to their end.
    pub(super) fn show(&self, mut scenarios: Command, leg: &Leg) -> Result<ExitStatus> {
        let running = scenarios.stdout(Stdio::piped()).spawn();
        let mut running = running.with_context(|| format!("running {scenarios:?}"))?;
        let lines = running.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let mut block = Vec::new();
        for line in lines.into_iter().flatten() {
            block.push(line.context("reading what the scenarios print")?);
            if block.last().is_some_and(|line| ends_scenario(line)) {
                self.print(leg, &block);
                block.clear();
            }
        }
        self.print(leg, &block);
        running.wait().with_context(|| format!("waiting for {scenarios:?}"))
    }

    fn print(&self, leg: &Leg, block: &[String]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let leg = leg.to_string();
        if block.is_empty() {
            return;
        }
        if last.as_ref().is_some_and(|last| *last != leg) {
            println!("-- {leg}");
        }
        *last = Some(leg);
        for line in block {
            println!("{line}");
        }
    }
}

/// Why one has failed comes after this line, so it comes with what is printed next.
fn ends_scenario(line: &str) -> bool {
    line.starts_with("test ") && line.contains(" ... ok (")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_ends_with_its_verdict_if_that_needs_no_reason() {
        assert!(ends_scenario("test pods_run ... ok (3.1 s)"));
        for line in ["test pods_run ... FAILED (3.1 s)", "    RSS 11 MB", "--- the last of 20 lines"] {
            assert!(!ends_scenario(line), "{line}");
        }
    }
}
