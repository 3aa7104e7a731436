//! Whether output is what is shown, and what to show instead.

use std::collections::BTreeMap;

/// Which GPU of a document is which one here, by their numbers: it need not be the same, but always the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus(BTreeMap<String, String>);

impl Gpus {
    /// With the GPU of the document as the one here, unless one of them is known to be another.
    fn with(&self, shown: &str, here: &str) -> Option<Self> {
        let agrees = |(known, number): (&String, &String)| (known == shown) == (number == here);
        let mut gpus = self.clone();
        self.0.iter().all(agrees).then(|| {
            gpus.0.insert(shown.to_owned(), here.to_owned());
            gpus
        })
    }
}

/// The GPUs as known after this output, if it is what is shown.
#[must_use]
pub fn matches(shown: &[String], output: &str, gpus: &Gpus) -> Option<Gpus> {
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
    if matches!(first[..], [Piece::Any] | [Piece::Space, Piece::Any]) {
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

/// What to show for this output in place of what is shown.
///
/// Lines that still hold stay as they are, and so do the words that hold of a line that has as many as before. UUIDs become
/// `…`; what else is different each time is for the author to blot out.
#[must_use]
pub fn refreshed(shown: &[String], output: &str, gpus: &Gpus) -> Vec<String> {
    let new: Vec<_> = output.lines().map(str::trim_end).collect();
    let holds = |(shown, line): &(&String, &&str)| line_matches(&pieces(shown), line, gpus).is_some();
    let ahead = shown.iter().zip(&new).take_while(holds).count();
    let (old, fresh) = (&shown[ahead..], &new[ahead..]);
    let behind = old.iter().rev().zip(fresh.iter().rev()).take_while(holds).count();
    let (old, fresh) = (&old[..old.len() - behind], &fresh[..fresh.len() - behind]);
    let line_by_line = old.len() == fresh.len();
    let middle = fresh.iter().enumerate().map(|(index, line)| match old.get(index) {
        Some(old) if line_by_line => words(old, line, gpus),
        _ => masked(line),
    });
    let kept = |lines: &[String]| lines.to_vec();
    [kept(&shown[..ahead]), middle.collect(), kept(&shown[shown.len() - behind..])].concat()
}

/// A line of output with the words of the one that was shown, where they hold.
fn words(shown: &str, line: &str, gpus: &Gpus) -> String {
    let old: Vec<_> = shown.split_whitespace().collect();
    if old.len() != line.split_whitespace().count() {
        return masked(line);
    }
    let (mut text, mut rest, mut old) = (String::new(), line, old.into_iter());
    while !rest.is_empty() {
        let blank = rest.len() - rest.trim_start().len();
        let word = rest[blank..].split_whitespace().next().unwrap_or_default();
        let kept = old.next().filter(|old| line_matches(&pieces(old), word, gpus).is_some());
        let word_shown = kept.map_or_else(|| masked(word), str::to_owned);
        let next = &rest[blank + word.len()..];
        text.extend([&rest[..blank], &word_shown]);
        // In a table what follows stays in its column.
        if next.starts_with("  ") {
            let shorter = word.chars().count().saturating_sub(word_shown.chars().count());
            text.push_str(&" ".repeat(shorter));
        }
        rest = next;
    }
    text
}

/// A text with `…` in place of UUIDs.
fn masked(text: &str) -> String {
    const LENGTH: usize = 36;
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let is_uuid = |text: &str| {
        let is_part = |(index, byte): (usize, u8)| {
            if HYPHENS.contains(&index) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        };
        text.bytes().enumerate().all(is_part)
    };
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(next) = rest.chars().next() {
        let length = match rest.get(..LENGTH) {
            Some(start) if is_uuid(start) => {
                masked.push('…');
                // In a table what follows stays in its column.
                if rest[LENGTH..].starts_with("  ") {
                    masked.push_str(&" ".repeat(LENGTH - 1));
                }
                LENGTH
            }
            _ => {
                masked.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(shown: &[&str]) -> Vec<String> {
        shown.iter().map(|line| (*line).to_owned()).collect()
    }

    fn fits(shown: &[&str], output: &str) -> bool {
        matches(&lines(shown), output, &Gpus::default()).is_some()
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
        assert!(fits(&["a", "  …", "b"], "a\n  1\n  2\nb"));
        assert!(!fits(&["…", "b"], "b\nc"));
        assert!(fits(&["… é …"], "x é ü"));
        assert!(fits(&["a", "", "b"], "a\n\nb\n"));
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

    fn fresh(shown: &[&str], output: &str) -> Vec<String> {
        let fresh = refreshed(&lines(shown), output, &Gpus::default());
        let again = matches(&fresh, output, &Gpus::default());
        assert!(again.is_some(), "{fresh:?} is not {output:?}");
        fresh
    }

    #[test]
    fn only_what_has_changed_is_shown_anew() {
        assert_eq!(fresh(&["a  …", "b"], "a  1\nb\n"), ["a  …", "b"]);
        assert_eq!(fresh(&["?"], "a\nb"), ["a", "b"]);
        assert_eq!(
            fresh(&["NAME    AGE", "q-…     …"], "NAME    STATE   AGE\np-x7    well    3s"),
            ["NAME    STATE   AGE", "p-x7    well    3s"]
        );
        assert_eq!(fresh(&["p-…     Bad    …"], "p-x7    Good   3s"), ["p-…     Good   …"]);
        assert_eq!(fresh(&["one", "two", "three"], "one\ntwo\nmore\nthree"), ["one", "two", "more", "three"]);
        assert_eq!(fresh(&["a", "b"], ""), Vec::<String>::new());
    }

    #[test]
    fn uuids_are_blotted_out() {
        let output = "claim 6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f-gpu-0 of ü";
        assert_eq!(fresh(&["?"], output), ["claim …-gpu-0 of ü"]);
        assert_eq!(masked("6b7e3f0e-0c4c-4b6f-9c39"), "6b7e3f0e-0c4c-4b6f-9c39");
    }
}
