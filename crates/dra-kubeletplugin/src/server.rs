//! The gRPC services on the DRA socket.

mod connection;
mod dra;
mod health;

pub(crate) use connection::Connections;
pub(crate) use dra::{DraService, SUPPORTED_VERSIONS};
pub(crate) use health::HealthService;
