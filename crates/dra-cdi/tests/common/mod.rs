//! What the tests of the folder share.

use std::path::Path;

use dra_cdi::{ContainerEdits, Directory, FileId, Kind, Spec};

pub(crate) fn kind() -> Kind {
    Kind::for_driver("gpu.example.com").unwrap()
}

pub(crate) fn claim() -> FileId {
    "6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f".parse().unwrap()
}

pub(crate) fn open(path: &Path) -> Directory {
    Directory::open(path, kind()).unwrap()
}

/// A valid CDI file of our kind whose one variable is `value`.
pub(crate) fn file(value: &str) -> Vec<u8> {
    let device = ("dev".parse().unwrap(), ContainerEdits::new().env("A", value));
    Spec::new(kind(), ContainerEdits::new(), [device]).unwrap().encode()
}

/// All names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
