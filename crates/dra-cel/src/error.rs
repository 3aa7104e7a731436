//! Why a selector gives no answer.

/// Longest expression that the API server takes, in bytes.
pub(crate) const MAX_LENGTH: usize = 10 * 1024;

/// Cost at which the scheduler gives an expression up.
pub(crate) const MAX_COST: u64 = 1_000_000;

/// Why a selector gives no answer. Where Kubernetes would say something too, the text has its words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The API server refuses the expression for its length.
    #[error("the expression is {0} bytes long: at most {MAX_LENGTH} are allowed")]
    TooLong(usize),

    /// The API server refuses the expression: it does not parse, or its types do not fit.
    #[error("compilation failed: {0}")]
    Invalid(String),

    /// The API server refuses the expression: it gives something else than true or false. Holds the type.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    NotBool(String),

    /// The device lacks an attribute or a capacity. Holds its name, without the domain.
    ///
    /// The scheduler gives up the whole pod then, not only this device: test with `"name" in domain` first.
    #[error("no such key: {0}")]
    NoSuchKey(String),

    /// A function or an operator does not take such values.
    #[error("no such overload: {0}")]
    NoSuchOverload(String),

    /// The result for this device is neither true nor false. Holds its type.
    #[error("CEL result of type {0} could not be converted to bool")]
    ResultNotBool(String),

    /// The evaluation costs more than 1,000,000 units. What is counted is a lower bound of what Kubernetes counts.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,

    /// Anything else that fails for this device: a division by zero, a text that is no number.
    #[error("{0}")]
    Failed(String),

    /// A value of the device cannot be used. The API server would not have taken it.
    #[error("attribute {name}: {reason}")]
    BadDevice {
        /// Name of the attribute or capacity as it is published.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Kubernetes may know an answer; this crate does not.
    #[error("cannot evaluate {0}: this is not supported here, although Kubernetes may know it")]
    Unsupported(String),
}

impl SelectorError {
    /// Whether the API server refuses to store the expression, whatever the devices are.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::TooLong(_) | Self::Invalid(_) | Self::NotBool(_))
    }
}
