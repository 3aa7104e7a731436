//! Every step that a death may interrupt has a fault point before it: the kill tests die at these points only, and say
//! nothing of a step without one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// Where claims are worked on, and where records are repaired and released.
const SOURCES: [&str; 3] = ["src/claims", "src/state", "src/state.rs"];

/// What changes something that outlives the process.
const STEPS: [&str; 20] = [
    "fs::create_dir",
    "fs::rename(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::write(",
    "fs::copy(",
    "fs::hard_link(",
    "symlink(",
    "File::create(",
    "File::create_new(",
    "OpenOptions::new()",
    ".write_all(",
    ".write_all_at(",
    ".set_len(",
    ".sync_all(",
    ".sync_data(",
    "plugin.prepare(",
    "plugin.rollback(",
    "plugin.unprepare",
];

/// How far above a step its point may be.
const ABOVE: usize = 4;

#[test]
fn every_step_of_the_claims_that_changes_something_has_a_fault_point() {
    let mut steps = 0;
    let mut bare = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in SOURCES.iter().flat_map(|source| sources(&root.join(source))) {
        let text = fs::read_to_string(&path).unwrap();
        steps += code(&text).filter(|(_, line)| is_step(line)).count();
        bare.extend(
            without_point(&text).map(|(number, line)| format!("{}:{number}: {line}", path.display())),
        );
    }
    assert!(steps >= 12, "only {steps} steps found: the list of steps no longer fits the sources");
    assert!(
        bare.is_empty(),
        "steps without a fault point on the same line or one of the {ABOVE} before it (fault::point, driver_point):\n{}",
        bare.join("\n")
    );
}

#[test]
fn a_step_without_a_point_is_found_by_its_line() {
    let text = "\
        fault::point(\"store.rename\")?;\n\
        fs::rename(a, b)?;\n\
        // fs::rename(a, b)?;\n\
        driver_point(\"driver.before-prepare\")?;\n\
        let called = spawn(async move { plugin.prepare(&claim).await });\n\
        let two;\n\
        let three;\n\
        let four;\n\
        let five;\n\
        fs::remove_file(a)?;\n\
        #[cfg(test)]\n\
        mod tests { fs::write(a, b); }\n";
    let found: Vec<_> = without_point(text).collect();
    assert_eq!(found, [(10, "fs::remove_file(a)?;")]);
}

/// Steps without a point, with their line numbers.
fn without_point(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    code(text).filter(move |(number, line)| {
        let has_point = |line: &&str| line.contains("point(\"") && !line.trim_start().starts_with("//");
        is_step(line) && !lines[number.saturating_sub(ABOVE + 1)..*number].iter().any(has_point)
    })
}

/// Lines outside comments and tests, counted from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"));
    lines
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.starts_with("//"))
}

fn is_step(line: &str) -> bool {
    STEPS.iter().any(|step| line.contains(step))
}

/// The file, or all source files of the folder but those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if matches!(stem, "tests" | "model") {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
