//! Which boot of the machine this is.

use std::{fs, io};

/// Where the kernel tells it.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this boot, or the given one. It becomes the name of a folder.
pub(crate) fn boot_id(given: Option<&str>) -> io::Result<String> {
    let id = match given {
        Some(id) => id.to_owned(),
        None => fs::read_to_string(BOOT_ID)?.trim().to_owned(),
    };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(io::Error::other(format!("{id:?} is no boot id: letters, digits and '-' only")));
    }
    Ok(id)
}
