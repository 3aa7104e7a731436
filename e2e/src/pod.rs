//! Pods to test with.

use k8s_openapi::{
    api::core::v1::{
        Container, Pod, PodResourceClaim, PodSpec, ResourceClaim as ContainerClaim, ResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// What a pod of [`ShellPod::print_env`] says when it has printed all.
pub(crate) const END_OF_ENV: &str = "(end of the environment)";

/// A pod of one container that runs `script` in a shell, once. It holds the claims that [`ShellPod`] adds.
pub(crate) struct ShellPod {
    name: String,
    script: String,
    claims: Vec<PodResourceClaim>,
    restarts: bool,
}

impl ShellPod {
    /// Without claims.
    pub(crate) fn new(name: &str, script: &str) -> Self {
        Self { name: name.to_owned(), script: script.to_owned(), claims: Vec::new(), restarts: false }
    }

    /// Prints its environment and then does nothing until it is deleted.
    pub(crate) fn print_env(name: &str) -> Self {
        Self::new(name, &format!("env; echo '{END_OF_ENV}'; exec sleep 3600"))
    }

    /// With a claim that is made from a `ResourceClaimTemplate`.
    pub(crate) fn template(self, template: &str) -> Self {
        let name = format!("claim-{}", self.claims.len());
        self.with(PodResourceClaim {
            name,
            resource_claim_template_name: Some(template.to_owned()),
            resource_claim_name: None,
        })
    }

    /// With a claim that exists, or will.
    pub(crate) fn claim(self, claim: &str) -> Self {
        let name = format!("claim-{}", self.claims.len());
        self.with(PodResourceClaim {
            name,
            resource_claim_name: Some(claim.to_owned()),
            resource_claim_template_name: None,
        })
    }

    /// Its container is started again when it ends.
    pub(crate) fn restarting(mut self) -> Self {
        self.restarts = true;
        self
    }

    fn with(mut self, claim: PodResourceClaim) -> Self {
        self.claims.push(claim);
        self
    }

    /// The object to make.
    pub(crate) fn build(self) -> Pod {
        let used = self.claims.iter().map(|claim| ContainerClaim { name: claim.name.clone(), request: None });
        let container = Container {
            name: "main".into(),
            image: Some("dra.test/busybox:1".into()),
            image_pull_policy: Some("Never".into()),
            command: Some(vec!["/bin/sh".into(), "-c".into(), self.script]),
            resources: Some(ResourceRequirements {
                claims: Some(used.collect()),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        };
        let spec = PodSpec {
            containers: vec![container],
            resource_claims: Some(self.claims),
            restart_policy: Some(if self.restarts { "Always" } else { "Never" }.into()),
            termination_grace_period_seconds: Some(1),
            automount_service_account_token: Some(false),
            ..PodSpec::default()
        };
        let metadata = ObjectMeta { name: Some(self.name), ..ObjectMeta::default() };
        Pod { metadata, spec: Some(spec), ..Pod::default() }
    }
}
