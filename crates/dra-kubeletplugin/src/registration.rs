//! Registration with the kubelet: the socket that it finds, what it is told, and what came of it.

mod server;
mod state;
mod sweep;

pub(crate) use server::RegistrationServer;
pub use state::Registration;
pub(crate) use state::{Event, Events, follow};
pub(crate) use sweep::{Sweep, sweep_dead_sockets};
