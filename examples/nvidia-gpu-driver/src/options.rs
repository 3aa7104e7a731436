//! The command line. Each option can also be given as an environment variable.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, ValueEnum};
use dra_kubeletplugin::{DriverName, NodeName, state::StateLocation};

use crate::{cdi::Nodes, driver_root::DriverRoot, records::Records};

#[derive(Clone, Debug, Parser)]
#[command(name = "nvidia-gpu-driver", version, about = "A Kubernetes DRA driver for NVIDIA's GPUs")]
pub(crate) struct Options {
    /// Kubeconfig file; without it the pod's service account, or what kubectl would use.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Node that this driver runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: NodeName,
    /// Name of the driver, as it stands in ResourceSlices and device classes.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.nvidia.com")]
    pub(crate) driver_name: DriverName,
    /// Root folder of the kubelet.
    #[arg(long, env = "KUBELET_ROOT", value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_root: PathBuf,
    /// Folder that the container runtime reads CDI files from.
    #[arg(long, env = "CDI_ROOT", value_name = "FOLDER", default_value = "/var/run/cdi")]
    pub(crate) cdi_root: PathBuf,
    /// UID of the driver's pod: turns rolling updates on.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(crate) pod_uid: Option<String>,
    /// Root of NVIDIA's driver on the host: `/`, or where an operator has installed it.
    #[arg(long, env = "NVIDIA_DRIVER_ROOT", value_name = "FOLDER", default_value = "/")]
    nvidia_driver_root: PathBuf,
    /// Where this process sees that folder, if it sees it elsewhere.
    #[arg(long, env = "CONTAINER_DRIVER_ROOT", value_name = "FOLDER")]
    container_driver_root: Option<PathBuf>,
    /// File of NVML, if it is at none of the usual places below the root.
    #[arg(long, env = "NVML_LIBRARY", value_name = "FILE")]
    nvml_library: Option<PathBuf>,
    /// Program `nvidia-cdi-hook` of NVIDIA's toolkit on the host, 1.17.8 or later, if it is at none of the usual places below
    /// the driver's root.
    #[arg(long, env = "NVIDIA_CDI_HOOK_PATH", value_name = "FILE")]
    pub(crate) nvidia_cdi_hook_path: Option<PathBuf>,
    /// The kernel's files about devices.
    #[arg(long, env = "SYSFS", value_name = "FOLDER", default_value = "/sys")]
    pub(crate) sysfs: PathBuf,
    /// The kernel's files about processes and drivers.
    #[arg(long, env = "PROCFS", value_name = "FOLDER", default_value = "/proc")]
    procfs: PathBuf,
    /// For tests without root: daemons of MPS see what all see, and shared memory is a plain folder.
    #[arg(long, env = "MPS_WITHOUT_MOUNTS", hide = true)]
    pub(crate) mps_without_mounts: bool,
    #[command(flatten)]
    pub(crate) devices: DeviceOptions,
    /// How often to look which GPUs there are, in seconds.
    #[arg(long, env = "POLL_INTERVAL", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub(crate) poll_interval: Duration,
    /// XIDs that only inform, beside those that applications cause: 13, 31, 43, 45, 68 and 109.
    #[arg(long, env = "ADDITIONAL_XIDS_TO_IGNORE", value_name = "XID,…", value_delimiter = ',')]
    pub(crate) additional_xids_to_ignore: Vec<u64>,
    /// Wait for errors that GPUs report. NVML stays open for it; without it NVML is open only while it is needed, and devices
    /// are not monitored.
    #[arg(long, env = "HEALTH", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub(crate) health: bool,
    /// After how many seconds without another one an XID is forgotten; without this only after a reset of the GPU, a start of
    /// the machine, or a new load of NVIDIA's driver.
    #[arg(long, env = "FORGIVE_XIDS_AFTER", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) forgive_xids_after: Option<Duration>,
    /// Address to serve metrics and probes on, such as `0.0.0.0:8080`: /metrics, /healthz, /readyz, gRPC health.
    #[arg(long, env = "METRICS_ADDRESS", value_name = "IP:PORT")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// Say by Events on the Node that the kubelet refuses the driver, or does not register it.
    #[arg(long, env = "NODE_EVENTS")]
    pub(crate) node_events: bool,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// For tests: which boot of the machine this is, instead of what the kernel says.
    #[arg(long, env = "BOOT_ID", value_name = "ID")]
    pub(crate) boot_id: Option<String>,
}

/// Which devices are given away.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceOptions {
    /// Make MIG devices as claims ask for them, instead of offering those that are there.
    #[arg(long, env = "DYNAMIC_MIG", value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub(crate) dynamic_mig: bool,
    /// Offer GPUs that are bound to `vfio-pci` to virtual machines.
    #[arg(long, env = "PASSTHROUGH", value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub(crate) passthrough: bool,
    /// Give a claim no GPU for itself that some process uses past Kubernetes.
    #[arg(long, env = "CHECK_PROCESSES", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub(crate) check_processes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

impl Options {
    pub(crate) fn driver_root(&self) -> DriverRoot {
        let on_host = self.nvidia_driver_root.clone();
        let here = self.container_driver_root.clone().unwrap_or_else(|| on_host.clone());
        DriverRoot { here, on_host, library: self.nvml_library.clone() }
    }

    pub(crate) fn records(&self) -> Records {
        let mut location = StateLocation::new(self.driver_name.clone());
        location.kubelet_root.clone_from(&self.kubelet_root);
        location.cdi_root.clone_from(&self.cdi_root);
        location.boot_id.clone_from(&self.boot_id);
        Records(location)
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes { proc: self.procfs.clone(), sysfs: self.sysfs.clone() }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_option_has_its_environment_variable_in_upper_snake_case() {
        let command = Options::command();
        command.clone().debug_assert();
        for option in command.get_arguments() {
            let long = option.get_long().unwrap();
            let expected = long.replace('-', "_").to_uppercase();
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn roots_are_the_same_here_and_on_the_host_unless_told() {
        let options = Options::parse_from(["x", "--node-name", "n", "--nvidia-driver-root", "/run/nvidia"]);
        assert_eq!(options.driver_root().here, PathBuf::from("/run/nvidia"));
        let options =
            Options::parse_from(["x", "--node-name", "n", "--container-driver-root", "/driver-root"]);
        assert_eq!(options.driver_root().here, PathBuf::from("/driver-root"));
        assert_eq!(options.driver_root().on_host, PathBuf::from("/"));
        let error = Options::try_parse_from(["x", "--node-name", "n", "--poll-interval", "0"]).unwrap_err();
        assert!(error.to_string().contains("at least 1"), "{error}");
    }
}
