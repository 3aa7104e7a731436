//! The driver, and the hardware behind it: a folder with a file for each device in use. It outlives the driver's
//! process, keeps book of nothing but its owner, and notes everything that must never happen.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dra_cdi::__fault_point as point;
use dra_kubeletplugin::{
    Adopt, AdoptedClaim, AllocatedClaim, BackgroundError, ClaimRef, ContainerEdits, DeviceMetadata,
    DeviceRef, DriverPlugin, HeldClaim, PluginError, PrepareContext, Prepared,
};
use serde::{Deserialize, Serialize};

use crate::lab::NODE;
use crate::node::{foreign_cdi_file, read_if_there};

/// A device that cannot be prepared.
pub(crate) const BROKEN: &str = "gpu-broken";

/// A device of which containers are told something.
pub(crate) const TOLD: &str = "gpu-told";

/// Where violations are noted, beside the hardware's folder.
pub(crate) const VIOLATIONS: &str = "violations";

/// The driver of the hardware in this folder.
pub(crate) struct Hardware {
    folder: PathBuf,
    /// The books of another program: a file for each claim, with its device.
    old_books: PathBuf,
}

/// What unprepare has to know.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reserved {
    devices: Vec<String>,
}

/// How far a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// UID of the claim.
    pub(crate) owner: String,
    /// Whether it is prepared, not only reserved.
    pub(crate) ready: bool,
}

impl Use {
    fn parse(text: &str) -> Self {
        let (owner, state) = text.split_once(' ').unwrap();
        Self { owner: owner.to_owned(), ready: state == "ready" }
    }
}

impl Hardware {
    pub(crate) fn new(root: &Path) -> Self {
        Self { folder: root.join("hardware"), old_books: root.join("old-books") }
    }

    /// Claim and device of each claim in the other program's books.
    pub(crate) fn old_books(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(&self.old_books).unwrap();
        let claims = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        claims
            .filter_map(|claim| Some((claim.clone(), read_if_there(&self.old_books.join(claim))?)))
            .collect()
    }

    /// What another program does.
    pub(crate) fn prepare_by_another(&self, claim: &str, device: &str) {
        fs::write(self.old_books.join(claim), device).unwrap();
        fs::write(self.folder.join(device), format!("{claim} ready")).unwrap();
    }

    /// The device's use, if it has one.
    pub(crate) fn look(&self, device: &str) -> Option<Use> {
        read_if_there(&self.folder.join(device)).map(|text| Use::parse(&text))
    }

    /// Devices in use.
    pub(crate) fn used(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The first step: nobody may have the device, not even the claim itself unless another program has prepared it.
    fn reserve(&self, device: &str, claim: &str) -> Result<(), PluginError> {
        let is_own = || self.look(device).is_some_and(|found| found.owner == claim);
        if self.old_books.join(claim).exists() && is_own() {
            return Ok(());
        }
        point("hardware.reserve")?;
        match File::create_new(self.folder.join(device)) {
            Ok(mut file) => Ok(write!(file, "{claim} reserved")?),
            Err(error) => {
                let owner = self.look(device);
                Err(self.violation(&format!("{claim} wants {device}, used by {owner:?}: {error}")))
            }
        }
    }

    /// The second step.
    fn make_ready(&self, device: &str, claim: &str) -> Result<(), PluginError> {
        point("hardware.make-ready")?;
        if device == BROKEN {
            return Err(PluginError::new("this device is broken"));
        }
        Ok(fs::write(self.folder.join(device), format!("{claim} ready"))?)
    }

    fn release(&self, held: &HeldClaim<Reserved>, was_prepared: bool) -> Result<(), PluginError> {
        let claim = held.claim.uid.as_str();
        let devices: Vec<String> =
            held.devices.iter().map(|device| device.device_ref().device.to_string()).collect();
        match &held.state {
            Some(state) if state.devices != devices => {
                return Err(self.violation(&format!("{claim} has {devices:?}, saved were {state:?}")));
            }
            None if was_prepared => {
                return Err(self.violation(&format!("{claim} was prepared and has no state")));
            }
            _ => {}
        }
        for device in &devices {
            match self.look(device) {
                None => continue,
                Some(found) if found.owner != claim => {
                    return Err(self.violation(&format!("{claim} gives back {device} of {}", found.owner)));
                }
                Some(Use { ready: true, .. }) if held.state.is_none() => {
                    return Err(self.violation(&format!("the state that {claim} saved is lost")));
                }
                Some(_) => {}
            }
            point("hardware.release")?;
            fs::remove_file(self.folder.join(device))?;
        }
        let entry = self.old_books.join(claim);
        if entry.exists() {
            point("hardware.close-books")?;
            fs::remove_file(entry)?;
        }
        Ok(())
    }

    fn violation(&self, what: &str) -> PluginError {
        let path = self.folder.with_file_name(VIOLATIONS);
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what}").unwrap();
        PluginError::new(what)
    }
}

impl DriverPlugin for Hardware {
    type State = Reserved;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<Reserved>,
    ) -> Result<Prepared<Reserved>, PluginError> {
        let uid = claim.uid().as_str();
        let devices = || claim.devices().iter().map(|device| device.device().as_str());
        let reserved = || Reserved { devices: devices().map(str::to_owned).collect() };
        devices().try_for_each(|device| self.reserve(device, uid))?;
        cx.save(&reserved()).await?;
        devices().try_for_each(|device| self.make_ready(device, uid))?;
        let edits = |device: &str| ContainerEdits::new().env("DEVICE", device);
        Ok(claim.devices().iter().fold(Prepared::new(reserved()), |prepared, device| {
            let prepared = prepared.device(device, edits(device.device().as_str()));
            let told = device.device().as_str() == TOLD;
            if told { prepared.metadata(device, DeviceMetadata::new()) } else { prepared }
        }))
    }

    async fn unprepare(&self, claim: &HeldClaim<Reserved>) -> Result<(), PluginError> {
        self.release(claim, true)
    }

    async fn rollback(&self, claim: &HeldClaim<Reserved>) -> Result<(), PluginError> {
        self.release(claim, false)
    }

    async fn unprepare_unknown(&self, claim: &ClaimRef) -> Result<(), PluginError> {
        let owns = |device: &String| self.look(device).is_some_and(|found| found.owner == claim.uid.as_str());
        match self.used().into_iter().find(owns) {
            Some(device) => Err(self.violation(&format!("no record tells of {claim}, which has {device}"))),
            None => Ok(()),
        }
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<Reserved>>, PluginError> {
        let wanted = |claim: &str| match which {
            Adopt::Claim(uid) => uid.as_str() == claim,
            _ => true,
        };
        let adopted =
            self.old_books().into_iter().filter(|(claim, _)| wanted(claim)).map(|(claim, device)| {
                let held = DeviceRef::new(NODE.parse()?, device.parse()?);
                let file = foreign_cdi_file(&claim).parse()?;
                let state = Reserved { devices: vec![device] };
                Ok(AdoptedClaim::new(claim.parse()?, [held], state).cdi_file(file))
            });
        adopted.collect()
    }

    fn on_background_error(&self, error: &BackgroundError) {
        eprintln!("background: {error}");
    }
}
