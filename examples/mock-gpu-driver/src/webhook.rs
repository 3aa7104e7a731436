//! The webhook that reads the opaque configuration of claims when they are written, so that a mistake is told to whoever
//! makes it, and not by a pod that does not start.
//!
//! It needs no rights: the API server calls it, and it asks nobody.

mod certificate;
mod connections;
mod review;
mod serve;

use std::net::SocketAddr;

use clap::Args;
use dra_kubeletplugin::{DriverName, raise_file_limit, signals};

use crate::{options::LogFormat, profile::DeviceProfile, run::start_log};

pub(crate) use certificate::CertificateFiles;
pub(crate) use review::Judge;

/// Where to serve, and whose configuration to read.
#[derive(Clone, Debug, Args)]
pub(crate) struct WebhookOptions {
    #[command(flatten)]
    certificate: CertificateFiles,
    /// Address to serve on.
    #[arg(long, env = "WEBHOOK_ADDRESS", value_name = "IP:PORT", default_value = "0.0.0.0:8443")]
    address: SocketAddr,
    /// What kind of devices the driver has.
    #[arg(long, env = "DEVICE_PROFILE", value_name = "KIND", default_value = "gpu")]
    device_profile: DeviceProfile,
    /// Name of the driver, whose configuration is read; `<profile>.example.com` if none is given.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.example.com", default_value_ifs = [
        ("device_profile", "net", "net.example.com"), ("device_profile", "cpu", "cpu.example.com"),
    ])]
    driver_name: DriverName,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// Runs until the process is told to end.
///
/// # Errors
/// The certificate cannot be used, or the address is taken.
pub(crate) async fn run(options: WebhookOptions) -> anyhow::Result<()> {
    start_log(options.log_format);
    raise_file_limit();
    let stop = signals::terminate()?;
    let profile = options.device_profile;
    let judge = Judge::new(options.driver_name, move |parameters| profile.validate(parameters));
    serve::serve(options.address, options.certificate, judge, stop).await
}
