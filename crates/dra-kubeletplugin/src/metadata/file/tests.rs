use k8s_openapi::api::resource::v1::NetworkDeviceData;

use super::*;

fn metadata(attributes: DeviceMetadata) -> ClaimMetadata {
    let claim = ClaimRef::new("default", "one", "4ecac36f".parse().unwrap());
    let device = DeviceRef::new("node-1".parse().unwrap(), "gpu-0".parse().unwrap());
    let device = DescribedDevice::new("gpu.example.com".parse().unwrap(), device, attributes);
    ClaimMetadata::new(claim, None, vec![RequestMetadata::new("gpu/large", vec![device])])
}

#[test]
fn the_file_has_go_s_form_and_reads_back() {
    let network = NetworkDeviceData {
        hardware_address: Some("00:00:5e:00:53:01".to_owned()),
        interface_name: Some(String::new()),
        ips: Some(vec!["192.0.2.5/24".to_owned()]),
    };
    let said = DeviceMetadata::new().attribute("model", "<A&B>\u{2028}é").unwrap();
    let said = said.attribute("example.com/ports", vec![1_i64, 2]).unwrap().network(network).unwrap();
    let written = metadata(said);
    let expected = r#"{
  "kind": "DeviceMetadata",
  "apiVersion": "metadata.resource.k8s.io/v1beta1",
  "metadata": {
    "name": "one",
    "namespace": "default",
    "uid": "4ecac36f",
    "generation": 1
  },
  "requests": [
    {
      "name": "gpu/large",
      "devices": [
        {
          "driver": "gpu.example.com",
          "pool": "node-1",
          "name": "gpu-0",
          "attributes": {
            "example.com/ports": {
              "ints": [
                1,
                2
              ]
            },
            "model": {
              "string": "\u003cA\u0026B\u003e\u2028é"
            }
          },
          "networkData": {
            "ips": [
              "192.0.2.5/24"
            ],
            "hardwareAddress": "00:00:5e:00:53:01"
          }
        }
      ]
    }
  ]
}
"#;
    assert_eq!(written.encode(), expected);
    let read = ClaimMetadata::decode(expected.as_bytes()).unwrap();
    assert_eq!(read.encode(), expected);
}

#[test]
fn every_form_of_value_and_a_device_without_any_read_back() {
    use dra_resourceslice::AttributeValue as Value;
    let text = || vec!["1.0.0".to_owned()];
    let values = [
        Value::Bool(false),
        Value::Int(i64::MIN),
        Value::String(String::new()),
        Value::version("1.2.3"),
        Value::Bools(vec![true]),
        Value::Ints(vec![0]),
        Value::Strings(text()),
        Value::Versions(text()),
    ];
    let mut said = values.into_iter().enumerate();
    let said = said.try_fold(DeviceMetadata::new(), |all, (n, value)| all.attribute(&format!("a{n}"), value));
    for said in [said.unwrap(), DeviceMetadata::new()] {
        let written = ClaimMetadata { pod_claim_name: Some("gpus".to_owned()), ..metadata(said) };
        assert_eq!(ClaimMetadata::decode(written.encode().as_bytes()), Ok(written));
    }
}

/// An object of a version, with a name that tells them apart.
fn object(version: &str, name: &str) -> String {
    format!(
        r#"{{"kind":"DeviceMetadata","apiVersion":"{version}","metadata":{{"name":"{name}","uid":"u"}}}}"#
    )
}

#[test]
fn the_first_known_version_wins_and_the_rest_is_not_read() {
    let (new, beta, alpha) = (
        object("metadata.resource.k8s.io/v9", "new"),
        object("metadata.resource.k8s.io/v1beta1", "beta"),
        object("metadata.resource.k8s.io/v1alpha1", "alpha"),
    );
    let table = [
        (beta.clone(), "beta"),
        (format!("{alpha}\n{beta}"), "alpha"),
        (format!("{new}{beta}"), "beta"),
        (format!("{beta} {{ broken"), "beta"),
        (format!("{} {alpha}", object("other.example.com/v1", "other")), "alpha"),
    ];
    for (text, expected) in table {
        assert_eq!(ClaimMetadata::decode(text.as_bytes()).unwrap().claim.name, expected, "{text}");
    }
}

#[test]
fn what_is_no_metadata_is_told_with_the_reason() {
    let known = object("metadata.resource.k8s.io/v1beta1", "x");
    let with = |more: &str| known.replacen('{', &format!("{{{more},"), 1);
    let device = |field: &str| {
        with(&format!(
            r#""requests":[{{"name":"r","devices":[{{"driver":"d","pool":"p","name":"n",{field}}}]}}]"#
        ))
    };
    let table = [
        (String::new(), "there is no metadata in it"),
        (
            object("metadata.resource.k8s.io/v9", "x"),
            "only the versions metadata.resource.k8s.io/v9, known are",
        ),
        (format!("{{ broken {known}"), "object 1: "),
        (known[..known.len() - 1].to_owned(), "object 1: EOF"),
        (format!("{} 7 {known}", object("a/v9", "x")), "object 2: kind is missing"),
        (r#"{"apiVersion":"a/v9"}"#.to_owned(), "kind is missing"),
        (known.replace("apiVersion", "version"), "apiVersion is missing"),
        (known.replace("DeviceMetadata", "Other"), "its kind is \"Other\""),
        (known.replace(r#""uid":"u""#, r#""uid":"../x""#), "metadata.uid: illegal claim UID"),
        (with(r#""requests":"a text""#), "invalid type"),
        (device(r#""attributes":{"a b":{"int":1}}"#), "request \"r\", device \"n\": invalid"),
        (device(r#""attributes":{"a":{"int":1,"bool":true}}"#), "attribute \"a\": it has 2 values"),
    ];
    for (text, expected) in table {
        let error = ClaimMetadata::decode(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_value_of_a_form_that_is_not_known_yet_is_left_out() {
    let text = metadata(DeviceMetadata::new().attribute("a", 1).unwrap()).encode();
    let read = ClaimMetadata::decode(text.replace("\"int\"", "\"decimal\"").as_bytes()).unwrap();
    assert!(read.requests[0].devices[0].metadata.attributes().is_empty());
}
