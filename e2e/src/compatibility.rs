//! Holds the table of behaviours in `docs/compatibility.md` against the scenarios.

use std::collections::BTreeMap;

use crate::{scenario::Tier, scenarios};

const DOCUMENT: &str = include_str!("../../docs/compatibility.md");
const SECTION: &str = "## What kubelet and driver make of each other";
const NOT_RUN: &str = "not run here: ";
/// So many may not be run.
const NOT_RUN_AT_MOST: usize = 5;
/// All versions that scenarios of the gate run on.
const ALL: &str = "1.34–1.37";
/// What those of the full tier run on.
const NEWEST: &str = "1.37";

/// A behaviour, and what the table says of it.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    behaviour: &'a str,
    shown_by: &'a str,
    versions: &'a str,
}

impl<'a> Row<'a> {
    /// The names in backticks.
    fn scenarios(&self) -> Vec<&'a str> {
        if self.shown_by.starts_with(NOT_RUN) {
            return Vec::new();
        }
        self.shown_by.split('`').skip(1).step_by(2).collect()
    }
}

/// The rows of all tables of the section, without heads.
fn rows(document: &str) -> Vec<Row<'_>> {
    let section = document.split_once(SECTION).unwrap().1;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let cells = section.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [behaviour, shown_by, versions] = cells[..] else { panic!("not three cells: {line}") };
        Some(Row { behaviour, shown_by, versions })
    });
    cells.filter(|row| row.shown_by != "scenario" && row.shown_by != "---").collect()
}

#[test]
fn every_behaviour_names_scenarios_that_there_are_or_why_there_is_none() {
    let known: Vec<_> = scenarios::all().iter().map(|scenario| scenario.name).collect();
    let rows = rows(DOCUMENT);
    assert!(rows.len() > 30, "only {} rows are found", rows.len());
    let mut not_run = 0;
    for row in &rows {
        match row.shown_by.strip_prefix(NOT_RUN) {
            Some(reason) => {
                not_run += 1;
                assert!(!reason.is_empty() && row.versions == "–", "{row:?}");
            }
            None => assert!(!row.scenarios().is_empty(), "{row:?}"),
        }
        for name in row.scenarios() {
            assert!(known.contains(&name), "{:?} names {name}, which is no scenario", row.behaviour);
        }
    }
    assert!(not_run <= NOT_RUN_AT_MOST, "{not_run} behaviours are not run");
}

#[test]
fn a_behaviour_is_claimed_for_old_versions_only_if_the_gate_shows_it() {
    let tiers: BTreeMap<_, _> =
        scenarios::all().iter().map(|scenario| (scenario.name, scenario.tier)).collect();
    for row in rows(DOCUMENT).iter().filter(|row| !row.shown_by.starts_with(NOT_RUN)) {
        let in_gate = row.scenarios().iter().any(|name| tiers[name] < Tier::Full);
        let right = match row.versions {
            ALL => in_gate,
            NEWEST => !in_gate,
            // Scenarios that look at the version themselves.
            _ => in_gate && row.versions.ends_with(NEWEST),
        };
        assert!(right, "{row:?}");
    }
}

#[test]
fn rows_are_read_without_heads_and_only_from_the_section() {
    let document = format!(
        "## Before\n\n| a | b |\n{SECTION}\n\nText.\n\n| kind | scenario | Kubernetes |\n| --- | --- | --- |\n\
         | it works | `one`, `two` | 1.37 |\n| it may | not run here: `x` is missing | – |\n\n## After\n\n| c | d |\n"
    );
    let rows = rows(&document);
    assert_eq!(rows.iter().map(|row| row.behaviour).collect::<Vec<_>>(), ["it works", "it may"]);
    assert_eq!((rows[0].scenarios(), rows[1].scenarios()), (vec!["one", "two"], Vec::new()));
}
