//! What operators take and give.

use kube_cel::cel::common::ast::operators;

use crate::types::Type;

/// The result of an operator, or none if it does not take arguments of these types.
pub(super) fn result(name: &str, arguments: &[Type]) -> Option<Type> {
    match (name, arguments) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b])
            if Type::Bool.takes(a) && Type::Bool.takes(b) =>
        {
            Some(Type::Bool)
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [a]) if Type::Bool.takes(a) => {
            Some(Type::Bool)
        }
        (operators::CONDITIONAL, [condition, a, b]) if Type::Bool.takes(condition) && a.takes(b) => {
            Some(a.clone().narrowed(b.clone()))
        }
        (operators::EQUALS | operators::NOT_EQUALS, [a, b]) if a.takes(b) => Some(Type::Bool),
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [a, b],
        ) if are_ordered(a, b) => Some(Type::Bool),
        (operators::IN, [a, Type::List(element)]) if element.takes(a) => Some(Type::Bool),
        (operators::IN, [a, Type::Map(key, _)]) if key.takes(a) => Some(Type::Bool),
        (operators::IN, [_, b]) if b.is_open() => Some(Type::Bool),
        (operators::INDEX, [container, index]) => indexed(container, index),
        (operators::OPT_INDEX, [container, index]) => indexed(container, index).map(optional_once),
        (operators::OPT_SELECT, [operand, _]) => {
            let field = match operand {
                Type::Map(_, value) => (**value).clone(),
                Type::Optional(inner) => match &**inner {
                    Type::Map(_, value) => (**value).clone(),
                    _ => Type::Dyn,
                },
                _ => Type::Dyn,
            };
            Some(optional_once(field))
        }
        (operators::NEGATE, [a]) if a.is_open() || matches!(a, Type::Int | Type::Double | Type::Duration) => {
            Some(a.clone())
        }
        (operators::ADD, [a, b]) => sum(a, b),
        (operators::SUBSTRACT, [a, b]) => difference(a, b),
        (operators::MULTIPLY | operators::DIVIDE, [a, b]) if a.takes(b) && (a.is_open() || a.is_number()) => {
            Some(a.clone().narrowed(b.clone()))
        }
        (operators::MODULO, [a, b])
            if a.takes(b) && (a.is_open() || matches!(a, Type::Int | Type::Uint)) && *b != Type::Double =>
        {
            Some(a.clone().narrowed(b.clone()))
        }
        _ => None,
    }
}

fn optional_once(inner: Type) -> Type {
    if matches!(inner, Type::Optional(_)) { inner } else { Type::optional(inner) }
}

fn indexed(container: &Type, index: &Type) -> Option<Type> {
    match container {
        Type::List(element) if index.is_open() || index.is_number() => Some((**element).clone()),
        Type::Map(key, value) if key.takes(index) => Some((**value).clone()),
        Type::Optional(inner) => indexed(inner, index).map(optional_once),
        open if open.is_open() => Some(Type::Dyn),
        _ => None,
    }
}

fn are_ordered(a: &Type, b: &Type) -> bool {
    let simple = |a: &Type| {
        a.is_open()
            || a.is_number()
            || matches!(a, Type::Bool | Type::String | Type::Bytes | Type::Duration | Type::Timestamp)
    };
    simple(a) && simple(b) && (a.takes(b) || a.is_number() && b.is_number())
}

fn sum(a: &Type, b: &Type) -> Option<Type> {
    let adds = |a: &Type| {
        a.is_open()
            || a.is_number()
            || matches!(a, Type::String | Type::Bytes | Type::Duration | Type::List(_))
    };
    match (a, b) {
        (Type::Timestamp, Type::Duration) | (Type::Duration, Type::Timestamp) => Some(Type::Timestamp),
        (Type::Timestamp, open) | (open, Type::Timestamp) if open.is_open() => Some(Type::Timestamp),
        _ => (a.takes(b) && adds(a) && adds(b)).then(|| a.clone().narrowed(b.clone())),
    }
}

fn difference(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (Type::Timestamp, Type::Duration) => Some(Type::Timestamp),
        (Type::Timestamp, Type::Timestamp) => Some(Type::Duration),
        (Type::String | Type::Bytes | Type::List(_), _) | (_, Type::String | Type::Bytes | Type::List(_)) => {
            None
        }
        _ => sum(a, b),
    }
}
