//! `cargo xtask cluster`: a real Kubernetes on this machine, which nothing outside its namespaces sees.
//!
//! `build` makes the programs, `image` the container images, `running` starts and stops the node.

pub(crate) mod build;
mod cgroup;
pub(crate) mod image;
mod lock;
mod needs;
mod process;
pub(crate) mod running;
pub(crate) mod version;

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use running::{Cluster, Start};
use version::Version;

/// What `cargo xtask cluster` can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build what is missing, start a cluster and wait until its node is ready.
    Up {
        #[command(flatten)]
        dir: Dir,
        /// One of the versions that this workspace has a lock for.
        #[arg(long, default_value_t = Version::NEWEST)]
        kubernetes: Version,
        /// Feature gates for all components: `A=true,B=false`.
        #[arg(long, default_value = "")]
        feature_gates: String,
    },
    /// Run a command inside: `kubectl`, `ctr` and `component` are on its PATH, KUBECONFIG is the admin's.
    Exec {
        #[command(flatten)]
        dir: Dir,
        /// Program and arguments, after `--`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// End the cluster and everything in it; its logs stay.
    Down {
        #[command(flatten)]
        dir: Dir,
    },
    /// Print the Debian packages that a cluster needs, one a line.
    Packages,
    /// Resolve a Kubernetes version's Go modules anew and write e2e/kubernetes/VERSION/go.mod and go.sum.
    Lock {
        /// A released version, such as 1.37.2.
        version: Version,
    },
}

/// Which cluster.
#[derive(Args)]
pub(crate) struct Dir {
    /// The cluster's folder; each has a cluster of its own [default: target/cluster].
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Dir {
    fn cluster(self, root: &Path) -> Result<Cluster> {
        let dir = self.dir.unwrap_or_else(|| root.join("target/cluster"));
        let dir = std::path::absolute(&dir).with_context(|| format!("resolving {}", dir.display()))?;
        Ok(Cluster::in_dir(dir))
    }
}

/// Carries the command out.
pub(crate) fn run(root: &Path, command: Command) -> Result<()> {
    match command {
        Command::Up { dir, kubernetes, feature_gates } => {
            let cluster = dir.cluster(root)?;
            needs::check(root, kubernetes)?;
            let programs = build::ensure(root, kubernetes)?;
            cluster.up(
                root,
                &Start { programs: &programs, feature_gates: &feature_gates, ends_with_us: false },
            )?;
            println!("try: cargo xtask cluster exec --dir {} -- kubectl get nodes", cluster.dir().display());
            Ok(())
        }
        Command::Exec { dir, command } => {
            let mut inside = dir.cluster(root)?.inside(&command)?;
            // Replaces this process, so that signals and the exit status are the command's own.
            Err(inside.exec()).with_context(|| format!("running {inside:?}"))
        }
        Command::Down { dir } => {
            let cluster = dir.cluster(root)?;
            let ran = cluster.down()?;
            println!(
                "{} in {}",
                if ran { "ended the cluster" } else { "no cluster ran" },
                cluster.dir().display()
            );
            Ok(())
        }
        Command::Packages => {
            needs::packages().for_each(|package| println!("{package}"));
            Ok(())
        }
        Command::Lock { version } => lock::run(root, version),
    }
}

pub(crate) use needs::{check as check_needs, find as find_program};

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
