//! Selectors as users write them, against devices as drivers publish them.

#![allow(clippy::expect_used, reason = "helpers of tests fail like tests")]

use dra_cel::{Device, Environment, Selector, SelectorError};
use k8s_openapi::api::resource::v1;
use proptest::prelude::*;
use serde_json::json;

const DRIVER: &str = "gpu.example.com";

fn gpu() -> Device {
    let device = json!({
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "A100"}, "numa": {"int": 1}, "ecc": {"bool": true},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    });
    let device: v1::Device = serde_json::from_value(device).expect("a device");
    Device::published(DRIVER, &device).expect("a good device")
}

fn matches(expression: &str) -> Result<bool, SelectorError> {
    expression.parse::<Selector>()?.matches(&gpu())
}

#[test]
fn attributes_and_capacity_are_compared_by_their_kind() {
    for (expression, expected) in [
        ("device.driver == 'gpu.example.com'", true),
        ("device.attributes['gpu.example.com'].model == 'A100'", true),
        ("device.attributes['gpu.example.com'].model.lowerAscii() in ['h100']", false),
        ("device.attributes['gpu.example.com'].numa + 1 == 2", true),
        ("device.attributes['gpu.example.com'].ecc", true),
        ("device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('550.54.14'))", true),
        ("device.attributes['gpu.example.com'].driverVersion.compareTo(semver('550.54.15+x')) == 0", true),
        ("device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')", true),
        ("device.capacity['gpu.example.com'].memory.isLessThan(quantity('40Gi'))", false),
        ("device.capacity['gpu.example.com'].memory == quantity('81920Mi')", true),
    ] {
        assert_eq!(matches(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn what_a_device_lacks_is_no_such_key_and_an_unknown_domain_is_an_empty_map() {
    let lacks = |key: &str| Err(SelectorError::NoSuchKey(key.to_owned()));
    for (expression, expected) in [
        ("device.attributes['gpu.example.com'].none == 'x'", lacks("none")),
        ("device.attributes['other.example.com'].none == 'x'", lacks("none")),
        ("'none' in device.attributes['other.example.com']", Ok(false)),
        ("'other.example.com' in device.attributes", Ok(false)),
        ("size(device.capacity['other.example.com']) == 0", Ok(true)),
        ("device.attributes['gpu.example.com'].?none.orValue('x') == 'x'", Ok(true)),
        ("device.attributes['gpu.example.com'][?'model'].hasValue()", Ok(true)),
        ("cel.bind(gpu, device.attributes['gpu.example.com'], gpu.ecc && gpu.model == 'A100')", Ok(true)),
        (
            "cel.bind(all, device.attributes, all['other.example.com'].none == 'x')",
            lacks("other.example.com"),
        ),
        ("device.attributes['gpu.example.com'].none || device.attributes['gpu.example.com'].ecc", Ok(true)),
    ] {
        assert_eq!(matches(expression), expected, "{expression}");
    }
}

#[test]
fn what_the_api_server_refuses_is_a_rejection() {
    for expression in [
        "?!",
        "1",
        "device.driver",
        "device.unknown",
        "unknown",
        "device.driver == 1",
        "'a'.unknown()",
        "'a'.contains(1)",
        "int('x') == 1",
        "'a'.matches('[')",
        "device.capacity['gpu.example.com'].memory > 1",
    ] {
        let error = expression.parse::<Selector>().expect_err(expression);
        assert!(error.is_rejection(), "{expression}: {error}");
    }
    let long = format!("'{}' == ''", "x".repeat(10 * 1024));
    assert_eq!(long.parse::<Selector>().err(), Some(SelectorError::TooLong(long.len())));
}

#[test]
fn gates_decide_what_a_new_expression_may_use() {
    let multiple = "!device.allowMultipleAllocations";
    let list = "device.attributes['gpu.example.com'].model.includes('A100')";
    let off = Environment::new_expression();
    for (expression, on) in [(multiple, off.consumable_capacity(true)), (list, off.list_attributes(true))] {
        assert!(Selector::new(expression, off).expect_err(expression).is_rejection());
        for environment in [on, Environment::stored()] {
            let selector = Selector::new(expression, environment).expect(expression);
            assert_eq!(selector.matches(&gpu()), Ok(true), "{expression}");
        }
    }
}

#[test]
fn what_is_not_supported_says_so_and_is_no_rejection() {
    for expression in [
        "[1].all(i, x, x > i)",
        "!!true",
        "type(1) == int",
        "'%s'.format(['a']) == 'a'",
        "\"\"\"a\"\"\" == 'a'",
        "quantity('1e100').isInteger()",
        "quantity('99999999999999999999999999999999E').isInteger()",
    ] {
        let error = matches(expression).expect_err(expression);
        assert!(matches!(error, SelectorError::Unsupported(_)), "{expression}: {error}");
        assert!(!error.is_rejection());
    }
}

#[test]
fn an_expression_that_never_ends_costs_too_much() {
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let expression = (0..8).fold("x0 > 0".to_owned(), |inner, depth| format!("{ten}.all(x{depth}, {inner})"));
    assert_eq!(matches(&expression), Err(SelectorError::CostExceeded));
}

#[test]
fn a_device_with_a_value_that_is_none_is_told_by_name() {
    for device in [
        json!({"attributes": {"odd": {}}}),
        json!({"attributes": {"odd": {"version": "v1"}}}),
        json!({"capacity": {"odd": {"value": "1x"}}}),
    ] {
        let error = Device::from_json(DRIVER, &device).expect_err("bad");
        assert!(error.to_string().starts_with("attribute odd: "), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9'\"()\\[\\]{}.,?:!&|<>=+*/% -]{0,40}") {
        let _ = matches(&text);
    }

    #[test]
    fn no_nesting_makes_it_overflow(open in "[(\\[{!-]", times in 1_usize..5000) {
        let _ = matches(&open.repeat(times));
        let _ = matches(&format!("{}1{} == 1", "(".repeat(times), ")".repeat(times)));
        let _ = matches(&format!("1{} > 0", "+1".repeat(times)));
        let _ = matches(&format!("true{}", " && true".repeat(times)));
        let _ = matches(&format!("device{}", ".a".repeat(times)));
        let _ = matches(&format!("{}true", "true ? true : ".repeat(times)));
    }
}

#[test]
fn the_part_that_a_device_does_not_satisfy_is_told_with_its_values() {
    let model = "device.attributes['gpu.example.com'].model";
    for (expression, expected) in [
        ("device.driver == 'gpu.example.com'", vec![]),
        (
            "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'H100'",
            vec![format!("{model} == 'H100' is false: {model} is 'A100'")],
        ),
        (
            "device.driver == 'other' || device.capacity['gpu.example.com'].memory.isLessThan(quantity('1Gi'))",
            vec![
                "device.driver == 'other' is false: device.driver is 'gpu.example.com'".to_owned(),
                "device.capacity['gpu.example.com'].memory.isLessThan(quantity('1Gi')) is false: \
                 device.capacity['gpu.example.com'].memory is 80Gi"
                    .to_owned(),
            ],
        ),
        (
            "device.attributes['gpu.example.com'].none == 'x'",
            vec![
                "device.attributes['gpu.example.com'].none == 'x' fails with \"no such key: none\": \
                 the device has no device.attributes['gpu.example.com'].none"
                    .to_owned(),
            ],
        ),
        // The false side decides; what the other one fails with does not matter.
        (
            "device.attributes['gpu.example.com'].none == 'x' && device.driver == 'other'",
            vec!["device.driver == 'other' is false: device.driver is 'gpu.example.com'".to_owned()],
        ),
        (
            "device.attributes['gpu.example.com'].ecc ? device.attributes['gpu.example.com'].numa == 0 : true",
            vec![
                "device.attributes['gpu.example.com'].numa == 0 is false: \
                 device.attributes['gpu.example.com'].numa is 1"
                    .to_owned(),
            ],
        ),
    ] {
        let selector: Selector = expression.parse().expect("a selector");
        let told: Vec<String> = selector.explain(&gpu()).iter().map(ToString::to_string).collect();
        assert_eq!(told, expected, "{expression}");
    }
}
