use super::*;

const UID: &str = "6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f";

fn refused<T: FromStr<Err = InvalidName> + fmt::Debug>(texts: &[&str]) {
    for text in texts {
        let error = text.parse::<T>().unwrap_err();
        assert!(error.to_string().contains(error.reason), "{error}");
    }
}

fn accepted<T: FromStr<Err = InvalidName> + fmt::Display>(texts: &[&str]) {
    for text in texts {
        assert_eq!(&text.parse::<T>().unwrap_or_else(|e| panic!("{e}")).to_string(), text);
    }
}

#[test]
fn vendors_begin_with_a_letter_and_have_two_characters_or_more() {
    accepted::<Vendor>(&["ab", "k8s.gpu.example.com", "Ven_dor", "a1", &"v".repeat(253)]);
    refused::<Vendor>(&[
        "", "a", "0gpu.com", "gpu-", "gpu.", "-gpu", "a/b", "a=b", "a b", "é.com", "a\u{0}b",
    ]);
    refused::<Vendor>(&[&"v".repeat(254)]);
}

#[test]
fn classes_begin_with_a_letter_and_have_two_to_63_characters() {
    accepted::<Class>(&["claim", "gpu", "a.b", "g_1", &"c".repeat(63)]);
    refused::<Class>(&["", "c", "1gpu", "gpu_", "a/b", "a=b", "a+b", &"c".repeat(64)]);
}

#[test]
fn device_names_may_begin_with_a_digit_and_hold_colons() {
    accepted::<DeviceName>(&["a", "0", "0000:3b:00.0", "gpu-0", "A_b", &"d".repeat(253)]);
    refused::<DeviceName>(&[
        "",
        "-a",
        "a-",
        "a:",
        "req/sub",
        "a,b",
        "a=b",
        "a b",
        "a\n",
        "é",
        &"d".repeat(254),
    ]);
}

#[test]
fn any_kubernetes_driver_name_makes_a_kind() {
    let longest = format!("{}.com", "d".repeat(59));
    for driver in ["gpu.example.com", "0gpu.example.com", "g", "1", "a-b.c-d", &longest] {
        let kind = Kind::for_driver(driver).unwrap();
        assert_eq!(kind.to_string(), format!("k8s.{driver}/claim"));
    }
}

#[test]
fn a_driver_name_that_kubernetes_would_refuse_is_refused() {
    for driver in ["", "GPU.example.com", "a_b", "a..b", "-a", "a-", "a/b", ".a", &"d".repeat(64)] {
        let error = Kind::for_driver(driver).unwrap_err();
        assert_eq!((error.what, error.value.as_str()), ("driver name", driver));
    }
}

#[test]
fn qualified_names_are_split_at_the_first_separators_and_round_trip() {
    accepted::<QualifiedName>(&["vendor.com/class=dev", "k8s.gpu.example.com/claim=0000:3b:00.0"]);
    refused::<QualifiedName>(&[
        "vendor.com/class",
        "class=dev",
        "vendor.com=dev",
        "a/b/c=d",
        "v.com/cl=a=b",
        "v/cl=a",
        "vv/c=a",
        "/cl=a",
        "vv/=a",
        "vv/cl=",
        "",
    ]);
}

#[test]
fn the_name_of_a_claims_device_holds_claim_device_and_share() {
    let claim: FileId = UID.parse().unwrap();
    let name = |device, share, pool| DeviceName::for_claim(&claim, device, share, pool).unwrap().to_string();
    assert_eq!(name("gpu-0", None, None), format!("{UID}-gpu-0"));
    assert_eq!(name("gpu-0", Some(UID), None), format!("{UID}-gpu-0-{UID}"));
    // The longest that Kubernetes can ask for fits.
    assert_eq!(name(&"d".repeat(63), Some(UID), Some("p")).len(), 36 + 1 + 63 + 1 + 36 + 1 + 8);
}

#[test]
fn pools_stand_in_device_names_only_as_a_hash() {
    let claim: FileId = UID.parse().unwrap();
    let name = |pool| DeviceName::for_claim(&claim, "gpu-0", None, Some(pool)).unwrap();
    let long = format!("{}/{}", "a".repeat(63), "b.".repeat(90));
    let names = [name("node/a"), name("node_a"), name("node-a"), name(&long)];
    for (i, one) in names.iter().enumerate() {
        assert_eq!(one.as_str().len(), 36 + 1 + 5 + 1 + 8);
        assert!(names[i + 1..].iter().all(|other| other != one), "{one} stands for two pools");
    }
}

#[test]
fn requests_with_a_slash_or_odd_devices_are_refused_and_not_mangled() {
    let claim: FileId = UID.parse().unwrap();
    for device in ["", "req/sub", "GPU", "a_b", "a.b", "-a", &"d".repeat(64)] {
        assert_eq!(DeviceName::for_claim(&claim, device, None, None).unwrap_err().what, "device name");
    }
    assert_eq!(DeviceName::for_claim(&claim, "gpu-0", Some("../x"), None).unwrap_err().what, "share ID");
}

#[test]
fn names_are_checked_when_read_from_json() {
    assert_eq!(serde_json::from_str::<Kind>("\"vendor.com/class\"").unwrap().to_string(), "vendor.com/class");
    assert!(serde_json::from_str::<Kind>("\"v/class\"").is_err());
    assert!(serde_json::from_str::<DeviceName>("\"a/b\"").is_err());
}
