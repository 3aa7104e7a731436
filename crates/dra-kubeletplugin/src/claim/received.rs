//! A claim as the API server sends it. Opaque parameters and the data of devices' statuses are raw bytes to the API server,
//! in the JSON of their authors: Go takes texts and depths that `serde_json` refuses. So those of other drivers are kept as
//! text, and only our own are read.

use dra_resourceslice::DriverName;
use futures::AsyncReadExt as _;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Client, Resource as _,
    api::{GetParams, Request},
};
use serde_json::{Map, Value, value::RawValue};

use super::{AllocatedClaim, AllocatedDevice, ClaimError, ClaimRef};
use crate::config::{ConfigError, Entries, parse_parameters};

/// Where a claim has raw JSON; `*` is each item of a list (Kubernetes 1.34 to 1.37: the fields of type `RawExtension`).
const RAW: [&[&str]; 3] = [
    &["spec", "devices", "config", "*", "opaque", "parameters"],
    &["status", "allocation", "devices", "config", "*", "opaque", "parameters"],
    &["status", "devices", "*", "data"],
];

/// A claim, and what is wrong with our parameters in its allocation.
#[derive(Debug)]
pub(crate) struct Received {
    object: ResourceClaim,
    mistake: Option<ClaimError>,
}

/// Why no claim was received.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The request failed, or its answer did not come whole.
    Request(kube::Error),
    /// The answer is no claim.
    Unreadable(serde_json::Error),
}

impl Received {
    /// Gets a claim whose names have been checked.
    pub(crate) async fn get(
        client: &Client,
        driver: &DriverName,
        claim: &ClaimRef,
    ) -> Result<Self, ReceiveError> {
        let body = get(client, claim).await.map_err(ReceiveError::Request)?;
        // The server's own texts are UTF-8. Raw JSON may hold other bytes, which Go reads as this does.
        Self::read(&String::from_utf8_lossy(&body), driver).map_err(ReceiveError::Unreadable)
    }

    fn read(json: &str, driver: &DriverName) -> Result<Self, serde_json::Error> {
        let value = with_texts(serde_json::from_str(json)?, &RAW)?;
        let mut object: ResourceClaim = serde_json::from_value(value)?;
        let mistake = read_ours(&mut object, driver).err();
        Ok(Self { object, mistake })
    }

    /// UID of the claim that has the name now.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.object.metadata.uid.as_deref()
    }

    /// Whether the claim is allocated one of the devices of `driver`, with whatever share of it.
    pub(crate) fn has_any_of(&self, driver: &DriverName, devices: &[AllocatedDevice]) -> bool {
        let allocation = self.object.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_deref());
        let ours = results.unwrap_or_default().iter().filter(|result| result.driver == driver.as_str());
        ours.into_iter().any(|result| {
            let same = |device: &AllocatedDevice| {
                device.pool().as_str() == result.pool && device.device().as_str() == result.device
            };
            devices.iter().any(same)
        })
    }

    /// The claim, if it is the one that is wanted and can be prepared.
    pub(crate) fn allocated(
        self,
        driver: &DriverName,
        claim: &ClaimRef,
    ) -> Result<AllocatedClaim, ClaimError> {
        let allocated = AllocatedClaim::parse(driver, claim, self.object)?;
        self.mistake.map_or(Ok(allocated), Err)
    }
}

async fn get(client: &Client, claim: &ClaimRef) -> Result<Vec<u8>, kube::Error> {
    let folder = ResourceClaim::url_path(&(), Some(&claim.namespace));
    let request = Request::new(folder).get(&claim.name, &GetParams::default());
    let mut answer = client.request_stream(request.map_err(kube::Error::BuildRequest)?).await?;
    let mut body = Vec::new();
    answer.read_to_end(&mut body).await.map_err(kube::Error::ReadEvents)?;
    Ok(body)
}

/// Reads JSON, but what lies at `paths`: that becomes a string with its text.
fn with_texts(raw: &RawValue, paths: &[&[&str]]) -> Result<Value, serde_json::Error> {
    let json = raw.get();
    if paths.iter().any(|path| path.is_empty()) {
        return Ok(Value::String(json.to_owned()));
    }
    let below = |step: &str| -> Vec<&[&str]> {
        paths.iter().filter(|path| path[0] == step).map(|path| &path[1..]).collect()
    };
    match json.as_bytes().first() {
        _ if paths.is_empty() => serde_json::from_str(json),
        Some(b'{') => {
            let Entries(entries) = serde_json::from_str(json)?;
            let read = |(key, raw): (String, &RawValue)| {
                let value = with_texts(raw, &below(&key))?;
                Ok((key, value))
            };
            entries.into_iter().map(read).collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            let paths = below("*");
            items.into_iter().map(|raw| with_texts(raw, &paths)).collect::<Result<_, _>>().map(Value::Array)
        }
        _ => serde_json::from_str(json),
    }
}

/// Reads what is ours. Only a mistake in the allocation counts: prepare needs nothing else, and the rest stays text.
fn read_ours(object: &mut ResourceClaim, driver: &DriverName) -> Result<(), ClaimError> {
    let ours = |name: &str| name == driver.as_str();
    let spec = object.spec.as_mut().and_then(|spec| spec.devices.as_mut());
    let configs = spec.into_iter().flat_map(|devices| devices.config.iter_mut().flatten());
    for opaque in configs.filter_map(|config| config.opaque.as_mut()).filter(|opaque| ours(&opaque.driver)) {
        let _ = read_text(&mut opaque.parameters.0);
    }
    let Some(status) = &mut object.status else { return Ok(()) };
    for device in status.devices.iter_mut().flatten().filter(|device| ours(&device.driver)) {
        let _ = device.data.as_mut().map_or(Ok(()), |data| read_text(&mut data.0));
    }
    let allocated = status.allocation.as_mut().and_then(|allocation| allocation.devices.as_mut());
    for (index, config) in
        allocated.into_iter().flat_map(|devices| devices.config.iter_mut().flatten()).enumerate()
    {
        if let Some(opaque) = config.opaque.as_mut().filter(|opaque| ours(&opaque.driver)) {
            let read = read_text(&mut opaque.parameters.0);
            read.map_err(|mistake| ClaimError::BadConfig { index, mistake })?;
        }
    }
    Ok(())
}

fn read_text(value: &mut Value) -> Result<(), ConfigError> {
    if let Value::String(text) = value {
        *value = parse_parameters(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

    /// A claim with parameters of both drivers wherever a claim has raw JSON.
    fn claim(ours: &str, foreign: &str) -> String {
        let opaque = |driver: &str, json: &str| {
            format!(r#"{{"source":"FromClaim","opaque":{{"driver":"{driver}","parameters":{json}}}}}"#)
        };
        let configs = format!("[{},{}]", opaque("nic.example.com", foreign), opaque("gpu.example.com", ours));
        let result = r#"{"request":"gpu","driver":"gpu.example.com","pool":"node-1","device":"gpu-0"}"#;
        let data = format!(r#"[{{"driver":"nic.example.com","pool":"p","device":"d","data":{foreign}}}]"#);
        format!(
            r#"{{"metadata":{{"namespace":"ns","name":"one","uid":"{UID}"}},"spec":{{"devices":{{"config":{configs}}}}},"status":{{"allocation":{{"devices":{{"results":[{result}],"config":{configs}}}}},"devices":{data}}}}}"#
        )
    }

    #[expect(clippy::unwrap_in_result, reason = "reads better in the tests")]
    fn prepare(ours: &str, foreign: &str) -> Result<AllocatedClaim, ClaimError> {
        let driver = "gpu.example.com".parse().unwrap();
        let wanted = ClaimRef::new("ns", "one", UID.parse().unwrap());
        Received::read(&claim(ours, foreign), &driver).unwrap().allocated(&driver, &wanted)
    }

    #[test]
    fn foreign_content_that_only_go_reads_is_kept_as_text() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        for foreign in [r#"{"name":"x\ud800y"}"#, r#"{"a":1e999}"#, r#"{"a":1,"a":2}"#, &deep, "{}"] {
            let claim = prepare(r#"{"a":1}"#, foreign).unwrap();
            assert_eq!(claim.configs()[0].parameters()["a"], 1);
            let devices = claim.object().spec.as_ref().unwrap().devices.as_ref().unwrap();
            let written = devices.config.as_ref().unwrap()[0].opaque.as_ref().unwrap();
            assert_eq!(written.parameters.0, Value::String(foreign.to_owned()));
        }
    }

    #[test]
    fn a_mistake_in_our_parameters_has_its_path_and_counts_only_for_the_claim_that_was_asked_for() {
        let error = prepare(r#"{"sharing":{"strategy":"A","strategy":"B"}}"#, "{}").unwrap_err().to_string();
        let expected = "status.allocation.devices.config[1].opaque.parameters.sharing.strategy: this key is written twice";
        assert!(error.starts_with(expected), "{error}");
        let driver = "gpu.example.com".parse().unwrap();
        let replaced = ClaimRef::new("ns", "one", "other".parse().unwrap());
        let received = Received::read(&claim(r#"{"a":1,"a":2}"#, "{}"), &driver).unwrap();
        assert!(matches!(received.allocated(&driver, &replaced), Err(ClaimError::Replaced { .. })));
    }

    #[test]
    fn what_is_no_claim_is_an_error() {
        let driver = "gpu.example.com".parse().unwrap();
        for json in ["", "[]", "{", r#"{"spec":7}"#] {
            assert!(Received::read(json, &driver).is_err(), "{json}");
        }
    }
}
