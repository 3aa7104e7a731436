//! The CDI files of all folders, and the devices in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cdi::{CdiSpec, Edits};

/// All devices at one moment.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// By id: the files of the highest priority that have the device.
    found: BTreeMap<String, Vec<Found>>,
    /// Files that cannot be used, and why.
    pub(super) broken: BTreeMap<PathBuf, String>,
}

#[derive(Debug)]
struct Found {
    priority: usize,
    file: PathBuf,
    spec: Arc<CdiSpec>,
    device: usize,
}

/// A device that can be used.
#[derive(Debug)]
pub(super) struct Resolved<'a> {
    pub(super) file: &'a Path,
    /// Edits of the file, to be applied once.
    pub(super) common: &'a Edits,
    /// Edits of the device.
    pub(super) own: &'a Edits,
}

impl Devices {
    /// Reads the folders; later ones have priority. Folders that do not exist are empty.
    pub(super) fn scan(folders: &[PathBuf]) -> Self {
        let mut devices = Self::default();
        for (priority, folder) in folders.iter().enumerate() {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
            files.sort();
            for file in files {
                devices.add_file(priority, file);
            }
        }
        devices
    }

    /// Ids of all usable devices.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.found.iter().filter(|(_, files)| files.len() == 1).map(|(id, _)| id)
    }

    /// The device with this id.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn resolve(&self, id: &str) -> Result<Resolved<'_>, String> {
        match self.found.get(id).map(Vec::as_slice) {
            Some([found]) => Ok(Resolved {
                file: &found.file,
                common: &found.spec.container_edits,
                own: &found.spec.devices[found.device].container_edits,
            }),
            Some([one, two, ..]) => {
                Err(format!("is both in {} and in {}", one.file.display(), two.file.display()))
            }
            _ => Err("is in no file".into()),
        }
    }

    fn add_file(&mut self, priority: usize, file: PathBuf) {
        let ending = file.extension().and_then(|ending| ending.to_str());
        // A file named ".json" has no extension here, and a CDI library skips it too: it has no name.
        if !matches!(ending, Some("json" | "yaml")) || file.is_dir() {
            return;
        }
        let text = fs::read_to_string(&file).map_err(|error| error.to_string());
        match text.and_then(|text| CdiSpec::read(&text, ending == Some("json"))) {
            Ok(spec) => self.add(priority, &file, &Arc::new(spec)),
            Err(reason) => {
                self.broken.insert(file, reason);
            }
        }
    }

    fn add(&mut self, priority: usize, file: &Path, spec: &Arc<CdiSpec>) {
        for (device, content) in spec.devices.iter().enumerate() {
            let files = self.found.entry(spec.id(content)).or_default();
            // Folders come in rising priority, so what is there already is of the same or of a lower one.
            files.retain(|other| other.priority == priority);
            files.push(Found { priority, file: file.to_owned(), spec: Arc::clone(spec), device });
        }
    }
}
