//! A selector: parsed and checked once, then asked for each device.

use std::fmt;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::parser::Parser;

use crate::check;
use crate::device::Device;
use crate::environment::Environment;
use crate::error::{MAX_LENGTH, SelectorError};
use crate::eval;
use crate::explain::{self, Unmet};
use crate::source;
use crate::types::Type;

/// Stack of the thread that parses, in bytes. Only what is used of it costs memory.
const STACK: usize = 64 << 20;

/// A CEL expression of a DeviceClass or of a request, checked as the API server does.
///
/// ```
/// use dra_cel::{Device, Selector, SelectorError};
/// use serde_json::json;
///
/// # fn main() -> Result<(), SelectorError> {
/// let large: Selector = "device.driver == 'gpu.example.com' && \
///     device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('40Gi'))".parse()?;
/// let device = |memory| Device::from_json("gpu.example.com", &json!({
///     "name": "gpu-0", "capacity": {"memory": {"value": memory}},
/// }));
/// assert!(large.matches(&device("80Gi")?)?);
/// assert!(!large.matches(&device("40Gi")?)?);
///
/// // A device without the capacity is an error, not a "no".
/// let bare = Device::from_json("gpu.example.com", &json!({"name": "gpu-1"}))?;
/// assert_eq!(large.matches(&bare), Err(SelectorError::NoSuchKey("memory".into())));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Selector {
    text: String,
    expression: IdedExpr,
}

impl Selector {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// If the API server would refuse it ([`SelectorError::is_rejection`]), or it has something that is not supported
    /// here.
    pub fn new(expression: &str, environment: Environment) -> Result<Self, SelectorError> {
        if expression.len() > MAX_LENGTH {
            return Err(SelectorError::TooLong(expression.len()));
        }
        source::check(expression)?;
        let (expression_type, parsed) = with_stack(|| parse(expression, environment))?;
        if expression_type == Type::Bool || expression_type.is_open() {
            Ok(Self { text: expression.to_owned(), expression: parsed })
        } else {
            Err(SelectorError::NotBool(expression_type.to_string()))
        }
    }

    /// Whether the device is one that the selector asks for.
    ///
    /// # Errors
    /// If the evaluation fails for this device. The scheduler gives up the pod then, whatever other devices there are.
    pub fn matches(&self, device: &Device) -> Result<bool, SelectorError> {
        match eval::evaluate(&self.expression, &device.variable)? {
            Value::Bool(matches) => Ok(matches),
            other => Err(SelectorError::ResultNotBool(Type::of(&other).name().to_owned())),
        }
    }

    /// The parts of the expression that keep the device from being chosen, for people. Empty if it is chosen.
    ///
    /// Of `a && b` these are the sides that are false, or else those that fail; of `a || b` all sides.
    ///
    /// ```
    /// # fn main() -> Result<(), dra_cel::SelectorError> {
    /// let selector: dra_cel::Selector =
    ///     "device.driver == 'd' && device.attributes['d'].model in ['A', 'B']".parse()?;
    /// let device = serde_json::json!({"name": "gpu-0", "attributes": {"model": {"string": "C"}}});
    /// let device = dra_cel::Device::from_json("d", &device)?;
    /// assert_eq!(
    ///     selector.explain(&device)[0].to_string(),
    ///     "device.attributes['d'].model in ['A', 'B'] is false: device.attributes['d'].model is 'C'",
    /// );
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn explain(&self, device: &Device) -> Vec<Unmet> {
        explain::unmet(&self.expression, device)
    }

    /// The expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn parse(expression: &str, environment: Environment) -> Result<(Type, IdedExpr), SelectorError> {
    let parsed = Parser::new().enable_optional_syntax(true).parse(expression);
    let parsed = parsed.map_err(|errors| SelectorError::Invalid(errors.to_string()))?;
    Ok((check::check(&parsed, environment)?, parsed))
}

/// Runs the parser, which needs much stack for nested expressions, on a thread that has it. If there is no thread to be
/// had, or the parser panics, the expression counts as not supported.
fn with_stack<T: Send>(parse: impl FnOnce() -> Result<T, SelectorError> + Send) -> Result<T, SelectorError> {
    let unsupported =
        |why: &str| SelectorError::Unsupported(format!("an expression that is not parsed: {why}"));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, parse);
        let thread = thread.map_err(|error| unsupported(&error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(unsupported("the parser failed on it")))
    })
}

impl std::str::FromStr for Selector {
    type Err = SelectorError;

    /// A stored expression, as the scheduler reads it.
    fn from_str(expression: &str) -> Result<Self, SelectorError> {
        Self::new(expression, Environment::stored())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.text).finish()
    }
}
