//! The evaluation of a checked expression for one device.
//!
//! Operators, macros, fields and optional values are done here, by the rules of CEL: a false side makes `&&` false even if
//! the other one fails. Functions are those of `kube-cel`.

use std::collections::HashMap;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};
use kube_cel::cel::objects::{Key, Map, OptionalValue};

use crate::domains::Domains;
use crate::error::{MAX_COST, SelectorError};
use crate::operators as on_values;
use crate::special::{self, Special};
use crate::types::Type;
use crate::{library, signatures};

type Evaluated = Result<Value, SelectorError>;

/// The value of an expression for the device that `variable` describes.
///
/// # Errors
/// If it has none.
pub(crate) fn evaluate(expression: &IdedExpr, variable: &Value) -> Evaluated {
    Evaluation { variable, scope: Vec::new(), constants: HashMap::new(), cost: 0 }.value(expression)
}

struct Evaluation<'a> {
    /// The variable `device`.
    variable: &'a Value,
    /// Variables of macros, the innermost last. An intermediate result may be an error that a later one makes good.
    scope: Vec<(&'a str, Evaluated)>,
    /// Results of functions of literals, such as `quantity("1Gi")`, by the expression's number.
    constants: HashMap<u64, Value>,
    /// What Kubernetes counts at least: 1 for each name, field and call, 10 for a list, 30 for a map.
    cost: u64,
}

impl<'a> Evaluation<'a> {
    fn value(&mut self, expression: &'a IdedExpr) -> Evaluated {
        match &expression.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => {
                self.pay(1)?;
                self.ident(name)
            }
            Expr::Select(select) => self.select(select),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Call(call) if is_constant(call) => self.constant(expression.id, call),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(message) => {
                Err(SelectorError::Unsupported(format!("message {}", message.type_name)))
            }
            Expr::Unspecified => Err(SelectorError::Invalid("Syntax error: incomplete expression".into())),
        }
    }

    fn pay(&mut self, units: u64) -> Result<(), SelectorError> {
        self.cost += units;
        if self.cost > MAX_COST { Err(SelectorError::CostExceeded) } else { Ok(()) }
    }

    fn ident(&self, name: &str) -> Evaluated {
        if let Some((_, value)) = self.scope.iter().rev().find(|(variable, _)| *variable == name) {
            return value.clone();
        }
        match name {
            "device" => Ok(self.variable.clone()),
            _ => Err(SelectorError::Unsupported(format!("the type {name} as a value"))),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> Evaluated {
        let operand = self.value(&select.operand)?;
        self.pay(1)?;
        let field = Value::from(select.field.as_str());
        if select.test { on_values::has(&operand, &field) } else { on_values::index(&operand, &field) }
    }

    fn list(&mut self, list: &'a ListExpr) -> Evaluated {
        self.pay(10)?;
        let mut values = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let value = self.value(element)?;
            let is_optional = list.optional_indices.contains(&index);
            values.extend(entry_value(value, is_optional)?);
        }
        Ok(Value::from(values))
    }

    fn map(&mut self, map: &'a MapExpr) -> Evaluated {
        self.pay(30)?;
        let mut values = HashMap::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(SelectorError::Invalid("a map has keys and values".into()));
            };
            let key: Result<Key, Value> = self.value(&entry.key)?.try_into();
            let key = key.map_err(|key| on_values::no_overload("map", &[&key]))?;
            let value = self.value(&entry.value)?;
            values.extend(entry_value(value, entry.optional)?.map(|value| (key, value)));
        }
        Ok(Value::Map(Map { map: std::sync::Arc::new(values) }))
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Evaluated {
        let range = self.value(&comprehension.iter_range)?;
        let items = range_items(&range)?;
        let mut result = self.value(&comprehension.accu_init);
        for item in items {
            self.scope.push((&comprehension.accu_var, result.clone()));
            self.scope.push((&comprehension.iter_var, Ok(item)));
            let goes_on = self.value(&comprehension.loop_cond);
            if goes_on == Ok(Value::Bool(true)) {
                result = self.value(&comprehension.loop_step);
            }
            self.scope.pop();
            self.scope.pop();
            match (goes_on, &result) {
                (Err(error @ SelectorError::CostExceeded), _) => return Err(error),
                (_, Err(error @ SelectorError::CostExceeded)) => return Err(error.clone()),
                (Ok(Value::Bool(true)), _) => {}
                _ => break,
            }
        }
        self.with(&comprehension.accu_var, result, &comprehension.result)
    }

    fn with(&mut self, name: &'a str, value: Evaluated, body: &'a IdedExpr) -> Evaluated {
        self.scope.push((name, value));
        let result = self.value(body);
        self.scope.pop();
        result
    }

    fn constant(&mut self, id: u64, call: &'a CallExpr) -> Evaluated {
        if let Some(value) = self.constants.get(&id).cloned() {
            self.pay(1)?;
            return Ok(value);
        }
        let value = self.call(call)?;
        self.constants.insert(id, value.clone());
        Ok(value)
    }

    fn call(&mut self, call: &'a CallExpr) -> Evaluated {
        let is_variable = |name: &str| self.scope.iter().any(|(variable, _)| *variable == name);
        match special::of(call, is_variable)? {
            Some(Special::Bind { name, value, body }) => {
                // In Kubernetes, too, only `device.attributes` itself has an empty map for unknown domains.
                let value = self.value(value).map(plain);
                if value == Err(SelectorError::CostExceeded) {
                    return value;
                }
                self.with(name, value, body)
            }
            Some(Special::OptMap { target, name, body, is_flat }) => {
                self.opt_map(target, name, body, is_flat)
            }
            Some(Special::Namespaced { name }) => {
                let arguments = self.values(&call.args)?;
                self.pay(1)?;
                function(&name, None, arguments)
            }
            None if call.target.is_none() && call.func_name.contains(['_', '@']) => self.operator(call),
            None => {
                let receiver = match &call.target {
                    Some(target) => Some(self.value(target)?),
                    None => None,
                };
                let arguments = self.values(&call.args)?;
                self.pay(1)?;
                function(&call.func_name, receiver, arguments)
            }
        }
    }

    fn values(&mut self, expressions: &'a [IdedExpr]) -> Result<Vec<Value>, SelectorError> {
        expressions.iter().map(|expression| self.value(expression)).collect()
    }

    fn opt_map(
        &mut self,
        target: &'a IdedExpr,
        name: &'a str,
        body: &'a IdedExpr,
        is_flat: bool,
    ) -> Evaluated {
        let target = self.value(target)?;
        match on_values::optional(&target) {
            None => Err(on_values::no_overload("optMap", &[&target])),
            Some(optional) => {
                let Some(inner) = optional.value() else { return Ok(on_values::none()) };
                let result = self.with(name, Ok(inner.clone()), body)?;
                Ok(if is_flat { result } else { on_values::some(result) })
            }
        }
    }

    fn operator(&mut self, call: &'a CallExpr) -> Evaluated {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [a, b]) => self.either(a, b, false, &call.func_name),
            (operators::LOGICAL_OR, [a, b]) => self.either(a, b, true, &call.func_name),
            (operators::CONDITIONAL, [condition, a, b]) => match self.value(condition)? {
                Value::Bool(true) => self.value(a),
                Value::Bool(false) => self.value(b),
                other => Err(on_values::no_overload(&call.func_name, &[&other])),
            },
            (operators::NOT_STRICTLY_FALSE, [a]) => match self.value(a) {
                Err(error @ SelectorError::CostExceeded) => Err(error),
                value => Ok(Value::Bool(value != Ok(Value::Bool(false)))),
            },
            (name, arguments) => {
                let arguments = self.values(arguments)?;
                self.pay(1)?;
                on_values::apply(name, arguments)
            }
        }
    }

    /// `&&` and `||`: a side that is `decisive` decides, whatever the other one is or fails with.
    fn either(&mut self, a: &'a IdedExpr, b: &'a IdedExpr, decisive: bool, name: &str) -> Evaluated {
        let a = self.value(a);
        if a == Ok(Value::Bool(decisive)) || a == Err(SelectorError::CostExceeded) {
            return a;
        }
        let b = self.value(b);
        match (a, b) {
            (_, Ok(Value::Bool(b))) if b == decisive => Ok(Value::Bool(b)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(b))) => Ok(Value::Bool(b)),
            // The first trouble is the one that is told, but for the cost.
            (_, Err(error @ SelectorError::CostExceeded))
            | (Ok(Value::Bool(_)), Err(error))
            | (Err(error), _) => Err(error),
            (Ok(Value::Bool(_)), Ok(odd)) | (Ok(odd), _) => Err(on_values::no_overload(name, &[&odd])),
        }
    }
}

/// Whether a function has only literals as arguments.
fn is_constant(call: &CallExpr) -> bool {
    let mut arguments = call.target.as_deref().into_iter().chain(&call.args);
    arguments.all(|argument| matches!(argument.expr, Expr::Literal(_)))
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(std::sync::Arc::new(value.inner().to_vec())),
        LiteralValue::Double(value) => Value::Float(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::from(value.inner()),
        LiteralValue::UInt(value) => Value::UInt(*value.inner()),
    }
}

/// What an element of a list or a map adds to it.
fn entry_value(value: Value, is_optional: bool) -> Result<Option<Value>, SelectorError> {
    if !is_optional {
        return Ok(Some(value));
    }
    match on_values::optional(&value) {
        Some(optional) => Ok(optional.value().cloned()),
        None => Err(on_values::no_overload("optional element", &[&value])),
    }
}

/// What a macro goes over: elements, keys or domains.
fn range_items(range: &Value) -> Result<Vec<Value>, SelectorError> {
    match range {
        Value::List(list) => Ok(list.to_vec()),
        Value::Map(map) => {
            let mut keys: Vec<&Key> = map.map.keys().collect();
            keys.sort();
            Ok(keys.into_iter().map(Value::from).collect())
        }
        Value::Opaque(opaque) if opaque.downcast_ref::<Domains>().is_some() => {
            let domains = opaque.downcast_ref::<Domains>().into_iter().flat_map(Domains::names);
            Ok(domains.map(|domain| Value::from(domain.as_str())).collect())
        }
        other => {
            let found = Type::of(other);
            Err(SelectorError::Failed(format!("got '{}', expected iterable type", found.name())))
        }
    }
}

/// A function whose arguments have been evaluated.
fn function(name: &str, receiver: Option<Value>, arguments: Vec<Value>) -> Evaluated {
    let is_method = receiver.is_some();
    let all: Vec<&Value> = receiver.iter().chain(&arguments).collect();
    let types: Vec<Type> = all.iter().map(|value| Type::of(value)).collect();
    if signatures::result(name, is_method, &types).is_none() {
        return Err(on_values::no_overload(name, &all));
    }
    match (name, all.as_slice()) {
        ("dyn", [value]) | ("bool", [value @ Value::Bool(_)]) => Ok((*value).clone()),
        ("type", _) => Err(SelectorError::Unsupported("the type of a value".into())),
        ("size", [value]) => size(value),
        ("includes", [Value::List(list), wanted]) => Ok(Value::Bool(list.contains(wanted))),
        ("includes", [value, wanted]) => Ok(Value::Bool(value == wanted)),
        ("int", [Value::String(text)]) => {
            text.parse().map(Value::Int).map_err(|_| no_conversion("string", "int"))
        }
        ("bool", [Value::String(text)]) => match text.as_str() {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Value::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Value::Bool(false)),
            _ => Err(no_conversion("string", "bool")),
        },
        ("string", [Value::Bool(value)]) => Ok(Value::from(value.to_string())),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Ok(on_values::none()),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Ok(on_values::some((*value).clone())),
        ("optional.none", _) => Ok(on_values::none()),
        ("format.named", _) => match library::call(name, None, arguments)? {
            Value::Null => Ok(on_values::none()),
            format => Ok(on_values::some(format)),
        },
        ("hasValue" | "value" | "or" | "orValue", [target, rest @ ..]) => on_optional(name, target, rest),
        _ => library::call(name, receiver.map(plain), arguments.into_iter().map(plain).collect()),
    }
}

/// The value as an ordinary map, if it is one by domain.
fn plain(value: Value) -> Value {
    match &value {
        Value::Opaque(opaque) => {
            opaque.downcast_ref::<Domains>().map_or_else(|| value.clone(), Domains::to_map)
        }
        _ => value,
    }
}

fn no_conversion(from: &str, to: &str) -> SelectorError {
    SelectorError::Failed(format!("type conversion error from '{from}' to '{to}'"))
}

fn on_optional(name: &str, target: &Value, rest: &[&Value]) -> Evaluated {
    let held = on_values::optional(target).and_then(OptionalValue::value);
    match (name, held, rest) {
        ("hasValue", held, _) => Ok(Value::Bool(held.is_some())),
        ("or", Some(_), _) => Ok(target.clone()),
        ("value" | "orValue", Some(held), _) => Ok(held.clone()),
        ("or" | "orValue", None, [other]) => Ok((*other).clone()),
        _ => Err(SelectorError::Failed("optional.none() dereference".into())),
    }
}

fn size(value: &Value) -> Evaluated {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.map.len(),
        Value::Opaque(opaque) => match opaque.downcast_ref::<Domains>() {
            Some(domains) => domains.len(),
            None => return Err(on_values::no_overload("size", &[value])),
        },
        _ => return Err(on_values::no_overload("size", &[value])),
    };
    i64::try_from(size).map(Value::Int).map_err(|error| SelectorError::Failed(error.to_string()))
}
