//! The allocation that is stored for a claim.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::AllocationResult;
use serde_json::{Value, json};

use crate::error::AllocationError;
use crate::model::{self, Place};
use crate::nodes;
use crate::requests::{Alternative, Wanted};
use crate::search::{Chosen, Solution};

/// The allocation of the claim with this number.
///
/// # Errors
/// If a configuration in the claim or a class cannot be read.
pub(crate) fn allocation(
    claims: &[Wanted<'_>],
    number: usize,
    solution: &Solution<'_>,
    node: &Node,
) -> Result<AllocationResult, AllocationError> {
    let claim = &claims[number];
    let devices = &solution.devices[number];
    let results: Vec<Value> = devices.iter().map(|chosen| result(claim, chosen)).collect();
    let chosen = |request| {
        let alternative = solution.alternatives.get(&(number, request)).copied().unwrap_or_default();
        &claim.requests[request].alternatives[alternative]
    };
    let alternatives: Vec<&Alternative<'_>> = (0..claim.requests.len()).map(chosen).collect();
    let mut allocation = json!({"devices": {"results": results, "config": config(claim, &alternatives)}});
    if let Some(selector) = node_selector(devices, node) {
        allocation["nodeSelector"] = json!(selector);
    }
    model::read(&allocation, &format!("the allocation of claim {:?}", claim.claim.metadata.name))
}

fn result(claim: &Wanted<'_>, chosen: &Chosen<'_>) -> Value {
    let asked = &claim.requests[chosen.request].alternatives[chosen.alternative];
    let spec = &chosen.slice.spec;
    let mut result = json!({
        "request": asked.name, "driver": spec.driver, "pool": spec.pool.name, "device": chosen.device.name,
    });
    let mut set = |field: &str, value: Value| {
        if !matches!(&value, Value::Array(list) if list.is_empty()) {
            result[field] = value;
        }
    };
    set("tolerations", json!(asked.ask.tolerations));
    set("bindingConditions", json!(chosen.device.binding_conditions));
    set("bindingFailureConditions", json!(chosen.device.binding_failure_conditions));
    set("skipNodeOperations", json!(spec.skip_node_operations));
    if asked.is_admin {
        set("adminAccess", json!(true));
    }
    if let Some(share) = &chosen.share {
        set("shareID", json!(share_id()));
        let amounts: BTreeMap<&String, &String> =
            share.iter().map(|(name, amount)| (name, &amount.text)).collect();
        if !amounts.is_empty() {
            set("consumedCapacity", json!(amounts));
        }
    }
    result
}

/// A new id, as a random UUID.
fn share_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let (a, b) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | ((b >> 48) & 0x3fff),
        b & 0xffff_ffff_ffff
    )
}

/// The configurations of the classes, each class once, and then those of the claim that concern what was chosen.
fn config(claim: &Wanted<'_>, alternatives: &[&Alternative<'_>]) -> Vec<Value> {
    let mut requests_of: Vec<(&str, &Alternative<'_>, Vec<&str>)> = Vec::new();
    for alternative in alternatives {
        let class = alternative.class.metadata.name.as_str();
        match requests_of.iter_mut().find(|(name, ..)| *name == class) {
            Some((.., requests)) => requests.push(&alternative.name),
            None => requests_of.push((class, alternative, vec![&alternative.name])),
        }
    }
    let names: Vec<&str> = claim.requests.iter().map(|request| request.name).collect();
    let concerns =
        |request: &str, position: usize| request == names[position] || request == alternatives[position].name;
    let is_for =
        |requests: &[&str], position: usize| requests.iter().any(|request| concerns(request, position));
    let mut configs = Vec::new();
    for (_, alternative, requests) in &requests_of {
        for config in &alternative.class.spec.config {
            configs.push((config, "FromClass", requests.clone()));
        }
    }
    for config in &claim.claim.spec.devices.config {
        let requests: Vec<&str> =
            config["requests"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if requests.is_empty() || (0..names.len()).any(|position| is_for(&requests, position)) {
            configs.push((config, "FromClaim", requests));
        }
    }
    configs
        .into_iter()
        .map(|(config, source, requests)| {
            let mut config = config.clone();
            config["source"] = json!(source);
            let for_all = requests.is_empty() || (0..names.len()).all(|position| is_for(&requests, position));
            config["requests"] = if for_all { Value::Null } else { json!(requests) };
            config
        })
        .collect()
}

/// The nodes from which all devices can be used; none if these are all.
fn node_selector(devices: &[Chosen<'_>], node: &Node) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for chosen in devices {
        let spec = &chosen.slice.spec;
        let place: &Place = if spec.per_device_node_selection { &chosen.device.place } else { &spec.place };
        if place.node_name.is_some() || chosen.device.binds_to_node {
            return Some(nodes::only(node.metadata.name.as_deref().unwrap_or_default()));
        }
        // The API server allows one term.
        if let Some(other) =
            place.node_selector.as_ref().and_then(|selector| selector.node_selector_terms.first())
        {
            add(&mut term.match_fields, other.match_fields.as_deref());
            add(&mut term.match_expressions, other.match_expressions.as_deref());
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    (!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn add(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    for requirement in from.unwrap_or_default() {
        let known = to.get_or_insert_default();
        if !known.contains(requirement) {
            known.push(requirement.clone());
        }
    }
}
