//! Who has locks on a file, for a reader that takes none.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};

use super::{Span, range};

/// A locked part of a file. Where several share a lock, one stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    /// Its first byte.
    pub(crate) first: u64,
    /// Its last byte; none if it goes on however long the file gets.
    pub(crate) last: Option<u64>,
    pub(crate) exclusive: bool,
}

/// A process that has a part of a file locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) file: PathBuf,
    pub(crate) locked: Locked,
}

impl Locked {
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let begins_before_end = |one: &Self, other: &Self| other.last.is_none_or(|last| one.first <= last);
        begins_before_end(self, other) && begins_before_end(other, self)
    }
}

/// The locked parts of a file, in no order; none if there is no file. Asks the kernel, so it needs no `/proc`.
pub(crate) fn locked_parts(path: &Path) -> io::Result<Vec<Locked>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut parts = Vec::new();
    // The kernel tells of one lock in the asked span: what is before and behind it is asked for next.
    let mut spans = vec![Span::WHOLE];
    while let Some(span) = spans.pop() {
        let Some(found) = first_lock(&file, span)? else { continue };
        parts.push(found);
        if found.first > span.start {
            spans.push(Span { start: span.start, length: found.first - span.start });
        }
        let end = if span.length == 0 { None } else { Some(span.start.saturating_add(span.length)) };
        match (found.last.map(|last| last.saturating_add(1)), end) {
            (Some(next), Some(end)) if next < end => spans.push(Span { start: next, length: end - next }),
            (Some(next), None) => spans.push(Span { start: next, length: 0 }),
            _ => {}
        }
    }
    Ok(parts)
}

/// A lock in the span that keeps others out, if there is one.
fn first_lock(file: &File, span: Span) -> io::Result<Option<Locked>> {
    let mut wanted = range(span, libc::F_WRLCK)?;
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut wanted))?;
    let kind = libc::c_int::from(wanted.l_type);
    if kind == libc::F_UNLCK {
        return Ok(None);
    }
    let first = u64::try_from(wanted.l_start).map_err(io::Error::other)?;
    let length = u64::try_from(wanted.l_len).map_err(io::Error::other)?;
    let last = length.checked_sub(1).map(|length| first.saturating_add(length));
    Ok(Some(Locked { first, last, exclusive: kind == libc::F_WRLCK }))
}

/// The processes that have parts of the files locked, as far as `proc` shows them to this one: the kernel tells of such
/// locks only at the descriptor that they were taken by. In a pod these are the processes of the pod.
pub(crate) fn holders(proc: &Path, files: &[PathBuf]) -> Vec<Holder> {
    let known = |file: &PathBuf| Some((file.clone(), identity(&fs::metadata(file).ok()?)));
    let files: Vec<_> = files.iter().filter_map(known).collect();
    let mut holders = Vec::new();
    for process in entries(proc) {
        let Some(pid) = name(&process).and_then(|name| name.parse().ok()) else { continue };
        for descriptor in entries(&process.join("fd")) {
            // The name first: to look at what is open behind it may block, on a dead network share say.
            let Ok(target) = fs::read_link(&descriptor) else { continue };
            let same_name = |(file, _): &(PathBuf, _)| file.file_name() == target.file_name();
            if !files.iter().any(same_name) {
                continue;
            }
            let Ok(open) = fs::metadata(&descriptor) else { continue };
            let Some((file, _)) = files.iter().find(|(_, file)| *file == identity(&open)) else { continue };
            let info = name(&descriptor).map(|number| process.join("fdinfo").join(number));
            let info = info.and_then(|info| fs::read_to_string(info).ok()).unwrap_or_default();
            let locked = info.lines().filter_map(parse);
            holders.extend(locked.map(|locked| Holder { pid, file: file.clone(), locked }));
        }
    }
    holders
}

/// The same for every path to a file, in other mounts too.
fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// What cannot be listed, as it ended meanwhile or is not ours to see, shows nothing.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Reads a line such as `lock: 1: OFDLCK  ADVISORY  WRITE -1 00:2b:1234 16 16`; the last word may be `EOF`.
fn parse(line: &str) -> Option<Locked> {
    let words: Vec<&str> = line.strip_prefix("lock:")?.split_whitespace().collect();
    let [.., kind, _pid, _file, first, last] = words[..] else { return None };
    let last = if last == "EOF" { None } else { Some(last.parse().ok()?) };
    Some(Locked { first: first.parse().ok()?, last, exclusive: kind == "WRITE" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{LockFile, Mode};

    fn locked(first: u64, last: Option<u64>, exclusive: bool) -> Locked {
        Locked { first, last, exclusive }
    }

    #[test]
    fn all_locked_parts_are_found_with_their_holder_and_none_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        assert_eq!(locked_parts(&path).unwrap(), []);
        assert!(!path.exists());
        let files: [LockFile; 3] = std::array::from_fn(|_| LockFile::open(&path).unwrap());
        for (file, span, mode) in [
            (&files[0], Span::byte(0), Mode::Exclusive),
            (&files[1], Span::byte(1 << 40), Mode::Exclusive),
            (&files[2], Span { start: 16, length: 3 }, Mode::Shared),
        ] {
            assert!(file.try_lock(span, mode).unwrap());
        }
        let expected =
            [locked(0, Some(0), true), locked(16, Some(18), false), locked(1 << 40, Some(1 << 40), true)];
        let mut parts = locked_parts(&path).unwrap();
        parts.sort_by_key(|part| part.first);
        assert_eq!(parts, expected);

        let other = folder.path().join("other");
        let mut held = holders(Path::new("/proc"), &[other, path.clone()]);
        held.sort_by_key(|holder| holder.locked.first);
        assert_eq!(
            held,
            expected.map(|locked| Holder { pid: std::process::id(), file: path.clone(), locked })
        );
        drop(files);
        assert_eq!(locked_parts(&path).unwrap(), []);
    }

    #[test]
    fn a_lock_to_the_end_is_one_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let files = [LockFile::open(&path).unwrap(), LockFile::open(&path).unwrap()];
        for file in &files {
            assert!(file.try_lock(Span::WHOLE, Mode::Shared).unwrap());
        }
        assert_eq!(locked_parts(&path).unwrap(), [locked(0, None, false)]);
        assert_eq!(holders(Path::new("/proc"), &[path]).len(), 2);
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let table = [
            ("lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2b:1234 16 16", Some(locked(16, Some(16), true))),
            ("lock:\t2: OFDLCK  ADVISORY  READ  -1 fd:01:1234 0 EOF", Some(locked(0, None, false))),
            ("lock:\t1: POSIX  ADVISORY  WRITE 77 00:2b:1234 0 5", Some(locked(0, Some(5), true))),
            ("pos:\t0", None),
            ("lock:\t1: OFDLCK", None),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn parts_overlap_if_they_have_a_byte_in_common() {
        let one = locked(16, Some(18), true);
        for (other, expected) in [
            (locked(18, Some(20), true), true),
            (locked(0, None, false), true),
            (locked(19, None, true), false),
            (locked(0, Some(15), true), false),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{other:?}");
        }
    }
}
