//! The node's folders, and what may lie in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dra_testkit::runtime::Runtime;
use tempfile::TempDir;

use crate::hardware::{Hardware, TOLD, Use, VIOLATIONS};
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
    /// Metadata files, whole ones: content by base request, by claim UID.
    pub(crate) metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// CDI files of another program, by name.
    pub(crate) foreign_cdi: BTreeSet<String>,
    /// What another program's books say: claim UIDs by device.
    pub(crate) old_books: BTreeMap<String, String>,
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
        for folder in ["hardware", "old-books", "kubelet/plugins", "kubelet/plugins_registry"] {
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

    fn metadata(&self) -> PathBuf {
        self.claims().with_file_name("metadata")
    }

    fn claims(&self) -> PathBuf {
        self.kubelet().join("plugins").join(DRIVER).join("claims")
    }

    /// Another program has prepared the claim: in its books, in the hardware, and as the Go library names CDI files.
    pub(crate) fn prepare_by_another(&self, claim: &str, device: &str) {
        Hardware::new(self.path()).prepare_by_another(claim, device);
        fs::create_dir_all(self.cdi()).unwrap();
        let foreign = format!(
            r#"{{"cdiVersion":"0.5.0","kind":"k8s.{DRIVER}/claim","devices":[{{"name":"{claim}-{device}","containerEdits":{{"env":["DEVICE={device}"]}}}}]}}"#
        );
        fs::write(self.cdi().join(foreign_cdi_file(claim)), foreign).unwrap();
    }

    /// Cuts a record in half.
    pub(crate) fn damage_record(&self, claim: &str) {
        let records = files_below(&self.claims());
        let path = records.iter().find(|path| path.file_stem().is_some_and(|stem| stem == claim)).unwrap();
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }

    /// Damaged records that a repair has put aside.
    pub(crate) fn set_aside(&self) -> Vec<PathBuf> {
        files_below(&self.claims().with_file_name("damaged"))
    }

    pub(crate) fn remove_cdi_folder(&self) {
        remove_folder(&self.cdi());
    }

    pub(crate) fn remove_metadata_folder(&self) {
        remove_folder(&self.metadata());
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
            metadata: folders_in(&self.metadata()).into_iter().map(|uid| (uid, BTreeMap::new())).collect(),
            foreign_cdi: BTreeSet::new(),
            old_books: hardware.old_books().into_iter().map(|(claim, device)| (device, claim)).collect(),
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
        for path in files_below(&self.metadata()) {
            let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
            let of_claim = state.metadata.entry(file_name(path.parent().unwrap())).or_default();
            if is_temp(&path) {
                state.temps.push(path);
            } else {
                of_claim.extend(read_if_there(&path).map(|content| (name(&path), content)));
            }
        }
        for path in files_below(&self.cdi()) {
            if is_temp(&path) {
                state.temps.push(path);
            } else {
                let content = read_if_there(&path);
                match uid_of_cdi_file(&path) {
                    Some(uid) => state.cdi.extend(content.map(|content| (uid, content))),
                    None => drop(state.foreign_cdi.insert(file_name(&path))),
                }
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
            let owned = owners.get(device) == Some(&owner) || self.old_books.get(device) == Some(owner);
            assert!(owned, "{at}: {device}: {self:#?}");
        }
        for uid in self.cdi.keys().chain(self.metadata.keys()) {
            assert!(self.record(uid).is_some(), "{at}: files without a record: {self:#?}");
        }
    }

    /// Record, CDI file and hardware agree.
    pub(crate) fn check_prepared(&self, record: &Record, at: &str) {
        assert_eq!(record.phase, Phase::Prepared, "{at}: {self:#?}");
        // Of an adopted claim the other program's CDI file tells, and goes on telling.
        assert_eq!(record.cdi.is_some(), !record.adopted, "{at}: {self:#?}");
        if !record.adopted {
            assert_eq!(self.cdi.get(&record.uid), record.cdi.as_ref(), "{at}: {self:#?}");
        }
        let metadata = self.metadata.get(&record.uid).cloned().unwrap_or_default();
        assert_eq!(metadata, record.metadata, "{at}: {self:#?}");
        assert_eq!(
            !metadata.is_empty(),
            record.devices.iter().any(|device| device == TOLD),
            "{at}: {self:#?}"
        );
        let foreign = record.foreign_cdi.as_ref();
        assert!(foreign.is_none_or(|file| self.foreign_cdi.contains(file)), "{at}: {self:#?}");
        let expected = Some(Use { owner: record.uid.clone(), ready: true });
        for device in &record.devices {
            assert_eq!(self.hardware.get(device), expected.as_ref(), "{at}: {device}: {self:#?}");
        }
    }

    pub(crate) fn check_nothing_left(&self, at: &str) {
        assert_eq!(self.violations, "", "{at}");
        let nothing = self.records.is_empty()
            && self.cdi.is_empty()
            && self.metadata.is_empty()
            && self.foreign_cdi.is_empty()
            && self.old_books.is_empty()
            && self.hardware.is_empty()
            && self.temps.is_empty();
        assert!(nothing, "{at}: {self:#?}");
    }

    pub(crate) fn record(&self, uid: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.uid == uid)
    }
}

/// How the Go library names the CDI file of a claim.
pub(crate) fn foreign_cdi_file(claim: &str) -> String {
    format!("k8s.{DRIVER}-claim_{claim}.json")
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

/// `<vendor>+<class>+<claim UID>.json`, or another program's.
fn uid_of_cdi_file(path: &Path) -> Option<String> {
    let name = file_name(path);
    let (_, uid) = name.strip_suffix(".json")?.rsplit_once('+')?;
    Some(uid.to_owned())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn folders_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files; none if there is no such folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Removes a folder with what the driver, which may be at work in it, puts there meanwhile.
fn remove_folder(folder: &Path) {
    while let Err(error) = fs::remove_dir_all(folder) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty, "{}: {error}", folder.display());
    }
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
