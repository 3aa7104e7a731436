//! What the shared library exports. That each function has the type that `nvml-wrapper-sys` calls it with, and each
//! struct its layout, the crate itself checks when it is compiled: it takes both from there.

use std::process::Command;

use fake_nvml::{Folder, Machine};

/// The names that a shared library exports, by its table of dynamic symbols.
fn exported(library: &std::path::Path) -> Vec<String> {
    let output =
        Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(library).output();
    let output = output.expect("nm of binutils, which the linker comes with");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut names: Vec<_> =
        text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
    names.sort();
    names
}

#[test]
fn the_library_exports_its_functions_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path(), &Machine::default()).expect("a folder");
    let library = folder.install(directory.path().join("lib")).expect("is built");
    let mut expected = fake_nvml::functions();
    expected.push("nvmlErrorString");
    expected.sort_unstable();
    assert_eq!(exported(&library), expected);
}

#[test]
fn any_function_can_be_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path(), &Machine::default()).expect("a folder");
    let all = fake_nvml::functions();
    let (left_out, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| name.contains("Device"));
    let library = folder.install_without(directory.path().join("lib"), &left_out).expect("is built");
    let exported = exported(&library);
    for name in left_out {
        assert!(!exported.iter().any(|other| other == name), "{name}");
    }
    for name in kept {
        assert!(exported.iter().any(|other| other == name), "{name}");
    }
}

#[test]
fn a_function_that_is_not_there_cannot_be_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path(), &Machine::default()).expect("a folder");
    let error = folder.install_without(directory.path(), &["nvmlDeviceGetUuid"]).expect_err("not there");
    assert!(error.to_string().contains("nvmlDeviceGetUuid"), "{error}");
}
