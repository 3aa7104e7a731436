//! What lasts from one call to the next in this process, and what every call goes through.

mod call;
mod event_sets;
mod handles;
mod reached;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t};

pub(super) use call::Call;
pub(super) use event_sets::{create_event_set, free_event_set};
pub(super) use reached::{Device, GpuRef, InstanceRef};

use super::code::Code;
use crate::folder::{self, Folder};
use crate::machine::PciAddress;
use crate::{FOLDER_VARIABLE, Machine};
use event_sets::EventSets;
use handles::Handles;

/// Runs a call: what goes wrong with it by the machine's faults goes wrong here, and no panic leaves for C.
pub(super) fn serve(name: &'static str, body: impl FnOnce(&Call) -> Result<(), Code>) -> nvmlReturn_t {
    let outcome = catch_unwind(AssertUnwindSafe(|| Call::new(name).run(body)));
    match outcome {
        Ok(Ok(())) => nvmlReturn_enum_NVML_SUCCESS,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// The state of the loaded library.
struct Session {
    /// How often it was initialized and not shut down.
    users: u32,
    machine: Option<(Stamp, Arc<Machine>)>,
    handles: Handles,
    event_sets: EventSets,
    /// What this process has open: the driver, and GPUs. The kernel takes the locks back from a process that dies.
    held: BTreeMap<Option<PciAddress>, File>,
}

static SESSION: Mutex<Session> = Mutex::new(Session {
    users: 0,
    machine: None,
    handles: Handles::new(),
    event_sets: EventSets::new(),
    held: BTreeMap::new(),
});

/// Poisoning says that a call panicked; what it changes, it changes in one step.
fn session() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts one more who uses the library.
pub(super) fn initialize() -> Result<(), Code> {
    folder()?.settle()?;
    hold(None)?;
    session().users += 1;
    Ok(())
}

/// Keeps a GPU from a reset, and the driver from being unloaded, until the last shut-down: starting opens
/// `/dev/nvidiactl`, and looking a GPU up opens `/dev/nvidia<n>` (`nvml.h`, `nvmlDeviceGetHandleByIndex_v2`: "may initialize the
/// GPU"; NVIDIA/dcgm-exporter issue 716).
fn hold(gpu: Option<PciAddress>) -> Result<(), Code> {
    if let Entry::Vacant(place) = session().held.entry(gpu) {
        place.insert(folder()?.hold(gpu)?);
    }
    Ok(())
}

/// Counts one less.
pub(super) fn shut_down() {
    let mut session = session();
    session.users = session.users.saturating_sub(1);
    if session.users == 0 {
        session.held.clear();
    }
}

static FOLDER: LazyLock<Option<Folder>> = LazyLock::new(|| {
    let variable = std::env::var_os(FOLDER_VARIABLE);
    folder::of_library(variable.as_deref(), own_file().as_deref())
});

/// Where this library was loaded from, as the kernel tells: its file is mapped where its code is.
fn own_file() -> Option<PathBuf> {
    let here = own_file as fn() -> Option<PathBuf> as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let hexadecimal = |text| usize::from_str_radix(text, 16).ok();
        let inside = (hexadecimal(start)?..hexadecimal(end)?).contains(&here);
        let path = &rest[rest.find('/')?..];
        inside.then(|| path.into())
    })
}

/// Where the state is kept.
fn folder() -> Result<&'static Folder, Code> {
    FOLDER.as_ref().ok_or(Code::DRIVER_NOT_LOADED)
}

/// Tells one version of the machine's file from the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, i64, i64, u64);

impl From<Metadata> for Stamp {
    fn from(file: Metadata) -> Self {
        Self(file.ino(), file.mtime(), file.mtime_nsec(), file.size())
    }
}

/// The machine as its file has it now. Without a file there is no driver in the kernel.
pub(super) fn machine() -> Result<Arc<Machine>, Code> {
    let folder = folder()?;
    let stamp = match fs::metadata(folder.machine_path()) {
        Ok(file) => Stamp::from(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Code::DRIVER_NOT_LOADED),
        Err(_) => return Err(Code::UNKNOWN),
    };
    let mut session = session();
    if let Some((known, machine)) = &session.machine
        && *known == stamp
    {
        return Ok(Arc::clone(machine));
    }
    let machine = Arc::new(folder.machine()?);
    session.machine = Some((stamp, Arc::clone(&machine)));
    Ok(machine)
}
