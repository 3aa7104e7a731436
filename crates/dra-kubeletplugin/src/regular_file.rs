//! Reads files that may turn out to be anything: to open a FIFO would wait for its writer.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::libc;

/// What the regular file says. Blocks on nothing but the disk.
///
/// # Errors
///
/// It cannot be read, or it is no regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let regular = |found: fs::Metadata| {
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        if found.is_file() { Ok(found) } else { Err(other()) }
    };
    // Looked at before, since to open a device may do something; and after, since it may have been replaced.
    regular(fs::metadata(path)?)?;
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let found = regular(file.metadata()?)?;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same for text.
///
/// # Errors
///
/// As [`read`], or it is not UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(io::Error::other)
}
