//! What kinds of devices the driver can play.

pub(crate) mod gpu;
