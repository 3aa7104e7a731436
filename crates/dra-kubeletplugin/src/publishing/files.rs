//! The two lock files, as they are used by one instance.

use std::path::Path;

use super::turn::Waiting;
use crate::lock::{LockError, LockFile, Mode, Span};

/// The locks that say who publishes and who wants to.
///
/// A waiting instance locks a byte instead of writing its number down, so that none of its traces outlives it, several
/// can wait at once, and nobody waits for the lock of a queue.
#[derive(Debug)]
pub(crate) struct Files {
    lock: LockFile,
    next: LockFile,
    number: u64,
    /// What the lock file says about this instance.
    note: String,
}

impl Files {
    /// Opens both files; nothing is locked yet. `number` is that of this instance's start.
    pub(crate) fn open(data: &Path, number: u64, pod_uid: Option<&str>) -> Result<Self, LockError> {
        let pod = pod_uid.map_or_else(|| "rolling updates off".to_owned(), |uid| format!("pod {uid}"));
        Ok(Self {
            lock: LockFile::open(&data.join("publish.lock"))?,
            next: LockFile::open(&data.join("publish.next"))?,
            number,
            note: format!("pid {}, {pod}\n", std::process::id()),
        })
    }

    /// Takes the lock if it is free.
    pub(super) fn take(&self) -> Result<bool, LockError> {
        let taken = self.lock.try_lock(Span::WHOLE, Mode::Exclusive)?;
        if taken && let Err(error) = self.lock.write_note(&self.note) {
            // Only people read it.
            tracing::debug!(%error, "no note in the lock file");
        }
        Ok(taken)
    }

    /// Lets go of the lock.
    pub(super) fn release(&self) -> Result<(), LockError> {
        self.lock.unlock(Span::WHOLE)
    }

    /// Says that this instance waits. Repeating it changes nothing.
    pub(super) fn queue(&self) -> Result<(), LockError> {
        // Busy only if the count of starts was lost and another instance has the same number: that one goes first.
        self.next.try_lock(Span::byte(self.number), Mode::Exclusive).map(drop)
    }

    /// Takes that back. Repeating it changes nothing.
    pub(super) fn leave_queue(&self) -> Result<(), LockError> {
        self.next.unlock(Span::WHOLE)
    }

    /// Who else waits.
    pub(super) fn waiting(&self) -> Result<Waiting, LockError> {
        if !self.next.is_free(Span::behind(self.number))? {
            return Ok(Waiting::Newer);
        }
        Ok(if self.next.is_free(Span::WHOLE)? { Waiting::Nobody } else { Waiting::Older })
    }

    /// What another holder of the lock has said about itself.
    pub(super) fn other_holder(&self) -> Option<String> {
        let note = self.lock.read_note().ok().filter(|note| *note != self.note)?;
        Some(note.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_lock_and_all_see_who_waits() {
        let folder = tempfile::tempdir().unwrap();
        let open = |number| Files::open(folder.path(), number, Some(&format!("u{number}"))).unwrap();
        let (one, two, three) = (open(1), open(2), open(3));
        assert!(one.take().unwrap() && !two.take().unwrap() && !three.take().unwrap());
        assert_eq!(one.waiting().unwrap(), Waiting::Nobody);
        for _ in 0..2 {
            two.queue().unwrap();
        }
        assert_eq!((one.waiting().unwrap(), two.waiting().unwrap()), (Waiting::Newer, Waiting::Nobody));
        assert_eq!(three.waiting().unwrap(), Waiting::Older);
        three.queue().unwrap();
        assert_eq!(two.waiting().unwrap(), Waiting::Newer);
        assert_eq!(two.other_holder(), Some(format!("pid {}, pod u1", std::process::id())));
        assert_eq!(one.other_holder(), None);

        // Death.
        drop((one, three));
        assert_eq!(two.waiting().unwrap(), Waiting::Nobody);
        assert!(two.take().unwrap());
        two.leave_queue().unwrap();
        let four = open(4);
        assert_eq!(four.waiting().unwrap(), Waiting::Nobody);
        two.release().unwrap();
        assert!(four.take().unwrap());
    }
}
