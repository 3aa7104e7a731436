//! The types of CEL, as far as a check before the evaluation can know them.

use std::fmt;

use kube_cel::cel::Value;
use kube_cel::cel::objects::OptionalValue;

use crate::domains::Domains;

/// Type of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// Known only when evaluated; anything goes.
    Dyn,
    /// An attribute while list attributes are off: like `Dyn`, but it has no fields and is not a range.
    Any,
    /// Whatever the place wants, such as the elements of `[]`.
    Free,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    Duration,
    Timestamp,
    /// The type of a type, such as `int` in `type(x) == int`.
    Kind,
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
    Optional(Box<Self>),
    /// A type of the Kubernetes libraries, such as `kubernetes.Quantity`.
    Object(&'static str),
    /// The variable `device`.
    Device,
}

pub(crate) const QUANTITY: Type = Type::Object("kubernetes.Quantity");
const OBJECTS: [&str; 6] =
    ["kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.Format", "net.IP", "net.CIDR"];

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    pub(crate) fn optional(inner: Self) -> Self {
        Self::Optional(Box::new(inner))
    }

    /// The type of the Kubernetes libraries with this name.
    pub(crate) fn object(name: &str) -> Option<Self> {
        OBJECTS.into_iter().find(|known| *known == name).map(Self::Object)
    }

    /// Whether only the evaluation will tell.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Free)
    }

    /// Whether this is the very same type, as the elements of a list must have.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Free, _) | (_, Self::Free) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_same(b),
            (Self::Map(a, c), Self::Map(b, d)) => a.is_same(b) && c.is_same(d),
            _ => self == other,
        }
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value of type `other` may stand where this one is wanted.
    pub(crate) fn takes(&self, other: &Self) -> bool {
        if self.is_open() || other.is_open() {
            return true;
        }
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.takes(b),
            (Self::Map(a, c), Self::Map(b, d)) => a.takes(b) && c.takes(d),
            _ => self == other,
        }
    }

    /// The more exact one of two types that fit each other.
    pub(crate) fn narrowed(self, other: Self) -> Self {
        match (self, other) {
            (open, other) if open.is_open() => other,
            (Self::List(a), Self::List(b)) => Self::list(a.narrowed(*b)),
            (Self::Map(a, c), Self::Map(b, d)) => Self::map(a.narrowed(*b), c.narrowed(*d)),
            (Self::Optional(a), Self::Optional(b)) => Self::optional(a.narrowed(*b)),
            (this, _) => this,
        }
    }

    /// The type of a value.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Self::Bool,
            Value::Int(_) => Self::Int,
            Value::UInt(_) => Self::Uint,
            Value::Float(_) => Self::Double,
            Value::String(_) => Self::String,
            Value::Bytes(_) => Self::Bytes,
            Value::Null => Self::Null,
            Value::Duration(_) => Self::Duration,
            Value::Timestamp(_) => Self::Timestamp,
            Value::List(_) => Self::list(Self::Dyn),
            Value::Map(_) => Self::map(Self::Dyn, Self::Dyn),
            Value::Function(..) => Self::Dyn,
            Value::Opaque(opaque) if opaque.downcast_ref::<Domains>().is_some() => {
                Self::map(Self::String, Self::Dyn)
            }
            Value::Opaque(opaque) if opaque.downcast_ref::<OptionalValue>().is_some() => {
                Self::optional(Self::Dyn)
            }
            Value::Opaque(opaque) => Self::object(opaque.runtime_type_name()).unwrap_or(Self::Dyn),
        }
    }

    /// The name without parameters: `list` for each list.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Dyn | Self::Free => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Null => "null_type",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Kind => "type",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Object(name) => name,
            Self::Device => "kubernetes.DRADevice",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(element) | Self::Optional(element) => write!(f, "{}({element})", self.name()),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            simple => f.write_str(simple.name()),
        }
    }
}
