//! Errors of GPUs that outlive this process: a driver that is started again does not offer what has failed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Troubles;

/// The file, and what is in it.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    /// A start of the machine resets all GPUs, so what an earlier boot left counts no more.
    boot_id: String,
    gpus: BTreeMap<String, Troubles>,
}

impl Kept {
    /// Reads what a process of this boot has kept in this folder. A damaged file counts as none.
    pub(crate) fn open(folder: &Path, boot_id: &str) -> Self {
        let path = folder.join("health.json");
        let found: Option<Content> = match fs::read(&path).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(content)) => Some(content),
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "errors of GPUs that an earlier process kept are not readable");
                None
            }
            Err(_) => None,
        };
        let content = found.filter(|content| content.boot_id == boot_id);
        let content =
            content.unwrap_or_else(|| Content { boot_id: boot_id.to_owned(), gpus: BTreeMap::new() });
        Self { path, content }
    }

    /// What was kept.
    pub(crate) fn gpus(&self) -> BTreeMap<String, Troubles> {
        self.content.gpus.clone()
    }

    /// Keeps this from now on.
    pub(crate) fn set(&mut self, gpus: BTreeMap<String, Troubles>) -> io::Result<()> {
        if gpus == self.content.gpus {
            return Ok(());
        }
        self.content.gpus = gpus;
        let new = self.path.with_extension("new");
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&new, serde_json::to_vec(&self.content)?)?;
        fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::health::Health;

    #[test]
    fn errors_are_kept_for_the_same_boot_only() {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot| Kept::open(folder.path(), boot);
        let mut health = Health::new([], None, open("one").gpus());
        health.xid("GPU-1", 48, None, SystemTime::now());
        open("one").set(health.to_keep()).unwrap();
        assert_eq!(open("one").gpus(), health.to_keep());
        assert_eq!(open("one").gpus().len(), 1);
        assert_eq!(open("two").gpus(), BTreeMap::new());
        fs::write(folder.path().join("health.json"), "cut").unwrap();
        assert_eq!(open("one").gpus(), BTreeMap::new());
    }
}
