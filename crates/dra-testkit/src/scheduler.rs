//! A stand-in for the control plane: makes claims from templates, allocates them, and frees them.
//!
//! It works on an [`ApiServer`] stand-in. [`allocate`] chooses the same devices as the real scheduler: the first that fit,
//! by pool, slice and device, with selectors (CEL), all devices, alternatives, constraints, shared counters, shares of
//! capacity, taints, access for administrators and binding conditions. What is not supported, such as derived
//! attributes, is an error that says so.

mod collect;
mod error;
mod templates;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate, ResourceSlice,
};

pub use dra_allocator::{AllocationError, Known, allocate};
pub use error::SchedulerError;

use crate::api::{ApiServer, ApiStatus, ObjectKey};
use crate::kubelet::claim_name;

/// Keeps an allocated claim from disappearing while it is in use.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The control-plane stand-in. Acts only when it is called.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_testkit::{api::ApiServer, scheduler::Scheduler};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let api = ApiServer::new();
/// api.node("node-1")?;
/// api.apply_yaml(r#"
/// apiVersion: resource.k8s.io/v1
/// kind: ResourceSlice
/// metadata: {name: slice-1}
/// spec:
///   driver: gpu.example.com
///   nodeName: node-1
///   pool: {name: node-1, generation: 1, resourceSliceCount: 1}
///   devices: [{name: gpu-0}]
/// ---
/// apiVersion: resource.k8s.io/v1
/// kind: DeviceClass
/// metadata: {name: gpu.example.com}
/// spec:
///   selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
/// ---
/// apiVersion: resource.k8s.io/v1
/// kind: ResourceClaimTemplate
/// metadata: {name: one-gpu}
/// spec:
///   spec:
///     devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}
/// ---
/// apiVersion: v1
/// kind: Pod
/// metadata: {name: pod-1}
/// spec:
///   containers: [{name: main, image: any, resources: {claims: [{name: gpu}]}}]
///   resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
/// "#)?;
///
/// let scheduled = Scheduler::new(&api).schedule(("default", "pod-1"))?;
/// assert_eq!(scheduled.node, "node-1");
/// assert!(scheduled.claims[0].status.as_ref().is_some_and(|status| status.allocation.is_some()));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Scheduler {
    api: ApiServer,
}

/// A pod with its node and claims.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Scheduled {
    /// The pod as it is stored now.
    pub pod: Pod,
    /// Name of its node.
    pub node: String,
    /// Its claims in the pod's order, allocated and reserved.
    pub claims: Vec<ResourceClaim>,
}

impl Scheduler {
    /// A control plane over this server.
    #[must_use]
    pub fn new(api: &ApiServer) -> Self {
        Self { api: api.clone() }
    }

    /// Schedules a pod: makes its claims from templates, finds a node where all can be allocated, allocates and
    /// reserves them, and binds the pod to the node. A pod that is bound already keeps its node.
    ///
    /// # Errors
    /// If something that the pod needs does not exist, no node fits, or something is asked that is not supported.
    pub fn schedule(&self, pod: impl Into<ObjectKey>) -> Result<Scheduled, SchedulerError> {
        let pod = pod.into();
        loop {
            match self.try_schedule(&pod) {
                // The kubelet or a driver wrote the pod or a claim meanwhile; the real scheduler tries again too.
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
    }

    fn try_schedule(&self, key: &ObjectKey) -> Result<Scheduled, SchedulerError> {
        let mut pod: Pod =
            self.api.get(key.clone()).ok_or_else(|| missing("the scheduler", "Pod", &key.to_string()))?;
        let claims = self.claims_of(&mut pod)?;
        let (node, claims) = self.place(&pod, &claims)?;
        let claims: Result<Vec<ResourceClaim>, _> =
            claims.into_iter().map(|claim| self.reserve(claim, &pod)).collect();
        pod.spec.get_or_insert_default().node_name = Some(node.clone());
        let pod = self.put(&pod)?;
        Ok(Scheduled { pod, node, claims: claims? })
    }

    /// Like [`Scheduler::schedule`], but tries again after each change, for example until the driver has published
    /// its slices.
    ///
    /// # Errors
    /// After `timeout` with the latest reason, or at once if waiting cannot help.
    ///
    /// # Cancel safety
    /// Safe: each try is done or not begun.
    pub async fn schedule_within(
        &self,
        pod: impl Into<ObjectKey>,
        timeout: Duration,
    ) -> Result<Scheduled, SchedulerError> {
        let pod = pod.into();
        let mut last = None;
        let what = format!("pod {pod} to be scheduled");
        let attempt = |_: &ApiServer| match self.schedule(pod.clone()) {
            Err(error) if error.is_temporary() => {
                last = Some(Box::new(error));
                None
            }
            result => Some(result),
        };
        match self.api.wait_until(&what, timeout, attempt).await {
            Ok(result) => result,
            Err(wait) => {
                let last =
                    last.unwrap_or_else(|| Box::new(missing("the scheduler", "Pod", &pod.to_string())));
                Err(SchedulerError::NotInTime { wait, last })
            }
        }
    }

    /// The pod's claims, made from templates where there are none yet.
    fn claims_of(&self, pod: &mut Pod) -> Result<Vec<ResourceClaim>, SchedulerError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let wanted_by = format!("pod {}", name_of(pod));
        let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.clone()).unwrap_or_default();
        let mut claims = Vec::new();
        for entry in entries {
            if let Some(name) = claim_name(pod, &entry) {
                let full_name = format!("{namespace}/{name}");
                let claim = self.api.get((namespace.as_str(), name));
                claims.push(claim.ok_or_else(|| missing(&wanted_by, "ResourceClaim", &full_name))?);
                continue;
            }
            let name = entry.resource_claim_template_name.unwrap_or_default();
            let template: ResourceClaimTemplate =
                self.api.get((namespace.as_str(), name.as_str())).ok_or_else(|| {
                    missing(&wanted_by, "ResourceClaimTemplate", &format!("{namespace}/{name}"))
                })?;
            let made = self.api.list().into_iter().find(|claim| templates::is_for(claim, pod, &entry.name));
            let claim = match made {
                Some(claim) => claim,
                None => self.put(&templates::claim(pod, &entry.name, &template))?,
            };
            templates::record(pod, &entry.name, &claim);
            *pod = self.put(pod)?;
            claims.push(claim);
        }
        Ok(claims)
    }

    /// A node on which all claims can be allocated, and the claims with their allocations.
    fn place(
        &self,
        pod: &Pod,
        claims: &[ResourceClaim],
    ) -> Result<(String, Vec<ResourceClaim>), SchedulerError> {
        let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let mut reasons = Vec::new();
        for node in self.api.list::<Node>() {
            let name = node.metadata.name.clone().unwrap_or_default();
            let closed = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
            let is_candidate = bound.as_ref().map_or(!closed, |bound| *bound == name);
            if !is_candidate {
                continue;
            }
            match self.allocate_all(claims, &node) {
                Ok(claims) => return Ok((name, claims)),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => reasons.push(format!("{name}: {error}")),
            }
        }
        if reasons.is_empty() {
            reasons.push("there is no node for it".into());
        }
        Err(SchedulerError::NoNode { pod: name_of(pod), reasons })
    }

    fn allocate_all(
        &self,
        claims: &[ResourceClaim],
        node: &Node,
    ) -> Result<Vec<ResourceClaim>, SchedulerError> {
        let mut waiting = Vec::new();
        for claim in claims {
            let earlier = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            match earlier.map(|earlier| &earlier.node_selector) {
                Some(Some(selector)) if !dra_allocator::selects(selector, node) => {
                    let claim = claim.metadata.name.clone().unwrap_or_default();
                    return Err(SchedulerError::Elsewhere { claim });
                }
                Some(_) => {}
                None => waiting.push(claim.clone()),
            }
        }
        let known = Known {
            slices: &self.api.list::<ResourceSlice>(),
            classes: &self.api.list::<DeviceClass>(),
            claims: &self.api.list::<ResourceClaim>(),
            // The stand-in of the API server has none.
            taint_rules: &[],
        };
        let mut allocations = allocate(&known, node, &waiting)?.into_iter();
        let allocated = claims.iter().map(|claim| {
            let mut claim = claim.clone();
            let status = claim.status.get_or_insert_default();
            if status.allocation.is_none() {
                status.allocation = allocations.next();
            }
            claim
        });
        Ok(allocated.collect())
    }

    /// Stores the claim's allocation and reserves it for the pod.
    fn reserve(&self, mut claim: ResourceClaim, pod: &Pod) -> Result<ResourceClaim, SchedulerError> {
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let reserved = claim.status.get_or_insert_default().reserved_for.get_or_insert_default();
        if !reserved.iter().any(|consumer| consumer.uid == uid) {
            reserved.push(ResourceClaimConsumerReference {
                resource: "pods".into(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                uid,
                ..ResourceClaimConsumerReference::default()
            });
        }
        self.put(&claim)
    }

    fn put<K>(&self, object: &K) -> Result<K, SchedulerError>
    where
        K: k8s_openapi::Resource
            + k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let refused = |status: ApiStatus| {
            let metadata = object.metadata();
            let name = metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default();
            SchedulerError::Api { what: format!("{} {name:?}", K::KIND), status: Box::new(status) }
        };
        self.api.put(object).map_err(refused)
    }
}

fn name_of(pod: &Pod) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn missing(wanted_by: &str, kind: &'static str, name: &str) -> SchedulerError {
    SchedulerError::Missing { wanted_by: wanted_by.to_owned(), kind, name: name.to_owned() }
}
