//! From a driver's answer to the claim's CDI file and to what the kubelet is told. Pure.

use std::collections::{BTreeMap, BTreeSet};

use dra_cdi::{ContainerEdits, DeviceName, FileId, InvalidName, InvalidSpec, Kind, Mount, Spec};

use super::record::AnsweredDevice;
use crate::{
    claim::{AllocatedClaim, AllocatedDevice, DeviceRef},
    prepared::{Access, PreparedDevice},
};

/// The claim's CDI file, if it needs one, and the devices for the kubelet.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) cdi: Option<String>,
    pub(crate) devices: Vec<AnsweredDevice>,
}

/// A driver's answer that does not fit the claim.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadAnswer {
    #[error("the driver did not answer device {device} of request {request:?}")]
    Missing { device: DeviceRef, request: String },
    #[error("the driver answered device {device} for request {request:?}, which the claim does not have")]
    Unasked { device: DeviceRef, request: String },
    #[error("the driver answered device {device} of request {request:?} more than once")]
    Twice { device: DeviceRef, request: String },
    #[error("the driver's container edits cannot be written as CDI: {0}")]
    Spec(#[from] InvalidSpec),
    #[error("the device makes no CDI name: {0}")]
    Name(#[from] InvalidName),
    #[error("request {request:?} of the claim cannot be the name of a metadata file: {problem}")]
    Request { request: String, problem: &'static str },
    #[error(
        "annotation resource.kubernetes.io/pod-claim-name of the claim is {name:?}, which is no name of a claim in a pod: {problem}"
    )]
    PodClaimName { name: String, problem: &'static str },
}

/// Makes one answer for each result of the claim, in its order. Each device of a base request brings the request's
/// metadata, so a container gets that of the requests that it asks for, whichever of their devices have edits. `former` are
/// names that the kubelet was told for an earlier allocation of the claim: kubelets before 1.37 add those of a new one to
/// them, and a name that no file has would keep the container from starting. If there is a `foreign` CDI file of the claim,
/// the devices are named so that it does not have the names too: runtimes take a name in two files for none.
pub(crate) fn answer(
    kind: &Kind,
    claim: &AllocatedClaim,
    mut prepared: Vec<PreparedDevice>,
    metadata: &BTreeMap<String, Mount>,
    former: &[String],
    foreign: Option<&str>,
) -> Result<Answer, BadAnswer> {
    let mut names = Names::new(claim, foreign.is_some())?;
    let (mut cdi_devices, mut devices) = (Vec::new(), Vec::new());
    let mut none_has_edits = true;
    for result in claim.devices() {
        let position = prepared.iter().position(|device| device.answers(result));
        let Some(position) = position else {
            let (device, request) = (result.device_ref().clone(), result.request().to_owned());
            return Err(BadAnswer::Missing { device, request });
        };
        let (mut ids, mut edits): (Vec<String>, _) = match prepared.remove(position).access {
            Access::Ids(ids) => (ids.iter().map(ToString::to_string).collect(), ContainerEdits::new()),
            Access::Edits(edits) => (Vec::new(), *edits),
        };
        edits.mounts.extend(metadata.get(result.base_request()).cloned());
        let name = names.next(result)?;
        if edits.is_empty() {
            edits = placeholder();
        } else {
            none_has_edits = false;
            ids.push(kind.device(name.clone()).to_string());
        }
        cdi_devices.push((name, edits));
        devices.push(AnsweredDevice {
            request: result.base_request().to_owned(),
            pool: result.pool().to_string(),
            device: result.device().to_string(),
            share_id: result.share_id().map(str::to_owned),
            cdi_ids: ids,
        });
    }
    if let Some(extra) = prepared.first() {
        return Err(extra_answer(claim, extra));
    }
    for name in former {
        let name: DeviceName = name.parse()?;
        if names.taken.insert(name.clone()) {
            cdi_devices.push((name, placeholder()));
        }
    }
    let cdi = if none_has_edits && former.is_empty() {
        None
    } else {
        let spec = Spec::new(kind.clone(), ContainerEdits::new(), cdi_devices)?;
        // JSON is UTF-8, so nothing is replaced.
        Some(String::from_utf8_lossy(&spec.encode()).into_owned())
    };
    Ok(Answer { cdi, devices })
}

/// Stands for a device without edits, as CDI knows none: the file names all devices of the claim, for whoever finds the
/// record damaged, and those that it once had.
fn placeholder() -> ContainerEdits {
    ContainerEdits::new().env("DRA_DEVICE_WITHOUT_EDITS", "")
}

fn extra_answer(claim: &AllocatedClaim, extra: &PreparedDevice) -> BadAnswer {
    let (device, request) = (extra.device.clone(), extra.request.clone());
    if claim.devices().iter().any(|result| extra.answers(result)) {
        BadAnswer::Twice { device, request }
    } else {
        BadAnswer::Unasked { device, request }
    }
}

/// CDI device names of one claim: the claim's UID makes them unique on the node and never used again, as runtimes may
/// cache them.
struct Names<'a> {
    claim: &'a AllocatedClaim,
    file: FileId,
    /// Whether another program's file may have the usual names: other drivers make them of claim and device, too.
    beside_foreign: bool,
    taken: BTreeSet<DeviceName>,
}

impl<'a> Names<'a> {
    fn new(claim: &'a AllocatedClaim, beside_foreign: bool) -> Result<Self, InvalidName> {
        let file = FileId::new(claim.uid().as_str())?;
        Ok(Self { claim, file, beside_foreign, taken: BTreeSet::new() })
    }

    fn next(&mut self, result: &AllocatedDevice) -> Result<DeviceName, InvalidName> {
        let ambiguous =
            |other: &AllocatedDevice| other.device() == result.device() && other.pool() != result.pool();
        let pool = self.claim.devices().iter().any(ambiguous).then_some(result.pool().as_str());
        let mut name = DeviceName::for_claim(&self.file, result.device().as_str(), result.share_id(), pool)?;
        if self.beside_foreign {
            name = format!("{name}-adopted").parse()?;
        }
        // With admin access one claim may look at one device through several requests.
        let mut unique = name.clone();
        let mut count = 1;
        while !self.taken.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}-{count}").parse()?;
        }
        Ok(unique)
    }
}

#[cfg(test)]
mod tests {
    use dra_cdi::QualifiedName;
    use serde_json::json;

    use super::*;
    use crate::{claim::ClaimRef, prepared::Prepared};

    const UID: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

    fn kind() -> Kind {
        Kind::for_driver("gpu.example.com").unwrap()
    }

    /// Results as (request, pool, device, share, admin).
    fn claim(results: &[(&str, &str, &str, Option<&str>, bool)]) -> AllocatedClaim {
        let results: Vec<_> = results
            .iter()
            .map(|(request, pool, device, share, admin)| {
                json!({"request": request, "driver": "gpu.example.com", "pool": pool, "device": device,
                       "shareID": share, "adminAccess": admin})
            })
            .collect();
        let object = json!({"metadata": {"uid": UID}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}});
        let wanted = ClaimRef::new("ns", "c", UID.parse().unwrap());
        let driver = "gpu.example.com".parse().unwrap();
        AllocatedClaim::parse(&driver, &wanted, serde_json::from_value(object).unwrap()).unwrap()
    }

    fn ids(claim: &AllocatedClaim) -> Vec<Vec<String>> {
        let prepared: Prepared =
            claim.devices().iter().map(|d| (d, ContainerEdits::new().env("A", "b"))).collect();
        answer(&kind(), claim, prepared.devices, &BTreeMap::new(), &[], None)
            .unwrap()
            .devices
            .into_iter()
            .map(|d| d.cdi_ids)
            .collect()
    }

    #[test]
    fn devices_are_named_by_claim_device_and_share() {
        let share = "0b0e26a7-0000-4000-8000-000000000001";
        let claim =
            claim(&[("a/x", "node-1", "gpu-0", None, false), ("b", "node-1", "gpu-1", Some(share), false)]);
        let expected = [
            vec![format!("k8s.gpu.example.com/claim={UID}-gpu-0")],
            vec![format!("k8s.gpu.example.com/claim={UID}-gpu-1-{share}")],
        ];
        assert_eq!(ids(&claim), expected);
    }

    #[test]
    fn names_stay_apart_for_two_pools_and_two_requests_on_one_device() {
        let results = [
            ("a", "rack-1/pool", "gpu-0", None, false),
            ("b", "rack-2/pool", "gpu-0", None, false),
            ("c", "node-1", "gpu-1", None, true),
            ("d", "node-1", "gpu-1", None, true),
        ];
        let all: BTreeSet<_> = ids(&claim(&results)).into_iter().flatten().collect();
        assert_eq!(all.len(), results.len(), "{all:?}");
    }

    #[test]
    fn beside_the_file_of_another_program_names_are_ones_that_it_does_not_make() {
        let claim = claim(&[("a", "node-1", "gpu-0", None, false)]);
        let prepared = Prepared::new(()).device(&claim.devices()[0], ContainerEdits::new().env("A", "b"));
        let foreign = Some("k8s.gpu.example.com-claim_1.yaml");
        let answer = answer(&kind(), &claim, prepared.devices, &BTreeMap::new(), &[], foreign).unwrap();
        assert_eq!(answer.devices[0].cdi_ids, [format!("k8s.gpu.example.com/claim={UID}-gpu-0-adopted")]);
    }

    #[test]
    fn the_kubelet_is_told_base_requests_and_no_id_for_a_device_without_edits() {
        let claim = claim(&[("a/x", "node-1", "gpu-0", None, false)]);
        let prepared = Prepared::new(()).device(&claim.devices()[0], ContainerEdits::new());
        let answer = answer(&kind(), &claim, prepared.devices, &BTreeMap::new(), &[], None).unwrap();
        assert_eq!(answer.cdi, None);
        assert_eq!((answer.devices[0].request.as_str(), answer.devices[0].cdi_ids.len()), ("a", 0));
    }

    #[test]
    fn own_cdi_ids_pass_through() {
        let claim = claim(&[("a", "node-1", "gpu-0", None, false)]);
        let own: QualifiedName = "example.com/gpu=all".parse().unwrap();
        let prepared = Prepared::new(()).device_with_ids(&claim.devices()[0], [own]);
        let answer = answer(&kind(), &claim, prepared.devices, &BTreeMap::new(), &[], None).unwrap();
        assert_eq!(
            (answer.cdi, answer.devices[0].cdi_ids.as_slice()),
            (None, &["example.com/gpu=all".to_owned()][..])
        );
    }

    #[test]
    fn a_cdi_file_names_all_devices_of_the_claim_and_the_kubelet_is_told_of_those_with_edits() {
        let claim = claim(&[("a", "node-1", "gpu-0", None, false), ("b", "node-1", "gpu-1", None, false)]);
        let [first, second] = claim.devices() else { panic!("two devices") };
        let prepared = Prepared::new(())
            .device(first, ContainerEdits::new().env("A", "b"))
            .device(second, ContainerEdits::new());
        let answer = answer(&kind(), &claim, prepared.devices, &BTreeMap::new(), &[], None).unwrap();
        let ids: Vec<_> = answer.devices.iter().map(|device| device.cdi_ids.len()).collect();
        assert_eq!(ids, [1, 0]);
        let spec = Spec::parse(answer.cdi.unwrap().as_bytes()).unwrap();
        let names: Vec<_> = spec.devices().iter().map(|device| device.name().to_string()).collect();
        assert_eq!(names, [format!("{UID}-gpu-0"), format!("{UID}-gpu-1")]);
    }

    #[test]
    fn a_cdi_file_keeps_the_names_of_earlier_allocations_that_old_kubelets_go_on_asking_for() {
        let claim = claim(&[("a", "node-1", "gpu-1", None, false)]);
        let former = [format!("{UID}-gpu-0"), format!("{UID}-gpu-1")];
        let edits = [ContainerEdits::new().env("A", "b"), ContainerEdits::new()];
        for (edits, told) in edits.into_iter().zip([1, 0]) {
            let prepared = Prepared::new(()).device(&claim.devices()[0], edits);
            let answer = answer(&kind(), &claim, prepared.devices, &BTreeMap::new(), &former, None).unwrap();
            assert_eq!(answer.devices[0].cdi_ids.len(), told);
            let spec = Spec::parse(answer.cdi.unwrap().as_bytes()).unwrap();
            let names: BTreeSet<_> = spec.devices().iter().map(|device| device.name().to_string()).collect();
            assert_eq!(names, BTreeSet::from(former.clone()));
        }
    }

    #[test]
    fn every_device_of_a_request_brings_its_metadata_and_no_other() {
        let claim = claim(&[
            ("a/x", "node-1", "gpu-0", None, false),
            ("a/x", "node-1", "gpu-1", None, false),
            ("b", "node-1", "gpu-2", None, false),
        ]);
        let [first, second, third] = claim.devices() else { panic!("three devices") };
        let own: QualifiedName = "example.com/gpu=all".parse().unwrap();
        let prepared = Prepared::new(())
            .device(first, ContainerEdits::new().env("A", "b"))
            .device_with_ids(second, [own])
            .device(third, ContainerEdits::new());
        let mounts = BTreeMap::from([("a".to_owned(), Mount::new("/host/a", "/a"))]);
        let answer = answer(&kind(), &claim, prepared.devices, &mounts, &[], None).unwrap();
        let ids: Vec<_> = answer.devices.into_iter().map(|device| device.cdi_ids).collect();
        let id = |device: &str| format!("k8s.gpu.example.com/claim={UID}-{device}");
        assert_eq!(ids, [vec![id("gpu-0")], vec!["example.com/gpu=all".to_owned(), id("gpu-1")], vec![]]);
        let spec = Spec::parse(answer.cdi.unwrap().as_bytes()).unwrap();
        let mounts = spec.devices().iter().flat_map(|device| &device.edits().mounts);
        let mounted: Vec<_> = mounts.map(|mount| mount.host_path.display().to_string()).collect();
        assert_eq!(mounted, ["/host/a", "/host/a"]);
    }

    #[test]
    fn answers_that_do_not_fit_the_claim_are_refused() {
        let two = claim(&[("a", "node-1", "gpu-0", None, false), ("b", "node-1", "gpu-1", None, false)]);
        let (first, second) = (&two.devices()[0], &two.devices()[1]);
        let one = claim(&[("a", "node-1", "gpu-0", None, false)]);
        let of = |claim: &AllocatedClaim, devices: &[&AllocatedDevice]| {
            let prepared: Prepared = devices.iter().map(|d| (*d, ContainerEdits::new())).collect();
            answer(&kind(), claim, prepared.devices, &BTreeMap::new(), &[], None).unwrap_err()
        };
        assert!(matches!(of(&two, &[first]), BadAnswer::Missing { .. }));
        assert!(matches!(of(&one, &[first, second]), BadAnswer::Unasked { .. }));
        assert!(matches!(of(&one, &[first, first]), BadAnswer::Twice { .. }));
    }
}
