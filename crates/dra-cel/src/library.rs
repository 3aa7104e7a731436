//! The functions of Kubernetes' CEL libraries, as `kube-cel` has them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, Value};

use crate::error::SelectorError;

/// Powers of ten up to which `kube-cel` computes with quantities without overflow: it compares two of them by integers of
/// 128 bits. Kubernetes itself caps them at 2^63.
const MAX_POWER: usize = 19;
/// Digits behind the point, to which the suffix `n` may add nine.
const MAX_FRACTION: usize = 9;

thread_local! {
    static ROOT: Context<'static> = Context::default().with_all();
}

/// A quantity such as `10Gi`.
pub(crate) fn quantity(text: &str) -> Result<Value, SelectorError> {
    call("quantity", None, vec![Value::from(text)])
}

/// A semantic version, read strictly.
pub(crate) fn version(text: &str) -> Result<Value, SelectorError> {
    call("semver", None, vec![Value::from(text)])
}

/// Calls a function, `name` with its namespace if it has one (`sets.contains`), on a receiver if it is a method.
/// The types have been checked.
pub(crate) fn call(
    name: &str,
    receiver: Option<Value>,
    mut arguments: Vec<Value>,
) -> Result<Value, SelectorError> {
    if matches!(name, "quantity" | "isQuantity") {
        match small_enough(&arguments) {
            Err(SelectorError::Failed(_)) if name == "isQuantity" => return Ok(Value::Bool(false)),
            other => other?,
        }
    }
    if matches!(name, "semver" | "isSemver") {
        without_build(&mut arguments);
    }
    let (namespace, function) = name.split_once('.').map_or((None, name), |(a, b)| (Some(a), b));
    // A panic in the library must not be one here. It has some: it computes quantities without checks.
    let result = catch_unwind(AssertUnwindSafe(|| {
        ROOT.with(|root| {
            let mut scope = root.new_inner_scope();
            let mut variable = |name: String, value: Value| {
                scope.add_variable_from_value(name.clone(), value);
                ident(&name)
            };
            let target = receiver.map(|value| variable("@receiver".into(), value));
            let arguments = arguments.into_iter().enumerate();
            let arguments: Vec<IdedExpr> =
                arguments.map(|(i, value)| variable(format!("@{i}"), value)).collect();
            let target = target.or_else(|| namespace.map(ident)).map(Box::new);
            let call = CallExpr { func_name: function.to_owned(), target, args: arguments };
            Value::resolve(&IdedExpr { id: 0, expr: Expr::Call(call) }, &scope)
        })
    }));
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(name, &error)),
        Err(_) => Err(SelectorError::Unsupported(format!("{name} with these values"))),
    }
}

fn ident(name: &str) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) }
}

fn failed(name: &str, error: &ExecutionError) -> SelectorError {
    match error {
        ExecutionError::NoSuchOverload => SelectorError::NoSuchOverload(name.to_owned()),
        ExecutionError::UndeclaredReference(_) => SelectorError::Unsupported(format!("function {name}")),
        ExecutionError::FunctionError { message, .. } => SelectorError::Failed(message.clone()),
        other => SelectorError::Failed(other.to_string()),
    }
}

/// Refuses quantities that are so large or so exact that sums and comparisons would overflow, and those with spaces,
/// which the library takes and Kubernetes does not.
fn small_enough(arguments: &[Value]) -> Result<(), SelectorError> {
    let Some(Value::String(text)) = arguments.first() else { return Ok(()) };
    if text.trim() != text.as_str() {
        return Err(SelectorError::Failed(format!("{text:?} is no quantity: it has spaces around it")));
    }
    let number = text.trim_start_matches(['+', '-']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (number, suffix) = number.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let power = match suffix.trim_end_matches('i') {
        "K" | "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        other => other.trim_start_matches(['e', 'E', '+', '-']).parse().unwrap_or(0),
    };
    if whole.len() + power > MAX_POWER || fraction.len() > MAX_FRACTION {
        return Err(SelectorError::Unsupported(format!("the quantity {text}")));
    }
    Ok(())
}

/// Takes the build part off a version: Kubernetes compares without it, the library with it.
fn without_build(arguments: &mut [Value]) {
    if let Some(Value::String(text)) = arguments.first_mut()
        && let Some((version, build)) = text.split_once('+')
    {
        let identifier = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if build.split('.').all(identifier) {
            *text = std::sync::Arc::new(version.to_owned());
        }
    }
}
