//! Reads the metadata of a container's devices. Blocks on files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{ClaimMetadata, MalformedMetadata, PodClaim, ROOT, path::SUFFIX};

/// Why there is no metadata to read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No driver has left any.
    #[error(
        "no metadata in {}: is the claim named as in the pod's spec, and does its driver publish metadata?",
        .0.display()
    )]
    Nothing(PathBuf),
    /// A name that would lead elsewhere.
    #[error("{0:?} is no name of a claim or request: such names have neither slashes nor dots alone")]
    Name(String),
    /// A file or folder cannot be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is not as it must be.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: MalformedMetadata,
    },
}

/// Reads what the drivers of a request say of its devices, in a container that has the claim.
///
/// Of a request with alternatives the name before the slash is enough. If several drivers serve a request, their
/// devices stand one after the other, by driver; claim and name in the pod are those of the first file, the generation
/// is the highest.
///
/// ```no_run
/// use dra_kubeletplugin::metadata::{self, PodClaim};
///
/// # fn main() -> Result<(), metadata::ReadError> {
/// for request in metadata::read(PodClaim::FromTemplate("gpus"), "gpu")?.requests {
///     for device in request.devices {
///         println!("{}: {:?}", device.device, device.metadata.attributes());
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// There is none, or it cannot be read.
pub fn read(claim: PodClaim<'_>, request: &str) -> Result<ClaimMetadata, ReadError> {
    read_below(Path::new(ROOT), claim, request)
}

/// The same below another folder than [`ROOT`].
///
/// # Errors
/// As [`read`].
pub fn read_below(root: &Path, claim: PodClaim<'_>, request: &str) -> Result<ClaimMetadata, ReadError> {
    let request = request.split_once('/').map_or(request, |(base, _)| base);
    let (PodClaim::Named(name) | PodClaim::FromTemplate(name)) = claim;
    for name in [name, request] {
        if name.is_empty() || name.contains('/') || [".", ".."].contains(&name) {
            return Err(ReadError::Name(name.to_owned()));
        }
    }
    let folder = claim.folder(root, request);
    let mut files = files(&folder)?.into_iter().map(|path| read_file(&path));
    let first = files.next().ok_or(ReadError::Nothing(folder))??;
    files.try_fold(first, |all, next| Ok(merge(all, next?)))
}

/// Metadata files of all drivers, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let fail = |source| ReadError::Io { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(SUFFIX)) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<ClaimMetadata, ReadError> {
    let bytes = fs::read(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    ClaimMetadata::decode(&bytes).map_err(|source| ReadError::Malformed { path: path.to_owned(), source })
}

/// Pure.
fn merge(mut all: ClaimMetadata, next: ClaimMetadata) -> ClaimMetadata {
    all.generation = all.generation.max(next.generation);
    all.pod_claim_name = all.pod_claim_name.or(next.pod_claim_name);
    for request in next.requests {
        match all.requests.iter_mut().find(|other| other.name == request.name) {
            Some(other) => other.devices.extend(request.devices),
            None => all.requests.push(request),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one request with one device.
    fn file(driver: &str, request: &str, generation: i64) -> String {
        format!(
            r#"{{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/v1beta1",
                "metadata":{{"name":"c","namespace":"ns","uid":"u","generation":{generation}}},
                "requests":[{{"name":"{request}","devices":[{{"driver":"{driver}","pool":"p","name":"d"}}]}}]}}"#
        )
    }

    fn folder(files: &[(&str, String)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("resourceclaims/c/gpu");
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in files {
            fs::write(folder.join(name), content).unwrap();
        }
        root
    }

    fn read_gpu(root: &Path) -> Result<ClaimMetadata, ReadError> {
        read_below(root, PodClaim::Named("c"), "gpu/large")
    }

    #[test]
    fn files_of_several_drivers_are_merged_by_request_and_others_are_left_alone() {
        let root = folder(&[
            ("b.example.com-metadata.json", file("b.example.com", "gpu/large", 3)),
            ("a.example.com-metadata.json", file("a.example.com", "gpu/large", 1)),
            ("c.example.com-metadata.json", file("c.example.com", "gpu/small", 2)),
            ("notes.json", "nothing to see".to_owned()),
        ]);
        let read = read_gpu(root.path()).unwrap();
        let of = |index: usize| -> Vec<String> {
            read.requests[index].devices.iter().map(|device| device.driver.to_string()).collect()
        };
        assert_eq!((read.requests.len(), read.generation), (2, 3));
        assert_eq!(
            (of(0), of(1)),
            (vec!["a.example.com".into(), "b.example.com".into()], vec!["c.example.com".into()])
        );
    }

    #[test]
    fn nothing_to_read_and_unreadable_files_are_told_with_their_path() {
        let missing = tempfile::tempdir().unwrap();
        for root in [missing.path(), folder(&[]).path()] {
            let error = read_gpu(root).unwrap_err();
            assert!(
                matches!(&error, ReadError::Nothing(path) if path.ends_with("resourceclaims/c/gpu")),
                "{error}"
            );
        }
        let root = folder(&[("a.example.com-metadata.json", "{".to_owned())]);
        let error = read_gpu(root.path()).unwrap_err().to_string();
        assert!(error.contains("gpu/a.example.com-metadata.json: object 1: "), "{error}");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (claim, request) in [("../x", "gpu"), ("", "gpu"), ("c", ".."), ("c", ""), ("c", "/etc")] {
            let read = read_below(Path::new("/"), PodClaim::FromTemplate(claim), request);
            assert!(matches!(read, Err(ReadError::Name(_))), "{claim:?} {request:?}");
        }
    }
}
