//! Operators on values.

use std::cmp::Ordering;

use kube_cel::cel::common::ast::operators;
use kube_cel::cel::objects::{KeyRef, OptionalValue};
use kube_cel::cel::{ExecutionError, Value};

use crate::domains::{Domains, NotSupported};
use crate::error::SelectorError;
use crate::types::Type;

type Evaluated = Result<Value, SelectorError>;

/// An operator with one or two arguments that have been evaluated.
pub(crate) fn apply(name: &str, arguments: Vec<Value>) -> Evaluated {
    let mut arguments = arguments.into_iter();
    match (arguments.next(), arguments.next()) {
        (Some(a), None) => unary(name, &a),
        (Some(a), Some(b)) => binary(name, a, b),
        _ => Err(no_overload(name, &[])),
    }
}

pub(crate) fn no_overload(name: &str, arguments: &[&Value]) -> SelectorError {
    let types: Vec<&str> = arguments.iter().map(|value| Type::of(value).name()).collect();
    SelectorError::NoSuchOverload(format!("{name}({})", types.join(", ")))
}

fn unary(name: &str, a: &Value) -> Evaluated {
    let overflow = || SelectorError::Failed("integer overflow".into());
    match (name, a) {
        (operators::LOGICAL_NOT, Value::Bool(a)) => Ok(Value::Bool(!a)),
        (operators::NEGATE, Value::Int(a)) => a.checked_neg().map(Value::Int).ok_or_else(overflow),
        (operators::NEGATE, Value::Float(a)) => Ok(Value::Float(-a)),
        (operators::NEGATE, Value::Duration(a)) => Ok(Value::Duration(-*a)),
        _ => Err(no_overload(name, &[a])),
    }
}

fn binary(name: &str, a: Value, b: Value) -> Evaluated {
    match name {
        operators::EQUALS => equal(name, &a, &b).map(Value::Bool),
        operators::NOT_EQUALS => equal(name, &a, &b).map(|equal| Value::Bool(!equal)),
        operators::LESS => compare(name, &a, &b, Ordering::is_lt),
        operators::LESS_EQUALS => compare(name, &a, &b, Ordering::is_le),
        operators::GREATER => compare(name, &a, &b, Ordering::is_gt),
        operators::GREATER_EQUALS => compare(name, &a, &b, Ordering::is_ge),
        operators::IN => contains(name, &b, &a),
        operators::INDEX => index(&a, &b),
        operators::OPT_INDEX | operators::OPT_SELECT => optional_index(&a, &b),
        _ => calculate(name, a, b),
    }
}

/// Values of different types are not equal, but those of the Kubernetes libraries compare only with their own.
fn equal(name: &str, a: &Value, b: &Value) -> Result<bool, SelectorError> {
    let of_library = matches!(Type::of(a), Type::Object(_));
    if of_library && Type::of(a) != Type::of(b) { Err(no_overload(name, &[a, b])) } else { Ok(a == b) }
}

fn compare(name: &str, a: &Value, b: &Value, holds: impl Fn(Ordering) -> bool) -> Evaluated {
    let order = match (a, b) {
        (Value::Null, _) => return Err(no_overload(name, &[a, b])),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        _ => a.partial_cmp(b),
    };
    match order {
        Some(order) => Ok(Value::Bool(holds(order))),
        // NaN is in no order with any number.
        None if Type::of(a).is_number() && Type::of(b).is_number() => Ok(Value::Bool(false)),
        None => Err(no_overload(name, &[a, b])),
    }
}

fn contains(name: &str, container: &Value, value: &Value) -> Evaluated {
    match container {
        Value::List(list) => Ok(Value::Bool(list.contains(value))),
        Value::Map(_) => Ok(Value::Bool(matches!(find(container, value), Ok(Some(_))))),
        Value::Opaque(opaque) => match (opaque.downcast_ref::<Domains>(), value) {
            (Some(domains), Value::String(domain)) => Ok(Value::Bool(domains.contains(domain))),
            (Some(_), _) => Ok(Value::Bool(false)),
            (None, _) => Err(no_overload(name, &[value, container])),
        },
        _ => Err(no_overload(name, &[value, container])),
    }
}

/// `container[key]`, also `container.key`.
pub(crate) fn index(container: &Value, key: &Value) -> Evaluated {
    if optional(container).is_some() {
        return optional_index(container, key);
    }
    supported(find(container, key)?.ok_or_else(|| missing(container, key))?)
}

/// The value, unless this crate cannot compute with it.
fn supported(value: Value) -> Evaluated {
    match &value {
        Value::Opaque(opaque) => match opaque.downcast_ref::<NotSupported>() {
            Some(NotSupported(what)) => Err(SelectorError::Unsupported(what.clone())),
            None => Ok(value),
        },
        _ => Ok(value),
    }
}

/// `container[?key]`, also `container.?key`.
fn optional_index(container: &Value, key: &Value) -> Evaluated {
    find_optional(container, key)?.map_or_else(|| Ok(none()), |found| supported(found).map(some))
}

/// `has(container.key)`
pub(crate) fn has(container: &Value, key: &Value) -> Evaluated {
    find_optional(container, key).map(|found| Value::Bool(found.is_some()))
}

/// Like [`find`], within an optional value too; what has no elements lacks this one.
fn find_optional(container: &Value, key: &Value) -> Result<Option<Value>, SelectorError> {
    let found = match optional(container) {
        Some(optional) => optional.value().map_or(Ok(None), |inner| find(inner, key)),
        None => find(container, key),
    };
    match found {
        Err(SelectorError::NoSuchKey(_)) => Ok(None),
        other => other,
    }
}

/// The element of a list or a map.
fn find(container: &Value, key: &Value) -> Result<Option<Value>, SelectorError> {
    match (container, key) {
        (Value::List(list), _) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::UInt(index) => usize::try_from(*index).ok(),
                _ => return Err(no_overload(operators::INDEX, &[container, key])),
            };
            Ok(index.and_then(|index| list.get(index)).cloned())
        }
        (Value::Map(map), _) => Ok(KeyRef::try_from(key).ok().and_then(|key| map.get(&key).cloned())),
        (Value::Opaque(opaque), Value::String(domain)) => match opaque.downcast_ref::<Domains>() {
            Some(domains) => Ok(Some(domains.get(domain))),
            None => Err(missing(container, key)),
        },
        _ => Err(missing(container, key)),
    }
}

fn missing(container: &Value, key: &Value) -> SelectorError {
    let key = match key {
        Value::String(key) => key.to_string(),
        Value::Int(key) => key.to_string(),
        Value::UInt(key) => key.to_string(),
        other => format!("{other:?}"),
    };
    match container {
        Value::List(_) => SelectorError::Failed(format!("index out of bounds: {key}")),
        _ => SelectorError::NoSuchKey(key),
    }
}

fn calculate(name: &str, a: Value, b: Value) -> Evaluated {
    let refused = no_overload(name, &[&a, &b]);
    let result = match (name, a, b) {
        (operators::ADD, Value::Bytes(a), Value::Bytes(b)) => {
            let joined = a.iter().chain(b.iter()).copied().collect();
            Ok(Value::Bytes(std::sync::Arc::new(joined)))
        }
        (operators::ADD, a, b) => a + b,
        (operators::SUBSTRACT, a, b) => a - b,
        (operators::MULTIPLY, a, b) => a * b,
        (operators::DIVIDE, a, b) => a / b,
        (operators::MODULO, a, b) => a % b,
        _ => return Err(refused),
    };
    result.map_err(|error| match error {
        ExecutionError::Overflow(..) => SelectorError::Failed("integer overflow".into()),
        ExecutionError::DivisionByZero(_) => SelectorError::Failed("division by zero".into()),
        ExecutionError::RemainderByZero(_) => SelectorError::Failed("modulus by zero".into()),
        _ => refused,
    })
}

/// The optional value, if this is one.
pub(crate) fn optional(value: &Value) -> Option<&OptionalValue> {
    let Value::Opaque(opaque) = value else { return None };
    opaque.downcast_ref()
}

pub(crate) fn some(value: Value) -> Value {
    Value::Opaque(std::sync::Arc::new(OptionalValue::of(value)))
}

pub(crate) fn none() -> Value {
    Value::Opaque(std::sync::Arc::new(OptionalValue::none()))
}
