//! The demos, and what else users are given to try.

use std::{cell::RefCell, fs, path::PathBuf, process::Output, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;
use transcript::{Block, Document, Gpus, Step, WORKSPACE};

use crate::{context::Context, eventually::eventually, scenarios::gpu::nothing_left};

const KUBECONFIG: &str = "/run/cluster/conf/admin.kubeconfig";
/// So long may it take until one sees what is shown.
const SEEN_WITHIN: Duration = Duration::from_secs(90);
/// So long it is waited for when something else may be shown instead.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// A document whose commands are run as it says, in the scenario's namespace: the README of a demo, or sections of another.
pub(crate) struct Demo<'a> {
    cx: &'a Context,
    kubeconfig: PathBuf,
    document: Document,
    /// Blocks of commands that were not run yet, the last one first.
    blocks: Vec<Block>,
    /// Variables that were set, as commands of a shell.
    variables: String,
    gpus: Gpus,
}

impl<'a> Demo<'a> {
    /// Runs all blocks of the README in `demos/NAME` but the last one, which cleans up.
    ///
    /// # Errors
    /// A command fails, or its output is not what is shown.
    pub(crate) async fn follow(cx: &'a Context, name: &str) -> Result<Self> {
        let file = format!("demos/{name}/README.md");
        let mut demo = Self::open(cx, &file, |_| true).await?;
        ensure!(demo.blocks.len() > 1, "{file} has nothing to run");
        demo.run_until(1).await?;
        Ok(demo)
    }

    /// Runs all blocks below these headings of a document.
    ///
    /// # Errors
    /// A command fails, or its output is not what is shown.
    pub(crate) async fn follow_sections(cx: &'a Context, file: &str, headings: &[&str]) -> Result<()> {
        let mut demo = Self::open(cx, file, |block| headings.contains(&block.heading.as_str())).await?;
        for heading in headings {
            let found = demo.blocks.iter().any(|block| block.heading == *heading);
            ensure!(found, "{file} has nothing to run below {heading:?}");
        }
        demo.run_until(0).await
    }

    /// Runs what is left, and sees that the pods are gone and nothing of them is on the node.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.run_until(0).await?;
        nothing_left().await
    }

    async fn open(cx: &'a Context, file: &str, wanted: impl Fn(&Block) -> bool) -> Result<Self> {
        let document = Document::read(file)?;
        let mut blocks: Vec<_> = document.blocks().into_iter().filter(wanted).collect();
        blocks.reverse();
        let kubeconfig = cx.scratch.join("kubeconfig");
        fs::copy(KUBECONFIG, &kubeconfig).with_context(|| format!("copying {KUBECONFIG}"))?;
        let demo = Self { cx, kubeconfig, document, blocks, variables: String::new(), gpus: Gpus::default() };
        let namespace = format!("kubectl config set-context --current --namespace={}", cx.namespace);
        let set = demo.shell(&namespace).await?;
        ensure!(set.status.success(), "{namespace}: {}", text_of(&set));
        Ok(demo)
    }

    /// Runs blocks until so many are left.
    async fn run_until(&mut self, left: usize) -> Result<()> {
        while self.blocks.len() > left
            && let Some(block) = self.blocks.pop()
        {
            for step in block.steps {
                self.run(&step).await.with_context(|| format!("following the document: {}", step.command))?;
            }
        }
        Ok(())
    }

    async fn run(&mut self, step: &Step) -> Result<()> {
        if let Some(name) = variable(&step.command) {
            let output = self.shell(&format!("{}\nprintf %s \"${name}\"", step.command)).await?;
            let value = text_of(&output);
            ensure!(output.status.success() && !value.is_empty(), "{name} is empty: {value}");
            self.variables.extend([name, "='", &value, "'\n"]);
            return Ok(());
        }
        let last = RefCell::new(String::new());
        let may_change = self.cx.updates && !step.shown.is_empty();
        let within = if may_change { SETTLED_WITHIN } else { SEEN_WITHIN };
        let seen = eventually("what is shown", within, || async {
            let output = self.shell(&step.command).await?;
            // For readers it is where `kubectl` is at.
            let text = text_of(&output).replace(&self.cx.namespace, "default");
            let seen = match () {
                () if !step.shown.is_empty() => transcript::matches(&step.shown, &text, &self.gpus),
                () if output.status.success() => Some(self.gpus.clone()),
                // It may give up where this waits on.
                () if step.command.starts_with("kubectl wait") => None,
                () => bail!("{text}"),
            };
            last.replace(text);
            Ok(seen)
        });
        let seen = seen.await;
        let last = last.into_inner();
        match seen {
            Ok(gpus) => self.gpus = gpus,
            Err(_) if may_change => {
                let fresh = transcript::refreshed(&step.shown, &last, &self.gpus);
                self.document.show(step, &fresh)?;
                println!("    shown anew: {}", step.command);
            }
            Err(error) => {
                let shown = step.shown.join("\n");
                let pods = text_of(&self.shell("kubectl describe pods,resourceclaims").await?);
                return Err(error.context(format!("shown:\n{shown}\nprinted:\n{last}\npods:\n{pods}")));
            }
        }
        Ok(())
    }

    /// Runs a command as a user would who stands in the workspace, has the scenario's namespace as the default, and the
    /// programs of the workspace at hand.
    async fn shell(&self, command: &str) -> Result<Output> {
        let namespace = &self.cx.namespace;
        let command = command
            .replace("namespace default", &format!("namespace {namespace}"))
            .replace("pod default/", &format!("pod {namespace}/"));
        let script = format!("exec 2>&1\n{}{command}", self.variables);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(WORKSPACE).env("KUBECONFIG", &self.kubeconfig);
        shell.env("PATH", self.cx.path_with_programs()?);
        shell.kill_on_drop(true).output().await.with_context(|| format!("running {command}"))
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The variable that a command sets: the `NODE` of `NODE=$(…)`.
fn variable(command: &str) -> Option<&str> {
    let (name, _) = command.split_once('=')?;
    (!name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase())).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_variable_is_set_by_its_name_alone() {
        assert_eq!(variable("NODE=$(kubectl get node)"), Some("NODE"));
        assert_eq!(variable("kubectl wait --for=delete pod/a"), None);
        assert_eq!(variable("=x"), None);
    }

    fn folders() -> Vec<String> {
        let entries = fs::read_dir(PathBuf::from(WORKSPACE).join("demos")).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    fn read(path: &str) -> String {
        fs::read_to_string(PathBuf::from(WORKSPACE).join(path)).unwrap()
    }

    /// The scenarios of demos by the name of their folder, and since which 1.x.
    fn scenarios() -> BTreeMap<String, u32> {
        let named = |scenario: Scenario| {
            let folder = scenario.name.strip_prefix("demos_")?;
            if folder.starts_with("document_") {
                return None;
            }
            let folder = folder.replace('_', "-");
            // The oldest that is tested.
            Some((folder, scenario.since.max(34)))
        };
        crate::scenarios::all().into_iter().filter_map(named).collect()
    }

    #[test]
    fn each_demo_has_a_scenario_and_each_scenario_a_demo() {
        let mut folders = folders();
        folders.sort();
        assert_eq!(scenarios().into_keys().collect::<Vec<_>>(), folders);
    }

    #[test]
    fn the_table_names_each_demo_with_the_version_that_its_scenario_needs() {
        let table = read("demos/README.md");
        let rows: BTreeMap<String, u32> = table
            .lines()
            .filter_map(|line| {
                let cells: Vec<_> = line.strip_prefix("| [")?.split('|').map(str::trim).collect();
                let folder = cells[0].split_once(']')?.0.to_owned();
                let minor = cells[2].rsplit("1.").next()?.parse().expect("a version");
                assert_eq!(cells[5], format!("`demos_{}`", folder.replace('-', "_")), "scenario of {folder}");
                Some((folder, minor))
            })
            .collect();
        assert_eq!(rows, scenarios());
    }

    #[test]
    fn each_readme_applies_and_removes_the_files_of_its_folder() {
        for folder in folders() {
            let blocks = transcript::blocks(&read(&format!("demos/{folder}/README.md")));
            assert!(blocks.len() > 1, "{folder}");
            let steps: Vec<_> = blocks.iter().flat_map(|block| &block.steps).collect();
            let commands: Vec<_> = steps.iter().map(|step| step.command.as_str()).collect();
            let has = |verb: &str| {
                commands.iter().any(|c| c.contains(verb) && c.contains(&format!("demos/{folder}")))
            };
            assert!(has("kubectl apply -f") && has("kubectl delete -f"), "{folder}: {commands:?}");
            assert!(steps.iter().any(|step| !step.shown.is_empty()), "{folder} shows no output");
        }
    }
}
