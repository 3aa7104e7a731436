//! Starts a cluster, runs commands in it, and ends it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{build::Programs, cgroup, image, process::Process};

const READY_WITHIN: Duration = Duration::from_secs(180);
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A cluster's folder, whether one runs there or not.
///
/// `unshare` and `init` hold the two processes that the cluster hangs on: `init` is process 1 of the namespaces.
/// `ready` is there once the node is, `log/` has what the components say.
pub(crate) struct Cluster {
    dir: PathBuf,
}

/// How to start one.
pub(crate) struct Start<'a> {
    /// What to run.
    pub(crate) programs: &'a Programs,
    /// `A=true,B=false`, or nothing.
    pub(crate) feature_gates: &'a str,
    /// Whether it ends when this process does, however that comes.
    pub(crate) ends_with_us: bool,
}

impl Cluster {
    pub(crate) fn in_dir(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts it and waits until the node is ready. What an ended cluster left in the folder is removed first.
    pub(crate) fn up(&self, root: &Path, start: &Start<'_>) -> Result<()> {
        ensure!(
            self.init().is_none(),
            "a cluster runs in {} already: `cargo xtask cluster down --dir {0}` ends it, `--dir` takes another folder",
            self.dir.display(),
        );
        self.make_folder()?;
        let begin = Instant::now();
        image::write_all(&start.programs.bin, &self.dir.join("images"))?;
        if let Err(error) = self.spawn(root, start).and_then(|()| self.wait_ready()) {
            self.down().with_context(|| format!("ending the cluster that did not come up ({error:#})"))?;
            return Err(error);
        }
        println!(
            "Kubernetes {} is ready after {:.1} s in {}",
            start.programs.version,
            begin.elapsed().as_secs_f64(),
            self.dir.display(),
        );
        Ok(())
    }

    /// A command that runs inside, in the current folder, with the cluster's programs on PATH.
    pub(crate) fn inside<S: AsRef<OsStr>>(&self, command: &[S]) -> Result<Command> {
        let Some(init) = self.init() else {
            bail!("no cluster runs in {}: start one with `cargo xtask cluster up`", self.dir.display());
        };
        let mut path = std::ffi::OsString::from("/run/bin:/run/cluster/bin:");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        // Entering a mount namespace lands in its root: `env` goes back to where the caller was.
        let folder = std::env::current_dir().context("finding the current folder")?;
        let mut nsenter = Command::new("nsenter");
        nsenter
            .arg(format!("--target={}", init.pid()))
            .args(["--mount", "--pid", "--net", "--uts", "--ipc", "--"]);
        nsenter.arg("env").arg("-C").arg(folder).args(command);
        nsenter.env("PATH", path).env("KUBECONFIG", "/run/cluster/conf/admin.kubeconfig");
        Ok(nsenter)
    }

    /// Ends it and tells whether it ran; one that does not run is no error.
    pub(crate) fn down(&self) -> Result<bool> {
        let processes = ["init", "unshare"].map(|name| self.process(name));
        let ran = processes.iter().flatten().any(|process| process.is_alive());
        let cgroups = self.init().map(cgroup::of_containers).unwrap_or_default();
        for process in processes.into_iter().flatten() {
            process
                .kill(GONE_WITHIN)
                .with_context(|| format!("ending the cluster in {}", self.dir.display()))?;
        }
        cgroup::remove(&cgroups)?;
        for name in ["init", "unshare", "ready"] {
            let file = self.dir.join(name);
            if file.exists() {
                fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
            }
        }
        Ok(ran)
    }

    /// Process 1 of the namespaces, if it lives.
    fn init(&self) -> Option<Process> {
        self.process("init").filter(|init| init.is_alive())
    }

    fn process(&self, name: &str) -> Option<Process> {
        Process::from_text(&fs::read_to_string(self.dir.join(name)).ok()?)
    }

    /// Empties the folder if it is one of ours, and makes it if it is not there.
    fn make_folder(&self) -> Result<()> {
        let dir = self.dir.display();
        let ours = self.dir.join("dra-cluster");
        if self.dir.exists() {
            let empty = fs::read_dir(&self.dir).with_context(|| format!("reading {dir}"))?.next().is_none();
            ensure!(
                empty || ours.exists(),
                "{dir} holds something else than a cluster: give `--dir` another folder"
            );
            self.down()?;
            fs::remove_dir_all(&self.dir).with_context(|| format!("emptying {dir}"))?;
        }
        fs::create_dir_all(&self.dir).with_context(|| format!("creating {dir}"))?;
        fs::write(&ours, "").with_context(|| format!("writing {}", ours.display()))
    }

    fn spawn(&self, root: &Path, start: &Start<'_>) -> Result<()> {
        let node = root.join("e2e/kubernetes/node");
        let log = fs::File::create(self.dir.join("cluster.log")).context("creating cluster.log")?;
        let mut command = Command::new("setsid");
        if start.ends_with_us {
            command.args(["setpriv", "--pdeathsig", "KILL"]);
        }
        command.args([
            "unshare",
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.args(["--propagation", "private"]).arg(node.join("init"));
        command.arg(&self.dir).arg(&start.programs.bin).arg(&node).arg(start.feature_gates);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // `setsid` does not fork here (we are no group leader's child yet), so the pid is that of `unshare`.
        let child = command.spawn().with_context(|| format!("running {command:?}"))?;
        let unshare =
            i32::try_from(child.id()).ok().and_then(Process::with_pid).context("`unshare` ended at once")?;
        self.note("unshare", unshare)?;
        let deadline = Instant::now() + GONE_WITHIN;
        let init = loop {
            if let Some(init) = unshare.child() {
                break init;
            }
            ensure!(
                unshare.is_alive() && Instant::now() < deadline,
                "no namespaces: {}",
                self.tail("cluster.log")
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        self.note("init", init)
    }

    fn note(&self, name: &str, process: Process) -> Result<()> {
        let file = self.dir.join(name);
        fs::write(&file, process.to_text()).with_context(|| format!("writing {}", file.display()))
    }

    fn wait_ready(&self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.dir.join("ready").exists() {
            if self.init().is_none() || Instant::now() > deadline {
                bail!(
                    "the cluster did not become ready (its logs are in {}/log): {}",
                    self.dir.display(),
                    self.tail("cluster.log")
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The last lines of a file.
    fn tail(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}
