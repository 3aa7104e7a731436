//! Judges `dra-cdi` by the Go library that container runtimes link in, in several versions of it.
//!
//! Many random but valid specs are written with `dra-cdi`; each library that knows a spec's version must accept the file, inject
//! what was meant, and need no higher version than ours. Everything here blocks.

mod facts;
mod generate;
mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use dra_cdi::{Directory, FileId, Spec, Version};

use self::process::{Answer, Oracle};

/// Runs `cases` random specs past all oracles, each given by its library's version (`v1.0.1`) and program. Gives a summary.
pub(crate) fn run(oracle_binaries: &[(String, PathBuf)], scratch: &Path, cases: usize) -> Result<String> {
    ensure!(cases > 0 && !oracle_binaries.is_empty(), "nothing to compare: no cases or no oracles");
    let mut oracles = Vec::new();
    for (version, program) in oracle_binaries {
        oracles.push(Oracle::start(version, program)?);
    }
    the_oracles_can_refuse(&mut oracles, &scratch.join("refused"))?;
    let (mut judged, mut lower) = (0, 0);
    for case in 0..cases {
        let spec = generate::spec(case)?;
        let folder = scratch.join(format!("case-{case}"));
        let file = write(&folder, &spec)?;
        for oracle in oracles.iter_mut().filter(|oracle| knows(oracle, spec.version())) {
            let ids: Vec<String> = spec.device_ids().map(|id| id.to_string()).collect();
            let answer = oracle.ask(&folder, &ids)?;
            let agreed = compare(&spec, &answer);
            lower += usize::from(agreed.with_context(|| {
                format!("CDI library {}, case {case}, file {}", oracle.version(), file.display())
            })?);
            judged += 1;
        }
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let versions: Vec<&str> = oracles.iter().map(Oracle::version).collect();
    Ok(format!(
        "CDI: {cases} random specs, {judged} verdicts of the Go library {}: all accepted and injected as meant; it would have \
         taken a lower version in {lower}",
        versions.join(", ")
    ))
}

/// Writes the spec the way a driver does; gives the path of the file.
fn write(folder: &Path, spec: &Spec) -> Result<PathBuf> {
    let directory = Directory::open(folder, spec.kind().clone())?;
    let id: FileId = "6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f".parse()?;
    directory.ensure(&id, &spec.encode())?;
    Ok(directory.path_of(&id))
}

/// Whether the oracle's library knows a CDI version. All know those up to 0.7.0.
fn knows(oracle: &Oracle, version: Version) -> bool {
    let before_1_1 = ["v0.", "v1.0."].iter().any(|prefix| oracle.version().starts_with(prefix));
    version < Version::V1_1_0 || !before_1_1
}

/// Makes sure of the judges: a good file that is damaged so that JSON parsers still read it must be refused.
fn the_oracles_can_refuse(oracles: &mut [Oracle], folder: &Path) -> Result<()> {
    let spec = generate::with_delete_character()?;
    let file = write(folder, &spec)?;
    let raw = String::from_utf8(spec.encode())?.replace("\\u007f", "\u{7f}");
    for oracle in &mut *oracles {
        let good = oracle.ask(folder, &[])?;
        ensure!(good.errors.is_empty() && good.specs.len() == 1, "{}: {good:?}", oracle.version());
    }
    std::fs::write(&file, raw).with_context(|| format!("writing {}", file.display()))?;
    for oracle in oracles {
        let answer = oracle.ask(folder, &[])?;
        let refused = !answer.errors.is_empty() && answer.specs.is_empty();
        ensure!(refused, "CDI library {} takes a raw control character: {answer:?}", oracle.version());
    }
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

/// Holds an answer against the spec. Says whether the library would have taken a lower version: that is a fault of the library
/// (it looks at the last device only), the reverse would be ours.
fn compare(spec: &Spec, answer: &Answer) -> Result<bool> {
    ensure!(answer.errors.is_empty(), "refused: {:?}", answer.errors);
    if let Some(failure) = &answer.failure {
        bail!("failed: {failure}");
    }
    let [loaded] = answer.specs.as_slice() else { bail!("{} specs loaded, not one", answer.specs.len()) };
    ensure!(loaded.kind == spec.kind().to_string(), "kind {} read as {}", spec.kind(), loaded.kind);
    let ours: BTreeSet<&str> = spec.devices().iter().map(|device| device.name().as_str()).collect();
    let theirs: BTreeSet<&str> = loaded.devices.iter().map(String::as_str).collect();
    ensure!(ours == theirs, "devices {ours:?} read as {theirs:?}");

    let version = spec.version().as_str();
    ensure!(loaded.version == version, "version {version} read as {}", loaded.version);
    // All versions have one digit in each place, so that text compares as numbers do.
    let minimum = loaded.minimum_version.trim_start_matches('v');
    ensure!(minimum <= version, "we say version {version}, the content needs {minimum}");

    let meant = facts::meant(spec);
    let injected = facts::injected(answer.oci.as_ref().context("no container configuration")?)?;
    let missing: Vec<_> = meant.difference(&injected).collect();
    // A mode that the spec leaves out is the runtime's affair: newer libraries take the host's, older ones set none.
    let extra: Vec<_> = injected.difference(&meant).filter(|fact| !fact.starts_with(facts::MODE)).collect();
    ensure!(
        missing.is_empty() && extra.is_empty(),
        "not injected: {missing:#?}\ninjected but not meant: {extra:#?}"
    );
    Ok(minimum < version)
}
