//! The oracle: a process that answers one line for each line.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::resource::v1::AllocationResult;
use serde::{Deserialize, Serialize};

use super::{compare::Outcome, world::World};

/// The process; it ends when this is dropped.
pub(crate) struct Oracle {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a> {
    allocator: &'a str,
    #[serde(flatten)]
    world: &'a World,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    allocations: Vec<AllocationResult>,
    #[serde(default)]
    failed: String,
    #[serde(default)]
    on_node: bool,
}

impl Oracle {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let started = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("starting {}", program.display()))?;
        let questions = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, questions, answers })
    }

    pub(crate) fn ask(&mut self, world: &World, allocator: &str) -> Result<Outcome> {
        let mut line = serde_json::to_string(&Question { allocator, world }).context("writing a case")?;
        line.push('\n');
        self.questions.write_all(line.as_bytes()).context("asking the oracle")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).context("hearing the oracle")?;
        ensure!(!answer.is_empty(), "the oracle has ended; it was asked {line}");
        let answer: Answer =
            serde_json::from_str(&answer).with_context(|| format!("reading the answer {answer}"))?;
        Ok(match answer {
            Answer { failed, on_node: false, .. } if !failed.is_empty() => Outcome::Failed(failed),
            Answer { allocations, failed, .. } if allocations.is_empty() || !failed.is_empty() => {
                Outcome::NotHere
            }
            Answer { allocations, .. } => Outcome::allocated(&allocations),
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It may have ended already, and nothing else can be done about it here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
