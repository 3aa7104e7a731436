//! What the webhook says of an object. Pure.

use std::fmt;

use dra_kubeletplugin::{ConfigError, DriverName};
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, Operation},
    response::StatusSummary,
};
use serde_json::Value;

const GROUP: &str = "resource.k8s.io";

/// Where claims have been spelled alike; a later version may not.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1beta2"];

/// Judges the configuration for one driver.
pub(crate) struct Judge {
    driver: DriverName,
    validate: Box<Validate>,
}

/// Reads the parameters of a configuration.
type Validate = dyn Fn(&Value) -> Result<(), ConfigError> + Send + Sync;

impl Judge {
    /// `validate` reads the parameters of a configuration as prepare does.
    pub(crate) fn new(
        driver: DriverName,
        validate: impl Fn(&Value) -> Result<(), ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self { driver, validate: Box::new(validate) }
    }

    /// Answers a review, as bytes in and out.
    ///
    /// # Errors
    /// It is no request for a review; the text says why.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let review: AdmissionReview<DynamicObject> =
            serde_json::from_slice(body).map_err(|error| format!("no AdmissionReview: {error}"))?;
        if review.types.api_version != META_API_VERSION_V1 {
            let found = review.types.api_version;
            return Err(format!("an AdmissionReview of {found:?}, not of {META_API_VERSION_V1:?}"));
        }
        let request: AdmissionRequest<DynamicObject> =
            review.try_into().map_err(|_| "no request".to_owned())?;
        let response = AdmissionResponse::from(&request);
        let response = match self.mistakes(&request) {
            Ok(mistakes) if mistakes.is_empty() => response,
            Ok(mistakes) => {
                tracing::info!(
                    namespace = request.namespace,
                    name = request.name,
                    mistakes = mistakes.join("; "),
                    "refused"
                );
                deny(response, &mistakes.join("; "))
            }
            Err(wrong) => {
                tracing::error!("{wrong}");
                deny(response, &wrong.to_string())
            }
        };
        serde_json::to_vec(&response.into_review()).map_err(|error| error.to_string())
    }

    /// What is wrong with the configuration for the driver, each with the path of the field.
    ///
    /// What an object has had already is let pass: it was stored when nobody looked, and its spec cannot be changed. To
    /// refuse it would keep finalizers from being removed, and so the object from being deleted.
    fn mistakes(&self, request: &AdmissionRequest<DynamicObject>) -> Result<Vec<String>, WrongObject> {
        let place = Place::of(request)?;
        let (Operation::Create | Operation::Update, None, Some(object)) =
            (&request.operation, &request.sub_resource, &request.object)
        else {
            return Ok(Vec::new());
        };
        let before = request.old_object.as_ref().map(|old| place.configs(old)).unwrap_or_default();
        let mut mistakes = Vec::new();
        for (index, config) in place.configs(object).iter().enumerate() {
            let opaque = &config["opaque"];
            if opaque["driver"] != self.driver.as_str() || before.iter().any(|old| old["opaque"] == *opaque) {
                continue;
            }
            if let Err(mistake) = (self.validate)(&opaque["parameters"]) {
                mistakes.push(format!("{}[{index}].opaque.{mistake}", place.path));
            }
        }
        Ok(mistakes)
    }
}

/// As the API server refuses what breaks its own rules.
fn deny(response: AdmissionResponse, why: &str) -> AdmissionResponse {
    let mut denied = response.deny(why);
    denied.result.status = Some(StatusSummary::Failure);
    denied.result.code = 422;
    "Invalid".clone_into(&mut denied.result.reason);
    denied
}

/// Where an object has configurations.
#[derive(Clone, Copy)]
struct Place {
    path: &'static str,
    pointer: &'static str,
}

/// The webhook was registered for what it does not know.
#[derive(Debug)]
struct WrongObject(String);

impl fmt::Display for WrongObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this webhook knows resourceclaims and resourceclaimtemplates of {GROUP} ({}), not {}: correct the rules of \
             its ValidatingWebhookConfiguration",
            VERSIONS.join(", "),
            self.0
        )
    }
}

impl Place {
    fn of(request: &AdmissionRequest<DynamicObject>) -> Result<Self, WrongObject> {
        let resource = &request.resource;
        let known = resource.group == GROUP && VERSIONS.contains(&resource.version.as_str());
        match resource.resource.as_str() {
            "resourceclaims" if known => {
                Ok(Self { path: "spec.devices.config", pointer: "/spec/devices/config" })
            }
            "resourceclaimtemplates" if known => {
                Ok(Self { path: "spec.spec.devices.config", pointer: "/spec/spec/devices/config" })
            }
            name => Err(WrongObject(format!("{name} of {}/{}", resource.group, resource.version))),
        }
    }

    fn configs(self, object: &DynamicObject) -> &[Value] {
        object.data.pointer(self.pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
