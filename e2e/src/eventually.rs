//! Waiting for what others bring about.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL: Duration = Duration::from_millis(100);

/// Asks `look` until it finds something.
///
/// # Errors
/// `look` fails, or has found nothing after `within`; `what` says what was waited for.
pub(crate) async fn eventually<T, F: Future<Output = Result<Option<T>>>>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if start.elapsed() >= within {
            bail!("not within {} s: {what}", within.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}
