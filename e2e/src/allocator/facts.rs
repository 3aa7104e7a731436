//! What of an allocation must be the same, whoever made it.

use std::collections::BTreeSet;

use dra_resourceslice::Quantity;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};

/// One line for each fact. Ids of shares are random, so only whether there is one counts; amounts count by value.
pub(crate) fn facts(allocation: &AllocationResult) -> Vec<String> {
    let devices = allocation.devices.clone().unwrap_or_default();
    let mut facts: Vec<String> = devices.results.iter().flatten().map(result).collect();
    let names: BTreeSet<&str> =
        devices.results.iter().flatten().map(|result| result.request.as_str()).collect();
    for config in devices.config.iter().flatten() {
        // Nil and empty mean the same: all requests. Schedulers before 1.37 name all of them for a class.
        let mut requests = config.requests.clone().unwrap_or_default();
        if names.iter().all(|name| concerns(&requests, name)) {
            requests.clear();
        }
        let opaque = config.opaque.as_ref().map(|opaque| opaque.parameters.0.to_string());
        facts.push(format!("config {} for {requests:?}: {opaque:?}", config.source));
    }
    let selector = allocation.node_selector.as_ref().map(serde_json::to_string);
    facts.push(format!("nodes {selector:?}"));
    facts
}

/// Whether the requests include this one, which may be an alternative: `request/alternative`.
fn concerns(requests: &[String], name: &str) -> bool {
    let base = name.split_once('/').map_or(name, |(base, _)| base);
    requests.iter().any(|request| request == name || request == base)
}

fn result(result: &DeviceRequestAllocationResult) -> String {
    let amounts = result.consumed_capacity.iter().flatten();
    let consumed: Vec<(&String, Result<i128, String>)> = amounts
        .map(|(name, amount)| {
            let parsed = Quantity::parse(amount.0.as_str());
            (name, parsed.map(|amount| amount.as_nanos()).map_err(|error| error.to_string()))
        })
        .collect();
    format!(
        "{} = {}/{}/{}, admin {}, tolerations {}, binding {:?} or {:?}, share {}, consumed {consumed:?}",
        result.request,
        result.driver,
        result.pool,
        result.device,
        result.admin_access == Some(true),
        result.tolerations.as_ref().map_or(0, Vec::len),
        result.binding_conditions.clone().unwrap_or_default(),
        result.binding_failure_conditions.clone().unwrap_or_default(),
        result.share_id.is_some(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_configuration_for_each_request_is_one_for_all() {
        let with = |requests: Value| {
            let results = ["a", "b/one"]
                .map(|name| json!({"request": name, "driver": "d", "pool": "p", "device": "x"}));
            let config = json!([{"source": "FromClass", "requests": requests}]);
            facts(
                &serde_json::from_value(json!({"devices": {"results": results, "config": config}})).unwrap(),
            )
        };
        assert_eq!(with(json!(null)), with(json!(["a", "b/one"])));
        assert_eq!(with(json!([])), with(json!(["b", "a"])));
        assert_ne!(with(json!(null)), with(json!(["a"])));
        assert_ne!(with(json!(null)), with(json!(["a", "b/two"])));
    }

    #[test]
    fn spelling_does_not_count_and_content_does() {
        let with = |device: &str, share: Value, amount: &str| {
            let result = json!({"request": "a", "driver": "d", "pool": "p", "device": device, "shareID": share,
                "consumedCapacity": {"memory": amount}});
            facts(&serde_json::from_value(json!({"devices": {"results": [result]}})).unwrap())
        };
        assert_eq!(with("x", json!("i"), "1Gi"), with("x", json!("j"), "1024Mi"));
        assert_ne!(with("x", json!("i"), "1Gi"), with("y", json!("i"), "1Gi"));
        assert_ne!(with("x", json!("i"), "1Gi"), with("x", json!("i"), "1G"));
        assert_ne!(with("x", json!("i"), "1Gi"), with("x", json!(null), "1Gi"));
    }
}
