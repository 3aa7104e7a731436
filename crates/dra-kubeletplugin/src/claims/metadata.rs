//! From a driver's answer to the claim's metadata files and where containers see them. Pure.

use std::{collections::BTreeMap, path::PathBuf};

use dra_cdi::Mount;
use dra_resourceslice::{DeviceName, DriverName};

use super::cdi::BadAnswer;
use crate::{
    claim::AllocatedClaim,
    metadata::{ClaimMetadata, DescribedDevice, PodClaim, RequestMetadata, container_path},
    prepared::PreparedDevice,
};

/// Names the claim in the pod's spec, on a claim that was made from a template.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// A claim's metadata files: their content by base request.
pub(super) type Files = BTreeMap<String, String>;

/// Makes a file for each base request, if the driver says anything of any of the claim's devices.
pub(super) fn files(
    driver: &DriverName,
    claim: &AllocatedClaim,
    prepared: &[PreparedDevice],
) -> Result<Files, BadAnswer> {
    if prepared.iter().all(|device| device.metadata.is_none()) {
        return Ok(Files::new());
    }
    let pod_claim_name = pod_claim_name(claim)?;
    let mut requests: BTreeMap<&str, Vec<RequestMetadata>> = BTreeMap::new();
    for result in claim.devices() {
        let base = result.base_request();
        is_label(base).map_err(|problem| BadAnswer::Request { request: base.to_owned(), problem })?;
        let said = prepared.iter().find(|device| device.answers(result));
        let said = said.and_then(|device| device.metadata.clone()).unwrap_or_default();
        let device = DescribedDevice::new(driver.clone(), result.device_ref().clone(), said);
        let of_base = requests.entry(base).or_default();
        match of_base.iter_mut().find(|request| request.name == result.request()) {
            Some(request) => request.devices.push(device),
            None => of_base.push(RequestMetadata::new(result.request(), vec![device])),
        }
    }
    let files = requests.into_iter().map(|(base, requests)| {
        let name = pod_claim_name.map(str::to_owned);
        (base.to_owned(), ClaimMetadata::new(claim.claim_ref().clone(), name, requests).encode())
    });
    Ok(files.collect())
}

/// The mounts that show containers these files, by base request.
pub(super) fn mounts(
    driver: &DriverName,
    claim: &AllocatedClaim,
    files: &Files,
    host_path: impl Fn(&str) -> PathBuf,
) -> Result<BTreeMap<String, Mount>, BadAnswer> {
    if files.is_empty() {
        return Ok(BTreeMap::new());
    }
    let named = PodClaim::Named(&claim.claim_ref().name);
    let pod_claim = pod_claim_name(claim)?.map_or(named, PodClaim::FromTemplate);
    let mounts = files.keys().map(|request| {
        let path = container_path(pod_claim, request, driver.as_str());
        (request.clone(), Mount::new(host_path(request), path).options(["ro", "bind"]))
    });
    Ok(mounts.collect())
}

/// It becomes part of a path in the container.
fn pod_claim_name(claim: &AllocatedClaim) -> Result<Option<&str>, BadAnswer> {
    let annotations = claim.object().metadata.annotations.as_ref();
    let name = annotations.and_then(|annotations| annotations.get(POD_CLAIM_NAME));
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    is_label(name).map_err(|problem| BadAnswer::PodClaimName { name: name.clone(), problem })?;
    Ok(Some(name))
}

/// Names of requests, and of claims in a pod, have the form of device names.
fn is_label(text: &str) -> Result<(), &'static str> {
    DeviceName::new(text).map(drop).map_err(|error| error.reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dra_cdi::ContainerEdits;
    use serde_json::json;

    use super::*;
    use crate::{claim::ClaimRef, metadata::DeviceMetadata, prepared::Prepared};

    /// Results as (request, device).
    fn claim(results: &[(&str, &str)], annotation: Option<&str>) -> AllocatedClaim {
        let result = |(request, device): &(&str, &str)| json!({"request": request, "driver": "d.example.com", "pool": "p", "device": device});
        let results: Vec<_> = results.iter().map(result).collect();
        let object = json!({
            "metadata": {"uid": "u", "annotations": annotation.map(|name| json!({POD_CLAIM_NAME: name}))},
            "spec": {}, "status": {"allocation": {"devices": {"results": results}}},
        });
        let wanted = ClaimRef::new("ns", "c", "u".parse().unwrap());
        AllocatedClaim::parse(&driver(), &wanted, serde_json::from_value(object).unwrap()).unwrap()
    }

    fn driver() -> DriverName {
        "d.example.com".parse().unwrap()
    }

    fn answer(claim: &AllocatedClaim, with_metadata: &[&str]) -> Vec<PreparedDevice> {
        let devices = claim.devices().iter();
        let answer = devices.fold(Prepared::new(()), |all, device| {
            let all = all.device(device, ContainerEdits::new());
            if !with_metadata.contains(&device.device().as_str()) {
                return all;
            }
            let name = device.device().as_str();
            all.metadata(device, DeviceMetadata::new().attribute("is", name).unwrap())
        });
        answer.devices
    }

    #[test]
    fn a_claim_of_which_the_driver_says_nothing_has_no_files() {
        let claim = claim(&[("a", "d-0")], Some("../x"));
        assert_eq!(files(&driver(), &claim, &answer(&claim, &[])).unwrap(), Files::new());
    }

    #[test]
    fn each_base_request_has_a_file_with_its_devices_those_without_metadata_too() {
        let claim = claim(&[("a", "d-0"), ("b/x", "d-1"), ("b/x", "d-2"), ("c", "d-3")], Some("mine"));
        let files = files(&driver(), &claim, &answer(&claim, &["d-0", "d-2"])).unwrap();
        let told = files.iter().map(|(base, content)| {
            let read = ClaimMetadata::decode(content.as_bytes()).unwrap();
            assert_eq!((read.generation, read.pod_claim_name.as_deref()), (1, Some("mine")));
            let [request] = &read.requests[..] else { panic!("{read:?}") };
            let attributes = |device: &DescribedDevice| device.metadata.attributes().len();
            let devices = request.devices.iter();
            let devices: Vec<_> =
                devices.map(|device| format!("{} {}", device.device.device, attributes(device))).collect();
            format!("{base}: {}: {}", request.name, devices.join(", "))
        });
        assert_eq!(told.collect::<Vec<_>>(), ["a: a: d-0 1", "b: b/x: d-1 0, d-2 1", "c: c: d-3 0"]);
    }

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        let bad_name = claim(&[("a", "d-0")], Some("../x"));
        let error = files(&driver(), &bad_name, &answer(&bad_name, &["d-0"])).unwrap_err().to_string();
        assert!(error.contains(POD_CLAIM_NAME) && error.contains("../x"), "{error}");
        let bad_request = claim(&[("..", "d-0")], None);
        let error = files(&driver(), &bad_request, &answer(&bad_request, &["d-0"])).unwrap_err().to_string();
        assert!(error.contains("request \"..\""), "{error}");
    }

    #[test]
    fn the_file_is_mounted_read_only_by_the_claim_s_name_or_the_one_in_the_pod() {
        for (annotation, folder) in [
            (None, "resourceclaims/c"),
            (Some(""), "resourceclaims/c"),
            (Some("mine"), "resourceclaimtemplates/mine"),
        ] {
            let claim = claim(&[("a/x", "d-0")], annotation);
            let files = files(&driver(), &claim, &answer(&claim, &["d-0"])).unwrap();
            let host_path = |request: &str| Path::new("/data").join(request);
            let mounts = mounts(&driver(), &claim, &files, host_path).unwrap();
            let expected = format!(
                "/var/run/kubernetes.io/dra-device-attributes/{folder}/a/d.example.com-metadata.json"
            );
            let expected = Mount::new("/data/a", expected).options(["ro", "bind"]);
            assert_eq!(mounts, BTreeMap::from([("a".to_owned(), expected)]));
        }
    }
}
