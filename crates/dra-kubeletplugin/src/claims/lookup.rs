//! Fetches claims from the API server.

use std::{sync::Arc, time::Duration};

use dra_resourceslice::{DriverName, NodeName};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    claim::{AllocatedClaim, AllocatedDevice, ClaimError, ClaimRef, ReceiveError, Received},
    plugin::ErrorChain,
};

/// How many claims are fetched at once.
const PARALLEL_GETS: usize = 16;

/// How long one GET may take, and all tries together: the kubelet waits 45 s, and whoever reads the pod's events should
/// learn of a dead API server long before that.
const GET_LIMIT: Duration = Duration::from_secs(4);
const TOTAL_LIMIT: Duration = Duration::from_secs(8);

const PAUSE: Duration = Duration::from_millis(200);

/// Fetches claims and judges them.
#[derive(Clone)]
pub(crate) struct Lookup {
    driver: DriverName,
    server: Option<Server>,
    permits: Arc<Semaphore>,
}

/// Who is asked.
#[derive(Clone)]
struct Server {
    client: kube::Client,
    node: NodeName,
}

/// A claim as it was at some time.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) claim: AllocatedClaim,
    pub(crate) at: Instant,
}

/// What is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The claim.
    Claim,
    /// The devices: the claim may come back for others.
    Devices,
}

/// Why there is no claim to prepare.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("the claim's {what} {value:?} is illegal")]
    IllegalName { what: &'static str, value: String },
    #[error("there is no such claim on the API server")]
    NotFound,
    #[error("the driver may not get resourceclaims ({message}): give its service account this permission")]
    Forbidden { message: String },
    #[error("the API server did not give the claim within {} s: {}", TOTAL_LIMIT.as_secs(), last)]
    Unavailable { last: String },
    #[error("the API server refused to give the claim: {}", ErrorChain(.0))]
    Refused(#[source] kube::Error),
    #[error("the API server's answer is no ResourceClaim: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl LookupError {
    /// See [`Failure::class`](super::Failure::class).
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::IllegalName { .. } => "request",
            Self::NotFound | Self::Claim(_) => "claim",
            Self::Forbidden { .. } | Self::Unavailable { .. } | Self::Refused(_) | Self::Unreadable(_) => {
                "api"
            }
        }
    }
}

impl Lookup {
    pub(crate) fn new(client: kube::Client, driver: DriverName, node: NodeName) -> Self {
        Self::of(driver, Some(Server { client, node }))
    }

    /// For a process that undoes and prepares nothing: nobody is asked, and no claim is known to be gone.
    pub(crate) fn without_server(driver: DriverName) -> Self {
        Self::of(driver, None)
    }

    fn of(driver: DriverName, server: Option<Server>) -> Self {
        Self { driver, server, permits: Arc::new(Semaphore::new(PARALLEL_GETS)) }
    }

    /// Gets the claim, trying again for some seconds if the API server cannot be reached.
    pub(crate) async fn fetch(&self, claim: &ClaimRef) -> Result<Fetched, LookupError> {
        check_names(claim)?;
        let end = Instant::now() + TOTAL_LIMIT;
        loop {
            let at = Instant::now();
            let last = match self.get(claim, end.min(at + GET_LIMIT)).await {
                Ok(received) => {
                    let claim = received.allocated(&self.driver, claim)?;
                    return Ok(Fetched { claim, at });
                }
                Err(Try::Final(error)) => return Err(error),
                Err(Try::Again(last)) => last,
            };
            if Instant::now() + PAUSE >= end {
                return Err(LookupError::Unavailable { last });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the claim is over here: it does not exist any more, or it has none of the devices that are recorded for it. Only
    /// a clear answer of an API server that knows this node counts: one that was restored from an empty store knows
    /// nothing, and everything still runs.
    pub(crate) async fn gone(&self, claim: &ClaimRef, recorded: &[AllocatedDevice]) -> Option<Gone> {
        check_names(claim).ok()?;
        let gone = match self.get(claim, Instant::now() + GET_LIMIT).await {
            Ok(received) if received.uid() == Some(claim.uid.as_str()) => {
                let elsewhere = !recorded.is_empty() && !received.has_any_of(&self.driver, recorded);
                elsewhere.then_some(Gone::Devices)
            }
            Ok(received) => received.uid().map(|_| Gone::Claim),
            Err(Try::Final(LookupError::NotFound)) => Some(Gone::Claim),
            Err(_) => None,
        };
        if gone.is_some() && self.knows_node().await { gone } else { None }
    }

    async fn knows_node(&self) -> bool {
        let Some(server) = &self.server else { return false };
        let nodes = Api::<Node>::all(server.client.clone());
        let found = tokio::time::timeout(GET_LIMIT, nodes.get_metadata(server.node.as_str())).await;
        matches!(found, Ok(Ok(_)))
    }

    async fn get(&self, claim: &ClaimRef, deadline: Instant) -> Result<Received, Try> {
        let Some(server) = &self.server else {
            return Err(Try::Final(LookupError::Unavailable { last: "this process asks none".to_owned() }));
        };
        // The semaphore is never closed; without it the limit is merely not kept.
        let _permit = self.permits.acquire().await.ok();
        let receiving = Received::get(&server.client, &self.driver, claim);
        match tokio::time::timeout_at(deadline, receiving).await {
            Ok(Ok(received)) => Ok(received),
            Ok(Err(ReceiveError::Request(error))) => Err(judge(error)),
            Ok(Err(ReceiveError::Unreadable(error))) => Err(Try::Final(LookupError::Unreadable(error))),
            Err(_) => Err(Try::Again("no answer".to_owned())),
        }
    }
}

/// Whether another try may help.
enum Try {
    Again(String),
    Final(LookupError),
}

fn judge(error: kube::Error) -> Try {
    match &error {
        kube::Error::Api(status) => match status.code {
            404 => Try::Final(LookupError::NotFound),
            403 => Try::Final(LookupError::Forbidden { message: status.message.clone() }),
            // A token may just have been rotated; the rest is trouble on the server's side.
            401 | 408 | 429 | 500.. => Try::Again(ErrorChain(&error).to_string()),
            _ => Try::Final(LookupError::Refused(error)),
        },
        _ => Try::Again(ErrorChain(&error).to_string()),
    }
}

/// They become part of a URL.
fn check_names(claim: &ClaimRef) -> Result<(), LookupError> {
    for (what, value) in [("namespace", &claim.namespace), ("name", &claim.name)] {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        if value.is_empty() || value.len() > 253 || value.starts_with('.') || !value.bytes().all(legal) {
            return Err(LookupError::IllegalName { what, value: value.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_the_url_are_refused() {
        for (namespace, name) in
            [("", "a"), ("a", ""), ("..", "a"), ("a", "../secrets/x"), ("a", "b?c"), ("A", "b")]
        {
            let claim = ClaimRef::new(namespace, name, "u".parse().unwrap());
            assert!(check_names(&claim).is_err(), "{claim}");
        }
        check_names(&ClaimRef::new("default", "pod.gpu-x7v2k", "u".parse().unwrap())).unwrap();
    }
}
