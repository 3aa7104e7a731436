//! The points that the sources have.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::node::files_below;

/// All points of `dra-cdi` and of the claims, by name. Those of `state::repair` have a test of their own.
pub(crate) fn in_the_sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names = BTreeSet::new();
    for folder in ["dra-cdi/src", "dra-kubeletplugin/src/claims"] {
        for path in files_below(&crates.join(folder)) {
            if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(names_in(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    names.into_iter().collect()
}

/// Those that stand before work on files.
pub(crate) fn of_file_steps() -> Vec<String> {
    in_the_sources().into_iter().filter(|name| !name.starts_with("driver.")).collect()
}

/// `point("…")` and `driver_point("…")`.
fn names_in(text: &str) -> impl Iterator<Item = String> {
    text.split("point(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}
