//! Lets a test take a step of the SDK away and see that somebody notices. Compiled to nothing without the private
//! feature `__fault`.

/// Whether the step is named in the environment variable `DRA_SKIP`.
#[cfg(feature = "__fault")]
pub(crate) fn skips(step: &str) -> bool {
    std::env::var("DRA_SKIP").is_ok_and(|skipped| skipped.split(',').any(|name| name == step))
}

/// Never.
#[cfg(not(feature = "__fault"))]
pub(crate) fn skips(_step: &str) -> bool {
    false
}
