//! The suite on the stand-in of the test kit, as several API servers.

use dra_resourceslice::NodeName;
use dra_testkit::api::ApiServer;

use super::{Server, Suite};

const NODE: &str = "node-1";

/// Runs both parts of the suite; gives how many cases passed, and how many limits were judged.
async fn run(api: &ApiServer, minor: u32) -> (usize, super::limits::Judged) {
    api.node(NODE).unwrap();
    let server = Server::known(minor, api.feature_gates().into_iter().map(str::to_owned));
    let (admin, driver) = (api.client(), api.client());
    let suite = Suite { admin, driver, node: NodeName::new(NODE).unwrap(), server };
    let cases = super::run(&suite).await.unwrap_or_else(|error| panic!("{error:#}"));
    let judged = super::run_limits(&suite).await.unwrap_or_else(|error| panic!("{error:#}"));
    (cases, judged)
}

#[tokio::test]
async fn the_suite_passes_with_all_feature_gates_on_and_with_those_that_are_on_by_default() {
    let (cases, judged) = run(&ApiServer::new(), 37).await;
    assert!(cases > 0 && judged.by_both > 0);
    // Some limits hold only where a gate is off.
    let (_, by_default) = run(&ApiServer::of_version(37), 37).await;
    let unjudged: Vec<_> = judged.rows_locally.intersection(&by_default.rows_locally).collect();
    assert!(unjudged.is_empty(), "limits that no stand-in has judged: {unjudged:?}");
}

#[tokio::test]
async fn the_suite_passes_with_all_gates_off() {
    let api = ApiServer::new();
    for gate in api.feature_gates() {
        api.set_feature_gate(gate, false).unwrap();
    }
    run(&api, 37).await;
}

#[tokio::test]
async fn the_suite_passes_on_the_oldest_version() {
    run(&ApiServer::of_version(34), 34).await;
}
