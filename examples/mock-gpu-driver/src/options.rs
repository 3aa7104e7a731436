//! The command line. Each option can also be given as an environment variable.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use dra_kubeletplugin::{DeviceName, DriverName, NodeName};

#[derive(Debug, Parser)]
#[command(name = "mock-gpu-driver", version, about = "A Kubernetes DRA driver for GPUs that do not exist")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line; without a command it is `run`.
    pub(crate) fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        let first = arguments.get(1).and_then(|first| first.to_str()).unwrap_or_default();
        let is_option = first.starts_with('-') && !["-h", "--help", "-V", "--version"].contains(&first);
        if arguments.len() < 2 || is_option {
            arguments.insert(arguments.len().min(1), "run".into());
        }
        Self::try_parse_from(arguments)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the kubelet of this node (the default).
    Run(Box<RunOptions>),
    /// Put the driver's state on this node right.
    #[command(subcommand)]
    State(StateCommand),
    /// Show the whole path of a GPU into a container, with stand-ins for kubelet, API server and runtime.
    #[cfg(feature = "demo")]
    Demo(DemoOptions),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    /// Kubeconfig file; without it the pod's service account, or what kubectl would use.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Node that this driver runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: NodeName,
    #[command(flatten)]
    pub(crate) place: Place,
    /// How many GPUs the node has.
    #[arg(long, env = "NUM_DEVICES", value_name = "COUNT", default_value_t = 8)]
    pub(crate) num_devices: u32,
    /// JSON file with the slices to publish, instead of `--num-devices`.
    #[arg(long, env = "INVENTORY", value_name = "FILE")]
    pub(crate) inventory: Option<PathBuf>,
    /// UID of the driver's pod: turns rolling updates on.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(crate) pod_uid: Option<String>,
    /// Address to serve metrics and probes on, such as `0.0.0.0:8080`: /metrics, /healthz, /readyz, gRPC health.
    #[arg(long, env = "METRICS_ADDRESS", value_name = "IP:PORT")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// One more address for the same, for probes alone.
    #[arg(long, env = "HEALTH_ADDRESS", value_name = "IP:PORT")]
    pub(crate) health_address: Option<SocketAddr>,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Tell containers of their GPUs in metadata files too.
    #[arg(long, env = "METADATA", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub(crate) metadata: bool,
    /// For tests: how long each prepare takes, in milliseconds.
    #[arg(long, env = "PREPARE_DELAY", value_name = "MILLISECONDS", value_parser = milliseconds, default_value = "0")]
    pub(crate) prepare_delay: Duration,
    /// For tests: only claims with one of these devices take that long, and they do not mind that they are cancelled.
    #[arg(long, env = "SLOW_DEVICES", value_name = "DEVICE,…", value_delimiter = ',')]
    pub(crate) slow_devices: Vec<DeviceName>,
    /// For tests: prepare fails for claims with one of these devices.
    #[arg(long, env = "FAIL_PREPARE", value_name = "DEVICE,…", value_delimiter = ',')]
    pub(crate) fail_prepare: Vec<DeviceName>,
    /// For tests: which boot of the machine this is, instead of what the kernel says.
    #[arg(long, env = "BOOT_ID", value_name = "ID")]
    pub(crate) boot_id: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Put aside records that cannot be read, once nothing uses their devices. Works beside a running driver.
    Repair(Place),
}

/// Which driver, and where on the node its files are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Name of the driver, as it stands in ResourceSlices and device classes.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.example.com")]
    pub(crate) driver_name: DriverName,
    /// Root folder of the kubelet.
    #[arg(long, env = "KUBELET_ROOT", value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_root: PathBuf,
    /// Folder that the container runtime reads CDI files from.
    #[arg(long, env = "CDI_ROOT", value_name = "FOLDER", default_value = "/var/run/cdi")]
    pub(crate) cdi_root: PathBuf,
}

#[cfg(feature = "demo")]
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoOptions {
    /// Print each event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::from_arguments(arguments.iter().map(OsString::from))
    }

    #[test]
    fn every_option_has_its_environment_variable_in_upper_snake_case() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for option in run.get_arguments().filter(|option| option.get_id() != "help") {
            let long = option.get_long().unwrap();
            let expected = long.replace('-', "_").to_uppercase();
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn run_is_the_default_command() {
        assert!(matches!(parse(&["x", "--node-name", "n"]).unwrap().command, Command::Run(_)));
        assert!(matches!(parse(&["x", "run", "--node-name", "n"]).unwrap().command, Command::Run(_)));
        #[cfg(feature = "demo")]
        assert!(matches!(
            parse(&["x", "demo", "--json"]).unwrap().command,
            Command::Demo(DemoOptions { json: true })
        ));
        assert_eq!(parse(&["x", "--help"]).unwrap_err().kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn illegal_names_are_refused_with_the_rule() {
        let error = parse(&["x", "--node-name", "Node_1"]).unwrap_err().to_string();
        assert!(error.contains("--node-name") && error.contains("Node_1"), "{error}");
        let error = parse(&["x", "--node-name", "n", "--driver-name", "GPU!"]).unwrap_err().to_string();
        assert!(error.contains("--driver-name") && error.contains("GPU!"), "{error}");
    }
}
