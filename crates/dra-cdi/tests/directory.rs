//! The folder of CDI files, on a real file system.
//!
//! What a writer of CDI files must get right, and the tests that hold it (`module::test`; files in `tests/` by their name):
//!
//! |    | requirement | test |
//! |----|-------------|------|
//! |  1 | lowest version, over all devices | `version::the_lowest_version_is_…`, `properties::the_version_never_falls_…` |
//! |  2 | JSON that a YAML parser reads the same | `encode::characters_that_a_yaml_parser_refuses_…`, `encode::other_characters_…` |
//! |  3 | no NUL; no control characters in paths and names | `check::paths_are_absolute_…`, `check::environment_names_…`, `check::hooks_hold_no_nul` |
//! |  4 | no nulls, no empty edits, a device, unique names | `check::a_spec_needs_…`, `check::a_device_needs_…`, `check::two_devices_…`, `parse::anything_…` |
//! |  5 | impossible values cannot be written | `parse::anything_that_we_would_not_write_…`, `check::device_numbers_and_modes_…` |
//! |  6 | absolute paths in one spelling | `check::paths_are_absolute_…`, `check::redundant_slashes_…` |
//! |  7 | a host path is no symbolic link | `resolve::*` |
//! |  8 | owner 0 is not "no owner"; no permission `none` | `check::an_owner_of_zero_…`, `device_node::permissions_are_…` |
//! |  9 | annotation keys and size | `check::annotations_follow_…` |
//! | 10 | equal content, equal bytes | `properties::equal_specs_give_equal_bytes_…` |
//! | 11 | vendor and class that every runtime takes | `name::vendors_begin_…`, `name::classes_begin_…`, `name::any_kubernetes_driver_…` |
//! | 12 | no pool or request stands in a name as it is | `name::pools_stand_…`, `name::requests_with_a_slash_…`, `name::the_name_of_a_claims_device_…` |
//! | 13 | two things never share a name; what does not fit is refused | `file_name::file_names_differ_…`, `name::requests_with_a_slash_…` |
//! | 14 | file name per vendor, class and claim; its length; the UID checked | `file_name::a_kind_must_leave_room_…`, `file_id::a_uid_must_be_…` |
//! | 15 | no runtime loads a temporary file | `file_name::temporary_names_have_…` |
//! | 16 | temporary file beside its target, modes whatever the umask | `modes_are_set_whatever_the_umask_is`, `faults::a_crash_at_any_step_…` |
//! | 17 | file and folder are synced | `faults::a_failed_step_…` (each sync is a step) |
//! | 18 | no error leaves a temporary file; stale ones are swept | `faults::a_failed_step_…`, `stale_temporary_files_…` |
//! | 19 | errors of the disk are told apart, old content stays | `error::a_full_disk_a_quota_…`, `faults::a_failed_step_…`, `temp::a_folder_that_was_deleted_…` |
//! | 20 | concurrent writers never tear a file | `concurrent_writers_and_readers_never_see_a_torn_file` |
//! | 21 | who reads while a file changes keeps the old content | `a_reader_keeps_the_content_that_it_opened` |
//! | 22 | a folder or link in the place of a file is noticed | `a_folder_in_the_place_…`, `a_link_in_the_place_…` |
//! | 24 | a crash leaves old, new, or old and a stray temporary file | `faults::a_crash_at_any_step_…` |
//! | 25 | `ensure` brings a lost or changed file back | `a_lost_or_changed_file_is_brought_back` |
//! | 26 | `remove` needs the UID alone and may be repeated | `removing_needs_the_uid_alone_and_may_be_repeated` |
//! | 27 | only our own files are ours | `only_files_of_our_name_and_kind_are_listed`, `stale_temporary_files_…` |
//! | 30 | the folder: made if missing, refused if a link or a file | `a_missing_folder_is_made_…`, `a_link_or_a_file_…` |
//! | 31 | success only after rename and sync | `faults::a_failed_step_…` |

#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::{claim, file, kind, names, open};
use dra_cdi::{Directory, Ensured, Error, FileId, FileOwner};

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_file_is_written_once_replaced_when_it_differs_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    let inode = fs::metadata(directory.path_of(&claim())).unwrap().ino();
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Unchanged);
    assert_eq!(fs::metadata(directory.path_of(&claim())).unwrap().ino(), inode);
    assert_eq!(directory.ensure(&claim(), &file("2")).unwrap(), Ensured::Written);
    assert_eq!(directory.read(&claim()).unwrap(), Some(file("2")));
    assert_eq!(names(root.path()), [format!("k8s.gpu.example.com+claim+{}.json", claim())]);
    assert!(directory.remove(&claim()).unwrap());
    assert!(names(root.path()).is_empty());
}

#[test]
fn a_lost_or_changed_file_is_brought_back() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    directory.ensure(&claim(), &file("1")).unwrap();
    fs::remove_file(directory.path_of(&claim())).unwrap();
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    fs::write(directory.path_of(&claim()), "").unwrap();
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    // Also after somebody removed the whole folder.
    fs::remove_dir_all(root.path()).unwrap();
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    assert_eq!(directory.read(&claim()).unwrap(), Some(file("1")));
}

#[test]
fn removing_needs_the_uid_alone_and_may_be_repeated() {
    let root = tempfile::tempdir().unwrap();
    open(root.path()).ensure(&claim(), &file("1")).unwrap();
    let restarted = open(root.path());
    assert!(restarted.remove(&claim()).unwrap());
    assert!(!restarted.remove(&claim()).unwrap());
    fs::remove_dir_all(root.path()).unwrap();
    assert!(!restarted.remove(&claim()).unwrap());
    assert_eq!(restarted.read(&claim()).unwrap(), None);
    assert!(restarted.list().unwrap().is_empty());
    assert_eq!(restarted.sweep_temps(Duration::ZERO).unwrap(), 0);
}

#[test]
fn modes_are_set_whatever_the_umask_is() {
    // A process of its own, since a umask belongs to the whole process.
    if std::env::var_os("TEST_UMASK_SET").is_none() {
        let status = std::process::Command::new("sh")
            .args(["-c", "umask 077; exec \"$0\" --exact modes_are_set_whatever_the_umask_is"])
            .arg(std::env::current_exe().unwrap())
            .env("TEST_UMASK_SET", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let directory = open(&root.path().join("a/cdi"));
    directory.ensure(&claim(), &file("1")).unwrap();
    assert_eq!(mode(directory.path_of(&claim())), 0o644);
    assert_eq!(mode(root.path().join("a/cdi")), 0o755);
    assert_eq!(mode(root.path().join("a")), 0o755);
}

#[test]
fn another_mode_is_used_and_a_file_of_the_old_mode_is_rewritten() {
    let root = tempfile::tempdir().unwrap();
    open(root.path()).ensure(&claim(), &file("1")).unwrap();
    let private = open(root.path()).with_mode(0o600);
    assert_eq!(private.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    assert_eq!(mode(private.path_of(&claim())), 0o600);
    assert_eq!(private.ensure(&claim(), &file("1")).unwrap(), Ensured::Unchanged);
}

#[test]
fn a_missing_folder_is_made_and_left_empty() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("var/run/cdi");
    let directory = Directory::open(path.join("./"), kind()).unwrap();
    assert_eq!(directory.path(), path);
    assert!(names(&path).is_empty());
}

#[test]
fn a_folder_that_is_there_keeps_its_mode() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
    open(root.path());
    assert_eq!(mode(root.path()), 0o700);
}

#[test]
fn a_link_or_a_file_in_the_place_of_the_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    symlink("real", root.path().join("link")).unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    for (name, what) in [("link", "a symbolic link"), ("link/", "a symbolic link"), ("file", "not a folder")]
    {
        let error = Directory::open(root.path().join(name), kind()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NotAFolder { .. }), "{error:?}");
        assert!(text.contains(what) && text.contains(root.path().to_str().unwrap()), "{text}");
    }
    let below_a_file = Directory::open(root.path().join("file/cdi"), kind()).unwrap_err();
    assert!(below_a_file.to_string().contains("file/cdi"), "{below_a_file}");
    symlink("nothing", root.path().join("dangling")).unwrap();
    let below_nothing = Directory::open(root.path().join("dangling/cdi"), kind()).unwrap_err();
    assert!(below_nothing.to_string().contains("dangling"), "{below_nothing}");
}

#[test]
fn an_empty_path_and_a_kind_that_is_too_long_are_refused() {
    assert!(matches!(Directory::open("", kind()), Err(Error::Io { .. })));
    let root = tempfile::tempdir().unwrap();
    let long = format!("{}/claim", "v".repeat(200)).parse().unwrap();
    assert!(matches!(Directory::open(root.path(), long), Err(Error::NameTooLong { .. })));
}

#[test]
fn only_files_of_our_name_and_kind_are_listed() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    let other: FileId = "another".parse().unwrap();
    directory.ensure(&claim(), &file("1")).unwrap();
    directory.ensure(&other, &file("1")).unwrap();
    let ours = String::from_utf8(file("1")).unwrap();
    let foreign = [
        ("k8s.gpu.example.com+claim+foreign-kind.json", ours.replace("k8s.gpu", "k8s.npu")),
        ("k8s.gpu.example.com+claim+broken.json", ours[..20].to_owned()),
        ("k8s.gpu.example.com+claim+yaml.yaml", ours.clone()),
        ("k8s.gpu.example.com+claims+x.json", ours.clone()),
        ("k8s.gpu.example.com_metadata_x_req.json", ours.clone()),
        ("vendor.json", ours.clone()),
        (".k8s.gpu.example.com+claim+x.json.0123456789abcdef.tmp", ours.clone()),
    ];
    for (name, content) in &foreign {
        fs::write(root.path().join(name), content).unwrap();
    }
    fs::create_dir(root.path().join("k8s.gpu.example.com+claim+folder.json")).unwrap();
    symlink("vendor.json", root.path().join("k8s.gpu.example.com+claim+link.json")).unwrap();
    assert_eq!(directory.list().unwrap(), [claim(), other]);
    assert_eq!(names(root.path()).len(), 2 + foreign.len() + 2);
}

#[test]
fn a_look_tells_whose_each_file_is_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let missing = Directory::for_reading(root.path().join("missing"), kind()).unwrap();
    assert_eq!(missing.look().unwrap(), []);
    assert!(!missing.path().exists());

    let directory = open(root.path());
    directory.ensure(&claim(), &file("1")).unwrap();
    let temporary = format!(".k8s.gpu.example.com+claim+{}.json.00000000000000ab.tmp", claim());
    fs::write(root.path().join(&temporary), "half").unwrap();
    fs::write(
        root.path().join("vendor.json"),
        r#"{"kind": "vendor.com/x", "new": 1, "devices": [{"name": "a"}]}"#,
    )
    .unwrap();
    fs::write(root.path().join("vendor.yaml"), "kind: vendor.com/x").unwrap();
    fs::write(root.path().join("readme"), "no CDI file").unwrap();
    symlink("vendor.json", root.path().join("link.json")).unwrap();
    let before = names(root.path());

    let looked = Directory::for_reading(root.path(), kind()).unwrap().look().unwrap();
    let seen: Vec<_> = looked
        .iter()
        .map(|file| (file.name.as_str(), &file.owner, file.kind.as_deref(), file.devices.join(",")))
        .collect();
    let ours = format!("k8s.gpu.example.com+claim+{}.json", claim());
    let expected = [
        (temporary.as_str(), &FileOwner::Temporary, None, String::new()),
        (ours.as_str(), &FileOwner::Claim(claim()), Some("k8s.gpu.example.com/claim"), "dev".to_owned()),
        ("vendor.json", &FileOwner::Other, Some("vendor.com/x"), "a".to_owned()),
        ("vendor.yaml", &FileOwner::Other, None, String::new()),
    ];
    assert_eq!(seen, expected);
    assert_eq!(looked[1].bytes, file("1"));
    assert_eq!(names(root.path()), before);
}

#[test]
fn stale_temporary_files_of_ours_are_swept_and_no_others() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    directory.ensure(&claim(), &file("1")).unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let make = |name: &str, stale: bool| {
        let made = File::create(root.path().join(name)).unwrap();
        made.set_modified(if stale { hour_ago } else { SystemTime::now() + Duration::from_secs(60) })
            .unwrap();
    };
    make(".k8s.gpu.example.com+claim+x.json.0123456789abcdef.tmp", true);
    make(".k8s.gpu.example.com+claim+_trial.json.0123456789abcdef.tmp", true);
    make(".k8s.gpu.example.com+claim+fresh.json.0123456789abcdef.tmp", false);
    make(".k8s.npu.example.com+claim+x.json.0123456789abcdef.tmp", true);
    make("spec.123.tmp", true);
    assert_eq!(directory.sweep_temps(Duration::from_secs(600)).unwrap(), 2);
    assert_eq!(
        names(root.path()),
        [
            ".k8s.gpu.example.com+claim+fresh.json.0123456789abcdef.tmp".to_owned(),
            ".k8s.npu.example.com+claim+x.json.0123456789abcdef.tmp".to_owned(),
            format!("k8s.gpu.example.com+claim+{}.json", claim()),
            "spec.123.tmp".to_owned(),
        ]
    );
    assert_eq!(directory.sweep_temps(Duration::ZERO).unwrap(), 1);
}

#[test]
fn a_folder_in_the_place_of_a_file_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    fs::create_dir(directory.path_of(&claim())).unwrap();
    for error in [
        directory.ensure(&claim(), &file("1")).unwrap_err(),
        directory.remove(&claim()).unwrap_err(),
        directory.read(&claim()).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Occupied { .. }), "{error:?}");
        assert!(error.to_string().contains(&claim().to_string()), "{error}");
    }
    assert_eq!(names(root.path()).len(), 1);
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_and_never_followed() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(&root.path().join("cdi"));
    let target = root.path().join("target");
    fs::write(&target, file("1")).unwrap();
    let link = directory.path_of(&claim());
    symlink(&target, &link).unwrap();
    assert!(matches!(directory.read(&claim()), Err(Error::Occupied { .. })));
    assert_eq!(directory.ensure(&claim(), &file("1")).unwrap(), Ensured::Written);
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    fs::remove_file(&link).unwrap();
    symlink(&target, &link).unwrap();
    assert!(directory.remove(&claim()).unwrap());
    assert_eq!(fs::read(&target).unwrap(), file("1"));
}

#[test]
fn a_reader_keeps_the_content_that_it_opened() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    directory.ensure(&claim(), &file("old")).unwrap();
    let opened = || File::open(directory.path_of(&claim())).unwrap();
    let (mut of_replaced, mut content) = (opened(), Vec::new());
    directory.ensure(&claim(), &file("new")).unwrap();
    of_replaced.read_to_end(&mut content).unwrap();
    assert_eq!(content, file("old"));
    let (mut of_removed, mut content) = (opened(), Vec::new());
    directory.remove(&claim()).unwrap();
    of_removed.read_to_end(&mut content).unwrap();
    assert_eq!(content, file("new"));
}

#[test]
fn concurrent_writers_and_readers_never_see_a_torn_file() {
    let root = tempfile::tempdir().unwrap();
    let contents = [file(&"a".repeat(40_000)), file(&"b".repeat(50_000)), file(&"c".repeat(60_000))];
    let directory = open(root.path());
    directory.ensure(&claim(), &contents[0]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = contents.each_ref().map(|content| {
            let directory = directory.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    directory.ensure(&claim(), content).unwrap();
                }
            })
        });
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let read = fs::read(directory.path_of(&claim())).unwrap();
                assert!(contents.contains(&read), "torn: {} bytes", read.len());
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(names(root.path()).len(), 1);
}

#[test]
fn claims_do_not_disturb_each_other() {
    let root = tempfile::tempdir().unwrap();
    let directory = open(root.path());
    std::thread::scope(|scope| {
        for i in 0..20 {
            let directory = directory.clone();
            scope.spawn(move || {
                let id: FileId = format!("claim-{i}").parse().unwrap();
                directory.ensure(&id, &file(&i.to_string())).unwrap();
                if i % 2 == 0 {
                    assert!(directory.remove(&id).unwrap());
                }
            });
        }
    });
    let left = directory.list().unwrap();
    assert_eq!(left.len(), 10);
    for id in left {
        let value = id.as_str().trim_start_matches("claim-");
        assert_eq!(directory.read(&id).unwrap(), Some(file(value)));
    }
}
