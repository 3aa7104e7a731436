//! Drivers as they are shipped: static programs, which need no library of the image that they are in.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::e2e::tools;

/// Links the C library into the program.
pub(crate) const FLAGS: &str = "-C target-feature=+crt-static";

/// Runs `cargo build` with these arguments, and gives the folder that the programs are in.
///
/// # Errors
/// The build fails.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<PathBuf> {
    // With a target named, the flags are not for build scripts and macros, which cannot be static.
    let target = host(root)?;
    let flags = match std::env::var("RUSTFLAGS") {
        Ok(given) if !given.is_empty() => format!("{given} {FLAGS}"),
        _ => FLAGS.to_owned(),
    };
    let mut build = tools::cargo(root);
    build.args(["build", "--target", &target]).args(arguments).env("RUSTFLAGS", flags);
    let status = build.status().with_context(|| format!("running {build:?}"))?;
    ensure!(status.success(), "{build:?} failed: {status}");
    let profile = if arguments.contains(&"--release") { "release" } else { "debug" };
    Ok(tools::target_folder(root)?.join(target).join(profile))
}

/// The target that cargo builds for by itself.
fn host(root: &Path) -> Result<String> {
    let mut version = tools::cargo(root);
    let output = version.arg("-vV").output().with_context(|| format!("running {version:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).with_context(|| format!("{version:?} names no host: {text}"))
}
