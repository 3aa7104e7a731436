//! The gRPC services on the DRA socket.

mod connection;
mod dra;
mod health;
mod serve;

pub(crate) use dra::SUPPORTED_VERSIONS;
pub(crate) use serve::{DraServer, Served};
