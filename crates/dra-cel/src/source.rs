//! A look at an expression's text before it is parsed, for what the parser cannot take.

use crate::error::SelectorError;

/// Brackets within brackets.
const MAX_NESTING: usize = 40;
/// Operators, fields and indexes in a row, without `&&`, `||` or a comma between them.
const MAX_CHAIN: usize = 150;

/// # Errors
/// If the parser would misread the text or fail on it.
pub(crate) fn check(text: &str) -> Result<(), SelectorError> {
    let mut nesting = 0_usize;
    let mut deepest = 0;
    let mut links = 0_usize;
    let mut longest = 0;
    let mut before = ' ';
    if text.contains("\"\"\"") || text.contains("'''") {
        // The parser takes no quotes within such a string.
        return Err(SelectorError::Unsupported("a string in three quotes".into()));
    }
    for c in code(text) {
        match c {
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            '&' | '|' | ',' => links = 0,
            // The parser reads two of them as one.
            '!' | '-' if before == c => {
                return Err(SelectorError::Unsupported(format!("'{c}{c}': write it once or use brackets")));
            }
            _ => {}
        }
        links +=
            usize::from(matches!(c, '.' | '[' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '?' | '!'));
        deepest = deepest.max(nesting);
        longest = longest.max(links);
        if !c.is_whitespace() {
            before = c;
        }
    }
    if deepest > MAX_NESTING {
        return Err(SelectorError::Unsupported(format!(
            "more than {MAX_NESTING} brackets within each other"
        )));
    }
    if longest > MAX_CHAIN {
        return Err(SelectorError::Unsupported(format!(
            "more than {MAX_CHAIN} operators and fields in a row"
        )));
    }
    Ok(())
}

/// The characters outside of strings and comments.
fn code(text: &str) -> impl Iterator<Item = char> {
    let mut rest = text;
    let mut before = ' ';
    std::iter::from_fn(move || {
        let c = rest.chars().next()?;
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            return Some(' ');
        }
        if c != '"' && c != '\'' {
            rest = &rest[c.len_utf8()..];
            before = c;
            return Some(c);
        }
        let is_raw = matches!(before, 'r' | 'R');
        before = c;
        rest = after_string(rest, c, is_raw);
        Some('s')
    })
}

/// The text behind a string that starts at the beginning of `text` with `quote`.
fn after_string(text: &str, quote: char, is_raw: bool) -> &str {
    let mut rest = &text[quote.len_utf8()..];
    loop {
        if let Some(behind) = rest.strip_prefix(quote) {
            return behind;
        }
        let mut characters = rest.chars();
        match characters.next() {
            None => return "",
            Some('\\') if !is_raw => {
                characters.next();
            }
            Some(_) => {}
        }
        rest = characters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_signs_are_told_outside_of_strings_only() {
        for text in ["!!true", "! !true", "1 - -1", "--1"] {
            assert!(matches!(check(text), Err(SelectorError::Unsupported(_))), "{text}");
        }
        for text in
            ["!true", "'!!' == '--'", "r'\\' == '!!'", "'\\'!!' == ''", "true // !!", "1 != 2", "!(!true)"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn deep_and_long_expressions_are_told() {
        assert_eq!(check(&"(".repeat(MAX_NESTING)), Ok(()));
        assert!(check(&"(".repeat(MAX_NESTING + 1)).is_err());
        assert!(check(&"1+".repeat(MAX_CHAIN + 1)).is_err());
        assert_eq!(check(&format!("'{}'", "(1+".repeat(1000))), Ok(()));
    }
}
