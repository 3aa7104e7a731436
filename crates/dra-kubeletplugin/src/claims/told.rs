//! Errors of the background that are tried again and again, told once.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::Failure;
use crate::{background::TellError, error::BackgroundError, mutex::locked};

/// An error that goes on is told again after this.
const AGAIN: Duration = Duration::from_secs(3600);

/// What has failed, with the class of the error that was told last, and when.
pub(super) struct Told {
    tell: TellError,
    last: Mutex<HashMap<String, (&'static str, Instant)>>,
}

impl Told {
    pub(super) fn new(tell: TellError) -> Self {
        Self { tell, last: Mutex::default() }
    }

    /// Something has failed: tells it, unless it was told lately.
    pub(super) fn failed(&self, what: &str, error: &Failure) {
        let (class, now) = (error.class(), Instant::now());
        {
            let mut last = locked(&self.last);
            if last.get(what).is_some_and(|(told, at)| *told == class && now - *at < AGAIN) {
                return;
            }
            last.insert(what.to_owned(), (class, now));
        }
        (self.tell)(BackgroundError::Recovery { message: format!("{what}: {error}") });
    }

    /// It has not failed any more: the next error is told.
    pub(super) fn done(&self, what: &str) {
        locked(&self.last).remove(what);
    }
}
