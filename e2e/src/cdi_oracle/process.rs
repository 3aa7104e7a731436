//! One oracle process: a line of JSON in, a line of JSON out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// A running oracle; ended when dropped.
pub(super) struct Oracle {
    version: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What a library makes of a folder.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) specs: Vec<Loaded>,
    /// By file.
    pub(super) errors: BTreeMap<String, Value>,
    /// The container's configuration after the injection.
    pub(super) oci: Option<Value>,
    pub(super) failure: Option<String>,
}

/// A file that was accepted.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) version: String,
    pub(super) minimum_version: String,
    pub(super) kind: String,
    pub(super) devices: Vec<String>,
}

impl Oracle {
    pub(super) fn start(version: &str, program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the CDI oracle {}", program.display()))?;
        let requests = child.stdin.take().context("the oracle has no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("the oracle has no standard output")?);
        Ok(Self { version: version.to_owned(), child, requests, answers })
    }

    /// The version of the library, such as `v1.0.1`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Loads `folder`, and injects `ids` into an empty container if there are any.
    pub(super) fn ask(&mut self, folder: &Path, ids: &[String]) -> Result<Answer> {
        let request = json!({ "dir": folder, "inject": ids });
        writeln!(self.requests, "{request}")
            .with_context(|| format!("asking CDI oracle {}", self.version))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).with_context(|| format!("hearing CDI oracle {}", self.version))?;
        let answer: Value = serde_json::from_str(&line)
            .with_context(|| format!("CDI oracle {} answered {line:?}", self.version))?;
        ensure!(answer["library"] == self.version, "asked {}, answered {}", self.version, answer["library"]);
        Ok(read(&answer))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(answer: &Value) -> Answer {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let loaded = |spec: &Value| Loaded {
        version: text(&spec["version"]),
        minimum_version: text(&spec["minimumVersion"]),
        kind: text(&spec["kind"]),
        devices: list(&spec["devices"]).iter().map(text).collect(),
    };
    Answer {
        specs: list(&answer["specs"]).iter().map(loaded).collect(),
        errors: answer["errors"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        oci: answer.get("oci").cloned(),
        failure: answer["failure"].as_str().map(str::to_owned),
    }
}
