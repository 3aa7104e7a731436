//! The report, as Markdown.

mod tables;

use crate::{
    environment::Environment,
    goals::{self, Goal},
    samples::Samples,
    variant::Variant,
};

/// What the figures mean.
const METHOD: &str = include_str!("report/method.md");
/// What is the language's part, and what that of the design and of settings.
const CAUSES: &str = include_str!("report/causes.md");

/// Everything that was measured.
pub(crate) fn render(environment: &Environment, quick: bool, samples: &Samples) -> String {
    let sections = [
        head(environment, quick),
        METHOD.trim_end().to_owned(),
        format!("## Goals\n\n{}", goals_table(&goals::all(samples))),
        format!("## Calls\n\n{}", tables::calls(samples)),
        format!("## Many claims\n\n{}", tables::held(samples)),
        format!("## Start, restart, silence\n\n{}", tables::starts(samples)),
        format!("## Size\n\n{}", tables::sizes(samples)),
        format!("## Work for each claim\n\n{}", tables::work(samples)),
        format!("## Where it comes from\n\n{}\n\n{}", tables::causes(samples), CAUSES.trim_end()),
    ];
    sections.join("\n\n") + "\n"
}

fn head(environment: &Environment, quick: bool) -> String {
    let command = if quick { "cargo xtask bench --quick" } else { "cargo xtask bench" };
    let Environment { commit, date, kubernetes, processors, processor, file_system, durable_write, load } =
        environment;
    format!(
        "# Benchmarks\n\n\
         Written by `{command}`; do not edit. Commit `{commit}`, {date}.\n\n\
         * Kubernetes {kubernetes}: API server, etcd without syncs, kubelet, containerd; all on one machine\n\
         * {processors} processors ({processor}), load {load} at the beginning\n\
         * drivers' data on {file_system}, where a durable write takes {:.2} ms; CDI files in memory",
        durable_write.as_secs_f64() * 1000.0
    )
}

fn goals_table(goals: &[Goal]) -> String {
    let rows = goals.iter().map(|goal| {
        let reached = goal.reached.map_or_else(|| "–".to_owned(), |value| goal.unit.show(value));
        let verdict = match goal.is_met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        vec![goal.what.clone(), goal.bound.to_string(), reached, verdict.to_owned()]
    });
    let head = ["goal for ours", "bound", "measured", ""].map(str::to_owned);
    let count = |met| goals.iter().filter(|goal| goal.is_met() == met).count();
    format!(
        "{} met, {} missed, {} not measured.\n\n{}",
        count(Some(true)),
        count(Some(false)),
        count(None),
        table(&head, rows)
    )
}

/// A table; all rows are as long as its head.
fn table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let mut lines = vec![line(head), line(&vec!["---".to_owned(); head.len()])];
    lines.extend(rows.into_iter().map(|row| line(&row)));
    lines.join("\n")
}

/// Titles of the drivers behind a first column.
fn head_of(first: &str, variants: &[Variant]) -> Vec<String> {
    std::iter::once(first).chain(variants.iter().map(|variant| variant.title())).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::{Measure, Phase, Shape};

    fn environment() -> Environment {
        Environment {
            commit: "abc".to_owned(),
            date: "2026-01-01".to_owned(),
            kubernetes: "1.37.2".to_owned(),
            processors: 2,
            processor: "CPU".to_owned(),
            file_system: "ext2/ext3".to_owned(),
            durable_write: Duration::from_micros(345),
            load: "0.10".to_owned(),
        }
    }

    #[test]
    fn a_report_has_every_table_whole_even_without_a_figure() {
        let text = render(&environment(), true, &Samples::default());
        assert!(text.contains("takes 0.34 ms") || text.contains("takes 0.35 ms"), "{text}");
        let mut columns = 0;
        for line in text.lines() {
            let cells = line.matches(" | ").count();
            columns = if line.starts_with('|') { if columns == 0 { cells } else { columns } } else { 0 };
            assert!(columns == 0 || cells == columns, "{line}");
        }
    }

    #[test]
    fn a_goal_that_is_missed_is_said_to_be() {
        let mut samples = Samples::default();
        let measure = Measure::P50(Phase::Prepare, Shape::SINGLE);
        samples.add(Variant::Ours, measure, 2.0);
        samples.add(Variant::GoFair, measure, 1.0);
        let text = goals_table(&goals::all(&samples));
        assert!(text.starts_with("0 met, 1 missed"), "{text}");
        assert!(text.contains("against fair Go | ≤ 1.5 | 2.00× | **missed** |"), "{text}");
    }
}
