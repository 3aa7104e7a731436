//! `cargo xtask chart`: what helm makes of the drivers' charts, without a cluster.
//!
//! helm lints them and renders them with each value left out and with extreme ones; what is rendered is looked through.

mod cases;
mod classes;
mod rendered;
mod shared;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::helm;
use cases::{Case, Outcome};

/// The charts, below the workspace's folder.
const MOCK: &str = "examples/mock-gpu-driver/deploy/helm/mock-gpu-driver";
const NVIDIA: &str = "examples/nvidia-gpu-driver/deploy/helm/nvidia-gpu-driver";

/// Lints and renders, and prints how many cases there were.
///
/// # Errors
/// Go is missing, or something about a chart is wrong.
pub(crate) fn run(root: &Path) -> Result<()> {
    shared::check(&root.join(MOCK), &root.join(NVIDIA))?;
    let helm = helm::build(root, &root.join("target/e2e/helpers"))?;
    let chart = |folder| Chart { helm: helm.clone(), folder: root.join(folder) };
    chart(MOCK).check(&["deviceProfile", "image", "kubeletRoot", "cdiRoot"], cases::of_mock())?;
    let nvidia = chart(NVIDIA);
    nvidia.check(&["image", "kubeletRoot", "cdiRoot"], cases::of_nvidia())?;
    classes::check(root, &nvidia.helm(&["template", "r", "CHART", "--namespace", "dra"])?)
}

struct Chart {
    helm: PathBuf,
    folder: PathBuf,
}

impl Chart {
    /// Lints it, and renders it in these cases and without each value; `required` are those that it cannot be without.
    fn check(&self, required: &[&str], extremes: Vec<Case>) -> Result<()> {
        let name = self.folder.file_name().unwrap_or_default().display();
        self.helm(&["lint", "--strict", "--quiet", "CHART"]).with_context(|| format!("helm lint {name}"))?;
        let mut cases = cases::without_each(&self.values()?, required);
        cases.extend(extremes);
        let mut wrong = Vec::new();
        for case in &cases {
            if let Err(error) = self.check_case(case) {
                wrong.push(format!("helm {}: {error:#}", case.arguments().join(" ")));
            }
        }
        let (failed, all) = (wrong.len(), cases.len());
        ensure!(wrong.is_empty(), "the chart {name} in {failed} of {all} cases:\n{}", wrong.join("\n"));
        println!("the chart {name} is well in {all} cases");
        Ok(())
    }

    /// The values that the chart has by itself.
    fn values(&self) -> Result<serde_yaml_ng::Mapping> {
        let text = self.helm(&["show", "values", "CHART"])?;
        serde_yaml_ng::from_str(&text).context("reading the chart's values")
    }

    fn check_case(&self, case: &Case) -> Result<()> {
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
