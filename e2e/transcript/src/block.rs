//! Blocks of commands in Markdown.

/// A block of commands, in the order in which they are run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The heading above it; empty if there is none.
    pub heading: String,
    /// The number of its first line, from 1.
    pub line: usize,
    /// Its commands: one at least.
    pub steps: Vec<Step>,
}

/// One command, and the output that is shown for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What is run: as many lines as the document has for it.
    pub command: String,
    /// Whether it stands behind a `$`.
    pub prompted: bool,
    /// The lines of its output; none if none are shown.
    pub shown: Vec<String>,
    /// The number of the line behind the command's last one, from 1, where the output is or would be.
    pub(crate) below: usize,
    /// What stands before each line of the block.
    pub(crate) indent: &'static str,
}

const INDENT: &str = "    ";
const FENCE: &str = "```";

/// The blocks of a document, in order.
#[must_use]
pub fn blocks(markdown: &str) -> Vec<Block> {
    let (mut blocks, mut heading, mut lines) = (Vec::new(), String::new(), Vec::new());
    // Whether the fence that we are in is one of commands.
    let mut fence = None;
    let mut close = |heading: &str, lines: &mut Vec<(usize, &str)>, indent| {
        blocks.extend(block(heading, &std::mem::take(lines), indent));
    };
    for (index, line) in markdown.lines().enumerate() {
        let number = index + 1;
        match (fence, line.strip_prefix(FENCE)) {
            (None, Some(language)) => {
                close(&heading, &mut lines, INDENT);
                fence = Some(language.trim() == "console");
            }
            (Some(_), Some(_)) => {
                close(&heading, &mut lines, "");
                fence = None;
            }
            (Some(true), None) => lines.push((number, line)),
            (Some(false), None) => {}
            (None, None) => {
                if let Some(text) = line.strip_prefix(INDENT) {
                    lines.push((number, text));
                    continue;
                }
                close(&heading, &mut lines, INDENT);
                if line.starts_with('#') {
                    line.trim_start_matches('#').trim().clone_into(&mut heading);
                }
            }
        }
    }
    close(&heading, &mut lines, INDENT);
    blocks
}

/// The block of these lines, which have numbers; none if there are no lines.
fn block(heading: &str, lines: &[(usize, &str)], indent: &'static str) -> Option<Block> {
    let &(line, _) = lines.first()?;
    let mut steps: Vec<Step> = Vec::new();
    let (mut shows, mut goes_on) = (false, false);
    for &(number, line) in lines {
        match (steps.last_mut(), line.strip_prefix("$ ")) {
            (Some(step), _) if goes_on => {
                step.command.extend(["\n", line]);
                step.below = number + 1;
            }
            (Some(step), None) if shows => {
                step.shown.push(line.trim_end().to_owned());
                continue;
            }
            (_, command) => {
                shows = command.is_some();
                steps.push(Step {
                    command: command.unwrap_or(line).to_owned(),
                    prompted: shows,
                    shown: Vec::new(),
                    below: number + 1,
                    indent,
                });
            }
        }
        goes_on = line.ends_with('\\');
    }
    for step in &mut steps {
        let kept = step.shown.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        step.shown.truncate(kept);
    }
    Some(Block { heading: heading.to_owned(), line, steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Command and output of each step of each block.
    fn read(markdown: &str) -> Vec<Vec<(String, Vec<String>)>> {
        let steps = |block: Block| block.steps.into_iter().map(|step| (step.command, step.shown)).collect();
        blocks(markdown).into_iter().map(steps).collect()
    }

    fn step(command: &str, shown: &[&str]) -> (String, Vec<String>) {
        (command.into(), shown.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn indented_lines_are_commands_and_what_follows_a_dollar_is_output() {
        let markdown = "# A\n\n    a \\\n      b\n    c\n\ntext\n\n    $ d\n    one\n      two\n    $ e\n\n    f\n\n```\n    g\n```\n";
        let expected = [
            vec![step("a \\\n  b", &[]), step("c", &[])],
            vec![step("d", &["one", "  two"]), step("e", &[])],
            vec![step("f", &[])],
        ];
        assert_eq!(read(markdown), expected);
    }

    #[test]
    fn a_console_fence_is_a_block_whose_output_may_have_blank_lines() {
        let markdown = "```console\n$ a\none\n\ntwo\n\n$ b\n```\n```sh\nc\n```\n";
        assert_eq!(read(markdown), [vec![step("a", &["one", "", "two"]), step("b", &[])]]);
    }

    #[test]
    fn a_block_knows_its_place() {
        let markdown = "    a\n\n## One `two`\n\n    b\n```console\n$ c\n```\n";
        let places: Vec<_> = blocks(markdown).into_iter().map(|block| (block.heading, block.line)).collect();
        assert_eq!(places, [(String::new(), 1), ("One `two`".to_owned(), 5), ("One `two`".to_owned(), 7)]);
    }
}
