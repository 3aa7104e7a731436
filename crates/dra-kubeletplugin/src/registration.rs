//! Registration with the kubelet: the socket that it finds, what it is told, and what came of it.

mod overdue;
mod seen;
mod server;
mod state;
mod surroundings;
mod sweep;

pub(crate) use overdue::tell_if_overdue;
pub(crate) use seen::{ConnectionId, Peer};
pub(crate) use server::RegistrationServer;
pub use state::Registration;
pub(crate) use state::{Event, Events, follow};
pub(crate) use surroundings::Surroundings;
pub(crate) use sweep::{Sweep, keep_swept, sweep_dead_sockets};
