//! Runs the program.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// How the program ended and what it printed.
pub(crate) struct Run {
    pub(crate) succeeded: bool,
    /// None if a signal has ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, with nothing in its environment that is an option of its own.
pub(crate) fn program<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mock-gpu-driver"));
    for variable in [
        "KUBECONFIG",
        "NODE_NAME",
        "DRIVER_NAME",
        "KUBELET_ROOT",
        "CDI_ROOT",
        "NUM_DEVICES",
        "DEVICE_PROFILE",
        "GPU_PARTITIONS",
        "GPU_ALLOW_MULTIPLE_ALLOCATIONS",
        "BINDING_CONDITIONS",
        "CPUS_PER_NUMA_NODE",
        "HEALTH_POD",
        "SECOND_DRIVER",
        "DESCRIBE_DEVICES",
        "INVENTORY",
        "POD_UID",
        "ADOPT_FROM",
        "LOG_FORMAT",
        "PREPARE_DELAY",
        "SLOW_DEVICES",
        "UNPREPARE_DELAY",
        "FAIL_PREPARE",
        "TAINT_UNHEALTHY",
        "HEALTH_VERSIONS",
        "BOOT_ID",
        "NODE_EVENTS",
        "METRICS_ADDRESS",
        "HEALTH_ADDRESS",
        "TLS_CERT",
        "TLS_KEY",
        "WEBHOOK_ADDRESS",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "RUST_LIB_BACKTRACE",
        "KUBERNETES_SERVICE_HOST",
        "DRA_SKIP",
    ] {
        command.env_remove(variable);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that runs; it is killed when dropped.
pub(crate) struct Running(Mutex<Child>);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(Mutex::new(command.spawn().unwrap()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.lock().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Its exit status, if it has ended by itself.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.0.lock().unwrap().try_wait().unwrap()
    }

    /// SIGKILL; returns when it is gone.
    pub(crate) fn kill(&self) {
        let mut child = self.0.lock().unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (succeeded, code) = (output.status.success(), output.status.code());
    Run { succeeded, code, out: text(output.stdout), err: text(output.stderr) }
}

impl Run {
    /// The one line that says why it failed.
    pub(crate) fn error(&self) -> &str {
        assert!(!self.succeeded, "it should have failed: {}{}", self.out, self.err);
        let mut errors = self.err.lines().filter(|line| line.starts_with("error: "));
        let error = errors.next().unwrap_or_else(|| panic!("no error line: {}", self.err));
        assert_eq!(errors.next(), None, "more than one error line");
        error
    }
}
