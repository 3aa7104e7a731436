//! Bad input: one clear line that says what, where and what to do; and the exit code is not 0.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dra_testkit::TempNode;

use crate::program::{Running, program, run};

/// A driver on a node: its options, all of them fine.
struct Driver {
    node: TempNode,
    options: Vec<(&'static str, String)>,
}

impl Driver {
    fn new() -> Self {
        let node = TempNode::new().unwrap();
        let kubeconfig = node.root().join("kubeconfig");
        // Nobody listens there, which is no error: a driver starts without its API server.
        let server = "http://127.0.0.1:1";
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {{server: {server}}}\n\
             contexts:\n- name: c\n  context: {{cluster: c, user: c}}\nusers:\n- name: c\n  user: {{}}\n"
        );
        fs::write(&kubeconfig, text).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let options = vec![
            ("--node-name", "node-1".to_owned()),
            ("--kubeconfig", path(&kubeconfig)),
            ("--kubelet-root", path(&node.kubelet())),
            ("--cdi-root", path(&node.cdi())),
        ];
        Self { node, options }
    }

    fn with(mut self, option: &'static str, value: impl Into<String>) -> Self {
        self.options.retain(|(name, _)| *name != option);
        self.options.push((option, value.into()));
        self
    }

    fn with_path(self, option: &'static str, path: impl FnOnce(&Path) -> PathBuf) -> Self {
        let path = path(self.node.root());
        self.with(option, path.to_str().unwrap())
    }

    fn command(&self) -> Command {
        program(
            std::iter::once("run")
                .chain(self.options.iter().flat_map(|(name, value)| [*name, value.as_str()])),
        )
    }

    /// Runs it: it must fail with one line that has all of `parts`.
    fn fails_with(&self, parts: &[&str]) {
        let run = run(self.command());
        let error = run.error();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
        assert!(!run.err.contains("panicked"), "{}", run.err);
    }
}

#[test]
fn an_illegal_driver_name_is_named_with_its_option() {
    Driver::new().with("--driver-name", "GPU!").fails_with(&["GPU!", "--driver-name"]);
}

#[test]
fn an_illegal_node_name_is_named_with_its_option() {
    Driver::new().with("--node-name", "Node_1").fails_with(&["Node_1", "--node-name"]);
}

#[test]
fn a_missing_kubelet_root_is_named_with_what_to_check() {
    let driver = Driver::new().with_path("--kubelet-root", |root| root.join("nowhere"));
    let root = driver.node.root().join("nowhere");
    driver.fails_with(&[root.to_str().unwrap(), "is missing", "mounted into the driver's container"]);
}

#[test]
fn a_kubelet_root_with_a_letter_that_no_kubelet_finds_is_named() {
    let driver = Driver::new().with_path("--kubelet-root", |root| root.join("50%"));
    driver.fails_with(&["50%", "'%'", "use a root without it"]);
}

#[test]
fn a_kubelet_root_that_is_not_absolute_is_named() {
    Driver::new()
        .with("--kubelet-root", "kubelet")
        .fails_with(&["kubelet root kubelet", "give the full path"]);
}

#[test]
fn a_kubelet_root_too_long_for_sockets_is_named_with_the_limit() {
    let driver = Driver::new().with_path("--kubelet-root", |root| root.join("k".repeat(90)));
    driver.fails_with(&["107", "use a shorter kubelet root", &"k".repeat(90)]);
}

#[test]
fn a_cdi_root_that_is_a_file_is_named() {
    let driver = Driver::new().with_path("--cdi-root", |root| {
        fs::write(root.join("file"), "").unwrap();
        root.join("file")
    });
    let file = driver.node.root().join("file");
    driver.fails_with(&["CDI folder", file.to_str().unwrap()]);
}

#[test]
fn a_cdi_root_that_cannot_be_made_is_named() {
    // Not even root can make folders there.
    Driver::new().with("--cdi-root", "/proc/dra/cdi").fails_with(&["CDI folder", "/proc/dra"]);
}

#[test]
fn a_kubeconfig_that_is_missing_or_broken_is_named() {
    let missing = Driver::new().with_path("--kubeconfig", |root| root.join("nowhere"));
    let path = missing.node.root().join("nowhere");
    missing.fails_with(&["kubeconfig", path.to_str().unwrap()]);

    for (text, reason) in [
        ("clusters: [", ""),
        ("apiVersion: v1\nkind: Config\ncurrent-context: other\n", "other"),
        (
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {server: \"not a url\"}\n\
             contexts:\n- name: c\n  context: {cluster: c, user: c}\nusers:\n- name: c\n  user: {}\n",
            "",
        ),
    ] {
        let broken = Driver::new().with_path("--kubeconfig", |root| {
            fs::write(root.join("broken"), text).unwrap();
            root.join("broken")
        });
        let path = broken.node.root().join("broken");
        broken.fails_with(&["kubeconfig", path.to_str().unwrap(), reason]);
    }
}

#[test]
fn an_inventory_that_is_missing_or_wrong_is_named_with_its_field() {
    let missing = Driver::new().with_path("--inventory", |root| root.join("nowhere"));
    let path = missing.node.root().join("nowhere");
    missing.fails_with(&["inventory", path.to_str().unwrap(), "No such file"]);

    let wrong = Driver::new().with_path("--inventory", |root| {
        fs::write(root.join("wrong"), r#"[{"devices": [{"name": "gpu-0", "color": "red"}]}]"#).unwrap();
        root.join("wrong")
    });
    let path = wrong.node.root().join("wrong");
    wrong.fails_with(&["inventory", path.to_str().unwrap(), "line 1: [0].devices[0].color: unknown field"]);
}

#[test]
fn an_unknown_option_is_named() {
    Driver::new().with("--colour", "blue").fails_with(&["--colour"]);
}

/// Takes ten seconds: the second waits for the first to go, as when a pod is replaced.
#[test]
fn a_second_instance_is_refused_and_names_the_first() {
    let driver = Driver::new();
    let first = Running::start(driver.command());
    let registry = driver.node.plugins_registry();
    let patience = Instant::now() + Duration::from_secs(30);
    while fs::read_dir(&registry).unwrap().next().is_none() {
        assert!(Instant::now() < patience, "the first instance does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = format!("pid {}", first.pid());
    driver.fails_with(&["another instance of this driver runs on this node", &pid, "stop it first"]);
}
