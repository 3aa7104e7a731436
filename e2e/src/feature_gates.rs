//! The table of gates in `docs/feature-gates.md`, and where an API server disagrees with it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};

const DOCUMENT: &str = include_str!("../../docs/feature-gates.md");
/// What stands there for a version that has no such gate.
const NONE: &str = "–";
/// Gates whose names start so belong in the table.
const OURS: [&str; 3] = ["DRA", "DynamicResourceAllocation", "ResourceHealthStatus"];

/// Stage and default of gates by their names, such as `beta, on`.
type Gates = BTreeMap<String, String>;

/// What the document says of the gates of Kubernetes 1.`minor`, including those that it has not.
///
/// # Errors
/// There is no table, or it has no column for this version, or a row has too few cells.
pub(crate) fn documented(minor: u32) -> Result<Gates> {
    let mut rows = DOCUMENT.lines().filter_map(cells).skip_while(|cells| cells.first() != Some(&"gate"));
    let head = rows.next().context("the document has no table of gates")?;
    let version = format!("1.{minor}");
    let column = head.iter().position(|cell| *cell == version);
    let column = column.with_context(|| format!("the table of gates has no column {version}"))?;
    rows.skip(1)
        .take_while(|cells| cells.len() == head.len())
        .map(|cells| Ok((cells[0].trim_matches('`').to_owned(), cells[column].to_owned())))
        .collect()
}

fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect())
}

/// What an API server says of its gates among its metrics.
///
/// # Errors
/// There are no gates among them.
pub(crate) fn reported(metrics: &str) -> Result<Gates> {
    let gates: Gates = metrics.lines().filter_map(gate).collect();
    ensure!(gates.contains_key("DynamicResourceAllocation"), "the metrics show no feature gates");
    Ok(gates)
}

/// Reads `kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 1`.
fn gate(line: &str) -> Option<(String, String)> {
    let (labels, value) = line.strip_prefix("kubernetes_feature_enabled{")?.split_once('}')?;
    let label = |name: &str| Some(labels.split_once(&format!("{name}=\""))?.1.split_once('"')?.0);
    let stage = match label("stage")? {
        "" => "stable".to_owned(),
        stage => stage.to_lowercase(),
    };
    let default = if value.trim() == "1" { "on" } else { "off" };
    Some((label("name")?.to_owned(), format!("{stage}, {default}")))
}

/// Where the two differ, a sentence for each gate. Of gates in `set` only the stage is compared: somebody has set them.
pub(crate) fn differences(documented: &Gates, reported: &Gates, set: &BTreeSet<String>) -> Vec<String> {
    let ours = reported.keys().filter(|name| OURS.iter().any(|prefix| name.starts_with(prefix)));
    let names: BTreeSet<_> = documented.keys().chain(ours).collect();
    let differs = |name: &&String| {
        let said = documented.get(*name).map_or("nothing", String::as_str);
        let is = reported.get(*name).map_or(NONE, String::as_str);
        let stage = |text: &'_ str| text.split(',').next().map(str::to_owned);
        let same = if set.contains(*name) { stage(said) == stage(is) } else { said == is };
        (!same).then(|| format!("{name}: the document says {said:?}, the API server {is:?}"))
    };
    names.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_the_same_gates_in_the_table_and_nothing_else_in_its_cells() {
        let newest = documented(37).unwrap();
        assert!(newest.len() > 20, "only {} gates", newest.len());
        for minor in 34..=37 {
            let gates = documented(minor).unwrap();
            assert!(gates.keys().eq(newest.keys()));
            for (name, cell) in &gates {
                let (stage, default) = cell.split_once(", ").unwrap_or((NONE, ""));
                let known = ["alpha", "beta", "stable"].contains(&stage) && ["on", "off"].contains(&default);
                assert!(known || cell == NONE, "{name} in 1.{minor}: {cell:?}");
            }
        }
        assert_eq!(documented(34).unwrap()["DRAConsumableCapacity"], "alpha, off");
        assert!(documented(33).unwrap_err().to_string().contains("no column 1.33"));
    }

    #[test]
    fn gates_are_read_from_metrics() {
        let metrics = "# TYPE kubernetes_feature_enabled gauge\n\
            kubernetes_feature_enabled{name=\"DRADeviceTaints\",stage=\"BETA\"} 0\n\
            kubernetes_feature_enabled{name=\"DynamicResourceAllocation\",stage=\"\"} 1\n";
        let gates = reported(metrics).unwrap();
        assert_eq!(gates["DRADeviceTaints"], "beta, off");
        assert_eq!(gates["DynamicResourceAllocation"], "stable, on");
        assert!(reported("up 1").is_err());
    }

    #[test]
    fn each_difference_is_told_and_what_was_set_counts_by_its_stage() {
        type List<'a> = &'a [(&'a str, &'a str)];
        let gates = |list: List<'_>| -> Gates {
            list.iter().map(|(name, cell)| ((*name).to_owned(), (*cell).to_owned())).collect()
        };
        let documented = gates(&[("DRAA", "beta, on"), ("DRAB", NONE), ("Other", "beta, off")]);
        let cases: [(List<'_>, &[&str]); 5] = [
            (&[("DRAA", "beta, on"), ("Other", "beta, off"), ("Unrelated", "alpha, on")], &[]),
            (&[("DRAA", "beta, off"), ("Other", "beta, on")], &["DRAA: ", "Other: "]),
            (&[("Other", "beta, off")], &["DRAA: "]),
            (&[("DRAA", "beta, on"), ("DRAB", "alpha, off"), ("Other", "beta, off")], &["DRAB: "]),
            (&[("DRAA", "beta, on"), ("DRANew", "alpha, off"), ("Other", "beta, off")], &["DRANew: "]),
        ];
        for (reported, expected) in cases {
            let told = differences(&documented, &gates(reported), &BTreeSet::new());
            let fits =
                told.len() == expected.len() && told.iter().zip(expected).all(|(t, e)| t.starts_with(e));
            assert!(fits, "{reported:?} gives {told:?}");
        }
        let set = BTreeSet::from(["DRAA".to_owned()]);
        let off = gates(&[("DRAA", "beta, off"), ("Other", "beta, off")]);
        assert!(differences(&documented, &off, &set).is_empty());
        let alpha = gates(&[("DRAA", "alpha, off"), ("Other", "beta, off")]);
        assert_eq!(differences(&documented, &alpha, &set).len(), 1);
    }
}
