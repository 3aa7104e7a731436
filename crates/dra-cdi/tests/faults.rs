//! What is left when the writer crashes, or the disk fails, at any step. Needs the private feature `__fault`:
//! `cargo test -p dra-cdi --features __fault`.
//!
//! Each test runs itself again in a child process, which crashes or fails where an environment variable says.

#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use common::{claim, file, kind, names, open};
use dra_cdi::{Directory, Ensured, Error};

/// Where a child finds the folder.
const FOLDER: &str = "TEST_FOLDER";

/// Runs the test `name` again in a child process, with a fault.
fn child(name: &str, folder: &Path, fault: (&str, &str)) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FOLDER, folder)
        .env(fault.0, fault.1)
        .output()
        .unwrap()
}

fn crashed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status).is_some()
}

/// Crashes a child that does `work` at its first step, its second and so on, each in a folder that `before` prepared, until it
/// reaches its end. `after` judges each crash. Gives the number of steps.
fn crash_everywhere(name: &str, before: impl Fn(&Path), after: impl Fn(&Directory, &str)) -> u32 {
    for step in 1.. {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cdi");
        before(&folder);
        let output = child(name, &folder, ("DRA_FAULT_POINT", &format!("*:{step}")));
        if !crashed(output.status) {
            assert!(output.status.success(), "{output:?}");
            return step - 1;
        }
        after(&open(&folder), &format!("crashed at step {step}"));
    }
    unreachable!("the child has an end")
}

/// A stray temporary file at most, and none after a sweep.
fn clean_but_for_a_stray(directory: &Directory, context: &str) {
    let temps = || names(directory.path()).into_iter().filter(|name| name.starts_with('.')).count();
    let before = temps();
    assert!(before <= 1, "{context}: {:?}", names(directory.path()));
    assert_eq!(directory.sweep_temps(Duration::ZERO).unwrap(), before, "{context}");
    assert_eq!(temps(), 0, "{context}");
}

#[test]
fn a_crash_at_any_step_of_a_replacement_leaves_the_old_or_the_new_file() {
    const NAME: &str = "a_crash_at_any_step_of_a_replacement_leaves_the_old_or_the_new_file";
    if let Some(folder) = std::env::var_os(FOLDER) {
        open(Path::new(&folder)).ensure(&claim(), &file("new")).unwrap();
        return;
    }
    let steps = crash_everywhere(
        NAME,
        |folder| {
            open(folder).ensure(&claim(), &file("old")).unwrap();
        },
        |directory, context| {
            let found = directory.read(&claim()).unwrap();
            assert!(found == Some(file("old")) || found == Some(file("new")), "{context}");
            clean_but_for_a_stray(directory, context);
            // A restarted writer gets on.
            directory.ensure(&claim(), &file("new")).unwrap();
            assert_eq!(directory.read(&claim()).unwrap(), Some(file("new")), "{context}");
        },
    );
    // Trial: create, unlink. Replacement: create, write, chmod, sync, rename, sync.
    assert_eq!(steps, 8);
}

#[test]
fn a_crash_at_any_step_of_a_first_file_leaves_none_or_the_whole() {
    const NAME: &str = "a_crash_at_any_step_of_a_first_file_leaves_none_or_the_whole";
    if let Some(folder) = std::env::var_os(FOLDER) {
        open(Path::new(&folder)).ensure(&claim(), &file("new")).unwrap();
        return;
    }
    let steps = crash_everywhere(
        NAME,
        |_| {},
        |directory, context| {
            let found = directory.read(&claim()).unwrap();
            assert!(found.is_none() || found == Some(file("new")), "{context}");
            clean_but_for_a_stray(directory, context);
        },
    );
    // As above, after making the folder: mkdir, sync of the folder above.
    assert_eq!(steps, 10);
}

#[test]
fn a_crash_at_any_step_of_a_removal_leaves_the_file_or_none() {
    const NAME: &str = "a_crash_at_any_step_of_a_removal_leaves_the_file_or_none";
    if let Some(folder) = std::env::var_os(FOLDER) {
        open(Path::new(&folder)).remove(&claim()).unwrap();
        return;
    }
    let steps = crash_everywhere(
        NAME,
        |folder| {
            open(folder).ensure(&claim(), &file("old")).unwrap();
        },
        |directory, context| {
            let found = directory.read(&claim()).unwrap();
            assert!(found.is_none() || found == Some(file("old")), "{context}");
            assert_eq!(directory.remove(&claim()).unwrap(), found.is_some(), "{context}");
            clean_but_for_a_stray(directory, context);
        },
    );
    // Trial: create, unlink. Removal: unlink, sync.
    assert_eq!(steps, 4);
}

#[test]
fn a_failed_step_is_a_distinct_error_and_leaves_no_temporary_file() {
    const NAME: &str = "a_failed_step_is_a_distinct_error_and_leaves_no_temporary_file";
    if let Some(folder) = std::env::var_os(FOLDER) {
        // The folder is there and full: opening it must not hinder a start.
        match Directory::open(folder, kind()).and_then(|directory| directory.ensure(&claim(), &file("new"))) {
            Ok(ensured) => panic!("{ensured:?}"),
            Err(error) => println!("error: {error:?}: {error}"),
        }
        return;
    }
    let steps = [
        ("cdi.create", "old"),
        ("cdi.write", "old"),
        ("cdi.chmod", "old"),
        ("cdi.fsync-file", "old"),
        ("cdi.rename", "old"),
        // The file is there, but nobody may rely on it yet.
        ("cdi.fsync-folder", "new"),
    ];
    let errors =
        [("ENOSPC", "Full"), ("EDQUOT", "Quota"), ("EROFS", "ReadOnly"), ("EACCES", "Denied"), ("EIO", "Io")];
    for (point, left) in steps {
        for (errno, variant) in errors {
            let root = tempfile::tempdir().unwrap();
            let directory = open(root.path());
            directory.ensure(&claim(), &file("old")).unwrap();
            let output = child(NAME, root.path(), ("DRA_FAULT_ERRNO", &format!("{point}={errno}")));
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{point}={errno}: {text}");
            assert!(text.contains(&format!("error: {variant} {{")), "{point}={errno}: {text}");
            assert!(text.contains(root.path().to_str().unwrap()), "{text}");
            assert_eq!(names(root.path()).len(), 1, "{point}={errno}");
            assert_eq!(directory.read(&claim()).unwrap(), Some(file(left)), "{point}={errno}");
        }
    }
}

#[test]
fn a_full_disk_neither_hinders_opening_nor_removing() {
    const NAME: &str = "a_full_disk_neither_hinders_opening_nor_removing";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let directory = open(Path::new(&folder));
        let full = directory.ensure(&claim(), &file("new"));
        assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
        assert!(directory.remove(&claim()).unwrap());
        return;
    }
    let root = tempfile::tempdir().unwrap();
    open(root.path()).ensure(&claim(), &file("old")).unwrap();
    let output = child(NAME, root.path(), ("DRA_FAULT_ERRNO", "cdi.create=ENOSPC"));
    assert!(output.status.success(), "{output:?}");
    assert!(names(root.path()).is_empty());
}

#[test]
fn a_read_only_folder_is_found_out_when_it_is_opened() {
    const NAME: &str = "a_read_only_folder_is_found_out_when_it_is_opened";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let error = Directory::open(folder, kind()).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let output = child(NAME, root.path(), ("DRA_FAULT_ERRNO", "cdi.create=EROFS"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_file_that_a_crashed_writer_left_unsynced_is_synced_before_success() {
    const NAME: &str = "a_file_that_a_crashed_writer_left_unsynced_is_synced_before_success";
    if let Some(folder) = std::env::var_os(FOLDER) {
        open(Path::new(&folder)).ensure(&claim(), &file("new")).unwrap();
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let output = child(NAME, root.path(), ("DRA_FAULT_POINT", "cdi.fsync-folder"));
    assert!(crashed(output.status), "{output:?}");
    // The next one finds the bytes as they should be, and syncs all the same: it crashes at that step.
    let output = child(NAME, root.path(), ("DRA_FAULT_POINT", "cdi.fsync-folder"));
    assert!(crashed(output.status), "{output:?}");
    assert_eq!(open(root.path()).ensure(&claim(), &file("new")).unwrap(), Ensured::Unchanged);
}

#[test]
fn a_file_that_was_durable_is_synced_again_only_if_it_had_to_be_put_back() {
    const NAME: &str = "a_file_that_was_durable_is_synced_again_only_if_it_had_to_be_put_back";
    if let Some(folder) = std::env::var_os(FOLDER) {
        open(Path::new(&folder)).restore(&claim(), &file("new")).unwrap();
        return;
    }
    let root = tempfile::tempdir().unwrap();
    open(root.path()).ensure(&claim(), &file("new")).unwrap();
    let output = child(NAME, root.path(), ("DRA_FAULT_POINT", "cdi.fsync-folder"));
    assert!(output.status.success(), "{output:?}");
    open(root.path()).remove(&claim()).unwrap();
    let output = child(NAME, root.path(), ("DRA_FAULT_POINT", "cdi.fsync-folder"));
    assert!(crashed(output.status), "{output:?}");
    assert_eq!(open(root.path()).restore(&claim(), &file("new")).unwrap(), Ensured::Unchanged);
}

#[test]
fn a_folder_that_became_read_only_hinders_no_removal_of_what_is_not_there() {
    const NAME: &str = "a_folder_that_became_read_only_hinders_no_removal_of_what_is_not_there";
    if let Some(folder) = std::env::var_os(FOLDER) {
        // The trial at opening removes its file by another step, which does not fail here.
        let removed = open(Path::new(&folder)).remove(&claim());
        let there = names(Path::new(&folder)).len();
        match there {
            0 => assert!(!removed.unwrap()),
            _ => assert!(matches!(removed, Err(Error::ReadOnly { .. })), "{removed:?}"),
        }
        return;
    }
    for files in [0, 1] {
        let root = tempfile::tempdir().unwrap();
        if files == 1 {
            open(root.path()).ensure(&claim(), &file("old")).unwrap();
        }
        let output = child(NAME, root.path(), ("DRA_FAULT_ERRNO", "cdi.unlink=EROFS"));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(names(root.path()).len(), files);
    }
}
