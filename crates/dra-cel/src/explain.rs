//! Which part of a selector a device does not satisfy, and what the device has instead.

use std::fmt;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::device::Device;
use crate::error::SelectorError;
use crate::{eval, text};

/// A part of a selector that a device does not satisfy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmet {
    /// The part of the expression, in this crate's spelling.
    pub part: String,
    /// The attributes and capacities that the part names, with their values, or nothing for those that the device lacks:
    /// `device.attributes['gpu.example.com'].model` and `'T4'`.
    pub values: Vec<(String, Option<String>)>,
    /// Why the part has no value, if it has none. The scheduler gives up the whole pod then.
    pub error: Option<SelectorError>,
}

/// `device.driver == 'a' is false: device.driver is 'b'`
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            None => write!(f, "{} is false", self.part)?,
            Some(error) => write!(f, "{} fails with {:?}", self.part, error.to_string())?,
        }
        for (number, (name, value)) in self.values.iter().enumerate() {
            f.write_str(if number == 0 { ": " } else { ", " })?;
            match value {
                Some(value) => write!(f, "{name} is {value}")?,
                None => write!(f, "the device has no {name}")?,
            }
        }
        Ok(())
    }
}

/// The smallest parts that keep the expression from being true.
pub(crate) fn unmet(expression: &IdedExpr, device: &Device) -> Vec<Unmet> {
    let mut found = Vec::new();
    blame(expression, device, &mut found);
    found
}

fn blame(expression: &IdedExpr, device: &Device, found: &mut Vec<Unmet>) {
    let value = eval::evaluate(expression, &device.variable);
    if value == Ok(Value::Bool(true)) {
        return;
    }
    if let Expr::Call(call) = &expression.expr {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, sides @ [_, _]) => {
                let is_false =
                    |side: &&IdedExpr| eval::evaluate(side, &device.variable) == Ok(Value::Bool(false));
                // A side that is false decides, whatever the other one fails with.
                let decides = sides.iter().any(|side| is_false(&side));
                for side in sides.iter().filter(|side| !decides || is_false(side)) {
                    blame(side, device, found);
                }
                return;
            }
            (operators::LOGICAL_OR, sides @ [_, _]) => {
                for side in sides {
                    blame(side, device, found);
                }
                return;
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                match eval::evaluate(condition, &device.variable) {
                    Ok(Value::Bool(true)) => blame(yes, device, found),
                    Ok(Value::Bool(false)) => blame(no, device, found),
                    _ => blame(condition, device, found),
                }
                return;
            }
            _ => {}
        }
    }
    let mut values = Vec::new();
    add_values(expression, device, &mut values);
    found.push(Unmet { part: text::of(expression), values, error: value.err() });
}

/// The attributes and capacities below an expression, each once.
fn add_values(expression: &IdedExpr, device: &Device, values: &mut Vec<(String, Option<String>)>) {
    if let Some(path) = path(expression) {
        let known = match path.as_slice() {
            ["driver"] => Some(device.texts.get("driver").cloned()),
            [kind @ ("attributes" | "capacity"), domain, id] => {
                Some(device.texts.get(&format!("{kind}/{domain}/{id}")).cloned())
            }
            _ => None,
        };
        let name = text::of(expression);
        if let Some(value) = known
            && !values.iter().any(|(known, _)| *known == name)
        {
            values.push((name, value));
        }
        return;
    }
    for part in parts(expression) {
        add_values(part, device, values);
    }
}

/// The fields and keys behind `device`: `attributes`, `gpu.example.com`, `model`.
fn path(expression: &IdedExpr) -> Option<Vec<&str>> {
    let (operand, key) = match &expression.expr {
        Expr::Ident(name) if name == "device" => return Some(Vec::new()),
        Expr::Select(select) if !select.test => (&*select.operand, select.field.as_str()),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [operand, key]) => {
                let Expr::Literal(LiteralValue::String(key)) = &key.expr else { return None };
                (operand, key.inner())
            }
            _ => return None,
        },
        _ => return None,
    };
    let mut path = path(operand)?;
    path.push(key);
    Some(path)
}

fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Select(select) => vec![&*select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter();
            entries
                .flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                    EntryExpr::StructField(_) => Vec::new(),
                })
                .collect()
        }
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(loop_) => vec![&loop_.iter_range, &loop_.loop_step],
        _ => Vec::new(),
    }
}
