//! Where sockets and data of a plugin lie. Pure: nothing here touches the disk.

use std::path::{Path, PathBuf};

use dra_resourceslice::DriverName;

use crate::digest::sha256_hex;
/// The longest path of a UNIX socket on Linux: `sun_path` has 108 bytes, one of them the closing NUL.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// Stands for an instance without a pod's UID.
const ALONE: &str = "dra";

/// How many hex digits stand for an instance whose name does not fit.
const SHORTENED: usize = 10;

/// All paths of one start of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    /// Folder that the kubelet watches for registration sockets.
    pub(crate) registry: PathBuf,
    /// The driver's own folder: DRA socket, locks, records.
    pub(crate) data: PathBuf,
    /// Registration socket, as the kubelet finds it.
    pub(crate) registration: PathBuf,
    /// Where the registration socket is bound before it is renamed; the kubelet ignores dot-names.
    pub(crate) registration_dot: PathBuf,
    /// Socket of the DRA service.
    pub(crate) dra: PathBuf,
}

/// Why no usable socket paths can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not fit, even with shortened names.
    #[error(
        "socket path {} has {length} bytes, at most {MAX_SOCKET_PATH} are possible: use a shorter kubelet root",
        path.display()
    )]
    TooLong {
        /// The shortest path that could be made.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The kubelet would look for the socket under another path.
    #[error(
        "kubelet root {} contains {letter:?}, with which no kubelet finds a socket: use a root without it",
        root.display()
    )]
    Letter {
        /// The kubelet root.
        root: PathBuf,
        /// The first letter that does not work.
        letter: char,
    },
    /// Sockets are announced by absolute path.
    #[error("kubelet root {} is no absolute path: give the full path, usually /var/lib/kubelet", root.display())]
    NotAbsolute {
        /// The kubelet root.
        root: PathBuf,
    },
}

impl Paths {
    /// Chooses the paths for one start. `start_id` is new at each start: the kubelet's back-off is keyed by socket
    /// path and outlives a driver (0.5 s to 122 s, kubelet 1.37), so no path is ever used twice.
    pub(crate) fn new(
        kubelet_root: &Path,
        driver: &DriverName,
        pod_uid: Option<&str>,
        start_id: u32,
    ) -> Result<Self, PathError> {
        check_root(kubelet_root)?;
        let registry = kubelet_root.join("plugins_registry");
        let data = kubelet_root.join("plugins").join(driver.as_str());
        let names = SocketNames { driver, instance: pod_uid.unwrap_or(ALONE), start_id };
        let registration = shortest_fit(&registry, names.registration(), 1)?;
        let dra = shortest_fit(&data, names.dra(), 0)?;
        let registration_dot = dot_name(&registration);
        Ok(Self { registry, data, registration, registration_dot, dra })
    }
}

/// Whether a name in the registry folder is one of this driver's registration sockets: made by this SDK, by the Go
/// helper, or left under a dot-name by an instance that died while it started.
pub(crate) fn is_registration_socket_of(driver: &DriverName, name: &str) -> bool {
    let name = name.strip_prefix('.').unwrap_or(name);
    let Some(stem) = name.strip_suffix("-reg.sock") else { return false };
    match stem.rsplit_once('@') {
        Some((_, host)) => host == driver.as_str() || host == short_host(driver),
        None => is_go_registration_socket_of(driver, name),
    }
}

/// What the name of a registration socket of this SDK tells of its instance: the pod's UID and the mark of this start.
/// There is no UID if rolling updates are off, or if it did not fit and is none of those that are known.
pub(crate) fn instance_in<'a>(name: &'a str, known: &'a [String]) -> Option<(Option<&'a str>, &'a str)> {
    let (stem, _) = name.strip_prefix('.').unwrap_or(name).rsplit_once('@')?;
    let (instance, start) = stem.rsplit_once('-')?;
    let is_shortened = instance.len() == SHORTENED && instance.bytes().all(|b| b.is_ascii_hexdigit());
    let pod_uid = if is_shortened {
        known.iter().map(String::as_str).find(|uid| hex_digest(uid, SHORTENED) == instance)
    } else {
        (instance != ALONE).then_some(instance)
    };
    Some((pod_uid, start))
}

/// Whether a name in the registry folder is a registration socket that the Go helper made for this driver:
/// `<driver>-reg.sock`, or `<driver>-<pod uid or its hash>-reg.sock` with rolling updates (helper 0.37). Another driver may
/// be called `<driver>-x`, so only the forms that the helper really makes count.
pub(crate) fn is_go_registration_socket_of(driver: &DriverName, name: &str) -> bool {
    let rest = name.strip_suffix("-reg.sock").and_then(|stem| stem.strip_prefix(driver.as_str()));
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|id| is_uuid(id) || id.len() == 11)
    })
}

/// Whether a name in the driver's folder is a DRA socket of this SDK.
pub(crate) fn is_dra_socket(name: &str) -> bool {
    name.strip_prefix("dra-rs-").is_some_and(|rest| rest.strip_suffix(".sock").is_some())
}

struct SocketNames<'a> {
    driver: &'a DriverName,
    instance: &'a str,
    start_id: u32,
}

impl SocketNames<'_> {
    /// From readable to short. An HTTP/2 server in Rust takes a percent sign in the authority only in front of the
    /// last `@`, so the `@` has to stand in the file name with nothing but host letters behind it.
    fn registration(&self) -> Vec<String> {
        let start = self.start();
        vec![
            format!("{}-{start}@{}-reg.sock", self.instance, self.driver),
            format!("{}-{start}@{}-reg.sock", self.short_instance(), self.driver),
            format!("{}-{start}@{}-reg.sock", self.short_instance(), short_host(self.driver)),
        ]
    }

    fn dra(&self) -> Vec<String> {
        let start = self.start();
        vec![
            format!("dra-rs-{}-{start}.sock", self.instance),
            format!("dra-rs-{}-{start}.sock", self.short_instance()),
            format!("dra-rs-{}.sock", hex_digest(&format!("{}-{start}", self.instance), 6)),
        ]
    }

    /// Six hex digits.
    fn start(&self) -> String {
        format!("{:06x}", self.start_id & 0x00ff_ffff)
    }

    fn short_instance(&self) -> String {
        hex_digest(self.instance, SHORTENED)
    }
}

/// Stands for a driver whose name does not fit.
fn short_host(driver: &DriverName) -> String {
    format!("d{}", hex_digest(driver.as_str(), 10))
}

fn hex_digest(text: &str, digits: usize) -> String {
    sha256_hex(text.as_bytes()).chars().take(digits).collect()
}

/// Takes the first name that fits with `spare` bytes left.
fn shortest_fit(folder: &Path, names: Vec<String>, spare: usize) -> Result<PathBuf, PathError> {
    let mut longest_tried = PathBuf::new();
    for name in names {
        let path = folder.join(name);
        if path.as_os_str().len() + spare <= MAX_SOCKET_PATH {
            return Ok(path);
        }
        longest_tried = path;
    }
    let length = longest_tried.as_os_str().len() + spare;
    Err(PathError::TooLong { path: longest_tried, length })
}

fn dot_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let mut dotted = std::ffi::OsString::from(".");
    dotted.push(name);
    path.with_file_name(dotted)
}

/// The kubelet takes both socket paths through Go's URL parser: `%`, `?` and `#` cut or change them. Brackets and
/// control characters make the authority unreadable for this side.
fn check_root(root: &Path) -> Result<(), PathError> {
    if !root.is_absolute() {
        return Err(PathError::NotAbsolute { root: root.to_owned() });
    }
    let text = root.to_string_lossy();
    let bad = |c: &char| matches!(c, '%' | '?' | '#' | '[' | ']' | '\\' | '\u{fffd}') || c.is_control();
    match text.chars().find(bad) {
        Some(letter) => Err(PathError::Letter { root: root.to_owned(), letter }),
        None => Ok(()),
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests;
