//! The command line. Each option can also be given as an environment variable.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use dra_kubeletplugin::{DriverName, NodeName, TaintEffect};

#[cfg(feature = "demo")]
use crate::demo::DemoOptions;
use crate::{
    binding_controller::ControllerOptions,
    extras::Extras,
    faults::Faults,
    profile::{DeviceProfile, ProfileOptions},
    state::StateCommand,
    webhook::WebhookOptions,
};

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
    /// Show the driver's state on this node, or put it right.
    #[command(subcommand)]
    State(StateCommand),
    /// Read the configuration of claims and claim templates when they are written, and refuse what prepare would.
    Webhook(WebhookOptions),
    /// Say of devices that they are ready, for pods that wait for that (`--binding-conditions`).
    BindingController(ControllerOptions),
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
    #[command(flatten)]
    pub(crate) devices: ProfileOptions,
    /// Taint devices that do not work, with the key `<driver name>/unhealthy`: None, `NoSchedule` or `NoExecute`. Without it
    /// they are only reported.
    #[arg(long, env = "TAINT_UNHEALTHY", value_name = "EFFECT")]
    pub(crate) taint_unhealthy: Option<TaintEffect>,
    /// UID of the driver's pod: turns rolling updates on.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(crate) pod_uid: Option<String>,
    /// Address to serve metrics and probes on, such as `0.0.0.0:8080`: /metrics, /healthz, /readyz, gRPC health.
    #[arg(long, env = "METRICS_ADDRESS", value_name = "IP:PORT")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// One more address for the same, for probes alone.
    #[arg(long, env = "HEALTH_ADDRESS", value_name = "IP:PORT")]
    pub(crate) health_address: Option<SocketAddr>,
    /// Say by Events on the Node that the kubelet refuses the driver, or does not register it.
    #[arg(long, env = "NODE_EVENTS")]
    pub(crate) node_events: bool,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Tell containers of their GPUs in metadata files, and the claim's status that they are ready.
    #[arg(long, env = "DESCRIBE_DEVICES", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub(crate) describe_devices: bool,
    #[command(flatten)]
    pub(crate) extras: Extras,
    #[command(flatten)]
    pub(crate) faults: Faults,
}

/// Which driver, and where on the node its files are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// What kind of devices it is for.
    #[arg(long, env = "DEVICE_PROFILE", value_name = "KIND", default_value = "gpu")]
    pub(crate) device_profile: DeviceProfile,
    /// Name of the driver, as it stands in ResourceSlices and device classes; `<profile>.example.com` if none is given.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.example.com", default_value_ifs = [
        ("device_profile", "net", "net.example.com"), ("device_profile", "cpu", "cpu.example.com"),
    ])]
    pub(crate) driver_name: DriverName,
    /// Root folder of the kubelet.
    #[arg(long, env = "KUBELET_ROOT", value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_root: PathBuf,
    /// Folder that the container runtime reads CDI files from.
    #[arg(long, env = "CDI_ROOT", value_name = "FOLDER", default_value = "/var/run/cdi")]
    pub(crate) cdi_root: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
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
    fn a_driver_is_named_by_its_profile_unless_it_is_given_a_name() {
        let name = |more: &[&str]| match parse(&[&["x", "--node-name", "n"], more].concat()).unwrap().command
        {
            Command::Run(options) => options.place.driver_name.to_string(),
            command => panic!("{command:?}"),
        };
        assert_eq!(name(&[]), "gpu.example.com");
        assert_eq!(name(&["--device-profile", "net"]), "net.example.com");
        assert_eq!(name(&["--device-profile", "cpu"]), "cpu.example.com");
        assert_eq!(name(&["--device-profile", "cpu", "--driver-name", "a.example.com"]), "a.example.com");
    }

    #[test]
    fn a_release_names_claims_or_asks_for_all() {
        let release =
            |wanted: &[&str]| parse(&[&["x", "state", "release", "--node-name", "n"], wanted].concat());
        assert!(release(&["--all"]).is_ok());
        assert!(release(&["--claim", "a", "--claim", "b"]).is_ok());
        assert!(release(&[]).is_err());
        assert!(release(&["--all", "--claim", "a"]).is_err());
        assert!(release(&["--claim", "../a"]).unwrap_err().to_string().contains("illegal claim UID"));
    }

    #[test]
    fn illegal_names_are_refused_with_the_rule() {
        let error = parse(&["x", "--node-name", "Node_1"]).unwrap_err().to_string();
        assert!(error.contains("--node-name") && error.contains("Node_1"), "{error}");
        let error = parse(&["x", "--node-name", "n", "--driver-name", "GPU!"]).unwrap_err().to_string();
        assert!(error.contains("--driver-name") && error.contains("GPU!"), "{error}");
    }
}
