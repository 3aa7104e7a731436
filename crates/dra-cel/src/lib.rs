#![doc = include_str!("../README.md")]

mod check;
mod constants;
mod device;
mod domains;
mod environment;
mod error;
mod eval;
mod explain;
mod library;
mod operators;
mod selector;
mod signatures;
mod source;
mod special;
mod text;
mod types;

pub use device::Device;
pub use environment::Environment;
pub use error::SelectorError;
pub use explain::Unmet;
pub use selector::Selector;
