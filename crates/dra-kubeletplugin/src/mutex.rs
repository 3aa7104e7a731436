//! Locking what is held only for moments.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing panics while it holds one of these locks, so the content of a poisoned one is as good as any.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
