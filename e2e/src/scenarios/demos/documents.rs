//! Documents beside the demos: the sections that show what a cluster or a node prints.

use std::time::Duration;

use anyhow::Result;

use super::{GPUS, full, wait_webhook};
use crate::{context::Context, demo::Demo, scenario::Scenario};

/// Sections of a document that a scenario follows, in order.
#[derive(Debug)]
struct Followed {
    scenario: &'static str,
    document: &'static str,
    headings: &'static [&'static str],
}

static GETTING_STARTED: Followed = Followed {
    scenario: "demos_document_getting_started",
    document: "docs/getting-started.md",
    headings: &["What the driver publishes", "A pod with a GPU"],
};
static OPERATIONS: Followed = Followed {
    scenario: "demos_document_operations",
    document: "docs/operations.md",
    headings: &["Log", "State of a node", "Mistakes in a claim's configuration", "Troubleshooting"],
};

pub(super) fn on_gpus() -> Vec<Scenario> {
    vec![Scenario::new(GETTING_STARTED.scenario, |cx| Box::pin(GETTING_STARTED.follow(cx))).on_chart(GPUS)]
}

pub(super) fn scenarios() -> Vec<Scenario> {
    const JSON: &[&str] = &["webhook.enabled=true", "log.format=json"];
    vec![full(OPERATIONS.scenario, |cx| Box::pin(operations(cx))).on_chart(JSON)]
}

async fn operations(cx: &Context) -> Result<()> {
    wait_webhook(cx, Duration::from_secs(60)).await?;
    OPERATIONS.follow(cx).await
}

impl Followed {
    async fn follow(&self, cx: &Context) -> Result<()> {
        Demo::follow_sections(cx, self.document, self.headings).await
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use transcript::{Block, EMBEDDED, WORKSPACE};

    use super::*;

    static FOLLOWED: [&Followed; 2] = [&GETTING_STARTED, &OPERATIONS];

    /// Blocks that are neither commands nor their output, by their first lines, and what they are.
    const OTHERS: [(&str, &str, &str); 7] = [
        ("docs/architecture.md", "absent ──▶ Started", "a diagram"),
        ("docs/architecture.md", "dra-claim-record <format>", "a format"),
        ("docs/nvidia-compute-domains.md", "prepare(claim, cx):", "a design"),
        ("docs/nvidia-compute-domains.md", "unprepare(claim), rollback(claim):", "a design"),
        ("docs/nvidia-vfio.md", "save(state: address,", "a design"),
        ("docs/protocol.md", "%2Fvar%2Flib%2Fkubelet", "a value"),
        ("e2e/cdi-oracle/README.md", "{\"dir\":", "the form of lines that a program reads and writes"),
    ];

    /// The languages of fences: code, and `console`, which is read as commands with their output. Without one it is Rust, in
    /// the documentation of a crate.
    const LANGUAGES: [&str; 6] = ["console", "json", "rust", "sh", "toml", "yaml"];
    /// Fences of plain text, and what they are.
    const TEXTS: [(&str, &str); 2] =
        [("docs/claim-protocol.md", "a diagram"), ("crates/dra-doctor/README.md", "the usage of a program")];

    /// What commands begin with.
    const PROGRAMS: [&str; 15] = [
        "cargo",
        "ctr",
        "docker",
        "dra-doctor",
        "helm",
        "install",
        "kind",
        "kubectl",
        "mock-gpu-driver",
        "podman",
        "sed",
        "FAKE_NVML_DIR=/tmp/fake",
        "UPDATE_DOCUMENTS=1",
        "RUSTDOCFLAGS=\"-D",
        "}",
    ];

    fn documents() -> Vec<String> {
        let paths = transcript::documents().unwrap();
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    fn read(document: &str) -> String {
        fs::read_to_string(PathBuf::from(WORKSPACE).join(document)).unwrap()
    }

    /// Whether a test runs the block and looks at what it prints.
    fn is_followed(document: &str, block: &Block) -> bool {
        let of_demo = document.starts_with("demos/") && document.matches('/').count() == 2;
        let heading = block.heading.as_str();
        of_demo
            || EMBEDDED.contains(&(document, heading))
            || FOLLOWED.iter().any(|one| one.document == document && one.headings.contains(&heading))
    }

    /// Whether a block shows nothing but what to run: each line is a command, or belongs to one.
    fn is_commands(block: &Block) -> bool {
        let begins = |command: &str| {
            let word = command.split([' ', '(']).next().unwrap_or_default();
            command.starts_with(' ') || PROGRAMS.contains(&word)
        };
        block.steps.iter().all(|step| step.shown.is_empty() && (step.prompted || begins(&step.command)))
    }

    fn is_other(document: &str, block: &Block) -> bool {
        let first = &block.steps[0].command;
        OTHERS.iter().any(|(of, begins, _)| *of == document && first.starts_with(begins))
    }

    #[test]
    fn all_output_that_documents_show_is_held_against_what_is_printed() {
        let mut unknown = Vec::new();
        for document in documents() {
            for block in transcript::blocks(&read(&document)) {
                if !is_followed(&document, &block) && !is_commands(&block) && !is_other(&document, &block) {
                    unknown.push(format!("{document}:{}: {}", block.line, block.steps[0].command));
                }
            }
        }
        assert!(
            unknown.is_empty(),
            "nobody sees that this is what is printed. Put it below a heading that is followed (FOLLOWED here, or \
             transcript::EMBEDDED), or say in OTHERS what it is:\n{}",
            unknown.join("\n"),
        );
    }

    #[test]
    fn no_prompt_is_hidden_where_nobody_follows_it() {
        for document in documents() {
            let text = read(&document);
            let prompts = text.lines().filter(|line| line.trim_start().starts_with("$ ")).count();
            let blocks = transcript::blocks(&text);
            let steps = blocks.iter().flat_map(|block| &block.steps);
            assert_eq!(steps.filter(|step| step.prompted).count(), prompts, "{document}");
        }
    }

    #[test]
    fn no_output_is_hidden_in_a_fence_of_another_kind() {
        let mut texts = Vec::new();
        for document in documents() {
            let text = read(&document);
            let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
            // Every second one closes.
            for language in fences.step_by(2) {
                let language = language.split(',').next().unwrap_or_default();
                match language {
                    "text" => texts.push(document.clone()),
                    "" | "no_run" if document.starts_with("crates/") => {}
                    _ => assert!(LANGUAGES.contains(&language), "{document}: a block of {language:?}"),
                }
            }
        }
        let mut known = TEXTS.map(|(document, _)| document);
        known.sort_unstable();
        assert_eq!(texts, known, "blocks of plain text; output belongs into those of `console`");
    }

    #[test]
    fn what_is_said_to_be_no_output_is_there() {
        for (document, begins, what) in OTHERS {
            let blocks = transcript::blocks(&read(document));
            let found = blocks.iter().any(|block| block.steps[0].command.starts_with(begins));
            assert!(found, "{document} has no longer {what} that begins with {begins:?}");
        }
    }

    #[test]
    fn each_followed_document_has_its_scenario_and_its_sections() {
        let scenarios: Vec<_> = crate::scenarios::all().iter().map(|scenario| scenario.name).collect();
        for followed in FOLLOWED {
            assert!(scenarios.contains(&followed.scenario), "{}", followed.scenario);
            let blocks = transcript::blocks(&read(followed.document));
            for heading in followed.headings {
                let shows = |block: &Block| {
                    block.heading == *heading && block.steps.iter().any(|step| !step.shown.is_empty())
                };
                assert!(blocks.iter().any(shows), "{} shows nothing below {heading:?}", followed.document);
            }
        }
    }
}
