//! What a slice publisher must bring about at an API server, as one suite for the stand-in and for the real one.
//!
//! `cargo test` runs it against the stand-in of the test kit, as several versions of Kubernetes and with feature
//! gates off; the scenarios in `scenarios/slices.rs` run it against the real API server. So the stand-in is kept
//! honest, and what it cannot know is found.

mod changes;
mod content;
#[cfg(test)]
mod faults;
mod limits;
mod recorder;
mod rig;
mod server;
#[cfg(test)]
mod stand_in;

use std::{pin::Pin, time::Duration};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::NodeName;
use futures::StreamExt as _;
use kube::Client;

pub(crate) use recorder::Recorder;
pub(crate) use rig::{Rig, Start, devices, driver, pool_name, slices_of_one};

use recorder::recorded;
use rig::device;
pub(crate) use server::Server;

/// How long one case may take.
const CASE_WITHIN: Duration = Duration::from_secs(60);
/// How many cases run at once: they wait more than they work.
const AT_ONCE: usize = 8;

/// An API server to run the suite against.
pub(crate) struct Suite {
    /// Speaks for an administrator: looks, and plays the others who write slices.
    pub(crate) admin: Client,
    /// Has a driver's rights.
    pub(crate) driver: Client,
    /// A node that exists.
    pub(crate) node: NodeName,
    /// What kind of API server it is.
    pub(crate) server: Server,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One thing that must hold. The name is a sentence; each case has a driver name of its own.
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Suite) -> Running<'a>,
}

/// Runs all cases, several at once.
///
/// # Errors
/// Names every case that failed, and why. Fails if there is none.
pub(crate) async fn run(suite: &Suite) -> Result<usize> {
    let cases: Vec<Case> = [content::cases(), changes::cases()].into_iter().flatten().collect();
    let outcomes = futures::stream::iter(&cases).map(|case| run_one(suite, case));
    let outcomes: Vec<_> = outcomes.buffer_unordered(AT_ONCE).collect().await;
    let failures: Vec<String> =
        outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    ensure!(!cases.is_empty(), "there are no cases");
    Ok(cases.len())
}

pub(crate) use limits::run as run_limits;

async fn run_one(suite: &Suite, case: &Case) -> Result<()> {
    let ended = tokio::time::timeout(CASE_WITHIN, (case.run)(suite)).await;
    ended.with_context(|| format!("{}: not done after {CASE_WITHIN:?}", case.name))?.context(case.name)
}
