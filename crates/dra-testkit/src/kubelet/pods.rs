//! The claims of a pod: what the kubelet prepares before it starts the pod's containers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::Kubelet;
use super::claims::{ClaimRef, PreparedDevice};
use super::error::KubeletError;
use crate::api::ApiServer;

/// A pod whose claims are prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedPod {
    /// The pod's claims by their name in the pod.
    pub claims: BTreeMap<String, PreparedClaim>,
}

/// A claim of a pod, prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedClaim {
    /// The claim.
    pub claim: ClaimRef,
    /// The drivers that prepared it.
    pub drivers: BTreeSet<String>,
    /// Its devices, of all drivers.
    pub devices: Vec<PreparedDevice>,
}

impl PreparedPod {
    /// The CDI ids for a container of the pod: of the claims and requests that it names under `resources.claims`.
    #[must_use]
    pub fn cdi_device_ids(&self, pod: &Pod, container: &str) -> Vec<String> {
        let containers = pod.spec.iter().flat_map(|spec| {
            spec.containers
                .iter()
                .map(|c| (&c.name, &c.resources))
                .chain(spec.init_containers.iter().flatten().map(|c| (&c.name, &c.resources)))
        });
        let uses = containers
            .filter(|(name, _)| *name == container)
            .flat_map(|(_, resources)| resources.iter().flat_map(|r| r.claims.iter().flatten()));
        uses.flat_map(|used| {
            let devices = self.claims.get(&used.name).into_iter().flat_map(|claim| &claim.devices);
            devices.filter(|device| device.serves(used.request.as_deref()))
        })
        .flat_map(|device| device.cdi_device_ids.iter().cloned())
        .collect()
    }
}

/// Pods.
impl Kubelet {
    /// Prepares all claims of a pod, used by a container or not: one call for each driver with all its claims.
    ///
    /// As the kubelet does, first checks for each claim that it exists, is allocated and is reserved for the pod.
    ///
    /// # Errors
    /// If a claim is not ready, or a call fails as in [`Kubelet::prepare`].
    ///
    /// # Cancel safety
    /// Dropped early, some drivers may have prepared their claims; prepare again or unprepare.
    pub async fn prepare_pod(&self, api: &ApiServer, pod: &Pod) -> Result<PreparedPod, KubeletError> {
        let mut prepared = PreparedPod { claims: BTreeMap::new() };
        for (name, claim) in claims_of(api, pod)? {
            let drivers = drivers_of(&claim);
            prepared
                .claims
                .insert(name, PreparedClaim { claim: (&claim).into(), drivers, devices: Vec::new() });
        }
        let drivers: BTreeSet<String> =
            prepared.claims.values().flat_map(|claim| claim.drivers.clone()).collect();
        for driver in drivers {
            let mut devices = self.prepare(&driver, &prepared.claims_of(&driver)).await?;
            for claim in prepared.claims.values_mut() {
                claim.devices.extend(devices.remove(&claim.claim.uid).unwrap_or_default());
            }
        }
        Ok(prepared)
    }

    /// Unprepares the claims of a pod that has ended. The API server is not asked.
    ///
    /// # Errors
    /// As [`Kubelet::unprepare`].
    ///
    /// # Cancel safety
    /// Dropped early, some drivers may have unprepared their claims; unprepare again.
    pub async fn unprepare_pod(&self, pod: &PreparedPod) -> Result<(), KubeletError> {
        let drivers: BTreeSet<&String> = pod.claims.values().flat_map(|claim| &claim.drivers).collect();
        for driver in drivers {
            self.unprepare(driver, &pod.claims_of(driver)).await?;
        }
        Ok(())
    }
}

impl PreparedPod {
    fn claims_of(&self, driver: &str) -> Vec<ClaimRef> {
        let claims = self.claims.values().filter(|claim| claim.drivers.contains(driver));
        claims.map(|claim| claim.claim.clone()).collect()
    }
}

fn drivers_of(claim: &ResourceClaim) -> BTreeSet<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().map(|result| result.driver.clone()).collect()
}

/// The pod's claims by their name in the pod, each ready to be prepared.
fn claims_of(api: &ApiServer, pod: &Pod) -> Result<Vec<(String, ResourceClaim)>, KubeletError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let error = |reason: String| KubeletError::Pod {
        pod: format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default()),
        reason,
    };
    let named = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let mut claims = Vec::new();
    for entry in named {
        let name = claim_name(pod, entry).ok_or_else(|| {
            error(format!("claim {:?} has not been made from its template yet", entry.name))
        })?;
        let claim: ResourceClaim = api
            .get((namespace, name))
            .ok_or_else(|| error(format!("ResourceClaim {namespace}/{name} does not exist")))?;
        let status = claim.status.clone().unwrap_or_default();
        if status.allocation.is_none() {
            return Err(error(format!("ResourceClaim {namespace}/{name} is not allocated")));
        }
        let uid = pod.metadata.uid.as_deref();
        if !status.reserved_for.iter().flatten().any(|consumer| Some(consumer.uid.as_str()) == uid) {
            return Err(error(format!(
                "the pod is not allowed to use ResourceClaim {namespace}/{name}: not reserved"
            )));
        }
        claims.push((entry.name.clone(), claim));
    }
    Ok(claims)
}

/// Name of the claim object behind a claim of the pod.
pub(crate) fn claim_name<'a>(pod: &'a Pod, entry: &'a PodResourceClaim) -> Option<&'a str> {
    let made = || {
        let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        statuses
            .filter(|status| status.name == entry.name)
            .find_map(|status| status.resource_claim_name.as_deref())
    };
    entry.resource_claim_name.as_deref().or_else(made)
}
