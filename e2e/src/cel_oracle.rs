//! Judges `dra-cel` by the Go package that the API server and the scheduler use for selectors.
//!
//! Two tables of cases: the Go package's own, exported from its tests when this is built, and ours, each expression on several
//! devices. For each case both say the same, or `dra-cel` says that it does not support it. Everything here blocks.

mod cases;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use dra_cel::{Device, Environment, Selector, SelectorError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What both say in the same words.
const SAME_WORDS: [&str; 3] =
    ["no such key: ", "could not be converted to bool", "actual cost limit exceeded"];

/// The Go package's own table has 55 expressions in 0.37: a table of fewer has lost something on its way.
const LEAST_EXPORTED: usize = 50;

/// An expression, a device, and how the expression is checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    expression: String,
    driver: String,
    device: Value,
    stored: bool,
    consumable_capacity: bool,
    list_attributes: bool,
}

/// What the oracle says.
#[derive(Debug, Deserialize)]
struct Answer {
    matches: Option<bool>,
    #[serde(default)]
    rejected: String,
    #[serde(default)]
    failed: String,
}

/// Runs both tables past the oracle. Gives a summary with all that is not supported.
pub(crate) fn run(program: &Path, exported: &Path) -> Result<String> {
    let text = fs::read_to_string(exported).with_context(|| format!("reading {}", exported.display()))?;
    let theirs: Result<Vec<Case>, _> = text.lines().map(serde_json::from_str).collect();
    let theirs = theirs.with_context(|| format!("reading {}", exported.display()))?;
    let expressions = expressions_of(&theirs);
    ensure!(
        expressions >= LEAST_EXPORTED,
        "{} has {expressions} expressions only: build the helpers anew",
        exported.display()
    );
    let mut summary = judge("the Go package's cases", program, &theirs)?;
    summary += &judge("our cases", program, &cases::ours())?;
    Ok(summary)
}

fn judge(title: &str, program: &Path, cases: &[Case]) -> Result<String> {
    let answers = ask(program, cases)?;
    ensure!(
        answers.len() == cases.len() && !cases.is_empty(),
        "{} answers to {} cases",
        answers.len(),
        cases.len()
    );
    let mut unsupported: BTreeMap<&str, String> = BTreeMap::new();
    let (mut equal, mut different) = (0, Vec::new());
    // Stored expressions are evaluated like new ones with all gates on.
    let mut known: BTreeMap<(&str, String, bool, bool), Result<bool, SelectorError>> = BTreeMap::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let gates = (case.stored || case.consumable_capacity, case.stored || case.list_attributes);
        let key = (case.expression.as_str(), case.device.to_string() + &case.driver, gates.0, gates.1);
        match known.entry(key).or_insert_with(|| evaluate(case)).clone() {
            Err(SelectorError::Unsupported(what)) => {
                unsupported.insert(&case.expression, what);
            }
            ours if is_same(&ours, answer) => equal += 1,
            ours => different.push(format!("{case:?}: we say {ours:?}, Go {answer:?}")),
        }
    }
    ensure!(different.is_empty(), "{} of {} {title} differ: {different:#?}", different.len(), cases.len());
    let expressions = expressions_of(cases);
    ensure!(
        unsupported.len() * 10 <= expressions,
        "{} of {expressions} expressions are not supported: {unsupported:#?}",
        unsupported.len()
    );
    let mut summary = format!(
        "    {title}: {expressions} expressions, {} evaluations, {equal} equal, {} expressions not supported\n",
        cases.len(),
        unsupported.len()
    );
    for (expression, what) in unsupported {
        let _ = writeln!(summary, "      {expression}: {what}");
    }
    Ok(summary)
}

fn expressions_of(cases: &[Case]) -> usize {
    cases.iter().map(|case| case.expression.as_str()).collect::<BTreeSet<_>>().len()
}

fn evaluate(case: &Case) -> Result<bool, SelectorError> {
    let environment = if case.stored {
        Environment::stored()
    } else {
        let new = Environment::new_expression();
        new.consumable_capacity(case.consumable_capacity).list_attributes(case.list_attributes)
    };
    let selector = Selector::new(&case.expression, environment)?;
    selector.matches(&Device::from_json(&case.driver, &case.device)?)
}

/// Whether both match, both do not, both refuse the expression, or both fail on the device, with the same words where these
/// matter.
fn is_same(ours: &Result<bool, SelectorError>, theirs: &Answer) -> bool {
    match ours {
        Ok(matches) => theirs.matches == Some(*matches),
        Err(error) if error.is_rejection() => !theirs.rejected.is_empty(),
        Err(error) => !theirs.failed.is_empty() && words(&error.to_string()) == words(&theirs.failed),
    }
}

/// The words that matter, with the key that is missing.
fn words(text: &str) -> Option<String> {
    let (position, word) = SAME_WORDS.iter().find_map(|word| Some((text.find(word)?, *word)))?;
    let rest = &text[position + word.len()..];
    let key = if word.ends_with(": ") { rest.split_whitespace().next().unwrap_or_default() } else { "" };
    Some(format!("{word}{key}"))
}

fn ask(program: &Path, cases: &[Case]) -> Result<Vec<Answer>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut requests = child.stdin.take().context("no standard input")?;
    let lines: Result<Vec<String>, _> = cases.iter().map(serde_json::to_string).collect();
    let text = lines.context("writing cases")?.join("\n");
    // Answers come while cases still go: one who writes all first could wait for ever.
    let writer = std::thread::spawn(move || requests.write_all(text.as_bytes()));
    let output = child.wait_with_output().context("hearing the oracle")?;
    ensure!(output.status.success(), "{} failed: {}", program.display(), output.status);
    writer.join().ok().context("asking broke off")?.context("asking the oracle")?;
    let answers: Result<Vec<Answer>, _> =
        String::from_utf8_lossy(&output.stdout).lines().map(serde_json::from_str).collect();
    answers.context("reading the oracle's answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(field: &str, value: Value) -> Answer {
        serde_json::from_value(Value::from_iter([(field, value)])).unwrap()
    }

    #[test]
    fn outcomes_are_the_same_by_kind_and_by_the_words_that_matter() {
        let missing = Err(SelectorError::NoSuchKey("model".into()));
        assert!(is_same(&missing, &answer("failed", "no such key: model".into())));
        assert!(!is_same(&missing, &answer("failed", "no such key: other".into())));
        assert!(!is_same(&missing, &answer("failed", "no such overload".into())));
        assert!(!is_same(&missing, &answer("rejected", "no such key: model".into())));
        assert!(is_same(&Ok(false), &answer("matches", false.into())));
        assert!(!is_same(&Ok(true), &answer("matches", false.into())));
        let refused = Err(SelectorError::NotBool("int".into()));
        assert!(is_same(&refused, &answer("rejected", "must evaluate to bool".into())));
        assert!(!is_same(&refused, &answer("matches", true.into())));
    }

    #[test]
    fn what_is_not_supported_of_our_table_is_documented() {
        let cases = cases::ours();
        let unsupported: BTreeMap<&str, String> = cases
            .iter()
            .filter_map(|case| match evaluate(case) {
                Err(SelectorError::Unsupported(what)) => Some((case.expression.as_str(), what)),
                _ => None,
            })
            .collect();
        let document = include_str!("../../crates/dra-cel/README.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
        let told: BTreeMap<&str, String> =
            rows.filter_map(|row| row.split_once("` | ")).map(|(it, what)| (it, what.to_owned())).collect();
        assert_eq!(told, unsupported);
        let figures = format!("Ours: {} expressions on four devices", expressions_of(&cases));
        assert!(document.contains(&figures), "the document does not say {figures:?}");
    }

    #[test]
    fn the_table_has_all_three_outcomes_and_little_that_is_not_supported() {
        let mut outcomes = BTreeMap::new();
        let cases = cases::ours();
        for case in &cases {
            let kind = match evaluate(case) {
                Ok(_) => "answered",
                Err(SelectorError::Unsupported(_)) => "unsupported",
                Err(error) if error.is_rejection() => "rejected",
                Err(_) => "failed",
            };
            *outcomes.entry(kind).or_insert(0) += 1;
        }
        assert!(["answered", "rejected", "failed"].iter().all(|kind| outcomes[kind] > 100), "{outcomes:?}");
        assert!(outcomes["unsupported"] * 10 < cases.len(), "{outcomes:?}");
    }
}
