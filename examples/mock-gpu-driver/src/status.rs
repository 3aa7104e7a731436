//! What a claim's status says of a GPU: that it is ready, which one it is, and which software drives it.

use dra_kubeletplugin::{
    AttributeValue, Device, DeviceStatus, InvalidStatus,
    k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    },
};
use serde_json::{Map, Value};

/// The attributes that are told.
const TOLD: [&str; 3] = ["uuid", "model", "driverVersion"];

/// The status of a GPU that is prepared.
///
/// # Errors
/// The data is more than the API takes.
pub(crate) fn of(gpu: &Device) -> Result<DeviceStatus, InvalidStatus> {
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: "Prepared".to_owned(),
        message: format!("{} is ready for the pod's containers", gpu.name()),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    };
    DeviceStatus::new().condition(ready)?.data(&data(gpu))
}

fn data(gpu: &Device) -> Map<String, Value> {
    let attributes =
        TOLD.into_iter().filter_map(|name| Some((name.to_owned(), text(gpu.attribute_value(name)?)?)));
    attributes.collect()
}

fn text(value: &AttributeValue) -> Option<Value> {
    match value {
        AttributeValue::String(text) | AttributeValue::Version(text) => Some(text.as_str().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_what_is_known_of_the_gpu() {
        let gpu = Device::named("gpu-0").unwrap();
        assert_eq!(data(&gpu), Map::new());
        let gpu = gpu
            .try_attribute("uuid", "gpu-1")
            .and_then(|gpu| gpu.try_attribute("model", "M1"))
            .and_then(|gpu| gpu.try_attribute("driverVersion", AttributeValue::version("1.0.0")))
            .and_then(|gpu| gpu.try_attribute("index", 0i64))
            .unwrap();
        assert_eq!(
            Value::from(data(&gpu)),
            serde_json::json!({"uuid": "gpu-1", "model": "M1", "driverVersion": "1.0.0"})
        );
    }
}
