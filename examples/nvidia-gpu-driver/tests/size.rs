//! The driver stays of a size that one person can know: the Go driver's plugin for GPUs has about 9 400 lines.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Tests, and the program for machines with a GPU, are not counted.
const MOST: usize = 4_000;
/// Of the binding, which in the Go driver is a library that is not counted either.
const MOST_OF_BINDING: usize = 1_100;

#[test]
fn the_driver_has_at_most_4000_lines_and_its_binding_1100() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (driver, binding) = (lines(&root.join("src")), lines(&root.join("nvml/src")));
    println!("{driver} lines, and {binding} of the binding");
    assert!(driver > 1_500 && binding > 500, "something is not counted: {driver} and {binding}");
    assert!(driver <= MOST && binding <= MOST_OF_BINDING, "{driver} and {binding} lines");
}

/// Of all files but those of tests: up to the first module for tests.
fn lines(folder: &Path) -> usize {
    let is_counted = |path: &&PathBuf| {
        let skipped = ["tests.rs", "faults.rs", "gpu-smoke.rs"];
        !skipped.iter().any(|name| path.ends_with(name)) && path.extension().is_some_and(|end| end == "rs")
    };
    let count = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        code.split("\n/// GPUs for tests.").next().unwrap_or_default().lines().count()
    };
    files(folder).iter().filter(is_counted).map(count).sum()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
