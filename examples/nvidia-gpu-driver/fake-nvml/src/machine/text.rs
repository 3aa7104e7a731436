//! Strings of the hardware, good and bad.

use serde::{Deserialize, Serialize};

/// What is written where NVML writes a string. In JSON a string, or an object with `bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Text {
    /// As it should be: UTF-8, ended by a zero byte.
    Plain(String),
    /// These bytes, as many as fit.
    #[serde(rename_all = "camelCase")]
    Raw {
        /// Need not be UTF-8.
        bytes: Vec<u8>,
        /// Leaves no zero byte anywhere in the caller's buffer: the bytes are repeated to its end.
        #[serde(default)]
        unterminated: bool,
    },
}

impl Text {
    /// The bytes without their end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(text) => text.as_bytes(),
            Self::Raw { bytes, .. } => bytes,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}
