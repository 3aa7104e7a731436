//! What differs between the Kubernetes versions of `k8s-openapi`: some specs are optional since 1.37.

use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceClaimTemplateSpec};

/// The spec of a claim template.
pub(crate) fn template_spec(template: &ResourceClaimTemplate) -> Option<&ResourceClaimTemplateSpec> {
    template.spec.as_spec()
}

/// A spec that may be optional.
trait AsSpec<T> {
    fn as_spec(&self) -> Option<&T>;
}

impl<T> AsSpec<T> for Option<T> {
    fn as_spec(&self) -> Option<&T> {
        self.as_ref()
    }
}

impl<T> AsSpec<T> for T {
    fn as_spec(&self) -> Option<&T> {
        Some(self)
    }
}
