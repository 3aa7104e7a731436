//! An environment variable, written as `NAME=VALUE`.

use serde::{Deserialize, Serialize};

/// An environment variable of a container or of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub struct EnvVar {
    /// The name: not empty, without `=`.
    pub name: String,
    /// The value.
    pub value: String,
}

impl From<EnvVar> for String {
    fn from(var: EnvVar) -> Self {
        format!("{}={}", var.name, var.value)
    }
}

impl TryFrom<String> for EnvVar {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (name, value) = text.split_once('=').ok_or("an environment variable must read NAME=VALUE")?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}
