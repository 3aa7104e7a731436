//! An expression as text again, in one spelling. The parser does not keep where the parts of an expression stood.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

/// The text of an expression. Macros other than `all` and `exists` are cut to their name.
pub(crate) fn of(expression: &IdedExpr) -> String {
    within(expression, 0)
}

/// The text as it has to stand within an operator that binds so tightly.
fn within(expression: &IdedExpr, binding: u8) -> String {
    match &expression.expr {
        Expr::Literal(value) => literal(value),
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => {
            let path = format!("{}.{}", within(&select.operand, u8::MAX), select.field);
            if select.test { format!("has({path})") } else { path }
        }
        Expr::List(list) => format!("[{}]", joined(&list.elements)),
        Expr::Map(map) => {
            let entries = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => format!("{}: {}", of(&entry.key), of(&entry.value)),
                EntryExpr::StructField(field) => format!("{}: {}", field.field, of(&field.value)),
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Expr::Call(call) => called(call, binding),
        Expr::Comprehension(comprehension) => macro_call(comprehension),
        Expr::Struct(message) => format!("{}{{…}}", message.type_name),
        Expr::Unspecified => "…".into(),
    }
}

fn called(call: &CallExpr, binding: u8) -> String {
    let name = call.func_name.as_str();
    match (name, call.args.as_slice()) {
        (operators::INDEX, [map, key]) => format!("{}[{}]", within(map, u8::MAX), of(key)),
        (operators::OPT_INDEX, [map, key]) => format!("{}[?{}]", within(map, u8::MAX), of(key)),
        (operators::OPT_SELECT, [map, key]) => {
            let field = match &key.expr {
                Expr::Literal(LiteralValue::String(field)) => field.inner().to_owned(),
                _ => of(key),
            };
            format!("{}.?{field}", within(map, u8::MAX))
        }
        (operators::LOGICAL_NOT, [a]) => format!("!{}", within(a, u8::MAX)),
        (operators::NEGATE, [a]) => format!("-{}", within(a, u8::MAX)),
        (operators::CONDITIONAL, [condition, a, b]) => {
            in_brackets(format!("{} ? {} : {}", within(condition, 1), within(a, 1), of(b)), binding > 0)
        }
        (_, [a, b]) if infix(name).is_some() => {
            let (sign, own) = infix(name).unwrap_or_default();
            // What follows on the right has to bind tighter, but for operators where it makes no difference.
            let right = if own <= 2 { own } else { own + 1 };
            in_brackets(format!("{} {sign} {}", within(a, own), within(b, right)), own < binding)
        }
        _ => {
            let arguments = joined(&call.args);
            match &call.target {
                Some(target) => format!("{}.{name}({arguments})", within(target, u8::MAX)),
                None => format!("{name}({arguments})"),
            }
        }
    }
}

/// The sign of an operator between two values, and how tightly it binds.
fn infix(name: &str) -> Option<(&'static str, u8)> {
    Some(match name {
        operators::LOGICAL_OR => ("||", 1),
        operators::LOGICAL_AND => ("&&", 2),
        operators::EQUALS => ("==", 3),
        operators::NOT_EQUALS => ("!=", 3),
        operators::LESS => ("<", 3),
        operators::LESS_EQUALS => ("<=", 3),
        operators::GREATER => (">", 3),
        operators::GREATER_EQUALS => (">=", 3),
        operators::IN => ("in", 3),
        operators::ADD => ("+", 4),
        operators::SUBSTRACT => ("-", 4),
        operators::MULTIPLY => ("*", 5),
        operators::DIVIDE => ("/", 5),
        operators::MODULO => ("%", 5),
        _ => return None,
    })
}

fn in_brackets(text: String, needed: bool) -> String {
    if needed { format!("({text})") } else { text }
}

/// `all` and `exists` as they were written: the parser has made loops of them.
fn macro_call(loop_: &ComprehensionExpr) -> String {
    let range = within(&loop_.iter_range, u8::MAX);
    let name = match &loop_.accu_init.expr {
        Expr::Literal(LiteralValue::Boolean(start)) => Some(if *start.inner() { "all" } else { "exists" }),
        _ => None,
    };
    match (name, &loop_.loop_step.expr) {
        (Some(name), Expr::Call(step)) if step.args.len() == 2 => {
            format!("{range}.{name}({}, {})", loop_.iter_var, of(&step.args[1]))
        }
        _ => format!("{range}.…({}, …)", loop_.iter_var),
    }
}

fn joined(expressions: &[IdedExpr]) -> String {
    expressions.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn literal(value: &LiteralValue) -> String {
    match value {
        LiteralValue::Boolean(value) => value.inner().to_string(),
        LiteralValue::Bytes(value) => format!("b{:?}", String::from_utf8_lossy(value.inner())),
        LiteralValue::Double(value) => format!("{:?}", value.inner()),
        LiteralValue::Int(value) => value.inner().to_string(),
        LiteralValue::Null => "null".into(),
        LiteralValue::String(text) => quoted(text.inner()),
        LiteralValue::UInt(value) => format!("{}u", value.inner()),
    }
}

/// A text in single quotes, as most selectors have them.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::parser::Parser;

    use super::*;

    #[test]
    fn the_text_of_a_parsed_expression_parses_to_the_same() {
        let parse =
            |text: &str| Parser::new().enable_optional_syntax(true).parse(text).expect("an expression");
        for (written, spelled) in [
            ("device.driver==\"a\"", "device.driver == 'a'"),
            ("a&&b||c && !(d||e)", "a && b || c && !(d || e)"),
            ("(a||b)&&c", "(a || b) && c"),
            ("1-(2-3)*4 <= -x", "1 - (2 - 3) * 4 <= -x"),
            ("device.attributes['d'].x in [1,2u,1.0]", "device.attributes['d'].x in [1, 2u, 1.0]"),
            ("has(device.attributes['d'].x)?a:b", "has(device.attributes['d'].x) ? a : b"),
            ("quantity('1Gi').compareTo(x)>0", "quantity('1Gi').compareTo(x) > 0"),
            ("[1].exists(i,i==1)", "[1].exists(i, i == 1)"),
            ("device.attributes.all(d, d != 'x')", "device.attributes.all(d, d != 'x')"),
            ("{'a':true}[?'b'].orValue(false)", "{'a': true}[?'b'].orValue(false)"),
            ("a.?b.orValue('it\\'s')", "a.?b.orValue('it\\'s')"),
        ] {
            let parsed = parse(written);
            assert_eq!(of(&parsed), spelled);
            assert_eq!(of(&parse(spelled)), spelled, "the spelling is stable");
        }
    }
}
