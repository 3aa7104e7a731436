//! What the webhook says of an object. Pure.

mod parts;

use std::{borrow::Cow, fmt};

use dra_kubeletplugin::{ConfigError, DriverName, parse_parameters};
use serde_json::{Value, json, value::RawValue};

use parts::{Configs, Opaque, Request, Review, of_claim, of_template};

const REVIEW_VERSION: &str = "admission.k8s.io/v1";

/// Far more than the API server takes (10 KiB, Kubernetes 1.34 to 1.37): what is larger has not come through it.
const LARGEST_PARAMETERS: usize = 64 << 10;

/// How much of the mistakes is told, in bytes.
const LONGEST_REFUSAL: usize = 8 << 10;

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
        let wrong = |error: serde_json::Error| format!("no AdmissionReview: {error}");
        let body = text(body);
        let review: Review<'_> = serde_json::from_str(&body).map_err(wrong)?;
        if review.api_version != REVIEW_VERSION {
            let found = review.api_version;
            return Err(format!("an AdmissionReview of {found:?}, not of {REVIEW_VERSION:?}"));
        }
        let request = review.request.ok_or("no request")?;
        let refusal = match Place::of(&request) {
            Ok(place) => {
                let mistakes = cut(self.mistakes(&request, place).map_err(wrong)?.join("; "));
                if !mistakes.is_empty() {
                    let (namespace, name) = (&request.namespace, &request.name);
                    tracing::info!(?namespace, ?name, mistakes, "refused");
                }
                mistakes
            }
            Err(wrong) => {
                let wrong = wrong.to_string();
                tracing::error!(wrong, "refused");
                wrong
            }
        };
        Ok(answer(&request.uid, &refusal).to_string().into_bytes())
    }

    /// What is wrong with the configuration for the driver, each with the path of the field.
    ///
    /// What an object has had already is let pass: it was stored when nobody looked, and its spec cannot be changed. To
    /// refuse it would keep finalizers from being removed, and so the object from being deleted.
    fn mistakes(&self, request: &Request<'_>, place: Place) -> serde_json::Result<Vec<String>> {
        let ("CREATE" | "UPDATE", None, Some(object)) =
            (request.operation.as_str(), &request.sub_resource, request.object)
        else {
            return Ok(Vec::new());
        };
        let before = request.old_object.map(place.configs).transpose()?.unwrap_or_default();
        let before: Vec<_> = self.ours(&before).map(|(_, opaque)| parameters(opaque)).collect();
        let after = (place.configs)(object)?;
        let new = self.ours(&after).filter(|(_, opaque)| {
            let written = parameters(opaque);
            !before.iter().any(|old| is_same(old, written))
        });
        let mistakes = new.filter_map(|(index, opaque)| {
            let mistake = self.mistake(parameters(opaque)).err()?;
            Some(format!("{}[{index}].opaque.{mistake}", place.path))
        });
        Ok(mistakes.collect())
    }

    /// The configurations for the driver, with their positions.
    fn ours<'a>(&'a self, configs: &'a Configs<'a>) -> impl Iterator<Item = (usize, &'a Opaque<'a>)> {
        let opaque = configs.0.iter().enumerate();
        let opaque = opaque.filter_map(|(index, config)| Some((index, config.opaque.as_ref()?)));
        opaque.filter(|(_, opaque)| opaque.driver.as_deref() == Some(self.driver.as_str()))
    }

    fn mistake(&self, written: &str) -> Result<(), ConfigError> {
        if written.len() > LARGEST_PARAMETERS {
            let reason = format!("{} bytes, at most {LARGEST_PARAMETERS} are read", written.len());
            return Err(ConfigError::new("", reason));
        }
        (self.validate)(&parse_parameters(written)?)
    }
}

/// The body with a question mark for each byte that is no UTF-8: raw JSON of users may hold such, in strings.
fn text(body: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(body) {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        mended.push_str(chunk.valid());
        mended.extend(chunk.invalid().iter().map(|_| '?'));
    }
    Cow::Owned(mended)
}

fn parameters<'a>(opaque: &Opaque<'a>) -> &'a str {
    opaque.parameters.map_or("null", RawValue::get)
}

/// Whether both say the same. A patch on the API server spells an object in another order of keys.
fn is_same(old: &str, new: &str) -> bool {
    let read =
        |json: &str| serde_json::from_str::<Value>(json).ok().filter(|_| json.len() <= LARGEST_PARAMETERS);
    old == new || read(old).is_some_and(|old| read(new) == Some(old))
}

/// A refusal is cut where it gets too long for a log and for `kubectl`.
fn cut(mut mistakes: String) -> String {
    if mistakes.len() > LONGEST_REFUSAL {
        let end = (0..=LONGEST_REFUSAL).rev().find(|end| mistakes.is_char_boundary(*end));
        mistakes.truncate(end.unwrap_or_default());
        mistakes.push('…');
    }
    mistakes
}

/// As the API server refuses what breaks its own rules. An empty refusal is none.
fn answer(uid: &str, refusal: &str) -> Value {
    let mut response = json!({"uid": uid, "allowed": refusal.is_empty()});
    if !refusal.is_empty() {
        response["status"] =
            json!({"status": "Failure", "code": 422, "reason": "Invalid", "message": refusal});
    }
    json!({"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response})
}

/// Where an object has configurations.
#[derive(Clone, Copy)]
struct Place {
    path: &'static str,
    configs: for<'a> fn(&'a RawValue) -> serde_json::Result<Configs<'a>>,
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
    fn of(request: &Request<'_>) -> Result<Self, WrongObject> {
        let resource = &request.resource;
        let known = resource.group == GROUP && VERSIONS.contains(&resource.version.as_str());
        match resource.resource.as_str() {
            "resourceclaims" if known => Ok(Self { path: "spec.devices.config", configs: of_claim }),
            "resourceclaimtemplates" if known => {
                Ok(Self { path: "spec.spec.devices.config", configs: of_template })
            }
            name => Err(WrongObject(format!("{name} of {}/{}", resource.group, resource.version))),
        }
    }
}

#[cfg(test)]
mod tests;
