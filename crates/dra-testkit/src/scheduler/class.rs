//! The one form of device class that the stand-in can evaluate.

use k8s_openapi::api::resource::v1::{DeviceClass, DeviceSelector};

use super::error::SchedulerError;
use crate::compat;

/// Which drivers' devices a class allows: `None` means all.
///
/// # Errors
/// If the class has any other selector than one `device.driver == "<driver>"`.
pub(super) fn driver(class: &DeviceClass) -> Result<Option<String>, SchedulerError> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let selectors = compat::class_spec(class).and_then(|spec| spec.selectors.as_deref());
    match selectors.unwrap_or_default() {
        [] => Ok(None),
        [selector] => Ok(Some(driver_of(&format!("DeviceClass {name:?}"), selector)?)),
        more => Err(SchedulerError::Unsupported {
            place: format!("DeviceClass {name:?}"),
            what: format!("a combination of {} selectors", more.len()),
        }),
    }
}

/// The driver in `device.driver == "<driver>"`.
fn driver_of(place: &str, selector: &DeviceSelector) -> Result<String, SchedulerError> {
    let expression = selector.cel.as_ref().map(|cel| cel.expression.as_str()).unwrap_or_default();
    parse(expression).map(str::to_owned).ok_or_else(|| SchedulerError::Unsupported {
        place: place.to_owned(),
        what: format!("the selector {expression:?} (only `device.driver == \"<driver>\"` is)"),
    })
}

fn parse(expression: &str) -> Option<&str> {
    let value = expression.trim().strip_prefix("device.driver")?.trim_start().strip_prefix("==")?.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let driver = quoted('\'').or_else(|| quoted('"'))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    (!driver.is_empty() && driver.chars().all(plain)).then_some(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_driver_comparison_is_read() {
        for (expression, driver) in [
            ("device.driver == 'gpu.example.com'", Some("gpu.example.com")),
            (" device.driver==\"gpu.example.com\" ", Some("gpu.example.com")),
            ("device.driver == 'a' || device.driver == 'b'", None),
            ("device.driver != 'a'", None),
            ("device.attributes['a'].b == 'c'", None),
            ("device.driver == gpu", None),
            ("", None),
        ] {
            assert_eq!(parse(expression), driver, "{expression}");
        }
    }
}
