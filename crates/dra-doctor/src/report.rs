//! What all checks say, for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Verdict};

/// What all checks say. [`Display`](fmt::Display) is for people; [`Serialize`] for programs, in the form that the crate's
/// documentation shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// In the order of cause and effect.
    pub checks: Vec<Examined>,
    /// Objects of the cluster that could not be read: the checks went on without them. Each as `resourceclaims
    /// NAMESPACE/NAME: reason`, with the plural of its kind. JSON has the field only if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", from = "Written")]
#[non_exhaustive]
pub struct Examined {
    /// Name of the check.
    pub check: String,
    /// What it has come to.
    pub verdict: Verdict,
}

/// A check in JSON: the same fields whatever it has come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    check: String,
    result: Outcome,
    why: Option<String>,
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    Healthy,
    Found,
    CouldNotLook,
    NotLooked,
}

impl From<Examined> for Written {
    fn from(Examined { check, verdict }: Examined) -> Self {
        let (result, why, findings) = match verdict {
            Verdict::Looked(findings) if findings.is_empty() => (Outcome::Healthy, None, findings),
            Verdict::Looked(findings) => (Outcome::Found, None, findings),
            Verdict::CouldNot(why) => (Outcome::CouldNotLook, Some(why), Vec::new()),
            Verdict::NotAsked(how) => (Outcome::NotLooked, Some(how), Vec::new()),
        };
        Self { check, result, why, findings }
    }
}

impl From<Written> for Examined {
    fn from(Written { check, result, why, findings }: Written) -> Self {
        let why = why.unwrap_or_default();
        let verdict = match result {
            Outcome::Healthy | Outcome::Found => Verdict::Looked(findings),
            Outcome::CouldNotLook => Verdict::CouldNot(why),
            Outcome::NotLooked => Verdict::NotAsked(why),
        };
        Self { check, verdict }
    }
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
        for object in &self.left_out {
            writeln!(f, "left out, as it cannot be read: {object}")?;
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
    use dra_allocator::ObstacleKind;
    use serde_json::json;

    use super::*;
    use crate::finding::{Device, Reason};
    use crate::kind::FindingKind;

    fn found() -> Finding {
        Finding::new(FindingKind::CdiOff, "what", "is wrong", "do it").details(vec!["more".into()])
    }

    fn report(verdicts: &[Verdict]) -> Report {
        let examined =
            verdicts.iter().map(|verdict| Examined { check: "c".into(), verdict: verdict.clone() });
        Report { checks: examined.collect(), left_out: Vec::new() }
    }

    #[test]
    fn the_exit_code_tells_found_from_could_not_look() {
        let found = Verdict::Looked(vec![found()]);
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
        let text = report(&[Verdict::HEALTHY, Verdict::Looked(vec![found()])]).to_string();
        assert_eq!(text, "c  healthy\nc  1 found\n\nc: what\n  is wrong\n    more\n  To do: do it\n");
    }

    /// This form is promised: programs read it.
    #[test]
    fn programs_see_the_same_fields_whatever_a_check_has_come_to() {
        let reason = Reason { kind: ObstacleKind::Taint, text: "taint k:NoSchedule is not tolerated".into() };
        let device = Device {
            claim: "c".into(),
            request: "r".into(),
            driver: "d".into(),
            pool: "p".into(),
            device: "gpu-0".into(),
            reasons: vec![reason],
        };
        let report = report(&[
            Verdict::HEALTHY,
            Verdict::Looked(vec![Finding { devices: vec![device], ..found() }]),
            Verdict::CouldNot("why".into()),
            Verdict::NotAsked("how".into()),
        ]);
        let written = serde_json::to_value(&report).unwrap();
        let expected = json!({"checks": [
            {"check": "c", "result": "healthy", "why": null, "findings": []},
            {"check": "c", "result": "found", "why": null, "findings": [{
                "kind": "cdiOff", "subject": "what", "problem": "is wrong", "advice": "do it", "details": ["more"],
                "devices": [{
                    "claim": "c", "request": "r", "driver": "d", "pool": "p", "device": "gpu-0",
                    "reasons": [{"kind": "taint", "text": "taint k:NoSchedule is not tolerated"}],
                }],
            }]},
            {"check": "c", "result": "couldNotLook", "why": "why", "findings": []},
            {"check": "c", "result": "notLooked", "why": "how", "findings": []},
        ]});
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<Report>(written).unwrap(), report, "it reads back");
    }

    #[test]
    fn the_example_in_the_readme_is_a_report() {
        let (_, rest) = include_str!("../README.md").split_once("```json\n").unwrap();
        let example: serde_json::Value = serde_json::from_str(rest.split_once("```").unwrap().0).unwrap();
        let report: Report = serde_json::from_value(example.clone()).unwrap();
        assert_eq!(serde_json::to_value(&report).unwrap(), example);
        assert_eq!(report.exit_code(), 2);
    }
}
