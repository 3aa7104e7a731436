//! Points at which a test can make this crate crash or fail. Without the private feature `__fault` they do nothing.
//!
//! `DRA_FAULT_POINT=<point>[:<n>]` aborts the process at the n-th (default: first) passing of a point; `*` is any point.
//! `DRA_FAULT_ERRNO=<point>[:<n>]=<errno name>` makes the step behind the point fail with that error instead, at each
//! passing or only at the n-th.

/// Stands before each step that changes the disk.
///
/// # Errors
/// The error that a test asked for.
#[cfg(not(feature = "__fault"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature on it can fail")]
pub(crate) fn point(_name: &str) -> nix::Result<()> {
    Ok(())
}

#[cfg(feature = "__fault")]
pub use enabled::point;

#[cfg(feature = "__fault")]
mod enabled {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use nix::errno::Errno;

    static PASSED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

    /// Aborts or fails if the environment says so.
    ///
    /// # Errors
    ///
    /// The error that a test asked for.
    pub fn point(name: &str) -> nix::Result<()> {
        if let Ok(wanted) = std::env::var("DRA_FAULT_POINT") {
            let (point, nth) = wanted.rsplit_once(':').unwrap_or((&wanted, "1"));
            if (point == "*" || point == name) && pass(point).to_string() == nth {
                eprintln!("dying at fault point {name}");
                std::process::abort();
            }
        }
        let wanted = std::env::var("DRA_FAULT_ERRNO").unwrap_or_default();
        let Some((wanted, errno)) = wanted.split_once('=') else { return Ok(()) };
        let fails = match wanted.rsplit_once(':') {
            Some((point, nth)) => point == name && pass(&format!("{point} fails")).to_string() == nth,
            None => wanted == name,
        };
        if fails { Err(errno_named(errno)) } else { Ok(()) }
    }

    /// Counts a passing, the first being 1.
    fn pass(point: &str) -> u64 {
        let mut passed = PASSED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = passed.get_or_insert_default().entry(point.to_owned()).or_insert(0);
        *count += 1;
        *count
    }

    fn errno_named(name: &str) -> Errno {
        match name {
            "ENOSPC" => Errno::ENOSPC,
            "EDQUOT" => Errno::EDQUOT,
            "EROFS" => Errno::EROFS,
            "EACCES" => Errno::EACCES,
            _ => Errno::EIO,
        }
    }
}
