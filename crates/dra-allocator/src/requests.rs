//! What claims ask for, checked and with its selectors parsed.

use std::collections::BTreeMap;

use dra_cel::{Selector, SelectorError};

use crate::constraints::Constraint;
use crate::error::AllocationError;
use crate::model::{self, Class, Toleration};

/// A claim to allocate.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) claim: &'a model::Claim,
    pub(crate) requests: Vec<Request<'a>>,
    pub(crate) constraints: Vec<Constraint>,
}

/// A request with its alternatives; without `firstAvailable` there is one.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) alternatives: Vec<Alternative<'a>>,
    pub(crate) is_list: bool,
}

/// One way to satisfy a request.
#[derive(Debug)]
pub(crate) struct Alternative<'a> {
    /// Name in results: `request`, or `request/alternative`.
    pub(crate) name: String,
    pub(crate) ask: &'a model::Ask,
    pub(crate) class: &'a Class,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) is_admin: bool,
    /// None for all devices.
    pub(crate) count: Option<usize>,
    /// Those of the class, then those of the request, each with the place that it stands in.
    pub(crate) selectors: Vec<(String, Selector)>,
}

/// # Errors
/// If a class does not exist, a selector is not valid, or something is asked that is not supported.
pub(crate) fn wanted<'a>(
    claim: &'a model::Claim,
    classes: &'a BTreeMap<String, Class>,
) -> Result<Wanted<'a>, AllocationError> {
    let name = &claim.metadata.name;
    let devices = &claim.spec.devices;
    let requests: Result<Vec<Request<'a>>, _> =
        devices.requests.iter().map(|asked| request(name, asked, classes)).collect();
    let constraint = |constraint| {
        Constraint::new(constraint)
            .ok_or_else(|| unsupported(name, "constraint", "a constraint of another kind"))
    };
    let constraints: Result<Vec<Constraint>, _> = devices.constraints.iter().map(constraint).collect();
    Ok(Wanted { claim, requests: requests?, constraints: constraints? })
}

fn request<'a>(
    claim: &str,
    request: &'a model::Request,
    classes: &'a BTreeMap<String, Class>,
) -> Result<Request<'a>, AllocationError> {
    let named = |ask: &model::Ask| format!("{}/{}", request.name, ask.name);
    let alternatives: Result<Vec<Alternative<'a>>, _> = if let Some(ask) = &request.exactly {
        alternative(claim, request.name.clone(), ask, classes).map(|only| vec![only])
    } else {
        request.first_available.iter().map(|ask| alternative(claim, named(ask), ask, classes)).collect()
    };
    let alternatives = alternatives?;
    if alternatives.is_empty() {
        return Err(unsupported(claim, &format!("request {:?}", request.name), "a request of another kind"));
    }
    Ok(Request { name: &request.name, alternatives, is_list: request.exactly.is_none() })
}

fn alternative<'a>(
    claim: &str,
    name: String,
    ask: &'a model::Ask,
    classes: &'a BTreeMap<String, Class>,
) -> Result<Alternative<'a>, AllocationError> {
    let place = format!("request {name:?}");
    if !ask.derived_attributes.is_empty() {
        return Err(unsupported(claim, &place, "derivedAttributes"));
    }
    let count = match ask.allocation_mode.as_str() {
        "" | "ExactCount" => Some(ask.count.unwrap_or(1)),
        "All" => None,
        other => return Err(unsupported(claim, &place, &format!("allocationMode {other}"))),
    };
    let class = classes.get(&ask.device_class_name).ok_or_else(|| AllocationError::Missing {
        wanted_by: format!("ResourceClaim {claim:?}"),
        kind: "DeviceClass",
        name: ask.device_class_name.clone(),
    })?;
    let of_class = (format!("DeviceClass {:?}", class.metadata.name), &class.spec.selectors);
    let of_request = (format!("ResourceClaim {claim:?}, {place}"), &ask.selectors);
    let mut selectors = Vec::new();
    for (place, told) in [of_class, of_request] {
        for (index, selector) in told.iter().enumerate() {
            let place = format!("{place}, selector {index}");
            let expression = selector.cel.as_ref().map(|cel| cel.expression.as_str());
            let expression = expression.ok_or_else(|| AllocationError::Unsupported {
                place: place.clone(),
                what: "a selector other than CEL".into(),
            })?;
            let parsed = expression.parse().map_err(|error| selector_error(&place, "", error))?;
            selectors.push((place, parsed));
        }
    }
    let tolerations = ask.tolerations.iter().map(|toleration| model::read(toleration, &place));
    Ok(Alternative {
        tolerations: tolerations.collect::<Result<_, _>>()?,
        is_admin: ask.admin_access == Some(true),
        name,
        ask,
        class,
        count,
        selectors,
    })
}

/// The error of a selector, on a device if it was evaluated.
pub(crate) fn selector_error(place: &str, device: &str, error: SelectorError) -> AllocationError {
    let device = if device.is_empty() { String::new() } else { format!(" on device {device}") };
    match error {
        SelectorError::Unsupported(what) => AllocationError::Unsupported { place: place.to_owned(), what },
        error => AllocationError::Selector { place: format!("{place}{device}"), error },
    }
}

fn unsupported(claim: &str, place: &str, what: &str) -> AllocationError {
    AllocationError::Unsupported { place: format!("ResourceClaim {claim:?}, {place}"), what: what.to_owned() }
}
