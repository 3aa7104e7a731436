//! Starts that fail, and starts at odd places.

use std::fs;
use std::path::Path;

use dra_kubeletplugin::{PathError, StartError};
use dra_testkit::kubelet::Kubelet;
use dra_testkit::runtime::{OciSpec, Runtime};

use crate::support::{DRIVER, Rig, SOON, TestDriver, device};

/// The error of a start with this kubelet root.
async fn refused(rig: &Rig, root: impl AsRef<Path>) -> StartError {
    rig.options().kubelet_root(root).start(TestDriver::new()).await.unwrap_err()
}

fn kubelet_folders(root: &Path) {
    for folder in ["plugins", "plugins_registry"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
}

#[tokio::test]
async fn a_missing_kubelet_root_is_named() {
    let rig = Rig::new();
    let root = rig.node.root().join("nowhere");
    let error = refused(&rig, &root).await;
    assert!(matches!(&error, StartError::KubeletFolder { path } if *path == root), "{error:?}");
    assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
    assert!(!root.exists(), "a start makes no kubelet root");
}

#[tokio::test]
async fn a_kubelet_root_without_registry_is_no_kubelet_root() {
    let rig = Rig::new();
    let root = rig.node.root().join("empty");
    fs::create_dir(&root).unwrap();
    let error = refused(&rig, &root).await.to_string();
    assert!(error.contains(root.join("plugins_registry").to_str().unwrap()), "{error}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
}

#[tokio::test]
async fn a_kubelet_root_that_is_not_absolute_is_refused() {
    let rig = Rig::new();
    let error = refused(&rig, "var/lib/kubelet").await;
    assert!(matches!(error, StartError::Path(PathError::NotAbsolute { .. })), "{error:?}");
    assert!(error.to_string().contains("var/lib/kubelet"), "{error}");
}

#[tokio::test]
async fn a_kubelet_root_too_long_for_sockets_is_refused_with_length_and_limit() {
    let rig = Rig::new();
    let root = rig.node.root().join("k".repeat(80));
    kubelet_folders(&root);
    let error = refused(&rig, &root).await;
    assert!(matches!(error, StartError::Path(PathError::TooLong { .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("107") && text.contains(root.to_str().unwrap()), "{text}");
}

#[tokio::test]
async fn letters_with_which_no_kubelet_finds_a_socket_are_refused() {
    let rig = Rig::new();
    for letter in ['%', '?', '#', '[', '\\', '\n'] {
        let root = rig.node.root().join(format!("a{letter}b"));
        kubelet_folders(&root);
        let error = refused(&rig, &root).await;
        let named = |found: char| found == letter;
        assert!(
            matches!(error, StartError::Path(PathError::Letter { letter, .. }) if named(letter)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_kubelet_root_with_awkward_letters_works_from_registration_to_unprepare() {
    let rig = Rig::new();
    let root = rig.node.root().join("a b:c@ü");
    let cdi = rig.node.root().join("c d:i@ü");
    kubelet_folders(&root);
    let kubelet = Kubelet::new(&root);
    let options = rig.options().kubelet_root(&root).cdi_root(&cdi);
    let _handle = options.start(TestDriver::new()).await.unwrap();
    kubelet.wait_registered(DRIVER, SOON).await.unwrap();
    let claim = rig.claim("one", &[device("gpu-0")]);
    let prepared = kubelet.prepare(DRIVER, std::slice::from_ref(&claim)).await.unwrap();
    let mut container = OciSpec::default();
    Runtime::new([cdi]).apply(&mut container, &prepared[&claim.uid][0].cdi_device_ids).unwrap();
    assert_eq!(container.env("DEVICE"), Some("gpu-0"));
    kubelet.unprepare(DRIVER, &[claim]).await.unwrap();
}

#[tokio::test]
async fn a_cdi_root_that_is_a_file_is_refused_and_no_socket_is_left() {
    let rig = Rig::new();
    let file = rig.node.root().join("file");
    fs::write(&file, "").unwrap();
    let error = rig.options().cdi_root(&file).start(TestDriver::new()).await.unwrap_err();
    assert!(matches!(error, StartError::Cdi(_)), "{error:?}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_dir(rig.node.plugins_registry()).unwrap().count(), 0);
    let names =
        fs::read_dir(rig.node.plugins().join(DRIVER)).unwrap().map(|entry| entry.unwrap().file_name());
    let sockets = names.filter(|name| name.to_str().is_some_and(|name| name.contains("sock")));
    assert_eq!(sockets.count(), 0);
}

#[tokio::test]
async fn a_driver_folder_that_cannot_be_made_is_named() {
    let rig = Rig::new();
    let folder = rig.node.plugins().join(DRIVER);
    fs::write(&folder, "").unwrap();
    let error = rig.options().start(TestDriver::new()).await.unwrap_err();
    assert!(matches!(&error, StartError::DataFolder { path, .. } if *path == folder), "{error:?}");
    assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_cdi_folder_that_is_missing_is_made() {
    let rig = Rig::new();
    let cdi = rig.node.root().join("run/cdi");
    let _handle = rig.start_with(&TestDriver::new(), rig.options().cdi_root(&cdi)).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(fs::read_dir(&cdi).unwrap().count(), 1);
}
