//! The command line. Each option can also be given as an environment variable.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use dra_kubeletplugin::{DeviceName, DriverName, NodeName};

#[derive(Debug, Parser)]
#[command(
    name = "mock-gpu-driver",
    version,
    about = "A Kubernetes DRA driver for GPUs that do not exist",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the kubelet of this node (the default).
    Run(RunOptions),
    /// Show the whole path of a GPU into a container, with stand-ins for kubelet, API server and runtime.
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
    /// Name of the driver, as it stands in ResourceSlices and device classes.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.example.com")]
    pub(crate) driver_name: DriverName,
    /// Root folder of the kubelet.
    #[arg(long, env = "KUBELET_ROOT", value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_root: PathBuf,
    /// Folder that the container runtime reads CDI files from.
    #[arg(long, env = "CDI_ROOT", value_name = "FOLDER", default_value = "/var/run/cdi")]
    pub(crate) cdi_root: PathBuf,
    /// How many GPUs the node has.
    #[arg(long, env = "NUM_DEVICES", value_name = "COUNT", default_value_t = 8)]
    pub(crate) num_devices: u32,
    /// UID of the driver's pod: turns rolling updates on.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(crate) pod_uid: Option<String>,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// For tests: how long each prepare takes, in milliseconds.
    #[arg(long, env = "PREPARE_DELAY", value_name = "MILLISECONDS", value_parser = milliseconds, default_value = "0")]
    pub(crate) prepare_delay: Duration,
    /// For tests: prepare fails for claims with this device.
    #[arg(long, env = "FAIL_PREPARE", value_name = "DEVICE")]
    pub(crate) fail_prepare: Option<DeviceName>,
}

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

    #[test]
    fn every_option_has_its_environment_variable_in_upper_snake_case() {
        let command = Cli::command();
        for option in command.get_arguments().filter(|option| !matches!(option.get_id().as_str(), "help" | "version")) {
            let long = option.get_long().unwrap();
            let expected = long.replace('-', "_").to_uppercase();
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn illegal_names_are_refused_with_the_rule() {
        let error = Cli::try_parse_from(["mock-gpu-driver", "--node-name", "Node_1"]).unwrap_err().to_string();
        assert!(error.contains("--node-name") && error.contains("Node_1"), "{error}");
        let error = Cli::try_parse_from(["x", "--node-name", "n", "--driver-name", "GPU!"]).unwrap_err().to_string();
        assert!(error.contains("--driver-name") && error.contains("GPU!"), "{error}");
    }
}
