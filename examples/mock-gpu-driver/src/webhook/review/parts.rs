//! The parts of an `AdmissionReview` that are judged. All else is skipped as it is read, so a review takes little more memory
//! than its bytes; and content of other drivers may be whatever the API server accepts.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// More configurations than any version of the API takes (32 in Kubernetes 1.34 to 1.37).
const MOST_CONFIGS: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    pub(super) api_version: String,
    #[serde(borrow)]
    pub(super) request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    pub(super) uid: String,
    pub(super) resource: Resource,
    #[serde(default)]
    pub(super) sub_resource: Option<String>,
    #[serde(default)]
    pub(super) operation: String,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(borrow, default)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
}

/// A claim, or what a template has in its `spec`.
#[derive(Deserialize)]
struct Claim<'a> {
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
struct Template<'a> {
    #[serde(borrow, default)]
    spec: Option<Claim<'a>>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default)]
    devices: Option<Devices<'a>>,
}

#[derive(Deserialize)]
struct Devices<'a> {
    #[serde(borrow, default)]
    config: Option<Configs<'a>>,
}

/// The configurations of an object, in its order.
#[derive(Default)]
pub(super) struct Configs<'a>(pub(super) Vec<Config<'a>>);

#[derive(Deserialize)]
pub(super) struct Config<'a> {
    #[serde(borrow, default)]
    pub(super) opaque: Option<Opaque<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Opaque<'a> {
    #[serde(default)]
    pub(super) driver: Option<String>,
    #[serde(borrow, default)]
    pub(super) parameters: Option<&'a RawValue>,
}

/// The configurations of a claim.
pub(super) fn of_claim(object: &RawValue) -> serde_json::Result<Configs<'_>> {
    serde_json::from_str(object.get()).map(Claim::configs)
}

/// Those of a claim template.
pub(super) fn of_template(object: &RawValue) -> serde_json::Result<Configs<'_>> {
    let template: Template<'_> = serde_json::from_str(object.get())?;
    Ok(template.spec.map(Claim::configs).unwrap_or_default())
}

impl<'a> Claim<'a> {
    fn configs(self) -> Configs<'a> {
        self.spec.and_then(|spec| spec.devices).and_then(|devices| devices.config).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Configs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Configs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of configurations")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut configs = Vec::new();
                while configs.len() < MOST_CONFIGS {
                    match items.next_element()? {
                        Some(config) => configs.push(config),
                        None => return Ok(Configs(configs)),
                    }
                }
                match items.next_element::<IgnoredAny>()? {
                    None => Ok(Configs(configs)),
                    Some(_) => Err(A::Error::custom(format_args!("more than {MOST_CONFIGS} configurations"))),
                }
            }
        }
        deserializer.deserialize_seq(Each)
    }
}
