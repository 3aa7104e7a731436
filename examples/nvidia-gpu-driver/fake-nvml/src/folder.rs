//! The folder in which a machine is kept, and from which libraries are installed.

mod library;

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) use library::POINTER;

use crate::{Error, Machine};

const MACHINE: &str = "machine.json";
const CALLS: &str = "calls.log";

/// A folder with a machine: `machine.json`, and what the library adds to it.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder where it is missing, and puts the machine in it.
    ///
    /// # Errors
    ///
    /// If the machine cannot be, or nothing can be written there.
    pub fn create(path: impl Into<PathBuf>, machine: &Machine) -> Result<Self, Error> {
        let folder = Self::open(path);
        fs::create_dir_all(&folder.path).map_err(Error::io("make", &folder.path))?;
        folder.write(machine)?;
        Ok(folder)
    }

    /// A folder that is there, or will be.
    #[must_use]
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is: the value of [`FOLDER_VARIABLE`](crate::FOLDER_VARIABLE).
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The machine as it stands.
    ///
    /// # Errors
    ///
    /// If it cannot be read or cannot be.
    pub fn machine(&self) -> Result<Machine, Error> {
        let path = self.machine_path();
        let text = fs::read(&path).map_err(Error::io("read", &path))?;
        let machine: Machine = serde_json::from_slice(&text).map_err(Error::malformed(&path))?;
        machine.check()?;
        Ok(machine)
    }

    /// Changes the machine in one step: each call of a loaded library sees the old one or the new one.
    ///
    /// # Errors
    ///
    /// If the machine cannot be read, cannot be after the change, or cannot be written.
    pub fn change(&self, change: impl FnOnce(&mut Machine)) -> Result<(), Error> {
        let _alone = self.lock("machine.lock")?;
        let mut machine = self.machine()?;
        change(&mut machine);
        self.write(&machine)
    }

    /// The calls since [`Machine::log_calls`] is on, oldest first, each as `PID FUNCTION CODE`.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn calls(&self) -> Result<Vec<String>, Error> {
        let path = self.calls_path();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// How many of the [`Folder::calls`] were of this function.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn count(&self, function: &str) -> Result<usize, Error> {
        let is_it = |call: &&String| call.split(' ').nth(1) == Some(function);
        Ok(self.calls()?.iter().filter(is_it).count())
    }

    pub(crate) fn machine_path(&self) -> PathBuf {
        self.path.join(MACHINE)
    }

    pub(crate) fn calls_path(&self) -> PathBuf {
        self.path.join(CALLS)
    }

    fn write(&self, machine: &Machine) -> Result<(), Error> {
        machine.check()?;
        write_json(&self.machine_path(), machine)
    }

    /// Keeps other processes and threads from the same lock until the file is dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<fs::File, Error> {
        let path = self.path.join(name);
        let file = fs::File::create(&path).map_err(Error::io("open", &path))?;
        file.lock().map_err(Error::io("lock", &path))?;
        Ok(file)
    }
}

/// Puts the file in place whole. Only one writer at a time.
pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(value).map_err(Error::malformed(path))?;
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(Error::io("write", &new))?;
    fs::rename(&new, path).map_err(Error::io("replace", path))
}

/// Where the folder of a loaded library is: told by the variable, or by what stands beside the library.
pub(crate) fn of_library(variable: Option<&OsStr>, library: Option<&Path>) -> Option<Folder> {
    if let Some(path) = variable {
        return Some(Folder::open(path));
    }
    let pointer = fs::read_to_string(library?.with_file_name(POINTER)).ok()?;
    Some(Folder::open(pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_goes_before_what_stands_beside_the_library() {
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory.path().join(crate::LIBRARY_NAME);
        let told = |variable: Option<&str>| {
            let folder = of_library(variable.map(OsStr::new), Some(&library));
            folder.map(|folder| folder.path)
        };
        assert_eq!(told(None), None);
        fs::write(directory.path().join(POINTER), "/beside").expect("writes");
        assert_eq!(told(None), Some("/beside".into()));
        assert_eq!(told(Some("/told")), Some("/told".into()));
    }
}
