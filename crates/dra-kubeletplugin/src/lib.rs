#![doc = include_str!("../README.md")]

#[cfg(feature = "wire")]
pub mod wire;
#[cfg(not(feature = "wire"))]
mod wire;
