//! `cargo xtask image`: the container image of the mock driver, made without Docker: one static program.

#[cfg(test)]
mod containerfile;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{cluster::image::Image, static_build};

/// The program of the image, and its package.
pub(crate) const DRIVER: &str = "mock-gpu-driver";

/// Where the program is in the image, which has nothing else.
const PROGRAM: &str = "/mock-gpu-driver";

/// How large the image may be, unpacked: of megabytes that every node pulls there should be few.
const LIMIT: u64 = 12 * 1024 * 1024;

/// How the program is built: without what is only for people at a desk.
const BUILD: [&str; 5] = ["--locked", "--release", "--no-default-features", "--package", DRIVER];

/// What to call the image, and where to write it.
#[derive(Args)]
pub(crate) struct Options {
    /// Name and tag.
    #[arg(long, value_name = "NAME:TAG", default_value = concat!("mock-gpu-driver:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// The archive [default: target/mock-gpu-driver.tar].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Builds program and image.
///
/// # Errors
/// The build fails, the archive cannot be written, or the image is too large.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let program = static_build::run(root, &BUILD)?.join(DRIVER);
    let archive = options.out.clone().unwrap_or_else(|| root.join("target/mock-gpu-driver.tar"));
    write(&program, &options.name, &archive)?;
    check_size(&program)?;
    println!("{} is in {}", options.name, archive.display());
    Ok(())
}

/// Writes the image of a static program.
///
/// # Errors
/// The program is not static, or the archive cannot be written.
pub(crate) fn write(program: &Path, name: &str, archive: &Path) -> Result<()> {
    Image::of_static_program(name, program, PROGRAM).write(archive)
}

/// Fails if the image of this program is larger than it may be; prints its size.
///
/// # Errors
/// It is too large.
pub(crate) fn check_size(program: &Path) -> Result<()> {
    const MIB: u64 = 1024 * 1024;
    let size = fs::metadata(program).with_context(|| format!("reading {}", program.display()))?.len();
    println!("the image of {DRIVER} has {}.{} MiB", size / MIB, size % MIB * 10 / MIB);
    ensure!(size <= LIMIT, "the image of {DRIVER} has {size} bytes, more than the {LIMIT} that it may have");
    Ok(())
}
