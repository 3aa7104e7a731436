//! The command line of `state`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dra_kubeletplugin::{ClaimUid, NodeName};

use crate::options::Place;

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Show records, CDI files, locks, sockets and instances, and what of it is inconsistent. Changes nothing, and works beside
    /// a running driver. Exit code 0: all is well; 1: something is inconsistent; 2: it could not look.
    Show(ShowOptions),
    /// Put aside records that cannot be read, once nothing uses their devices. Works beside a running driver.
    Repair(Place),
    /// Let go of claims before the driver leaves the node for good, as for the driver that was there before it. The driver
    /// has to be stopped; no API server is needed.
    Release(ReleaseOptions),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// For tests: which boot of the machine this is, instead of what the kernel says.
    #[arg(long, env = "BOOT_ID", value_name = "ID")]
    pub(crate) boot_id: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Node that this driver runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: NodeName,
    /// Checkpoint of the driver on the Go helper, as the driver was given it.
    #[arg(long, env = "ADOPT_FROM", value_name = "FILE")]
    pub(crate) adopt_from: Option<PathBuf>,
    /// Let go of all claims.
    #[arg(long, conflicts_with = "claim", required_unless_present = "claim")]
    pub(crate) all: bool,
    /// UID of a claim to let go of; may be given several times.
    #[arg(long, value_name = "UID")]
    pub(crate) claim: Vec<ClaimUid>,
    /// For tests: which boot of the machine this is, instead of what the kernel says.
    #[arg(long, env = "BOOT_ID", value_name = "ID")]
    pub(crate) boot_id: Option<String>,
}
