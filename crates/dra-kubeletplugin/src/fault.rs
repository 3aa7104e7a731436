//! Lets a test take a step of the SDK away, kill the process before it, or make it fail, and see what comes of it.
//! Compiled to nothing without the private feature `__fault`.
//!
//! `DRA_SKIP=<step>,…` takes steps away. `DRA_FAULT_POINT=<point>[:<n>]` aborts the process at the n-th passing of a
//! point, `*` being any; `DRA_FAULT_ERRNO=<point>[:<n>]=<errno name>` makes the step behind a point fail. The points of
//! `dra-cdi` and those of this crate are counted together.

use std::io;

/// Whether the step is to be left out.
#[cfg(feature = "__fault")]
pub(crate) fn skips(step: &str) -> bool {
    std::env::var("DRA_SKIP").is_ok_and(|skipped| skipped.split(',').any(|name| name == step))
}

/// Never.
#[cfg(not(feature = "__fault"))]
pub(crate) fn skips(_step: &str) -> bool {
    false
}

/// Stands before each step that changes the disk, and before and after each call of the driver that changes something.
#[cfg(feature = "__fault")]
pub(crate) fn point(name: &str) -> io::Result<()> {
    dra_cdi::__fault_point(name).map_err(io::Error::from)
}

/// Nothing.
#[cfg(not(feature = "__fault"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature on it can fail")]
pub(crate) fn point(_name: &str) -> io::Result<()> {
    Ok(())
}
