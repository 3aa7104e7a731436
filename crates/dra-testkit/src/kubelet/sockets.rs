//! The registration sockets in the registry folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Tells a socket from a later one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// Inodes are used again soon after an unlink, so the time of creation tells too.
    created: (i64, i64),
}

/// The sockets by path.
pub(super) type Sockets = BTreeMap<PathBuf, Identity>;

/// All sockets in the folder and its sub-folders whose names do not start with a dot. Links are followed.
///
/// # Errors
/// If the folder cannot be read; what vanishes meanwhile is no error.
pub(super) fn scan(folder: &Path) -> io::Result<Sockets> {
    let mut found = Sockets::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if next == folder => return Err(error),
            Err(_) => continue,
        };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if metadata.file_type().is_socket() && !hidden {
                found.insert(path, Identity::of(&metadata));
            }
        }
    }
    Ok(found)
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Self {
        let created = (metadata.mtime(), metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), created }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn names(sockets: &Sockets) -> Vec<&str> {
        sockets.keys().filter_map(|path| path.file_name()?.to_str()).collect()
    }

    #[test]
    fn only_sockets_without_a_dot_are_found_also_in_sub_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("sub")).expect("a folder");
        fs::write(folder.path().join("file.sock"), "").expect("a file");
        let listen = |name: &str| UnixListener::bind(folder.path().join(name)).expect("listening");
        let _open = [listen("a.sock"), listen(".b.sock"), listen("sub/c.sock")];
        assert_eq!(names(&scan(folder.path()).expect("readable")), ["a.sock", "c.sock"]);
    }

    #[test]
    fn a_renamed_socket_stays_the_same_and_a_new_one_differs() {
        let folder = tempfile::tempdir().expect("a folder");
        let (hidden, shown) = (folder.path().join(".a"), folder.path().join("a"));
        let _first = UnixListener::bind(&hidden).expect("listening");
        let identity = Identity::of(&fs::metadata(&hidden).expect("there"));
        fs::rename(&hidden, &shown).expect("renamed");
        assert_eq!(scan(folder.path()).expect("readable")[&shown], identity);
        fs::remove_file(&shown).expect("removed");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let _second = UnixListener::bind(&shown).expect("listening");
        assert_ne!(scan(folder.path()).expect("readable")[&shown], identity);
    }
}
