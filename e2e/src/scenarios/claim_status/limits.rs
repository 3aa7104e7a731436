//! The limits of what drivers may say, by the API server and by the SDK.

use anyhow::{Context as _, Result, ensure};
use dra_kubeletplugin::{
    DeviceStatus,
    k8s_openapi::{api::resource::v1::NetworkDeviceData, apimachinery::pkg::apis::meta::v1::Condition},
};
use serde_json::{Value, json};

use super::{DRIVER, allocated_claim, write_status};
use crate::context::Context;

pub(super) async fn limits(cx: &Context) -> Result<()> {
    let claim = allocated_claim(cx, "limits", 0).await?;
    let rows = rows();
    for (what, content, kept) in &rows {
        let by_server = match write_status(cx, &claim.name, DRIVER, "gpu-0", content).await {
            Ok(()) => true,
            Err(kube::Error::Api(status)) if status.code == 422 => false,
            Err(error) => return Err(error).context(*what),
        };
        ensure!(by_server == *kept, "{what}: the API server takes it: {by_server}");
        let by_us = status_of(content)?;
        ensure!(by_us.is_ok() == *kept, "{what}: the SDK says {by_us:?}");
    }
    println!("    {} contents judged alike", rows.len());
    Ok(())
}

/// The content of one entry, and whether it is within the limits.
type Row = (&'static str, Value, bool);

/// Each limit is just kept and just broken.
fn rows() -> Vec<Row> {
    let data =
        |letter: &str, length: usize| json!({"data": {"a": letter.repeat(length - r#"{"a":""}"#.len())}});
    let conditions = |count: usize| {
        let of_type = |number: usize| {
            json!({"type": format!("C{number}"), "status": "True", "reason": "R", "message": "",
                   "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        json!({"conditions": (0..count).map(of_type).collect::<Vec<_>>()})
    };
    let ips = |ips: &[String]| json!({"networkData": {"ips": ips}});
    let addresses = |count: u8| (1..=count).map(|last| format!("192.0.2.{last}/24")).collect::<Vec<_>>();
    let network = |field: &str, length: usize| json!({"networkData": {field: "n".repeat(length)}});
    vec![
        ("10240 bytes of data", data("x", 10_240), true),
        ("10241 bytes of data", data("x", 10_241), false),
        ("data of letters with two bytes", data("ü", 5124), true),
        ("data of letters that Go escapes", data("<", 1700), true),
        ("more of these", data("<", 1800), false),
        ("data that is a list", json!({"data": [1]}), false),
        ("8 conditions", conditions(8), true),
        ("9 conditions", conditions(9), false),
        ("16 addresses", ips(&addresses(16)), true),
        ("17 addresses", ips(&addresses(17)), false),
        ("an address of IPv6", ips(&["2001:db8::1/64".to_owned()]), true),
        ("an address without a prefix length", ips(&["192.0.2.1".to_owned()]), false),
        ("an address that is not in its shortest form", ips(&["2001:db8:0::1/64".to_owned()]), false),
        ("an interface name of 256 bytes", network("interfaceName", 256), true),
        ("an interface name of 257 bytes", network("interfaceName", 257), false),
        ("a hardware address of 128 bytes", network("hardwareAddress", 128), true),
        ("a hardware address of 129 bytes", network("hardwareAddress", 129), false),
    ]
}

/// The same content, as a driver says it.
fn status_of(content: &Value) -> Result<Result<DeviceStatus, String>> {
    let mut status = Ok(DeviceStatus::new());
    if let Some(data) = content.get("data") {
        status = status.and_then(|status| status.data(data));
    }
    for condition in content["conditions"].as_array().into_iter().flatten() {
        let condition: Condition = serde_json::from_value(condition.clone())?;
        status = status.and_then(|status| status.condition(condition));
    }
    if let Some(network) = content.get("networkData") {
        let network: NetworkDeviceData = serde_json::from_value(network.clone())?;
        status = status.and_then(|status| status.network(network));
    }
    Ok(status.map_err(|error| error.to_string()))
}
