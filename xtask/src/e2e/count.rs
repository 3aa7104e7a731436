//! What became of the scenarios, and whether each of them was looked at.

use std::{collections::BTreeMap, fmt, fs, ops::AddAssign, path::Path};

use anyhow::{Context as _, Result, ensure};

/// What the scenarios of one or several clusters came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u32,
    pub(super) failed: u32,
    /// Of a newer Kubernetes than the cluster's.
    pub(super) unsuited: u32,
}

/// What the runner in one cluster leaves when it comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: Count,
    /// How many scenarios all clusters of its leg have together.
    pub(super) of: u32,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.unsuited += other.unsuited;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.unsuited == 0 { Ok(()) } else { write!(f, ", {} need a newer Kubernetes", self.unsuited) }
    }
}

impl Summary {
    /// Reads `passed failed unsuited of`.
    ///
    /// # Errors
    /// The file is missing or holds something else.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let numbers: Vec<_> = text.split_whitespace().map(str::parse).collect();
        match numbers[..] {
            [Ok(passed), Ok(failed), Ok(unsuited), Ok(of)] => {
                Ok(Self { count: Count { passed, failed, unsuited }, of })
            }
            _ => anyhow::bail!("{} holds {text:?} instead of four numbers", path.display()),
        }
    }
}

/// Adds up the summaries of all clusters, each with the name of its leg.
///
/// # Errors
/// The clusters of a leg have run another number of scenarios than the leg has.
pub(super) fn total(summaries: &[(String, Summary)]) -> Result<Count> {
    let (mut total, mut legs) = (Count::default(), BTreeMap::<&str, (Count, u32)>::new());
    for (leg, summary) in summaries {
        let (count, of) = legs.entry(leg).or_default();
        *count += summary.count;
        *of = summary.of.max(*of);
        total += summary.count;
    }
    for (leg, (count, of)) in legs {
        let seen = count.passed + count.failed + count.unsuited;
        ensure!(seen == of, "{seen} of the {of} scenarios of {leg} came to an end: {count}");
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_summary_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary");
        assert!(Summary::read(&path).is_err());
        for broken in ["", "3", "3 1 0", "3 1 0 x", "1 2 3 4 5"] {
            fs::write(&path, broken).unwrap();
            assert!(Summary::read(&path).is_err(), "{broken}");
        }
        fs::write(&path, "3 1 2 9\n").unwrap();
        let count = Count { passed: 3, failed: 1, unsuited: 2 };
        assert_eq!(Summary::read(&path).unwrap(), Summary { count, of: 9 });
    }

    fn summary(leg: &str, passed: u32, failed: u32, unsuited: u32, of: u32) -> (String, Summary) {
        (leg.to_owned(), Summary { count: Count { passed, failed, unsuited }, of })
    }

    #[test]
    fn clusters_of_a_leg_account_for_all_its_scenarios_together() {
        let all = [summary("new", 4, 1, 0, 8), summary("old", 2, 0, 1, 3), summary("new", 3, 0, 0, 8)];
        assert_eq!(total(&all).unwrap(), Count { passed: 9, failed: 1, unsuited: 1 });
        assert_eq!(total(&[]).unwrap(), Count::default());
        // A scenario that no cluster has run, and one that two have run.
        for wrong in [summary("new", 2, 0, 0, 8), summary("new", 4, 0, 0, 8)] {
            let error = total(&[all[0].clone(), wrong]).unwrap_err().to_string();
            assert!(error.contains("of the 8 scenarios of new"), "{error}");
        }
    }

    #[test]
    fn the_count_names_what_was_not_run_only_if_there_is_some() {
        assert_eq!(Count { passed: 3, failed: 0, unsuited: 0 }.to_string(), "3 passed, 0 failed");
        let count = Count { passed: 3, failed: 1, unsuited: 2 };
        assert_eq!(count.to_string(), "3 passed, 1 failed, 2 need a newer Kubernetes");
    }
}
