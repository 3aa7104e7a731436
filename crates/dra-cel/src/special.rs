//! Calls that are no functions: macros that the parser leaves alone, and names with a namespace.

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};

use crate::error::SelectorError;
use crate::signatures;

/// Such a call.
#[derive(Debug)]
pub(crate) enum Special<'a> {
    /// `cel.bind(name, value, body)`
    Bind { name: &'a str, value: &'a IdedExpr, body: &'a IdedExpr },
    /// `target.optMap(name, body)` or `target.optFlatMap(name, body)`
    OptMap { target: &'a IdedExpr, name: &'a str, body: &'a IdedExpr, is_flat: bool },
    /// `sets.contains(…)`, which parses like a method of a variable `sets`.
    Namespaced { name: String },
}

/// What is special about a call.
///
/// # Errors
/// If it is a macro with a wrong first argument, or one that is not supported here.
pub(crate) fn of(
    call: &CallExpr,
    is_variable: impl Fn(&str) -> bool,
) -> Result<Option<Special<'_>>, SelectorError> {
    let Some(target) = call.target.as_deref() else { return Ok(None) };
    let name = call.func_name.as_str();
    let namespace = match &target.expr {
        Expr::Ident(namespace) if !is_variable(namespace) => Some(namespace.as_str()),
        _ => None,
    };
    match (namespace, name, call.args.as_slice()) {
        (Some("cel"), "bind", [variable, value, body]) => {
            Ok(Some(Special::Bind { name: simple_name(variable)?, value, body }))
        }
        (_, "optMap" | "optFlatMap", [variable, body]) => {
            let name = simple_name(variable)?;
            Ok(Some(Special::OptMap { target, name, body, is_flat: call.func_name == "optFlatMap" }))
        }
        (_, "all" | "exists" | "existsOne" | "exists_one", [_, _, _])
        | (_, "transformList" | "transformMap" | "transformMapEntry" | "sortBy", _) => {
            Err(SelectorError::Unsupported(format!("the macro {name} with {} arguments", call.args.len())))
        }
        // Kubernetes checks texts for `format` beforehand, by rules of their own.
        (_, "format", [_]) | (_, "unwrap" | "unwrapOpt" | "first" | "last", _) => {
            Err(SelectorError::Unsupported(format!("the function {name}")))
        }
        (Some(namespace), ..) => {
            let name = format!("{namespace}.{name}");
            Ok(signatures::is_known(&name, false).then_some(Special::Namespaced { name }))
        }
        _ => Ok(None),
    }
}

fn simple_name(expression: &IdedExpr) -> Result<&str, SelectorError> {
    match &expression.expr {
        Expr::Ident(name) => Ok(name),
        _ => Err(SelectorError::Invalid("argument must be a simple name".into())),
    }
}
