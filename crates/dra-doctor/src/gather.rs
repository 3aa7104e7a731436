//! Looks at a node and at a cluster. Nothing here judges; what could not be seen is said in the snapshot.

mod access;
mod cluster;
mod lists;
mod node;
mod processes;
mod runtime;
mod sockets;

use std::path::PathBuf;

use kube::Client;

pub use access::Account;

use crate::snapshot::{Looked, ObjectName, Snapshot};

/// What is to be looked at.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Wanted {
    /// Look at this driver only.
    pub driver: Option<String>,
    /// Look at the node that the program runs on.
    pub node: Option<NodeWanted>,
    /// Look at the cluster.
    pub cluster: Option<ClusterWanted>,
}

/// What is to be looked at on a node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeWanted {
    /// Name of the node, if it is known.
    pub name: Option<String>,
    /// The kubelet root that the driver was told.
    pub kubelet_root: PathBuf,
    /// The folder that the driver writes CDI files to.
    pub cdi: PathBuf,
    /// The socket of the container runtime, or nothing for the usual ones.
    pub runtime: Option<PathBuf>,
    /// `/proc` of the host.
    pub proc: PathBuf,
}

impl Default for NodeWanted {
    /// The usual folders.
    fn default() -> Self {
        Self {
            name: None,
            kubelet_root: "/var/lib/kubelet".into(),
            cdi: "/var/run/cdi".into(),
            runtime: None,
            proc: "/proc".into(),
        }
    }
}

/// What is to be looked at in a cluster.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClusterWanted {
    /// Look at this pod and its claims only.
    pub pod: Option<ObjectName>,
    /// Look at this claim and the pods that use it only.
    pub claim: Option<ObjectName>,
    /// Ask what the driver's account may do.
    pub account: Option<Account>,
    /// The driver writes the status of claims, and needs the rights for that too.
    pub writes_claim_status: bool,
}

/// Looks. `client` is the way to the API server, or why there is none.
pub async fn look(wanted: &Wanted, client: Result<Client, String>) -> Snapshot {
    let mut snapshot = Snapshot { driver: wanted.driver.clone(), ..Snapshot::default() };
    if let Some(node) = &wanted.node {
        node::look(node, &mut snapshot).await;
    }
    match (&client, &wanted.cluster) {
        (Ok(client), Some(cluster)) => cluster::look(client, cluster, &mut snapshot).await,
        // Of the cluster a node is interested in its own slices and Events; it can do without.
        (Ok(client), None) => cluster::look_for_node(client, &mut snapshot).await,
        (Err(why), Some(_)) => no_cluster(why, &mut snapshot),
        (Err(_), None) => {}
    }
    snapshot
}

fn no_cluster(why: &str, snapshot: &mut Snapshot) {
    fn failed<T>(why: &str) -> Looked<T> {
        Looked::CouldNot(why.to_owned())
    }
    snapshot.versions = failed(why);
    snapshot.slices = failed(why);
    snapshot.classes = failed(why);
    snapshot.taint_rules = failed(why);
    snapshot.claims = failed(why);
    snapshot.templates = failed(why);
    snapshot.nodes = failed(why);
    snapshot.pods = failed(why);
    snapshot.holders = failed(why);
    snapshot.node_events = failed(why);
    snapshot.pod_events = failed(why);
}
