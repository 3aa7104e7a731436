//! The node's folders, and what may lie in them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dra_testkit::runtime::Runtime;
use tempfile::TempDir;

use crate::hardware::{Hardware, Use, VIOLATIONS};
use crate::lab::DRIVER;
use crate::records::{Phase, Record};

/// A node; its folders go when it is dropped.
pub(crate) struct Node {
    root: TempDir,
}

/// What is there at one moment.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) records: Vec<Record>,
    /// Content of the CDI files, by claim UID.
    pub(crate) cdi: BTreeMap<String, String>,
    /// Devices in use.
    pub(crate) hardware: BTreeMap<String, Use>,
    /// Interrupted writes.
    pub(crate) temps: Vec<PathBuf>,
    /// Boots with a folder.
    pub(crate) boots: Vec<String>,
    violations: String,
}

impl Node {
    /// A node on which no driver ever ran. Without a CDI folder: that is the driver's to make.
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let node = Self { root: tempfile::Builder::new().prefix("kp-").tempdir_in(base).unwrap() };
        for folder in ["hardware", "kubelet/plugins", "kubelet/plugins_registry"] {
            fs::create_dir_all(node.path().join(folder)).unwrap();
        }
        node
    }

    /// The same again, without the sockets.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        copy_files(self.path(), copy.path());
        copy
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn kubelet(&self) -> PathBuf {
        self.path().join("kubelet")
    }

    pub(crate) fn cdi(&self) -> PathBuf {
        self.path().join("cdi")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    fn claims(&self) -> PathBuf {
        self.kubelet().join("plugins").join(DRIVER).join("claims")
    }

    pub(crate) fn remove_cdi_folder(&self) {
        fs::remove_dir_all(self.cdi()).unwrap();
    }

    /// Makes interrupted CDI writes look old: a start leaves young ones alone, as another instance may be writing them.
    pub(crate) fn let_time_pass(&self) {
        let long_ago = SystemTime::now() - Duration::from_secs(600);
        for path in files_below(&self.cdi()).into_iter().filter(|path| is_temp(path)) {
            File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
    }

    /// What a container runtime could inject.
    pub(crate) fn cdi_devices(&self) -> Vec<String> {
        let runtime = Runtime::new([self.cdi()]);
        assert_eq!(runtime.broken_files(), BTreeMap::new());
        runtime.devices()
    }

    pub(crate) fn state(&self) -> State {
        let hardware = Hardware::new(self.path());
        let used =
            hardware.used().into_iter().filter_map(|device| Some((device.clone(), hardware.look(&device)?)));
        let mut state = State {
            records: Vec::new(),
            cdi: BTreeMap::new(),
            hardware: used.collect(),
            temps: Vec::new(),
            boots: folders_in(&self.claims()),
            violations: fs::read_to_string(self.path().join(VIOLATIONS)).unwrap_or_default(),
        };
        for path in files_below(&self.claims()) {
            if is_temp(&path) {
                state.temps.push(path);
            } else {
                state.records.extend(Record::read(&path));
            }
        }
        for path in files_below(&self.cdi()) {
            if is_temp(&path) {
                state.temps.push(path);
            } else {
                let content = read_if_there(&path);
                state.cdi.extend(content.map(|content| (uid_of_cdi_file(&path), content)));
            }
        }
        state
    }
}

impl State {
    /// What holds at each moment, also right after a death: nobody uses anything that no record tells of, a device has
    /// one owner, and what is recorded as prepared in the boot `whole` is prepared.
    pub(crate) fn check(&self, whole: Option<&str>, at: &str) {
        assert_eq!(self.violations, "", "{at}");
        let mut owners = BTreeMap::new();
        for record in &self.records {
            for device in &record.devices {
                let other = owners.insert(device, &record.uid);
                assert_eq!(other, None, "{at}: {device} is also of {}: {self:#?}", record.uid);
            }
            if record.phase == Phase::Prepared && whole == Some(record.boot.as_str()) {
                self.check_prepared(record, at);
            }
        }
        for (device, Use { owner, .. }) in &self.hardware {
            assert_eq!(owners.get(device), Some(&owner), "{at}: {device}: {self:#?}");
        }
        for uid in self.cdi.keys() {
            assert!(self.record(uid).is_some(), "{at}: CDI file without a record: {self:#?}");
        }
    }

    /// Record, CDI file and hardware agree.
    pub(crate) fn check_prepared(&self, record: &Record, at: &str) {
        assert_eq!(record.phase, Phase::Prepared, "{at}: {self:#?}");
        assert!(record.cdi.is_some(), "{at}: {self:#?}");
        assert_eq!(self.cdi.get(&record.uid), record.cdi.as_ref(), "{at}: {self:#?}");
        let expected = Some(Use { owner: record.uid.clone(), ready: true });
        for device in &record.devices {
            assert_eq!(self.hardware.get(device), expected.as_ref(), "{at}: {device}: {self:#?}");
        }
    }

    pub(crate) fn check_nothing_left(&self, at: &str) {
        assert_eq!(self.violations, "", "{at}");
        let nothing = self.records.is_empty()
            && self.cdi.is_empty()
            && self.hardware.is_empty()
            && self.temps.is_empty();
        assert!(nothing, "{at}: {self:#?}");
    }

    pub(crate) fn record(&self, uid: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.uid == uid)
    }
}

fn is_temp(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}

/// The text of a file, unless it has gone since the folder was listed.
pub(crate) fn read_if_there(path: &Path) -> Option<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        text => Some(text.unwrap()),
    }
}

/// `<vendor>+<class>+<claim UID>.json`.
fn uid_of_cdi_file(path: &Path) -> String {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem.rsplit('+').next().unwrap().to_owned()
}

fn folders_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files; none if there is no such folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
