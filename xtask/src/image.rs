//! `cargo xtask image`: the container images of the example drivers, made without Docker.

mod libraries;

#[cfg(test)]
mod containerfile;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::{cluster::image::Image, e2e::tools, static_build};

const MIB: u64 = 1024 * 1024;

/// A driver that has an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// One static program.
    #[value(name = "mock-gpu-driver")]
    Mock,
    /// A program that loads NVIDIA's library at run time, with a loader and a C library for both.
    #[value(name = "nvidia-gpu-driver")]
    Nvidia,
}

/// Which image, what to call it, and where to write it.
#[derive(Args)]
pub(crate) struct Options {
    /// The driver.
    #[arg(value_enum, default_value_t = Driver::Mock)]
    driver: Driver,
    /// Name and tag [default: the driver's name and version].
    #[arg(long, value_name = "NAME:TAG")]
    name: Option<String>,
    /// The archive [default: target/DRIVER.tar].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Builds program and image.
///
/// # Errors
/// The build fails, the archive cannot be written, or the image is too large.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let (driver, package) = (options.driver, options.driver.package());
    let name = options.name.clone();
    let name = name.unwrap_or_else(|| format!("{package}:{}", env!("CARGO_PKG_VERSION")));
    let archive = options.out.clone().unwrap_or_else(|| root.join(format!("target/{package}.tar")));
    let size = driver.write(&driver.build(root)?, &name, &archive)?;
    driver.check_size(size)?;
    println!("{name} is in {}", archive.display());
    Ok(())
}

impl Driver {
    /// Its package, and its program.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Mock => "mock-gpu-driver",
            Self::Nvidia => "nvidia-gpu-driver",
        }
    }

    /// Writes the image of the driver's program, and gives its size, unpacked.
    ///
    /// # Errors
    /// What the program is loaded with is not found, or the archive cannot be written.
    pub(crate) fn write(self, program: &Path, name: &str, archive: &Path) -> Result<u64> {
        let libraries = match self {
            Self::Mock => Vec::new(),
            Self::Nvidia => libraries::of(program)?,
        };
        let mut size = 0;
        for file in libraries.iter().map(PathBuf::as_path).chain([program]) {
            size += fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
        }
        let path = format!("/{}", self.package());
        Image::of_program(name, program, &path, libraries).write(archive)?;
        Ok(size)
    }

    /// Fails if an image of this size is larger than the driver's may be; prints the size.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn check_size(self, size: u64) -> Result<()> {
        let (package, limit) = (self.package(), self.limit());
        println!("the image of {package} has {}.{} MiB", size / MIB, size % MIB * 10 / MIB);
        ensure!(
            size <= limit,
            "the image of {package} has {size} bytes, more than the {limit} that it may have"
        );
        Ok(())
    }

    /// How large the image may be, unpacked: of megabytes that every node pulls there should be few.
    fn limit(self) -> u64 {
        match self {
            Self::Mock => 12 * MIB,
            Self::Nvidia => 16 * MIB,
        }
    }

    fn build(self, root: &Path) -> Result<PathBuf> {
        let folder = match self {
            Self::Mock => static_build::run(root, &self.arguments())?,
            Self::Nvidia => {
                tools::cargo_build(root, &self.arguments())?;
                tools::target_folder(root)?.join("release")
            }
        };
        Ok(folder.join(self.package()))
    }

    /// How the program is built: without what is only for people at a desk.
    fn arguments(self) -> [&'static str; 5] {
        ["--locked", "--release", "--no-default-features", "--package", self.package()]
    }
}
