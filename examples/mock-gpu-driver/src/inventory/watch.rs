//! Reads an inventory file again when it changes.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use super::Inventory;

/// How often to look. A notification of the kernel would miss some of the ways in which a `ConfigMap`'s files change.
const LOOK: Duration = Duration::from_millis(500);

/// An inventory file, as it was when it was last read.
#[derive(Debug)]
pub(crate) struct InventoryFile {
    path: PathBuf,
    seen: Option<Stamp>,
}

/// Which file it is and how old its content.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    changed: (i64, i64),
    length: u64,
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        // Follows links: those of a `ConfigMap` move to the new content.
        let found = fs::metadata(path)?;
        Ok(Self {
            file: (found.dev(), found.ino()),
            changed: (found.ctime(), found.ctime_nsec()),
            length: found.len(),
        })
    }
}

impl InventoryFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// As [`Inventory::from_file`].
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<(Self, Inventory)> {
        // Looked at first: what changes while it is read is read again.
        let seen = Stamp::of(&path).ok();
        let inventory = Inventory::from_file(&path)?;
        Ok((Self { path, seen }, inventory))
    }

    /// Waits until the file says something else that can be used. What cannot is logged, and changes nothing.
    pub(crate) async fn changed(&mut self) -> Inventory {
        loop {
            tokio::time::sleep(LOOK).await;
            let stamp = Stamp::of(&self.path).ok();
            if stamp == self.seen {
                continue;
            }
            self.seen = stamp;
            let path = self.path.clone();
            match tokio::task::spawn_blocking(move || Inventory::from_file(&path)).await {
                Ok(Ok(inventory)) => return inventory,
                Ok(Err(error)) => tracing::error!("{error:#}; the inventory stays as it was"),
                Err(error) => tracing::error!(%error, "reading the inventory"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"[{"devices": [{"name": "a"}]}]"#;
    const TWO: &str = r#"[{"devices": [{"name": "a"}, {"name": "b"}]}]"#;

    #[tokio::test]
    async fn a_change_is_read_once_it_can_be() {
        let folder = std::env::temp_dir().join(format!("mock-gpu-inventory-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, new) = (folder.join("inventory.json"), folder.join("new"));
        fs::write(&path, ONE).unwrap();
        let (mut file, first) = InventoryFile::open(path.clone()).unwrap();
        assert_eq!(first.health().count(), 1);
        let write = |text: &str| {
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        write("[{");
        assert!(tokio::time::timeout(LOOK * 4, file.changed()).await.is_err(), "it cannot be read");
        write(TWO);
        let second = tokio::time::timeout(Duration::from_secs(30), file.changed()).await.unwrap();
        assert_eq!(second.health().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
