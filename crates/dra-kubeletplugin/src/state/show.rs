//! Shows a driver's state on a node, and what of it does not fit together.

mod findings;
mod locks;
mod read;
mod snapshot;
mod sockets;
mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{StateError, StateLocation};

pub use findings::{Finding, FindingKind};
pub use snapshot::{
    CdiFileState, CdiOwner, InstanceState, Liveness, LockState, LockedBy, MetadataState, RecordPhase,
    RecordState, RecordedDevice, Snapshot, SocketKind, SocketState, Temporary,
};

/// A driver's state on a node, judged. As text it is tables for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Report {
    /// What there is.
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// What does not fit together; none if all is well.
    pub findings: Vec<Finding>,
}

/// A running driver takes its steps one by one, so a single look may catch it between two. What was begun in one look is
/// done or locked in the next.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Looks at what a driver keeps on a node: records of claims, CDI files, metadata, locks, sockets, instances; and says what
/// is inconsistent.
///
/// It only reads, and takes no lock: it may be called beside living instances, as often as one likes. If something looks
/// inconsistent it looks again after a second, and tells what is so both times. Sockets are asked whether somebody listens
/// by a connection that cannot come about, so a driver does not notice.
///
/// Processes that hold locks are told as far as `/proc` shows them: all to root on the node, those of its own pod to a pod.
///
/// ```
/// use dra_kubeletplugin::state::{self, StateLocation};
///
/// # async fn look() -> Result<(), Box<dyn std::error::Error>> {
/// let report = state::show(&StateLocation::new("gpu.example.com".parse()?)).await?;
/// for finding in &report.findings {
///     println!("{}: {}", finding.what, finding.advice);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// There is no such driver on this node, or something may not be read.
pub async fn show(location: &StateLocation) -> Result<Report, StateError> {
    let snapshot = read::read(location).await?;
    let suspicions = snapshot.findings();
    if suspicions.is_empty() {
        return Ok(Report { snapshot, findings: suspicions });
    }
    tokio::time::sleep(BETWEEN_LOOKS).await;
    let snapshot = read::read(location).await?;
    let mut findings = snapshot.findings();
    findings.retain(|finding| suspicions.iter().any(|suspicion| suspicion.is_about_the_same(finding)));
    Ok(Report { snapshot, findings })
}
