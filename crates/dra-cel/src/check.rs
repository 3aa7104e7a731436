//! The check before the evaluation: what the API server refuses because names or types do not fit.

mod operators;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
};

use crate::constants;
use crate::environment::Environment;
use crate::error::SelectorError;
use crate::signatures;
use crate::special::{self, Special};
use crate::types::{QUANTITY, Type};

/// Nesting at which Kubernetes gives an expression up.
const MAX_DEPTH: usize = 250;

/// The type of an expression.
///
/// # Errors
/// If a name is not known or types do not fit.
pub(crate) fn check(expression: &IdedExpr, environment: Environment) -> Result<Type, SelectorError> {
    Checker { environment, scope: Vec::new(), depth: 0 }.check(expression)
}

struct Checker {
    environment: Environment,
    /// Variables of macros, the innermost last.
    scope: Vec<(String, Type)>,
    depth: usize,
}

type Checked = Result<Type, SelectorError>;

fn invalid(reason: String) -> SelectorError {
    SelectorError::Invalid(reason)
}

fn no_overload(name: &str, arguments: &[Type]) -> SelectorError {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    invalid(format!("found no matching overload for '{name}' applied to '({})'", arguments.join(", ")))
}

impl Checker {
    fn check(&mut self, expression: &IdedExpr) -> Checked {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(invalid(format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        let result = match &expression.expr {
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(message) => {
                Err(SelectorError::Unsupported(format!("message {}", message.type_name)))
            }
            Expr::Unspecified => Err(invalid("Syntax error: incomplete expression".into())),
        };
        self.depth -= 1;
        result
    }

    fn ident(&self, name: &str) -> Checked {
        if let Some((_, known)) = self.scope.iter().rev().find(|(variable, _)| variable == name) {
            return Ok(known.clone());
        }
        match name {
            "device" => Ok(Type::Device),
            "bool" | "int" | "uint" | "double" | "string" | "bytes" | "list" | "map" | "null_type"
            | "type" => Ok(Type::Kind),
            _ => Err(invalid(format!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Checked {
        let operand = self.check(&select.operand)?;
        if select.test && operand == Type::Any {
            return Ok(Type::Bool);
        }
        let field = self.field(&operand, &select.field)?;
        Ok(if select.test { Type::Bool } else { field })
    }

    fn field(&self, operand: &Type, field: &str) -> Checked {
        let attribute = if self.environment.list_attributes { Type::Dyn } else { Type::Any };
        let domains = |value| Type::map(Type::String, Type::map(Type::String, value));
        match (operand, field) {
            (Type::Device, "driver") => Ok(Type::String),
            (Type::Device, "attributes") => Ok(domains(attribute)),
            (Type::Device, "capacity") => Ok(domains(QUANTITY)),
            (Type::Device, "allowMultipleAllocations") if self.environment.consumable_capacity => {
                Ok(Type::Bool)
            }
            (Type::Device, _) => Err(invalid(format!("undefined field '{field}'"))),
            (Type::Map(_, value), _) => Ok((**value).clone()),
            (Type::Dyn, _) => Ok(Type::Dyn),
            (Type::Optional(inner), _) => match self.field(inner, field)? {
                already @ Type::Optional(_) => Ok(already),
                field => Ok(Type::optional(field)),
            },
            _ => Err(invalid(format!("type '{operand}' does not support field selection"))),
        }
    }

    fn list(&mut self, list: &ListExpr) -> Checked {
        let mut element = None;
        for (index, expression) in list.elements.iter().enumerate() {
            let next = self.check(expression)?;
            let next = if list.optional_indices.contains(&index) { unwrapped(next)? } else { next };
            element = Some(same(element, next)?);
        }
        Ok(Type::list(element.unwrap_or(Type::Free)))
    }

    fn map(&mut self, map: &MapExpr) -> Checked {
        let (mut key, mut value) = (None, None);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(invalid("a map has keys and values".into()));
            };
            let next = self.check(&entry.key)?;
            key = Some(same(key, next)?);
            let next = self.check(&entry.value)?;
            let next = if entry.optional { unwrapped(next)? } else { next };
            value = Some(same(value, next)?);
        }
        Ok(Type::map(key.unwrap_or(Type::Free), value.unwrap_or(Type::Free)))
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Checked {
        let element = range_element(&self.check(&comprehension.iter_range)?)?;
        let start = self.check(&comprehension.accu_init)?;
        self.scope.push((comprehension.accu_var.clone(), start));
        self.scope.push((comprehension.iter_var.clone(), element));
        let condition = self.check(&comprehension.loop_cond)?;
        let step = self.check(&comprehension.loop_step)?;
        self.scope.pop();
        self.scope.pop();
        if !Type::Bool.takes(&condition) {
            return Err(invalid(format!("expected type 'bool' but found '{condition}'")));
        }
        self.scope.push((comprehension.accu_var.clone(), step));
        let result = self.check(&comprehension.result)?;
        self.scope.pop();
        Ok(result)
    }

    fn call(&mut self, call: &CallExpr) -> Checked {
        let is_variable = |name: &str| self.scope.iter().any(|(variable, _)| variable == name);
        match special::of(call, is_variable)? {
            Some(Special::Bind { name, value, body }) => {
                let value = self.check(value)?;
                self.with(name, value, body)
            }
            Some(Special::OptMap { target, name, body, is_flat }) => {
                let inner = unwrapped(self.check(target)?)?;
                let result = self.with(name, inner, body)?;
                match (is_flat, result) {
                    (true, Type::Optional(inner)) => Ok(Type::Optional(inner)),
                    (true, open) if open.is_open() => Ok(Type::optional(Type::Dyn)),
                    (true, other) => Err(no_overload("optFlatMap", &[other])),
                    (false, result) => Ok(Type::optional(result)),
                }
            }
            Some(Special::Namespaced { name }) => self.function(&name, None, &call.args),
            None if call.func_name.contains(['_', '@']) && call.target.is_none() => {
                let arguments: Result<Vec<Type>, _> = call.args.iter().map(|a| self.check(a)).collect();
                let (name, arguments) = (call.func_name.as_str(), arguments?);
                operators::result(name, &arguments).ok_or_else(|| no_overload(name, &arguments))
            }
            None => self.function(&call.func_name, call.target.as_deref(), &call.args),
        }
    }

    fn with(&mut self, name: &str, value: Type, body: &IdedExpr) -> Checked {
        self.scope.push((name.to_owned(), value));
        let result = self.check(body);
        self.scope.pop();
        result
    }

    fn function(&mut self, name: &str, target: Option<&IdedExpr>, arguments: &[IdedExpr]) -> Checked {
        let is_method = target.is_some();
        let is_off = name == "includes" && !self.environment.list_attributes;
        if is_off || !signatures::is_known(name, is_method) {
            return Err(invalid(format!("undeclared reference to '{name}' (in container '')")));
        }
        let types: Result<Vec<Type>, _> =
            target.into_iter().chain(arguments).map(|a| self.check(a)).collect();
        let types = types?;
        let result = signatures::result(name, is_method, &types).ok_or_else(|| no_overload(name, &types))?;
        constants::check(name, target, arguments)?;
        Ok(result)
    }
}

fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// What a macro such as `all` sees of a range.
fn range_element(range: &Type) -> Checked {
    match range {
        Type::List(element) | Type::Map(element, _) => Ok((**element).clone()),
        Type::Dyn => Ok(Type::Dyn),
        other => Err(invalid(format!(
            "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
        ))),
    }
}

/// The type of elements, which must all be of the very same one.
fn same(known: Option<Type>, next: Type) -> Checked {
    match known {
        None => Ok(next),
        Some(known) if known.is_same(&next) => Ok(known.narrowed(next)),
        Some(known) => Err(invalid(format!("expected type '{known}' but found '{next}'"))),
    }
}

fn unwrapped(optional: Type) -> Checked {
    match optional {
        Type::Optional(inner) => Ok(*inner),
        open if open.is_open() => Ok(open),
        other => Err(invalid(format!("expected type 'optional_type' but found '{other}'"))),
    }
}
