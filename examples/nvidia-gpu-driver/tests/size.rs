//! The driver stays of a size that one person can know: the Go driver's plugin for GPUs has about 9 400 lines. MPS counts by
//! itself, as a part that the rest does not know of.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Binding included; tests, and the program for machines with a GPU, are not.
const MOST: usize = 4_000;
const MOST_OF_MPS: usize = 700;

#[test]
fn the_driver_and_its_binding_have_at_most_4000_lines_without_mps() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_mps =
        |path: &Path| path.ends_with("mps.rs") || path.parent().is_some_and(|folder| folder.ends_with("mps"));
    let mps = lines(&root.join("src"), is_mps);
    let driver = lines(&root.join("src"), |path| !is_mps(path));
    let binding = lines(&root.join("nvml/src"), |_| true);
    println!("{driver} lines, {binding} of the binding, {mps} for MPS");
    let enough = driver > 1_500 && binding > 500 && mps > 300;
    assert!(enough, "something is not counted: {driver}, {binding} and {mps}");
    assert!(driver + binding <= MOST && mps <= MOST_OF_MPS, "{driver}, {binding} and {mps} lines");
}

/// Of all files that are `wanted` but those of tests: up to the first module for tests.
fn lines(folder: &Path, wanted: impl Fn(&Path) -> bool) -> usize {
    let is_counted = |path: &&PathBuf| {
        let skipped = ["tests.rs", "faults.rs", "gpu-smoke.rs"];
        let is_skipped = skipped.iter().any(|name| path.ends_with(name));
        !is_skipped && path.extension().is_some_and(|end| end == "rs") && wanted(path)
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
