//! A spec as JSON that a YAML parser reads the same way.
//!
//! Container runtimes read `.json` files with a YAML parser, which refuses some characters that JSON allows to stand
//! unescaped, and reads others as line breaks.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::edits::ContainerEdits;
use crate::name::Kind;
use crate::spec::{Device, Spec};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    cdi_version: &'static str,
    kind: &'a Kind,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "ContainerEdits::is_empty")]
    container_edits: &'a ContainerEdits,
    devices: &'a [Device],
}

/// The bytes of a CDI file: one line, in an order that depends on the content alone.
#[expect(clippy::expect_used, reason = "see the message")]
pub(crate) fn encode(spec: &Spec) -> Vec<u8> {
    let file = File {
        cdi_version: spec.version().as_str(),
        kind: spec.kind(),
        annotations: spec.annotations(),
        container_edits: spec.edits(),
        devices: spec.devices(),
    };
    let mut bytes = Vec::new();
    file.serialize(&mut Serializer::with_formatter(&mut bytes, YamlSafe))
        .expect("a Vec takes any write, keys are strings, and Spec holds only UTF-8 paths");
    bytes.push(b'\n');
    bytes
}

/// Compact JSON that escapes what a YAML 1.1 parser refuses or folds.
struct YamlSafe;

impl Formatter for YamlSafe {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut plain_from = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| needs_escape(*c)) {
            writer.write_all(&fragment.as_bytes()[plain_from..at])?;
            write!(writer, "\\u{:04x}", u32::from(c))?;
            plain_from = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[plain_from..])
    }
}

/// Whether `c` must not stand raw: delete and the C1 controls (next line among them), the line and paragraph separators, the
/// byte order mark and the two non-characters of the basic plane. All fit four hex digits, so no surrogate pair, which a
/// YAML parser refuses, is ever written.
fn needs_escape(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &str) -> String {
        let edits = ContainerEdits::new().env("A", value);
        let spec = Spec::new(
            "vendor.com/class".parse().unwrap(),
            ContainerEdits::new(),
            [("dev".parse().unwrap(), edits)],
        );
        String::from_utf8(spec.unwrap().encode()).unwrap()
    }

    #[test]
    fn a_file_is_one_line_of_json_with_fields_in_a_fixed_order() {
        let expected = r#"{"cdiVersion":"0.3.0","kind":"vendor.com/class","devices":[{"name":"dev","containerEdits":{"env":["A=1"]}}]}"#;
        assert_eq!(encoded("1"), format!("{expected}\n"));
    }

    #[test]
    fn characters_that_a_yaml_parser_refuses_are_escaped() {
        for c in [
            '\u{7f}', '\u{80}', '\u{85}', '\u{9f}', '\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}',
            '\u{ffff}',
        ] {
            let text = encoded(&format!("a{c}b{c}"));
            let escape = format!("\\u{:04x}", u32::from(c));
            assert!(text.contains(&format!("A=a{escape}b{escape}\"")), "{text}");
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["devices"][0]["containerEdits"]["env"][0], format!("A=a{c}b{c}"));
        }
    }

    #[test]
    fn other_characters_stand_as_they_are_and_slashes_are_never_escaped() {
        assert!(encoded("/é\u{a0}\u{fffd}😀 日本").contains("A=/é\u{a0}\u{fffd}😀 日本\""));
        assert!(encoded("\t\n\r\u{1}\"\\").contains(r#"A=\t\n\r\u0001\"\\""#));
    }
}
