//! What the README of a demo tells its readers to run, and what it says that they will see.
//!
//! Indented blocks are run; fenced ones are not. In a block, a line that begins with `$` is a command whose output follows;
//! without it each line is a command. A blank line ends a block.

use std::collections::BTreeMap;

/// One command, and the output that is shown for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    /// Empty if none is shown.
    pub(crate) shown: Vec<String>,
}

/// The blocks of a README, in order.
pub(crate) fn blocks(markdown: &str) -> Vec<Vec<Step>> {
    let (mut blocks, mut block, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in markdown.lines() {
        fenced ^= line.starts_with("```");
        match line.strip_prefix("    ") {
            Some(line) if !fenced => block.push(line),
            _ => blocks.push(std::mem::take(&mut block)),
        }
    }
    blocks.push(block);
    blocks.iter().map(|block| steps(block)).filter(|steps| !steps.is_empty()).collect()
}

fn steps(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut shows, mut goes_on) = (false, false);
    for line in block {
        match (steps.last_mut(), line.strip_prefix("$ ")) {
            (Some(step), _) if goes_on => step.command.extend(["\n", *line]),
            (Some(step), None) if shows => {
                step.shown.push((*line).to_owned());
                continue;
            }
            (_, command) => {
                shows = command.is_some();
                steps.push(Step { command: command.unwrap_or(line).to_owned(), shown: Vec::new() });
            }
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

/// Which GPU of the README is which one here, by their numbers: it need not be the same, but always the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus(BTreeMap<String, String>);

impl Gpus {
    /// With the GPU of the README as the one here, unless one of them is known to be another.
    fn with(&self, shown: &str, here: &str) -> Option<Self> {
        let agrees = |(known, number): (&String, &String)| (known == shown) == (number == here);
        let mut gpus = self.clone();
        self.0.iter().all(agrees).then(|| {
            gpus.0.insert(shown.to_owned(), here.to_owned());
            gpus
        })
    }
}

/// The GPUs as known after this output, if it is what the README shows.
///
/// `…` stands for any text, and alone in a line for any lines. Columns may be wider or narrower.
pub(crate) fn matches(shown: &[String], output: &str, gpus: &Gpus) -> Option<Gpus> {
    let shown: Vec<_> = shown.iter().map(|line| pieces(line)).collect();
    let output: Vec<_> = output.lines().collect();
    lines_match(&shown, &output, gpus)
}

/// A piece of a line that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The number of a GPU.
    Gpu(String),
    Any,
    Space,
}

fn lines_match(shown: &[Vec<Piece>], output: &[&str], gpus: &Gpus) -> Option<Gpus> {
    let Some((first, rest)) = shown.split_first() else {
        return output.is_empty().then(|| gpus.clone());
    };
    if *first == [Piece::Any] {
        return (0..=output.len()).find_map(|skipped| lines_match(rest, &output[skipped..], gpus));
    }
    let (line, others) = output.split_first()?;
    let gpus = line_matches(first, line.trim_end(), gpus)?;
    lines_match(rest, others, &gpus)
}

fn line_matches(shown: &[Piece], line: &str, gpus: &Gpus) -> Option<Gpus> {
    let Some((first, rest)) = shown.split_first() else {
        return line.is_empty().then(|| gpus.clone());
    };
    match first {
        Piece::Text(text) => line_matches(rest, line.strip_prefix(text.as_str())?, gpus),
        Piece::Space => {
            let trimmed = line.trim_start();
            if trimmed.len() == line.len() { None } else { line_matches(rest, trimmed, gpus) }
        }
        Piece::Gpu(number) => {
            let (here, others) = line.split_at(digits(line));
            if here.is_empty() { None } else { line_matches(rest, others, &gpus.with(number, here)?) }
        }
        Piece::Any => {
            let mut ends = line.char_indices().map(|(index, _)| index).chain([line.len()]);
            ends.find_map(|end| line_matches(rest, &line[end..], gpus))
        }
    }
}

/// What stands before the number of a GPU.
const BEFORE_NUMBER: [&str; 3] = ["gpu-", "GPU_DEVICE_", "GPU_DEVICE_GPU_"];

fn pieces(line: &str) -> Vec<Piece> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), line.trim_end());
    while let Some(next) = rest.chars().next() {
        let number = digits(rest);
        let is_gpu = number > 0 && BEFORE_NUMBER.iter().any(|before| text.ends_with(before));
        let (piece, length) = match next {
            '…' => (Piece::Any, next.len_utf8()),
            ' ' => (Piece::Space, rest.len() - rest.trim_start().len()),
            _ if is_gpu => (Piece::Gpu(rest[..number].to_owned()), number),
            _ => {
                text.push(next);
                rest = &rest[next.len_utf8()..];
                continue;
            }
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(piece);
        rest = &rest[length..];
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str, shown: &[&str]) -> Step {
        Step { command: command.into(), shown: shown.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn indented_lines_are_commands_and_what_follows_a_dollar_is_output() {
        let readme = "# A\n\n    a \\\n      b\n    c\n\ntext\n\n    $ d\n    one\n      two\n    $ e\n\n    f\n\n```\n    g\n```\n";
        let expected = [
            vec![step("a \\\n  b", &[]), step("c", &[])],
            vec![step("d", &["one", "  two"]), step("e", &[])],
            vec![step("f", &[])],
        ];
        assert_eq!(blocks(readme), expected);
    }

    fn fits(shown: &[&str], output: &str) -> bool {
        matches(&step("", shown).shown, output, &Gpus::default()).is_some()
    }

    #[test]
    fn output_is_what_is_shown_but_for_dots_and_the_width_of_columns() {
        assert!(fits(&["8"], "8\n"));
        assert!(!fits(&["8"], "9\n"));
        assert!(!fits(&["8"], "8\n8\n"));
        assert!(!fits(&["8"], ""));
        assert!(fits(&["NAME   READY", "a   1/1"], "NAME READY\na      1/1   \n"));
        assert!(!fits(&["a 1"], "a1"));
        assert!(fits(&["pod-…  Running"], "pod-x7   Running"));
        assert!(!fits(&["pod-…  Running"], "pod-x7   Pending"));
        assert!(fits(&["…", "b", "…"], "a\na\nb\nc"));
        assert!(fits(&["…", "b", "…"], "b"));
        assert!(!fits(&["…", "b"], "b\nc"));
        assert!(fits(&["… é …"], "x é ü"));
    }

    #[test]
    fn a_gpu_may_have_another_number_and_stays_the_same_one() {
        assert!(fits(&["GPU_DEVICE_0=gpu-0"], "GPU_DEVICE_12=gpu-12"));
        assert!(!fits(&["GPU_DEVICE_0=gpu-0"], "GPU_DEVICE_1=gpu-2"));
        assert!(!fits(&["gpu-0", "gpu-1"], "gpu-3\ngpu-3"));
        assert!(fits(&["gpu-0-partition-1"], "gpu-4-partition-1"));
        assert!(!fits(&["gpu-0-partition-1"], "gpu-4-partition-2"));
        let first = matches(&["gpu-0".to_owned()], "gpu-5", &Gpus::default()).unwrap();
        assert!(matches(&["gpu-0".to_owned()], "gpu-5", &first).is_some());
        assert!(matches(&["gpu-0".to_owned()], "gpu-6", &first).is_none());
        assert!(matches(&["gpu-1".to_owned()], "gpu-5", &first).is_none());
    }
}
