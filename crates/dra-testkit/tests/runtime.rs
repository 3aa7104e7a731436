//! The container runtime stand-in over real folders.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use dra_testkit::runtime::{OciSpec, Runtime, RuntimeError};
use serde_json::{Value, json};

fn write(folder: &Path, file: &str, kind: &str, devices: &Value, common: &[&str]) {
    let content = json!({
        "cdiVersion": "0.5.0", "kind": kind, "containerEdits": {"env": common}, "devices": devices,
    });
    fs::write(folder.join(file), content.to_string()).expect("written");
}

fn device(name: &str, env: &[&str]) -> Value {
    json!({"name": name, "containerEdits": {"env": env}})
}

fn applied(runtime: &Runtime, ids: &[&str]) -> Result<Vec<String>, RuntimeError> {
    let mut container = OciSpec { env: vec!["OWN=1".into()], ..OciSpec::default() };
    runtime.apply(&mut container, ids).map(|()| container.env)
}

#[test]
fn common_edits_come_once_and_ids_apply_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let devices = json!([device("a", &["LAST=a", "A=1"]), device("b", &["LAST=b", "OWN=2"])]);
    write(folder.path(), "one.json", "example.com/gpu", &devices, &["LAST=common", "COMMON=1"]);
    let runtime = Runtime::new([folder.path()]);
    assert_eq!(runtime.devices(), ["example.com/gpu=a", "example.com/gpu=b"]);
    let ids = ["example.com/gpu=b", "example.com/gpu=a", "example.com/gpu=b"];
    assert_eq!(applied(&runtime, &ids).expect("applied"), ["OWN=2", "LAST=a", "COMMON=1", "A=1"]);
}

#[test]
fn unresolvable_ids_are_all_listed_with_the_broken_files() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("bad.json"), "{").expect("written");
    let error = applied(&Runtime::new([folder.path()]), &["example.com/gpu=a", "example.com/gpu=b"])
        .expect_err("none");
    let text = error.to_string();
    for part in ["example.com/gpu=a", "example.com/gpu=b", "bad.json"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_broken_file_does_not_harm_others() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("bad.json"), "{").expect("written");
    write(folder.path(), "good.json", "example.com/gpu", &json!([device("a", &["A=1"])]), &[]);
    let runtime = Runtime::new([folder.path()]);
    assert!(applied(&runtime, &["example.com/gpu=a"]).is_ok());
    assert_eq!(runtime.broken_files().len(), 1);
}

#[test]
fn a_device_in_two_files_of_one_folder_is_unusable_and_in_two_folders_the_later_wins() {
    let (low, high) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    write(low.path(), "one.json", "example.com/gpu", &json!([device("a", &["FROM=low"])]), &[]);
    write(low.path(), "two.json", "example.com/gpu", &json!([device("a", &["FROM=low"])]), &[]);
    let error = applied(&Runtime::new([low.path()]), &["example.com/gpu=a"]).expect_err("in conflict");
    assert!(error.to_string().contains("two.json"), "{error}");
    write(high.path(), "one.json", "example.com/gpu", &json!([device("a", &["FROM=high"])]), &[]);
    let runtime = Runtime::new([low.path(), high.path()]);
    assert_eq!(applied(&runtime, &["example.com/gpu=a"]).expect("applied"), ["OWN=1", "FROM=high"]);
}

#[test]
fn only_json_and_yaml_files_count_dot_files_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let devices = json!([device("a", &["A=1"])]);
    for (file, kind) in [
        ("a.json", "example.com/plain"),
        (".b.json", "example.com/dot"),
        ("c.yaml", "example.com/yaml"),
        ("d.json.tmp", "example.com/tmp"),
        ("e.JSON", "example.com/upper"),
        ("f.yml", "example.com/yml"),
    ] {
        write(folder.path(), file, kind, &devices, &[]);
    }
    let runtime = Runtime::new([folder.path(), Path::new("/no/such/folder")]);
    assert_eq!(runtime.devices(), ["example.com/dot=a", "example.com/plain=a", "example.com/yaml=a"]);
}

#[test]
fn a_container_is_unchanged_when_a_device_cannot_be_applied() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = json!({"name": "b", "containerEdits": {"deviceNodes": [{"path": "/dev/no-such-device"}]}});
    write(folder.path(), "one.json", "example.com/gpu", &json!([device("a", &["A=1"]), node]), &[]);
    let mut container = OciSpec::default();
    let ids = ["example.com/gpu=a", "example.com/gpu=b"];
    let error = Runtime::new([folder.path()]).apply(&mut container, &ids).expect_err("no such node");
    assert!(error.to_string().contains("/dev/no-such-device"), "{error}");
    assert_eq!(container, OciSpec::default());
}
