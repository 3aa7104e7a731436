//! Container images from local files: an OCI archive of one layer, the same bytes for the same input.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::needs;

/// An image to write.
pub(crate) struct Image<'a> {
    /// What pods call it: `name:tag`.
    pub(crate) reference: &'a str,
    /// The program that it runs.
    pub(crate) entrypoint: &'a str,
    /// The layer's files: where they are here, and their absolute paths in the image.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Symlinks in the layer: an absolute path, and what it points at.
    pub(crate) links: Vec<(String, &'a str)>,
}

impl<'a> Image<'a> {
    /// An image of one program, and of what it is loaded with: none for a static one. Libraries have the same paths there as
    /// here.
    pub(crate) fn of_program(
        reference: &'a str,
        program: &Path,
        path: &'a str,
        libraries: Vec<PathBuf>,
    ) -> Self {
        let libraries = libraries.into_iter().map(|file| {
            let path = file.display().to_string();
            (file, path)
        });
        let files = std::iter::once((program.to_path_buf(), path.to_owned())).chain(libraries).collect();
        Self { reference, entrypoint: path, files, links: Vec::new() }
    }

    /// Writes the archive that `ctr images import` takes.
    ///
    /// # Errors
    /// A file can't be read or needs a loader that the image has not; the archive can't be written.
    pub(crate) fn write(&self, archive: &Path) -> Result<()> {
        let layer = self.layer().with_context(|| format!("making the image {}", self.reference))?;
        let bytes = archive_of(self.reference, self.entrypoint, &layer)?;
        fs::write(archive, bytes).with_context(|| format!("writing {}", archive.display()))
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        for (folder, mode) in
            [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)]
        {
            append(&mut layer, EntryType::Directory, folder, mode, &[])?;
        }
        for (file, path) in &self.files {
            let content = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            if let Some(loader) = loader(&content) {
                ensure!(
                    self.files.iter().any(|(_, path)| *path == loader),
                    "{} is linked dynamically, and its loader {loader} is not in the image: build it static, or add \
                     what it is loaded with",
                    file.display(),
                );
            }
            append(&mut layer, EntryType::Regular, path, 0o755, &content)?;
        }
        for (path, target) in &self.links {
            let mut header = header(EntryType::Symlink, 0o777, 0);
            layer.append_link(&mut header, path.trim_start_matches('/'), target).context("adding a link")?;
        }
        layer.into_inner().context("closing the layer")
    }
}

/// The images that every cluster has: the pods' own, and a shell for tests and for the demos.
pub(crate) fn write_all(bin: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    Image::of_program("dra.test/pause:1", &bin.join("pause"), "/pause", Vec::new())
        .write(&folder.join("pause.tar"))?;
    busybox("dra.test/busybox:1")?.write(&folder.join("busybox.tar"))?;
    busybox(DEMOS)?.write(&folder.join("demos.tar"))
}

/// What the pods of `demos/` run. There is no registry, so the cluster has a busybox of its own under this name.
const DEMOS: &str = "docker.io/library/busybox:1.37";

fn busybox(reference: &'static str) -> Result<Image<'static>> {
    const PATH: &str = "/bin/busybox";
    let program = needs::find("busybox").context("no busybox: apt-get install --yes busybox-static")?;
    let list = Command::new(&program).arg("--list").output().context("running busybox --list")?;
    ensure!(list.status.success(), "busybox --list failed: {}", list.status);
    let list = String::from_utf8(list.stdout).context("busybox --list")?;
    let links =
        list.lines().filter(|name| *name != "busybox").map(|name| (format!("/bin/{name}"), PATH)).collect();
    Ok(Image { links, ..Image::of_program(reference, &program, PATH, Vec::new()) }.with_entrypoint("/bin/sh"))
}

impl<'a> Image<'a> {
    fn with_entrypoint(self, entrypoint: &'a str) -> Self {
        Self { entrypoint, ..self }
    }
}

fn archive_of(reference: &str, entrypoint: &str, layer: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(layer).context("compressing the layer")?;
    let blob = gzip.finish().context("compressing the layer")?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": [entrypoint], "Env": ["PATH=/bin:/usr/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &blob)],
    })
    .to_string();
    let mut named = descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    let tag = reference.rsplit(':').next().unwrap_or_default();
    named["annotations"] =
        json!({ "io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag });
    let index = json!({ "schemaVersion": 2, "manifests": [named] }).to_string();

    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, EntryType::Regular, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, EntryType::Regular, "index.json", 0o644, index.as_bytes())?;
    for content in [&blob, config.as_bytes(), manifest.as_bytes()] {
        let path = format!("blobs/{}", digest(content).replace(':', "/"));
        append(&mut archive, EntryType::Regular, &path, 0o644, content)?;
    }
    archive.into_inner().context("closing the archive")
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(kind, mode, content.len());
    archive
        .append_data(&mut header, path.trim_start_matches('/'), content)
        .with_context(|| format!("adding {path}"))
}

/// No owner but root and no time, so that equal content is an equal image.
fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", super::hex(&Sha256::digest(content)))
}

/// The machine's name in Go's words, which OCI uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The program interpreter that an ELF file of 64 bits names (a `PT_INTERP` segment), if it does.
fn loader(file: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let number = |offset: usize, width: usize| -> Option<u64> {
        let bytes = file.get(offset..offset.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let place = |offset: usize| usize::try_from(number(offset, 8)?).ok();
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (place(32)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|index| {
        let header = table.checked_add(usize::try_from(index.checked_mul(size)?).ok()?)?;
        if number(header, 4)? != PT_INTERP {
            return None;
        }
        let (from, length) = (place(header.checked_add(8)?)?, place(header.checked_add(32)?)?);
        let name = file.get(from..from.checked_add(length)?)?;
        Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            })
            .collect()
    }

    #[test]
    fn every_digest_of_an_archive_leads_to_that_content() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "static").unwrap();
        let path = folder.path().join("image.tar");
        Image::of_program("dra.test/it:7", &program, "/it", Vec::new()).write(&path).unwrap();

        let files = files(&fs::read(&path).unwrap());
        let blob = |descriptor: &Value| {
            let path = format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"));
            let content = &files.iter().find(|(name, _)| *name == path).unwrap().1;
            assert_eq!(digest(content), descriptor["digest"]);
            assert_eq!(content.len() as u64, descriptor["size"]);
            content.clone()
        };
        let index: Value =
            serde_json::from_slice(&files.iter().find(|(name, _)| name == "index.json").unwrap().1).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "dra.test/it:7");
        let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(&blob(&manifest["layers"][0])[..]).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert!(self::files(&layer).contains(&("it".into(), b"static".to_vec())));
    }

    #[test]
    fn a_dynamic_program_is_refused_without_its_loader() {
        // The test itself: cargo links it with the system's C library.
        let us = std::env::current_exe().unwrap();
        let loader = loader(&fs::read(&us).unwrap()).unwrap();
        assert!(Path::new(&loader).is_file(), "{loader}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        let image = |libraries| Image::of_program("dra.test/it:7", &us, "/it", libraries);
        let error = format!("{:#}", image(Vec::new()).write(&path).unwrap_err());
        assert!(error.contains("linked dynamically") && error.contains(&loader), "{error}");
        image(vec![PathBuf::from(&loader)]).write(&path).unwrap();
    }

    #[test]
    fn what_is_no_elf_names_no_loader() {
        for file in [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01", &[0xff; 100]] {
            assert_eq!(loader(file), None);
        }
    }
}
