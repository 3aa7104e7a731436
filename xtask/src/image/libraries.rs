//! What a program is loaded with: the loader and shared libraries, as they are on the machine that builds it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

/// Of the C library, too: NVIDIA's library and programs, which come from the node, ask for them, whether or not the driver
/// does.
pub(super) const ALSO: [&str; 4] = ["libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/// The files. They have the same paths in an image: the loader looks for libraries where it was built to look.
///
/// # Errors
/// The program is static, or needs something that is not here.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = Command::new("ldd");
    // What cargo adds for programs that it runs would be found before the system's.
    let output = ldd.arg(program).env_remove("LD_LIBRARY_PATH").output();
    let output = output.with_context(|| format!("running {ldd:?}; it comes with the C library"))?;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{ldd:?}: {} {}", out.trim(), errors.trim());
    let mut files = loaded(&out).with_context(|| format!("what {} is loaded with", program.display()))?;
    let c_library = files.iter().find(|file| file.ends_with("libc.so.6")).cloned();
    let c_library = c_library.with_context(|| format!("{} needs no libc.so.6", program.display()))?;
    for file in ALSO.map(|name| c_library.with_file_name(name)) {
        ensure!(file.is_file(), "{} is not there, beside libc.so.6", file.display());
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// The files that `ldd` tells of. Pure.
fn loaded(text: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        let found = line.split_once(" => ").map_or(line, |(_, found)| found);
        if found == "not found" {
            bail!("{line}");
        }
        // What the kernel has in memory has no path.
        if let Some((path, _)) = found.split_once(" (")
            && path.starts_with('/')
        {
            files.push(PathBuf::from(path));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_from_what_ldd_prints_and_what_is_missing_is_named() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0a)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f0b)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(loaded(text).unwrap(), expected.map(PathBuf::from));
        assert_eq!(loaded("\tstatically linked\n").unwrap(), [] as [PathBuf; 0]);
        let error = loaded("\tlibx.so.1 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libx.so.1"), "{error}");
    }

    #[test]
    fn a_dynamic_program_comes_with_its_loader_and_the_whole_c_library() {
        // The test itself: cargo links it with the system's C library.
        let files = of(&std::env::current_exe().unwrap()).unwrap();
        let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
        let names: Vec<_> = files.iter().map(name).collect();
        assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        for wanted in ["libc.so.6"].iter().chain(&ALSO) {
            assert_eq!(names.iter().filter(|name| name == wanted).count(), 1, "{wanted} in {names:?}");
        }
    }
}
