//! `cargo xtask chart`: what helm makes of the mock driver's chart, without a cluster.
//!
//! helm lints it and renders it with each value left out and with extreme ones; what is rendered is looked through.

mod cases;
mod rendered;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::helm;
use cases::{Case, Outcome};

/// The chart, below the workspace's folder.
pub(crate) const CHART: &str = "examples/mock-gpu-driver/deploy/helm/mock-gpu-driver";

/// Lints and renders, and prints how many cases there were.
///
/// # Errors
/// Go is missing, or something about the chart is wrong.
pub(crate) fn run(root: &Path) -> Result<()> {
    let chart =
        Chart { helm: helm::build(root, &root.join("target/e2e/helpers"))?, folder: root.join(CHART) };
    chart.lint()?;
    let values = chart.values()?;
    let mut cases = cases::without_each(&values);
    cases.extend(cases::extremes());
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(error) = chart.check(case) {
            wrong.push(format!("helm {}: {error:#}", case.arguments().join(" ")));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    println!("the chart is well in {} cases", cases.len());
    Ok(())
}

struct Chart {
    helm: PathBuf,
    folder: PathBuf,
}

impl Chart {
    fn lint(&self) -> Result<()> {
        self.helm(&["lint", "--strict", "--quiet", "CHART"]).map(drop).context("helm lint")
    }

    /// The values that the chart has by itself.
    fn values(&self) -> Result<serde_yaml_ng::Mapping> {
        let text = self.helm(&["show", "values", "CHART"])?;
        serde_yaml_ng::from_str(&text).context("reading the chart's values")
    }

    fn check(&self, case: &Case) -> Result<()> {
        match (self.helm(&case.arguments()), case.outcome()) {
            (Ok(text), Outcome::Rendered(kinds)) => rendered::check(&text, case.release(), kinds),
            (Ok(_), Outcome::Refused(_)) => bail!("it is rendered, and should be refused"),
            (Err(error), Outcome::Refused(words)) => {
                let told = format!("{error:#}");
                let missing: Vec<_> = words.iter().filter(|word| !told.contains(*word)).collect();
                ensure!(missing.is_empty(), "the error does not say {missing:?}: {told}");
                Ok(())
            }
            (Err(error), Outcome::Rendered(_)) => Err(error),
        }
    }

    /// Runs helm with the chart's folder in place of `CHART`, and gives what it prints.
    fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.helm);
        // Nothing of the user's own helm, and no cluster.
        helm.env_clear().env("HOME", "/nonexistent").env("KUBECONFIG", "/nonexistent");
        for argument in arguments {
            if *argument == "CHART" {
                helm.arg(&self.folder)
            } else {
                helm.arg(argument)
            };
        }
        let output = helm.output().with_context(|| format!("running {helm:?}"))?;
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{} {}", out.trim(), errors.trim());
        Ok(out.into_owned())
    }
}
