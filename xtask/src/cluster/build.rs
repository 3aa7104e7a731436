//! Builds Kubernetes, etcd and containerd from Go modules, once per version and recipe.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::version::{GoVersion, Version};

/// Where builds are kept if not in target/e2e, so that several checkouts can share them.
const CACHE: &str = "DRA_E2E_CACHE";
const CONTAINERD: &str = "github.com/containerd/containerd/v2";
/// The names that the one binary of Kubernetes acts by.
const KUBERNETES: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];

/// The programs of one cluster.
pub(crate) struct Programs {
    /// The Kubernetes version among them.
    pub(crate) version: Version,
    /// The folder that holds them.
    pub(crate) bin: PathBuf,
}

/// Builds the programs, unless the cache has them from the same recipe.
pub(crate) fn ensure(root: &Path, version: Version) -> Result<Programs> {
    let out = cache(root).join(format!("kubernetes-{version}"));
    let bin = out.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("creating {}", bin.display()))?;
    // Held until the function returns: two builds of one version take turns, and the second finds the first's work.
    let lock = fs::File::create(out.join("lock"))
        .with_context(|| format!("creating a lock in {}", out.display()))?;
    lock.lock().with_context(|| format!("waiting for the build in {}", out.display()))?;

    let recipe = recipe(root, version)?;
    let stamp = out.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|old| old == recipe) {
        return Ok(Programs { version, bin });
    }
    println!(
        "building Kubernetes {version}, etcd and containerd in {} (about 9 CPU minutes the first time)",
        out.display()
    );
    let start = Instant::now();
    let sources = root.join("e2e/kubernetes");
    fs::remove_file(&stamp)
        .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    kubernetes(&sources, version, &out)?;
    etcd(&sources.join("etcd"), &bin)?;
    containerd(&sources.join("containerd"), &bin)?;
    go(&sources.join("pause"), &["-ldflags=-s -w"], &bin.join("pause"), &["."])?;
    fs::write(&stamp, recipe).with_context(|| format!("writing {}", stamp.display()))?;
    println!("built in {:.0} s", start.elapsed().as_secs_f64());
    Ok(Programs { version, bin })
}

/// The folder of a version's go.mod and go.sum.
pub(crate) fn lock_dir(root: &Path, version: Version) -> PathBuf {
    root.join("e2e/kubernetes").join(version.to_string())
}

/// The newest Go that one of the modules asks for.
pub(crate) fn newest_go(root: &Path, version: Version) -> Result<GoVersion> {
    let mut newest = None;
    for folder in [version.to_string().as_str(), "etcd", "containerd"] {
        let path = root.join("e2e/kubernetes").join(folder).join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        newest = newest.max(go_line(&text));
    }
    newest.context("no go.mod below e2e/kubernetes has a `go` line")
}

/// Builds packages of the module in `module` to `out`: a file, or with a closing slash a folder.
pub(crate) fn go(module: &Path, flags: &[&str], out: &Path, packages: &[&str]) -> Result<()> {
    let mut command = Command::new("go");
    command
        .args(["build", "-mod=readonly", "-buildvcs=false"])
        .args(flags)
        .arg("-o")
        .arg(out)
        .args(packages)
        .current_dir(module);
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} in {} failed: {status}", module.display());
    Ok(())
}

fn cache(root: &Path) -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root.join("target/e2e"), PathBuf::from)
}

fn kubernetes(sources: &Path, version: Version, out: &Path) -> Result<()> {
    // One main.go serves all versions, but a module is one folder: it is put together outside the tree.
    let module = out.join("kube");
    fs::create_dir_all(&module).with_context(|| format!("creating {}", module.display()))?;
    let lock = sources.join(version.to_string());
    for file in [sources.join("kube/main.go"), lock.join("go.mod"), lock.join("go.sum")] {
        let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
        fs::copy(&file, module.join(name)).with_context(|| format!("copying {}", file.display()))?;
    }
    // A component that is told no version believes to be v0.0.0, and its feature gates follow that.
    let package = "k8s.io/component-base/version";
    let flag = format!(
        "-ldflags=-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor=1 -X {package}.gitMinor={} -X {package}.gitTreeState=clean",
        version.minor(),
    );
    let bin = out.join("bin");
    go(&module, &[&flag], &bin.join("kube"), &["."])?;
    for name in KUBERNETES {
        let link = bin.join(name);
        if fs::symlink_metadata(&link).is_ok() {
            continue;
        }
        std::os::unix::fs::symlink("kube", &link).with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

fn etcd(module: &Path, bin: &Path) -> Result<()> {
    go(module, &["-ldflags=-s -w"], &bin.join("etcd"), &["go.etcd.io/etcd/server/v3"])
}

fn containerd(module: &Path, bin: &Path) -> Result<()> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let version = required(&text, CONTAINERD)
        .with_context(|| format!("{} does not require {CONTAINERD}", path.display()))?;
    let flag = format!("-ldflags=-s -w -X {CONTAINERD}/version.Version={version}");
    let packages =
        ["containerd", "containerd-shim-runc-v2", "ctr"].map(|name| format!("{CONTAINERD}/cmd/{name}"));
    // The slash makes it a folder: one file for each package.
    go(module, &[&flag], &bin.join(""), &packages.each_ref().map(String::as_str))
}

/// Changes when anything that the programs are made from does.
fn recipe(root: &Path, version: Version) -> Result<String> {
    let sources = root.join("e2e/kubernetes");
    let mut files = BTreeMap::new();
    for folder in [version.to_string().as_str(), "kube", "etcd", "containerd", "pause"] {
        let folder = sources.join(folder);
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let content = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            files.insert(path.strip_prefix(&sources)?.to_path_buf(), content);
        }
    }
    let go = Command::new("go").arg("version").output().context("running `go version`")?;
    if !go.status.success() {
        bail!("`go version` failed: {}", String::from_utf8_lossy(&go.stderr));
    }
    files.insert("go version".into(), go.stdout);
    files.insert("this file".into(), include_bytes!("build.rs").to_vec());
    Ok(digest(&files))
}

fn digest(files: &BTreeMap<PathBuf, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for (path, content) in files {
        hash.update(format!("{} {}\n", path.display(), content.len()));
        hash.update(content);
    }
    super::hex(&hash.finalize())
}

fn go_line(go_mod: &str) -> Option<GoVersion> {
    go_mod.lines().find_map(|line| line.strip_prefix("go ")).and_then(GoVersion::parse)
}

/// The version that a go.mod requires of a module, with its `v`.
pub(crate) fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str =
        "module x\n\ngo 1.26.6\n\nrequire a.test/one v1.2.3\nrequire (\n\ta.test/two v0.4.0 // indirect\n)\n";

    #[test]
    fn a_go_mod_tells_its_go_and_its_requirements() {
        assert_eq!(go_line(GO_MOD), GoVersion::parse("1.26.6"));
        assert_eq!(required(GO_MOD, "a.test/one"), Some("v1.2.3"));
        assert_eq!(required(GO_MOD, "a.test/two"), Some("v0.4.0"));
        assert_eq!(required(GO_MOD, "a.test/three"), None);
    }

    #[test]
    fn the_recipe_changes_with_names_and_with_content() {
        let files =
            |name: &str, content: &str| BTreeMap::from([(PathBuf::from(name), content.as_bytes().to_vec())]);
        assert_eq!(digest(&files("a", "1")), digest(&files("a", "1")));
        assert_ne!(digest(&files("a", "1")), digest(&files("a", "2")));
        assert_ne!(digest(&files("a", "1")), digest(&files("b", "1")));
    }
}
