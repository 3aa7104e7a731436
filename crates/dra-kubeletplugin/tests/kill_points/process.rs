//! The plugin's process, from inside and from outside.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use dra_kubeletplugin::Options;
use dra_kubeletplugin::kube::{Client, Config};
use dra_kubeletplugin::state::{self, Release, StateLocation};
use dra_testkit::api::{Matcher, Verb};
use dra_testkit::kubelet::{ClaimRef, Kubelet, KubeletError, PreparedDevice};

use crate::hardware::Hardware;
use crate::lab::{DRIVER, Lab, NODE};
use crate::node::Node;

/// The test that the plugin's process runs.
const ENTRY: &str = "a_death_at_any_point_has_one_legal_outcome";

/// How the plugin's process learns where it is.
const ROOT: &str = "KILL_POINTS_ROOT";
const API: &str = "KILL_POINTS_API";
const BOOT: &str = "KILL_POINTS_BOOT";

/// Makes the process do something with the node's records instead: `repair` or `release`.
const COMMAND: &str = "KILL_POINTS_COMMAND";

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to look at what cannot be waited for.
const GLANCE: Duration = Duration::from_millis(1);

/// Whether this process is to be the plugin.
pub(crate) fn is_the_plugin() -> bool {
    std::env::var_os(ROOT).is_some()
}

/// Is the plugin until the process is ended.
pub(crate) fn run_the_plugin() {
    // Whoever started it is gone when this ends.
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let variable = |name| std::env::var(name).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let root = PathBuf::from(variable(ROOT));
        if let Ok(command) = std::env::var(COMMAND) {
            return put_right(&root, &command).await;
        }
        let client = Client::try_from(Config::new(variable(API).parse().unwrap())).unwrap();
        let options = Options::new(DRIVER.parse().unwrap(), NODE.parse().unwrap(), client)
            .kubelet_root(root.join("kubelet"))
            .cdi_root(root.join("cdi"))
            .boot_id(variable(BOOT));
        let handle = options.start(Hardware::new(&root)).await.unwrap();
        handle.wait().await.unwrap();
    });
}

/// A command on the state of the node.
async fn put_right(root: &Path, command: &str) {
    let mut location = StateLocation::new(DRIVER.parse().unwrap());
    location.kubelet_root = root.join("kubelet");
    location.cdi_root = root.join("cdi");
    if command == "repair" {
        state::repair(&location).await.unwrap();
        return;
    }
    location.boot_id = Some(std::env::var(BOOT).unwrap());
    let released = state::release(&location, Hardware::new(root), &Release::All).await.unwrap();
    for one in released {
        one.outcome.unwrap_or_else(|error| panic!("{}: {error}", one.claim));
    }
}

/// What makes the process die or fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault {
    /// At which point it dies, and at which passing of it.
    pub(crate) death: Option<String>,
    /// Which step fails, and how.
    pub(crate) failure: Option<String>,
}

impl Fault {
    /// A full disk, as far as the step behind this point sees it.
    pub(crate) fn full(point: &str) -> String {
        format!("{point}=ENOSPC")
    }
}

/// The process ended at a point.
#[derive(Debug)]
pub(crate) struct Died;

/// Runs a command on the node's records in a process of its own, which may be made to die.
pub(crate) async fn run_command(
    node: &Node,
    command_name: &str,
    boot: &str,
    death: Option<&str>,
) -> Result<(), Died> {
    let log = File::options().create(true).append(true).open(node.log()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", ENTRY, "--nocapture", "--test-threads=1"]);
    command.env(ROOT, node.path()).env(COMMAND, command_name).env(BOOT, boot);
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    match death {
        Some(death) => command.env("DRA_FAULT_POINT", death),
        None => command.env_remove("DRA_FAULT_POINT"),
    };
    let mut child = command.env_remove("DRA_FAULT_ERRNO").spawn().unwrap();
    let status = exit(&mut child).await;
    if status.success() { Ok(()) } else { Err(died(status, node)) }
}

/// A running plugin, and the kubelet that calls it. Both end with it.
pub(crate) struct Plugin<'a> {
    lab: &'a Lab,
    node: &'a Node,
    kubelet: Kubelet,
    child: Child,
}

impl<'a> Plugin<'a> {
    /// Starts the process. If the plugin cannot start, the test fails.
    pub(crate) fn start(lab: &'a Lab, node: &'a Node, boot: &str, fault: &Fault) -> Self {
        let log = File::options().create(true).append(true).open(node.log()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", ENTRY, "--nocapture", "--test-threads=1"])
            .env(ROOT, node.path())
            .env(API, lab.served.url())
            .env(BOOT, boot)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for (name, value) in [("DRA_FAULT_POINT", &fault.death), ("DRA_FAULT_ERRNO", &fault.failure)] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let kubelet = Kubelet::builder(node.kubelet())
            .poll(Duration::from_millis(2))
            .registration_pause(Duration::from_millis(5), Duration::from_millis(100))
            .start();
        Self { lab, node, kubelet, child: command.spawn().unwrap() }
    }

    pub(crate) async fn wait_registered(&mut self) -> Result<(), Died> {
        let registered = tokio::select! {
            registered = self.kubelet.wait_registered(DRIVER, PATIENCE) => registered,
            status = exit(&mut self.child) => return Err(died(status, self.node)),
        };
        registered.unwrap_or_else(|error| panic!("{error}: {}", log(self.node)));
        Ok(())
    }

    /// The kubelet's call; the claim's error is a text.
    pub(crate) async fn prepare(
        &mut self,
        claim: &ClaimRef,
    ) -> Result<Result<Vec<PreparedDevice>, String>, Died> {
        match self.kubelet.prepare_unchecked(DRIVER, std::slice::from_ref(claim)).await {
            Ok(mut answer) => Ok(answer.remove(&claim.uid).expect("the claim is answered")),
            Err(error) => Err(self.lost(&error).await),
        }
    }

    /// The kubelet's call; the claim's error is a text.
    pub(crate) async fn unprepare(&mut self, claim: &ClaimRef) -> Result<Result<(), String>, Died> {
        match self.kubelet.unprepare_unchecked(DRIVER, std::slice::from_ref(claim)).await {
            Ok(mut answer) => Ok(answer.remove(&claim.uid).expect("the claim is answered")),
            Err(error) => Err(self.lost(&error).await),
        }
    }

    /// Waits until something holds.
    pub(crate) async fn wait_until(&mut self, what: &str, holds: impl Fn() -> bool) -> Result<(), Died> {
        let wait = async {
            while !holds() {
                tokio::time::sleep(GLANCE).await;
            }
        };
        tokio::select! {
            () = wait => Ok(()),
            status = exit(&mut self.child) => Err(died(status, self.node)),
            () = tokio::time::sleep(PATIENCE) => panic!("never: {what}: {}", log(self.node)),
        }
    }

    /// Waits until the plugin was answered about the claim.
    pub(crate) async fn wait_until_asked(&mut self, name: &str) -> Result<(), Died> {
        let (api, get) = (self.lab.api.clone(), Matcher::any().verb(Verb::Get).name(name));
        let answered = || api.calls().iter().any(|call| get.matches(call) && call.answer.is_some());
        self.wait_until("it asks for the claim", answered).await
    }

    /// A call was not answered: the process must have died.
    async fn lost(&mut self, error: &KubeletError) -> Died {
        let ended = tokio::time::timeout(PATIENCE, exit(&mut self.child)).await;
        let status = ended.unwrap_or_else(|_| panic!("alive, but {error}: {}", log(self.node)));
        died(status, self.node)
    }
}

impl Drop for Plugin<'_> {
    /// SIGKILL, if it still lives.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn exit(child: &mut Child) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// By abort, and by nothing else.
fn died(status: ExitStatus, node: &Node) -> Died {
    assert_eq!(status.signal(), Some(nix::libc::SIGABRT), "{status}: {}", log(node));
    Died
}

fn log(node: &Node) -> String {
    fs::read_to_string(node.log()).unwrap_or_default()
}
