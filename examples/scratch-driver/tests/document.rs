//! The code in `docs/writing-a-driver.md` is this driver's.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{fs, path::Path};

const DOCUMENT: &str = include_str!("../../../docs/writing-a-driver.md");

/// The blocks of code, each with the language that stands at its head.
fn blocks(document: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, code.join("\n")));
        }
    }
    blocks
}

/// All files of this crate, as pieces without blank lines, each moved to the left margin.
fn sources(folder: &Path) -> Vec<String> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources.append(&mut self::sources(&path));
        } else {
            sources.push(left(&fs::read_to_string(&path).unwrap()));
        }
    }
    sources
}

/// A text whose lines have lost their indentation; what is compared is the code, wherever it stands.
fn left(text: &str) -> String {
    text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_block_of_code_is_a_piece_of_the_driver() {
    let sources = sources(Path::new(env!("CARGO_MANIFEST_DIR")));
    let blocks = blocks(DOCUMENT);
    assert!(blocks.len() > 15, "only {} blocks are found", blocks.len());
    for (language, code) in blocks {
        assert!(["rust", "toml", "yaml"].contains(&language), "a block in {language:?}");
        for piece in code.split("\n\n") {
            let found = sources.iter().any(|source| source.contains(&left(piece)));
            assert!(found, "this is in no file of the driver:\n{piece}");
        }
    }
}

/// Lines of a file that are neither blank nor comments.
fn lines(path: &str) -> usize {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn the_comparison_says_how_many_lines_the_drivers_have() {
    const COMPARISON: &str = include_str!("../../../docs/comparison.md");
    let scratch = ["config", "disks", "main", "plugin"].map(|file| lines(&format!("src/{file}.rs")));
    for (driver, count) in
        [("scratch-driver", scratch.iter().sum()), ("hello-driver", lines("../hello-driver/src/main.rs"))]
    {
        let said = format!("{count} ([`{driver}`](../examples/{driver}))");
        assert!(COMPARISON.contains(&said), "docs/comparison.md does not say {said:?}");
    }
}
