//! The driver stays of a size that people copy, and the comparison says what that is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

use std::{fs, path::Path};

const COMPARISON: &str = "../../docs/comparison.md";
const HEADING: &str = "## Lines of a driver";
/// The row that has what everybody copies: network, CPU, webhook and controller are apart.
const CORE: &str = "**GPU profile and `main`**";
/// Of the row above, at most.
const MOST: usize = 600;

/// A row of the table whose number is that of a count, such as "| what | 1 | 12 (`main`, `run`) |".
struct Row {
    what: String,
    said: usize,
    counted: usize,
}

/// The rows for which files are named, or `all above`, and the table's text with the numbers that are counted.
fn rows(document: &str) -> (Vec<Row>, String) {
    let (mut rows, mut text, mut all_above) = (Vec::new(), String::new(), 0);
    let (before, table) = document.split_once(HEADING).expect("the table has its heading");
    text.extend([before, HEADING]);
    for line in table.split_inclusive('\n') {
        let Some((cells, number, files)) = last_cell(line) else {
            text.push_str(line);
            continue;
        };
        let counted = if files == "all above" {
            all_above
        } else {
            let counted = files.split(", ").map(|file| lines(file.trim_matches('`'))).sum();
            all_above += counted;
            counted
        };
        let said =
            number.trim_matches('*').parse().unwrap_or_else(|_| panic!("{number:?} is no number: {line}"));
        let what = cells.trim_start_matches('|').split('|').next().unwrap_or_default().trim().to_owned();
        rows.push(Row { what, said, counted });
        let bold = if number.starts_with('*') { "**" } else { "" };
        text.extend([format!("{cells}| {bold}{counted}{bold} ({files}) |\n")]);
    }
    (rows, text)
}

/// A row without its last cell; the number in that; and the files in brackets behind it.
fn last_cell(line: &str) -> Option<(&str, &str, &str)> {
    let (cells, last) = line.trim_end().strip_suffix(" |")?.rsplit_once("| ")?;
    let (number, files) = last.strip_suffix(')')?.split_once(" (")?;
    (files.starts_with('`') || files == "all above").then_some((cells, number, files))
}

/// Lines of a file of the driver that are neither blank nor comments, up to its tests.
fn lines(file: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file).with_extension("rs");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines().map(str::trim);
    code.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// `UPDATE_DOCUMENTS=1 cargo test -p mock-gpu-driver --test size` writes the numbers.
#[test]
fn the_comparison_says_how_many_lines_the_driver_has_and_it_is_small() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMPARISON);
    let (rows, text) = rows(&fs::read_to_string(&path).unwrap());
    let core = rows.iter().find(|row| row.what == CORE).expect("the row of what people copy");
    assert!(
        (300..=MOST).contains(&core.counted),
        "{CORE} has {} lines, at most {MOST} are wanted",
        core.counted
    );
    let wrong = rows.iter().filter(|row| row.said != row.counted);
    let wrong: Vec<_> =
        wrong.map(|row| format!("{}: {} lines, not {}", row.what, row.counted, row.said)).collect();
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        wrong.is_empty(),
        "docs/comparison.md is out of date; UPDATE_DOCUMENTS=1 mends it:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_file_of_a_profile_is_in_the_table() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(COMPARISON)).unwrap();
    for file in ["profile", "profile/gpu", "profile/gpu/config", "profile/net", "profile/cpu"] {
        assert!(document.contains(&format!("`{file}`")), "{file}");
    }
}
