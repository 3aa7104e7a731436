//! Texts that the library writes into buffers.

use std::ffi::c_char;

/// The text up to the first NUL, or to the end of the buffer if there is none. What is not UTF-8 is replaced.
pub(crate) fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> Vec<c_char> {
        bytes.iter().map(|byte| c_char::from_ne_bytes([*byte])).collect()
    }

    #[test]
    fn a_text_ends_at_nul_or_with_its_buffer_and_odd_bytes_are_replaced() {
        assert_eq!(text(&buffer(b"abc\0def")), "abc");
        assert_eq!(text(&buffer(b"abc")), "abc");
        assert_eq!(text(&buffer(b"")), "");
        assert_eq!(text(&buffer(b"a\xffb\0")), "a\u{fffd}b");
    }
}
