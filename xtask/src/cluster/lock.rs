//! Resolves the Go modules of a Kubernetes version, for builds that need no resolving.
//!
//! `k8s.io/kubernetes` points at its staging modules by relative folders, which the published module lacks;
//! each is published too, as v0.MINOR.PATCH, and that is what the lock replaces it with.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{build, version::Version};

/// Writes `e2e/kubernetes/VERSION/go.mod` and `go.sum`.
pub(crate) fn run(root: &Path, version: Version) -> Result<()> {
    let scratch = root.join("target/e2e").join(format!("lock-{version}"));
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    fs::write(scratch.join("go.mod"), "module dra.test/kube\n").context("writing a first go.mod")?;
    let upstream = go(&scratch, &["mod", "download", "-json", &format!("k8s.io/kubernetes@v{version}")])?;
    let upstream: serde_json::Value =
        serde_json::from_str(&upstream).context("reading `go mod download -json`")?;
    let path = upstream["GoMod"].as_str().context("`go mod download -json` names no go.mod")?;
    let upstream = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;

    fs::write(scratch.join("go.mod"), go_mod(&upstream, version)?).context("writing go.mod")?;
    let main = root.join("e2e/kubernetes/kube/main.go");
    fs::copy(&main, scratch.join("main.go")).with_context(|| format!("copying {}", main.display()))?;
    go(&scratch, &["mod", "tidy"])?;

    let lock = build::lock_dir(root, version);
    fs::create_dir_all(&lock).with_context(|| format!("creating {}", lock.display()))?;
    for file in ["go.mod", "go.sum"] {
        fs::copy(scratch.join(file), lock.join(file))
            .with_context(|| format!("writing {}", lock.join(file).display()))?;
    }
    println!("wrote go.mod and go.sum in {}", lock.display());
    Ok(())
}

fn go(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("go").args(arguments).current_dir(folder).output().context("running `go`")?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "`go {}` failed: {errors}{text}", arguments.join(" "));
    Ok(text.into_owned())
}

/// What to start from, given the go.mod of `k8s.io/kubernetes`; `go mod tidy` adds the rest.
fn go_mod(upstream: &str, version: Version) -> Result<String> {
    let go = upstream
        .lines()
        .find(|line| line.starts_with("go "))
        .context("k8s.io/kubernetes' go.mod has no `go` line")?;
    let replaced: Vec<_> = upstream
        .lines()
        .filter_map(|line| line.split_once("=>"))
        .filter(|(_, target)| target.trim().starts_with("./staging/"))
        .map(|(module, _)| module.trim().trim_start_matches("replace "))
        .map(|module| format!("\t{module} => {module} v{}\n", version.staging()))
        .collect();
    ensure!(!replaced.is_empty(), "k8s.io/kubernetes' go.mod replaces no staging module");
    Ok(format!(
        "module dra.test/kube\n\n{go}\n\nrequire k8s.io/kubernetes v{version}\n\nreplace (\n{})\n",
        replaced.concat(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_replaced_by_published_ones() {
        let upstream = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n";
        let made = go_mod(upstream, Version::NEWEST).unwrap();
        assert_eq!(
            made,
            "module dra.test/kube\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.37.2\n)\n",
        );
    }

    #[test]
    fn a_go_mod_without_staging_modules_is_refused() {
        assert!(go_mod("module x\n\ngo 1.26.0\n", Version::NEWEST).is_err());
    }
}
