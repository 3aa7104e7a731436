//! Which partitions this driver has made since the machine was started: what it may remove again, even if the claim's
//! record is lost. A file for each, in the driver's folder, that is there before the partition is and longer.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::state::Partition;

/// The kernel's name for this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The files. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    folder: PathBuf,
    /// Whether some may be left that no claim holds.
    doubtful: Arc<AtomicBool>,
}

impl Made {
    /// Those of this boot. What an earlier one left is forgotten, as partitions do not outlive it; for the same reason
    /// nothing is synced to disk.
    ///
    /// # Errors
    /// The kernel does not say which boot this is, or what is left cannot be removed.
    pub(crate) fn open(data: &Path, boot_id: Option<&str>) -> io::Result<Self> {
        let all = data.join("partitions");
        let folder = all.join(self::boot_id(boot_id)?);
        for earlier in entries(&all)?.into_iter().filter(|earlier| *earlier != folder) {
            fs::remove_dir_all(earlier)?;
        }
        Ok(Self { folder, doubtful: Arc::new(AtomicBool::new(true)) })
    }

    /// This one is about to be made.
    pub(crate) fn add(&self, partition: &Partition) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.file(partition), serde_json::to_vec(partition)?)
    }

    /// Whether it was made by this driver.
    pub(crate) fn has(&self, partition: &Partition) -> bool {
        read(&self.file(partition)).is_some_and(|found| found == *partition)
    }

    /// It is gone.
    pub(crate) fn remove(&self, partition: &Partition) -> io::Result<()> {
        match fs::remove_file(self.file(partition)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> io::Result<Vec<Partition>> {
        Ok(entries(&self.folder)?.iter().filter_map(|file| read(file)).collect())
    }

    /// Some may be left that no claim holds: so after a start, and after a claim whose record could not be read.
    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Relaxed);
    }

    /// Whether there is such doubt; then there is none any more.
    pub(crate) fn take_doubt(&self) -> bool {
        self.doubtful.swap(false, Ordering::Relaxed)
    }

    fn file(&self, partition: &Partition) -> PathBuf {
        self.folder.join(&partition.device)
    }
}

/// Which boot of the machine this is: what is given, or what the kernel says.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn boot_id(given: Option<&str>) -> io::Result<String> {
    let id = given.map_or_else(|| fs::read_to_string(BOOT_ID), |id| Ok(id.to_owned()))?;
    Ok(id.trim().to_owned())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

fn read(file: &Path) -> Option<Partition> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::h100;

    #[test]
    fn what_was_made_is_known_until_it_is_removed_or_the_machine_is_started_anew() {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot| Made::open(folder.path(), Some(boot)).unwrap();
        let made = open("boot-1");
        let gpu = h100();
        let partition =
            |place: usize| Partition::new(&gpu, &gpu.profiles[0], gpu.profiles[0].placements[place]);
        assert!(made.take_doubt() && !made.take_doubt());
        assert!(made.all().unwrap().is_empty() && !made.has(&partition(0)));
        made.add(&partition(0)).unwrap();
        made.add(&partition(1)).unwrap();
        let again = open("boot-1");
        assert!(again.has(&partition(0)) && again.has(&partition(1)) && !again.has(&partition(2)));
        let of_another_gpu = Partition { parent: "GPU-2".to_owned(), ..partition(0) };
        assert!(!again.has(&of_another_gpu), "the same name, and another GPU");
        again.remove(&partition(0)).unwrap();
        again.remove(&partition(0)).unwrap();
        assert_eq!(made.all().unwrap(), [partition(1)]);
        assert_eq!(open("boot-2").all().unwrap(), []);
        assert_eq!(open("boot-1").all().unwrap(), []);
    }
}
