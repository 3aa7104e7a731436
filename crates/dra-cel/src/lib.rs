#![doc = include_str!("../README.md")]

mod check;
mod constants;
mod device;
mod domains;
mod environment;
mod error;
mod eval;
mod library;
mod operators;
mod selector;
mod signatures;
mod source;
mod special;
mod types;

pub use device::Device;
pub use environment::Environment;
pub use error::SelectorError;
pub use selector::Selector;
