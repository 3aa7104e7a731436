//! Installing the shared library where a program will look for it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use super::Folder;
use crate::{Error, LIBRARY_NAME};

/// The file beside an installed library that names its folder.
pub(crate) const POINTER: &str = "fake-nvml.path";

/// As cargo calls the shared library.
const BUILT: &str = "libfake_nvml.so";

impl Folder {
    /// Copies the library into a directory as `libnvidia-ml.so.1`, tied to this folder, and says where it is.
    ///
    /// A copy has a state of its own when it is loaded, so tests of one process can each have a machine.
    ///
    /// # Errors
    ///
    /// If the library was not built, or cannot be copied there.
    pub fn install(&self, directory: impl AsRef<Path>) -> Result<PathBuf, Error> {
        self.install_without(directory, &[])
    }

    /// As [`Folder::install`], a library that lacks some functions, as older ones do.
    ///
    /// # Errors
    ///
    /// If the library was not built, has no such function, or cannot be copied there.
    pub fn install_without(&self, directory: impl AsRef<Path>, functions: &[&str]) -> Result<PathBuf, Error> {
        let built = built()?;
        let mut content = fs::read(&built).map_err(Error::io("read", &built))?;
        if !functions.is_empty() {
            hide(&mut content, functions)?;
        }
        let directory = directory.as_ref();
        fs::create_dir_all(directory).map_err(Error::io("make", directory))?;
        let library = directory.join(LIBRARY_NAME);
        // A program may have an older copy loaded: it keeps that one.
        let new = library.with_extension("new");
        fs::write(&new, content).map_err(Error::io("write", &new))?;
        fs::rename(&new, &library).map_err(Error::io("replace", &library))?;
        let pointer = directory.join(POINTER);
        let folder = std::path::absolute(self.path()).map_err(Error::io("resolve", self.path()))?;
        fs::write(&pointer, folder.as_os_str().as_encoded_bytes()).map_err(Error::io("write", &pointer))?;
        Ok(library)
    }
}

/// Renames symbols in the tables of names. The loader then finds the place by a name's hash, and another name there.
fn hide(content: &mut [u8], functions: &[&str]) -> Result<(), Error> {
    let mut found = BTreeSet::new();
    for name in content.split_mut(|byte| *byte == 0) {
        let is_it = |function: &&&str| name == function.as_bytes();
        if let Some(function) = functions.iter().find(is_it) {
            found.insert(*function);
            name[0] = b'-';
        }
    }
    match functions.iter().find(|function| !found.contains(*function)) {
        Some(function) => Err(Error::NoSuchFunction((*function).to_owned())),
        None => Ok(()),
    }
}

/// The library that cargo built for the program that runs: beside it, or beside the tests.
fn built() -> Result<PathBuf, Error> {
    let program = env::current_exe().map_err(Error::io("find", Path::new("the running program")))?;
    let beside = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = [beside.join(BUILT), beside.join("deps").join(BUILT), beside.with_file_name(BUILT)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.clone()),
        None => Err(Error::NotBuilt(places.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_name_is_hidden() {
        let mut content = b"\0nvmlInit\0nvmlInit_v2\0".to_vec();
        hide(&mut content, &["nvmlInit"]).expect("is there");
        assert_eq!(content, b"\0-vmlInit\0nvmlInit_v2\0");
    }

    #[test]
    fn a_name_that_is_not_there_is_refused() {
        let error = hide(&mut b"\0nvmlInit_v2\0".to_vec(), &["nvmlInit"]).expect_err("not there");
        assert!(error.to_string().contains("\"nvmlInit\""), "{error}");
    }
}
