//! Foreign text in a line of the log.

use std::fmt::{self, Write as _};

/// Shows a value in one line: control characters are escaped. Texts of users, such as names of fields, could make lines of
/// their own otherwise.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaped(f), "{}", self.0)
    }
}

struct Escaped<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            // These two end lines for some readers.
            if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
                write!(self.0, "{}", letter.escape_default())?;
            } else {
                self.0.write_char(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_makes_a_line_of_its_own() {
        let text = "unknown field\n2026-01-01 ERROR \u{1b}[31mforged\r\u{85}\u{2028}, ümlaut\t\"quoted\"";
        let shown = OneLine(text).to_string();
        let expected =
            "unknown field\\n2026-01-01 ERROR \\u{1b}[31mforged\\r\\u{85}\\u{2028}, ümlaut\\t\"quoted\"";
        assert_eq!(shown, expected);
    }
}
