//! SHA-256 as text.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The digest as 64 hex digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
