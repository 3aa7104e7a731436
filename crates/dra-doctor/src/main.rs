//! Says why a pod is pending, or why a driver does not work.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use dra_doctor::{
    ObjectName, Report, examine,
    gather::{self, Account, ClusterWanted, NodeWanted, Wanted},
};

#[derive(Parser)]
#[command(
    version,
    about = "Says why a pod of Kubernetes DRA is pending, or why a driver does not work, and what to do",
    after_help = "Without a command it looks at the node, if it runs on one, and at the cluster.\n\
                  Exit codes: 0 healthy, 1 something was found, 2 a check could not look, or the arguments make no sense."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Look at this driver only.
    #[arg(long, global = true)]
    driver: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Looks at the node that it runs on: kubelet, sockets, registration, container runtime. Run it as root among the
    /// host's processes.
    Node,
    /// Looks at the cluster: API group, permissions, ResourceSlices, and all pods that are pending.
    Cluster,
    /// Looks at one claim, and at the pods that use it.
    Claim {
        /// NAMESPACE/NAME
        name: ObjectName,
    },
    /// Looks at one pod and its claims.
    Pod {
        /// NAMESPACE/NAME
        name: ObjectName,
    },
}

#[derive(Args)]
struct NodeArguments {
    /// Name of this node: without it Events and ResourceSlices of the node are not looked at.
    #[arg(long, env = "NODE_NAME", global = true)]
    node_name: Option<String>,
    /// The kubelet root that the driver was told.
    #[arg(long, default_value = "/var/lib/kubelet", global = true)]
    kubelet_root: PathBuf,
    /// The folder that the driver writes CDI files to.
    #[arg(long, default_value = "/var/run/cdi", global = true)]
    cdi: PathBuf,
    /// The socket of the container runtime, if it is not at a usual place.
    #[arg(long, global = true)]
    runtime: Option<PathBuf>,
    /// The host's /proc.
    #[arg(long, default_value = "/proc", global = true)]
    proc: PathBuf,
}

#[derive(Args)]
struct ClusterArguments {
    /// Ask what the driver's account may do: NAMESPACE/NAME of a service account, a user's name, or `self`.
    #[arg(long, global = true)]
    account: Option<Account>,
    /// The driver writes the status of claims, and needs the rights for that too.
    #[arg(long, global = true)]
    claim_status: bool,
}

impl NodeArguments {
    fn wanted(self) -> NodeWanted {
        let mut wanted = NodeWanted::default();
        wanted.name = self.node_name;
        wanted.kubelet_root = self.kubelet_root;
        wanted.cdi = self.cdi;
        wanted.runtime = self.runtime;
        wanted.proc = self.proc;
        wanted
    }
}

impl Cli {
    fn wanted(self) -> Wanted {
        let mut cluster = ClusterWanted::default();
        cluster.account = self.cluster.account;
        cluster.writes_claim_status = self.cluster.claim_status;
        let mut wanted = Wanted::default();
        wanted.driver = self.driver;
        match self.command {
            Some(Command::Node) => wanted.node = Some(self.node.wanted()),
            Some(Command::Cluster) => wanted.cluster = Some(cluster),
            Some(Command::Claim { name }) => {
                cluster.claim = Some(name);
                wanted.cluster = Some(cluster);
            }
            Some(Command::Pod { name }) => {
                cluster.pod = Some(name);
                wanted.cluster = Some(cluster);
            }
            None => {
                wanted.cluster = Some(cluster);
                wanted.node = self.node.kubelet_root.exists().then(|| self.node.wanted());
            }
        }
        wanted
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_json = cli.json;
    let client = kube::Client::try_default().await;
    let client = client.map_err(|error| {
        format!("there is no way to the API server: {error}; set KUBECONFIG, or look at the node alone with `node`")
    });
    let snapshot = gather::look(&cli.wanted(), client).await;
    let report = examine(&snapshot);
    match text(&report, is_json) {
        Ok(text) => print!("{text}"),
        Err(error) => {
            eprintln!("error: writing the report: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::from(report.exit_code())
}

fn text(report: &Report, is_json: bool) -> Result<String, serde_json::Error> {
    if is_json {
        return serde_json::to_string_pretty(report).map(|text| text + "\n");
    }
    Ok(report.to_string())
}
