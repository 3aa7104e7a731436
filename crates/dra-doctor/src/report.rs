//! What all checks say, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::finding::{Finding, Verdict};

/// What all checks say. [`Display`](fmt::Display) is for people; [`Serialize`] for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// In the order of cause and effect.
    pub checks: Vec<Examined>,
}

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Examined {
    /// Name of the check.
    pub check: String,
    /// What it has come to.
    pub verdict: Verdict,
}

impl Report {
    /// 0 if all is healthy, 1 if something was found, 2 if a check could not look, whatever others have found.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let any = |is: fn(&Verdict) -> bool| self.checks.iter().any(|examined| is(&examined.verdict));
        if any(|verdict| matches!(verdict, Verdict::CouldNot(_))) {
            2
        } else {
            u8::from(any(|verdict| !verdict.findings().is_empty()))
        }
    }

    /// All findings, each with the name of its check.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.checks.iter().flat_map(|examined| {
            examined.verdict.findings().iter().map(|finding| (examined.check.as_str(), finding))
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|examined| examined.check.len()).max().unwrap_or_default();
        for Examined { check, verdict } in &self.checks {
            let result = match verdict {
                Verdict::Looked(findings) if findings.is_empty() => "healthy".to_owned(),
                Verdict::Looked(findings) => format!("{} found", findings.len()),
                Verdict::CouldNot(why) => format!("could not look: {why}"),
                Verdict::NotAsked(how) => format!("not looked: {how}"),
            };
            writeln!(f, "{check:width$}  {result}")?;
        }
        for (check, finding) in self.findings() {
            writeln!(f, "\n{check}: {}", finding.subject)?;
            writeln!(f, "  {}", finding.problem)?;
            for detail in &finding.details {
                writeln!(f, "    {detail}")?;
            }
            writeln!(f, "  To do: {}", finding.advice)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let examined =
            verdicts.iter().map(|verdict| Examined { check: "c".into(), verdict: verdict.clone() });
        Report { checks: examined.collect() }
    }

    #[test]
    fn the_exit_code_tells_found_from_could_not_look() {
        let found = Verdict::Looked(vec![Finding::new("a", "b", "c")]);
        let could_not = Verdict::CouldNot("why".into());
        let not_asked = Verdict::NotAsked("how".into());
        for (verdicts, code) in [
            (vec![], 0),
            (vec![Verdict::HEALTHY, not_asked.clone()], 0),
            (vec![found.clone(), not_asked], 1),
            (vec![could_not.clone()], 2),
            (vec![found, could_not], 2),
        ] {
            assert_eq!(report(&verdicts).exit_code(), code, "{verdicts:?}");
        }
    }

    #[test]
    fn people_see_each_check_and_each_finding() {
        let found =
            Verdict::Looked(vec![Finding::new("what", "is wrong", "do it").details(vec!["more".into()])]);
        let text = report(&[Verdict::HEALTHY, found]).to_string();
        assert_eq!(text, "c  healthy\nc  1 found\n\nc: what\n  is wrong\n    more\n  To do: do it\n");
    }
}
