//! Functions of literals that Kubernetes computes, or looks at, before it stores an expression.

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};

use crate::error::SelectorError;
use crate::{eval, library};

/// # Errors
/// If the function must fail whatever the device is: a text that is no number, a pattern that is no regular expression.
pub(crate) fn check(
    name: &str,
    target: Option<&IdedExpr>,
    arguments: &[IdedExpr],
) -> Result<(), SelectorError> {
    let literal = |argument: &IdedExpr| matches!(argument.expr, Expr::Literal(_));
    let result = match (name, target, arguments) {
        (
            "bool" | "bytes" | "double" | "duration" | "int" | "string" | "timestamp" | "uint",
            None,
            [argument],
        ) if literal(argument) => value(name, arguments),
        ("matches", None, [_, pattern]) | ("matches" | "find" | "findAll", Some(_), [pattern, ..])
            if literal(pattern) =>
        {
            eval::evaluate(pattern, &Value::Null)
                .and_then(|pattern| library::call("find", Some(Value::from("")), vec![pattern]))
        }
        _ => return Ok(()),
    };
    match result {
        Err(SelectorError::Failed(reason)) => Err(SelectorError::Invalid(reason)),
        _ => Ok(()),
    }
}

fn value(name: &str, arguments: &[IdedExpr]) -> Result<Value, SelectorError> {
    let call = CallExpr { func_name: name.to_owned(), target: None, args: arguments.to_vec() };
    eval::evaluate(&IdedExpr { id: 0, expr: Expr::Call(call) }, &Value::Null)
}
