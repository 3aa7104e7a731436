//! What a cluster takes from the machine: root, Go, and a few Debian packages.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use super::{
    build,
    version::{GoVersion, Version},
};

/// A package, and the files of it that are used: paths, or names of programs.
struct Need {
    package: &'static str,
    files: &'static [&'static str],
}

const NEEDS: [Need; 9] = [
    Need { package: "busybox-static", files: &["busybox"] },
    Need { package: "containernetworking-plugins", files: &["/usr/lib/cni/ptp", "/usr/lib/cni/host-local"] },
    Need { package: "iproute2", files: &["ip"] },
    Need { package: "iptables", files: &["iptables"] },
    Need { package: "mount", files: &["mount"] },
    Need { package: "openssl", files: &["openssl"] },
    Need { package: "procps", files: &["sysctl"] },
    Need { package: "runc", files: &["runc"] },
    Need { package: "util-linux", files: &["unshare", "nsenter", "setsid", "setpriv"] },
];

/// The Debian packages, sorted.
pub(crate) fn packages() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().map(|need| need.package)
}

/// Fails with all that is missing and how to get it, before anything is built or started.
///
/// # Errors
/// Root, Go, a package, or the lock of `kubernetes` is missing.
pub(crate) fn check(root: &Path, kubernetes: Version) -> Result<()> {
    let lock = build::lock_dir(root, kubernetes).join("go.mod");
    if !lock.is_file() {
        let have: Vec<_> = Version::TESTED.iter().map(ToString::to_string).collect();
        bail!(
            "no lock for Kubernetes {kubernetes} ({} is not there): take one of {}, or run `cargo xtask cluster lock {kubernetes}`",
            lock.display(),
            have.join(", "),
        );
    }
    let mut missing: Vec<String> = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push(
            "root, for namespaces and mounts: run the same command with `sudo --preserve-env=PATH,HOME`"
                .into(),
        );
    }
    missing.extend(missing_go(build::newest_go(root, kubernetes)?));
    let packages: Vec<_> = NEEDS.iter().filter(|need| !need.is_met()).map(|need| need.package).collect();
    if !packages.is_empty() {
        let list = packages.join(" ");
        missing.push(format!("Debian packages {list}: apt-get update && apt-get install --yes {list}"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("a cluster cannot run here; missing:\n  - {}", missing.join("\n  - "))
}

impl Need {
    fn is_met(&self) -> bool {
        self.files.iter().all(|file| find(file).is_some())
    }
}

/// Where a program is: an absolute path as it is, a name by PATH and the administrator's folders.
pub(crate) fn find(file: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into(), "/bin".into()])
        .map(|folder| folder.join(file))
        .find(|file| file.is_file())
}

fn missing_go(wanted: GoVersion) -> Option<String> {
    const GET: &str =
        "apt-get install --yes golang-go, or unpack a release of Go and put its bin folder on PATH";
    let Some((version, toolchain)) = installed_go() else {
        return Some(format!("Go {wanted} or newer (`go` is not on PATH): {GET}"));
    };
    if version.builds(wanted, &toolchain) {
        return None;
    }
    Some(format!("Go {wanted} or newer (`go` is {version} and GOTOOLCHAIN is {toolchain:?}): {GET}"))
}

fn installed_go() -> Option<(GoVersion, String)> {
    let output = Command::new("go").args(["env", "GOVERSION", "GOTOOLCHAIN"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let version = GoVersion::parse(lines.next()?.strip_prefix("go")?)?;
    Some((version, lines.next().unwrap_or_default().to_owned()))
}
