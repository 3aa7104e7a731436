//! The books of the driver on the Go helper that served this node before: its checkpoint has all claims that it has
//! prepared. Reading them is how a driver takes such a node over; striking a claim out of them is how it lets go.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use dra_kubeletplugin::{Adopt, AdoptedClaim, ClaimUid, DeviceRef, DriverName, ForeignFile, PluginError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Where the books are, and whose.
#[derive(Clone, Debug)]
pub(crate) struct GoBooks {
    checkpoint: PathBuf,
    driver: DriverName,
}

/// What is needed of a device in the checkpoint. Go writes the fields of its type as they are called.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoDevice {
    pool_name: String,
    device_name: String,
}

impl GoDevice {
    fn device_ref(&self) -> anyhow::Result<DeviceRef> {
        Ok(DeviceRef::new(self.pool_name.parse()?, self.device_name.parse()?))
    }
}

/// The claims in the books; none without books.
pub(crate) async fn claims(
    books: Option<&GoBooks>,
    which: Adopt<'_>,
) -> Result<Vec<AdoptedClaim<()>>, PluginError> {
    match books {
        Some(books) => books.claims(which).await,
        None => Ok(Vec::new()),
    }
}

/// Takes a claim out of the books, if there are any.
pub(crate) async fn strike(books: Option<&GoBooks>, claim: &ClaimUid) -> Result<(), PluginError> {
    match books {
        Some(books) => books.strike(claim).await,
        None => Ok(()),
    }
}

impl GoBooks {
    pub(crate) fn new(checkpoint: PathBuf, driver: DriverName) -> Self {
        Self { checkpoint, driver }
    }

    /// The claims in the books. Without a file there are none: the Go driver writes it with its first claim.
    async fn claims(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<()>>, PluginError> {
        let one = match which {
            Adopt::Claim(uid) => Some(uid.clone()),
            // Whatever else there will be to ask for: the SDK picks what it needs.
            _ => None,
        };
        self.off_the_workers(move |books| {
            let wanted = |uid: &String| one.as_ref().is_none_or(|one| one.as_str() == uid);
            let entries = books.read()?.into_iter().filter(|(uid, _)| wanted(uid));
            let adopted = entries.map(|(uid, devices)| {
                adopted(&books.driver, &uid, devices).with_context(|| books.about(&format!("claim {uid:?}")))
            });
            adopted.collect()
        })
        .await
    }

    /// Takes a claim out of the books. One that is not in them is a success.
    ///
    /// The Go driver cannot be at them meanwhile: the SDK holds a part of the lock that its helper takes as a whole.
    async fn strike(&self, claim: &ClaimUid) -> Result<(), PluginError> {
        let claim = claim.clone();
        self.off_the_workers(move |books| {
            if !books.checkpoint.exists() {
                return Ok(());
            }
            let _turn = books.lock().with_context(|| books.about("locking"))?;
            let mut entries = books.read()?;
            if entries.remove(claim.as_str()).is_some() {
                books.write(&entries).with_context(|| books.about("writing"))?;
            }
            Ok(())
        })
        .await
    }

    async fn off_the_workers<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, PluginError> {
        let books = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&books)).await?;
        done.map_err(|error| PluginError::new(format!("{error:#}")))
    }

    fn read(&self) -> anyhow::Result<Map<String, Value>> {
        let text = match fs::read(&self.checkpoint) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Map::new()),
            text => text.with_context(|| self.about("reading"))?,
        };
        serde_json::from_slice(&text).with_context(|| {
            self.about("reading: put it right, or remove it if none of that driver's pods is left")
        })
    }

    /// Whole at every instant, and durable: what is struck out must not come back.
    fn write(&self, entries: &Map<String, Value>) -> anyhow::Result<()> {
        let temporary = self.beside(".new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(entries)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.checkpoint)?;
        let folder = self.checkpoint.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        Ok(File::open(folder)?.sync_all()?)
    }

    /// Keeps other claims of ours away, of this process and of others. Let go of when dropped.
    fn lock(&self) -> io::Result<File> {
        let file = File::options().write(true).create(true).truncate(false).open(self.beside(".lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.checkpoint.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    fn about(&self, what: &str) -> String {
        format!("checkpoint {} of the Go driver: {what}", self.checkpoint.display())
    }
}

fn adopted(driver: &DriverName, uid: &str, devices: Value) -> anyhow::Result<AdoptedClaim<()>> {
    // A Go slice without elements is `null`.
    let devices: Option<Vec<GoDevice>> = serde_json::from_value(devices)?;
    let devices = devices.unwrap_or_default();
    let devices: Vec<DeviceRef> = devices.iter().map(GoDevice::device_ref).collect::<anyhow::Result<_>>()?;
    Ok(AdoptedClaim::new(uid.parse()?, devices, ()).cdi_file(cdi_file(driver, uid)?))
}

/// What the Go library makes of vendor, class and claim. It takes what follows the last dot for an ending, finds that it
/// is none that it knows, and adds its own.
fn cdi_file(driver: &DriverName, uid: &str) -> anyhow::Result<ForeignFile> {
    Ok(format!("k8s.{driver}-claim_{uid}.yaml").parse()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const A: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";
    const B: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0b";

    fn books(folder: &tempfile::TempDir, text: &str) -> GoBooks {
        let checkpoint = folder.path().join("checkpoint.json");
        fs::write(&checkpoint, text).unwrap();
        GoBooks::new(checkpoint, "gpu.example.com".parse().unwrap())
    }

    /// As `e2e/go-driver` writes it.
    fn two_claims() -> String {
        format!(
            r#"{{"{A}":[{{"Requests":["gpu"],"PoolName":"node-1","DeviceName":"gpu-0","CDIDeviceIDs":["k8s.gpu.example.com/claim={A}-gpu-0"],"ShareID":null,"Metadata":null}}],"{B}":null}}"#
        )
    }

    fn uids(claims: &[AdoptedClaim<()>]) -> Vec<&str> {
        claims.iter().map(|claim| claim.uid.as_str()).collect()
    }

    #[tokio::test]
    async fn claims_are_found_with_their_devices_and_their_cdi_files() {
        let folder = tempfile::tempdir().unwrap();
        let books = books(&folder, &two_claims());
        let all = books.claims(Adopt::All).await.unwrap();
        assert_eq!(uids(&all), [A, B]);
        let gpu = DeviceRef::new("node-1".parse().unwrap(), "gpu-0".parse().unwrap());
        assert_eq!((all[0].devices.as_slice(), all[1].devices.as_slice()), (&[gpu.into()][..], &[][..]));
        let file = all[0].cdi_file.as_ref().unwrap().as_str();
        assert_eq!(file, format!("k8s.gpu.example.com-claim_{A}.yaml"));
        let one = books.claims(Adopt::Claim(&B.parse().unwrap())).await.unwrap();
        assert_eq!(uids(&one), [B]);
    }

    #[tokio::test]
    async fn a_claim_is_struck_out_and_the_rest_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let books = books(&folder, &two_claims());
        for _ in 0..2 {
            books.strike(&B.parse().unwrap()).await.unwrap();
        }
        assert_eq!(uids(&books.claims(Adopt::All).await.unwrap()), [A]);
        let text = fs::read_to_string(&books.checkpoint).unwrap();
        assert!(text.contains("CDIDeviceIDs"), "{text}");
    }

    #[tokio::test]
    async fn claims_that_are_struck_out_at_once_are_all_gone() {
        let folder = tempfile::tempdir().unwrap();
        let entries: BTreeMap<String, Value> = (0..40).map(|n| (format!("claim-{n}"), Value::Null)).collect();
        let books = books(&folder, &serde_json::to_string(&entries).unwrap());
        let mut strikes = tokio::task::JoinSet::new();
        for claim in entries.into_keys() {
            let books = books.clone();
            strikes.spawn(async move { books.strike(&claim.parse().unwrap()).await.unwrap() });
        }
        strikes.join_all().await;
        assert_eq!(fs::read_to_string(&books.checkpoint).unwrap(), "{}");
    }

    #[tokio::test]
    async fn without_a_checkpoint_there_are_no_claims() {
        let folder = tempfile::tempdir().unwrap();
        let books = books(&folder, "{}");
        fs::remove_file(&books.checkpoint).unwrap();
        assert_eq!(books.claims(Adopt::All).await.unwrap(), []);
        books.strike(&A.parse().unwrap()).await.unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made");
    }

    #[tokio::test]
    async fn a_checkpoint_that_makes_no_sense_is_told_with_its_path_and_stays() {
        let bad = [
            String::new(),
            "[]".to_owned(),
            r#"{"../x":null}"#.to_owned(),
            format!(r#"{{"{A}":[{{"PoolName":"node-1"}}]}}"#),
            format!(r#"{{"{A}":[{{"PoolName":"node-1","DeviceName":"GPU 0"}}]}}"#),
        ];
        for text in bad {
            let folder = tempfile::tempdir().unwrap();
            let books = books(&folder, &text);
            let error = books.claims(Adopt::All).await.unwrap_err().to_string();
            assert!(error.contains("checkpoint.json of the Go driver"), "{text}: {error}");
            assert_eq!(fs::read_to_string(&books.checkpoint).unwrap(), text);
        }
    }
}
