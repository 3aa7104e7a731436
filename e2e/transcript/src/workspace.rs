//! The documents that there are.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The workspace's folder, which all paths of documents are below.
pub const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// All Markdown files of the workspace, by their paths below it, in order; none of what is built or hidden.
///
/// # Errors
/// A folder cannot be read.
pub fn documents() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(Path::new(""), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let root = Path::new(WORKSPACE);
    for entry in fs::read_dir(root.join(folder))? {
        let name = entry?.file_name();
        let path = folder.join(&name);
        if root.join(&path).is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                collect(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(())
}
