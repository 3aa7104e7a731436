//! A program that sees folders at other places than all others: a daemon of MPS has to see the `/dev/shm` of its
//! containers, and its servers, which run as the users of containers do, may not enter the folder of the kubelet.
//!
//! This program starts itself, leaves the others' view of the file system, and becomes that program.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use tokio::process::Command;

/// The first argument of a process that is to become another one.
const ARGUMENT: &str = "with-own-view";

/// Starts a program, with the arguments that are added, that sees each first folder at the place of the second. It leaves the
/// control group of this process for this one: a runtime that ends a container ends what is in its group.
pub(crate) fn command(folders: [(&Path, &Path); 2], group: &Path, program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(ARGUMENT)
        .arg(group)
        .args(folders.iter().flat_map(|(folder, place)| [folder, place]))
        .arg(program);
    command
}

/// Becomes the program, if this process was started by such a command; why it could not.
pub(crate) fn become_program(arguments: impl IntoIterator<Item = OsString>) -> Option<io::Error> {
    let mut arguments = arguments.into_iter().skip(1);
    arguments.next().filter(|argument| argument == OsStr::new(ARGUMENT))?;
    let group = PathBuf::from(arguments.next()?);
    if let Err(error) = join(&group) {
        // It works, until the container of the driver ends.
        eprintln!("MPS: {}: {error}; the daemon ends with the driver's container", group.display());
    }
    let seen = unshare(CloneFlags::CLONE_NEWNS).and_then(|()| {
        // What is unmounted outside must not stay in use here.
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
    });
    if let Err(error) = seen {
        return Some(io::Error::other(format!("a view of its own, which takes CAP_SYS_ADMIN: {error}")));
    }
    for _ in 0..2 {
        let (folder, place) = (arguments.next()?, arguments.next()?);
        if let Err(error) = mount(Some(&*folder), &*place, None::<&str>, MsFlags::MS_BIND, None::<&str>) {
            return Some(io::Error::other(format!("{} as {}: {error}", folder.display(), place.display())));
        }
    }
    Some(process::Command::new(arguments.next()?).args(arguments).exec())
}

/// Moves this process into a control group. The kernel makes the file where groups of version 2 are; elsewhere there is none.
fn join(group: &Path) -> io::Result<()> {
    fs::create_dir_all(group)?;
    let mut file = fs::OpenOptions::new().write(true).open(group.join("cgroup.procs"))?;
    io::Write::write_all(&mut file, b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_control_group_is_an_error_and_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("nvidia-mps-1");
        join(&group).unwrap_err();
        assert_eq!(fs::read_dir(&group).unwrap().count(), 0, "it can be removed");
    }
}
