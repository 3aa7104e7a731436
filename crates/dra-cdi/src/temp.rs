//! A temporary file that becomes a CDI file by being renamed, or vanishes.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::error::{Doing, Failed};
use crate::folder::Folder;
use crate::{fault, file_name};

/// A new file beside the one that it will replace: runtimes notice a rename within the folder only, and the file gets the
/// folder's `SELinux` type. Dropped before [`rename_to`](Self::rename_to) succeeded it is removed, so no error leaves one behind.
pub(crate) struct Temp<'a> {
    folder: &'a Folder,
    name: String,
    file: File,
    renamed: bool,
}

impl<'a> Temp<'a> {
    /// Makes a new file whose name is derived from `name` and is not one that a runtime loads.
    pub(crate) fn create(folder: &'a Folder, name: &str) -> Result<Self, Failed> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        loop {
            let name = file_name::temp(name, random());
            let opened = fault::point("cdi.create")
                .and_then(|()| openat(folder, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR));
            match opened {
                // 64 random bits met a file of that name: draw again.
                Err(Errno::EEXIST) => {}
                other => {
                    let file = File::from(other.doing("making a temporary file for")?);
                    return Ok(Self { folder, name, file, renamed: false });
                }
            }
        }
    }

    /// Writes the whole content, sets the mode whatever the umask is, and makes both durable.
    pub(crate) fn fill(&mut self, bytes: &[u8], mode: u32) -> Result<(), Failed> {
        fault::point("cdi.write").doing("writing")?;
        self.file.write_all(bytes).doing("writing")?;
        fault::point("cdi.chmod").doing("setting the mode of")?;
        fchmod(&self.file, Mode::from_bits_truncate(mode)).doing("setting the mode of")?;
        fault::point("cdi.fsync-file").doing("syncing")?;
        self.file.sync_all().doing("syncing")
    }

    /// Puts the file in the place of `name`, which may exist.
    pub(crate) fn rename_to(mut self, name: &str) -> Result<(), Failed> {
        fault::point("cdi.rename")
            .and_then(|()| renameat(self.folder, self.name.as_str(), self.folder, name))
            .doing("renaming a temporary file to")?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // A file that cannot be removed now is left to the sweep.
            let _ = fault::point("cdi.unlink-temp")
                .and_then(|()| unlinkat(self.folder, self.name.as_str(), UnlinkatFlags::NoRemoveDir));
        }
    }
}

/// 64 random bits, from the keys that the standard library draws for its hash maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::Error;
    use crate::folder;

    #[test]
    fn a_folder_that_was_deleted_while_it_is_open_is_an_error_of_its_own() {
        // What a driver's pod sees when the host's folder is deleted under its bind mount.
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cdi");
        let folder = folder::open_or_create(&path).unwrap();
        std::fs::remove_dir(&path).unwrap();
        let failed = Temp::create(&folder, "x.json").err().unwrap();
        assert!(matches!(failed.on(Path::new("/cdi/x.json")), Error::Gone { .. }), "{failed:?}");
    }

    #[test]
    fn a_temporary_file_that_is_not_renamed_vanishes() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder::open_or_create(root.path()).unwrap();
        let mut temp = Temp::create(&folder, "x.json").unwrap();
        temp.fill(b"x", 0o644).unwrap();
        assert_eq!(std::fs::read(root.path().join(&temp.name)).unwrap(), b"x");
        drop(temp);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
