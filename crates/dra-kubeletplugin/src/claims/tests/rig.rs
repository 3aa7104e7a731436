//! A driver, a disk and an API server that do as they are told.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dra_cdi::{Directory, Kind};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{
    Adopt, AdoptedClaim, AdoptedDevice, AllocatedClaim, ClaimRef, ContainerEdits, DeviceRef, DriverPlugin,
    HeldClaim, PluginError, PrepareContext, Prepared,
    claim_status::StatusWriter,
    claims::{
        AnsweredDevice, Claims, ClaimsConfig, Failure, FileRecords, Found, Instance, Lookup, Records,
        record::Record,
        store::{Store, StoreError},
    },
    error::BackgroundError,
    mutex::locked,
    names::ClaimUid,
};

pub(super) const DRIVER: &str = "gpu.example.com";
pub(super) const NODE: &str = "node-1";

/// What outlives a process: folders, the API server, and the driver's hardware.
pub(super) struct Rig {
    folder: TempDir,
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    pub(super) told: Arc<Mutex<Vec<String>>>,
    pub(super) hooks: Arc<Hooks>,
    pub(super) api_hangs: Arc<AtomicBool>,
    /// The API server was restored from an empty store.
    pub(super) api_knows_no_node: Arc<AtomicBool>,
}

/// One instance to be started.
pub(super) struct Start {
    pub(super) boot: &'static str,
    pub(super) pod: Option<&'static str>,
    pub(super) max_parallel: usize,
}

impl Default for Start {
    fn default() -> Self {
        Self { boot: "boot-1", pod: None, max_parallel: 16 }
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        Self {
            folder,
            objects: Arc::default(),
            told: Arc::default(),
            hooks: Arc::default(),
            api_hangs: Arc::default(),
            api_knows_no_node: Arc::default(),
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The records of the first boot, past the hooks.
    fn records(&self) -> Arc<dyn Store> {
        FileRecords::in_folder(&self.data()).of_boot("boot-1").unwrap()
    }

    /// Changes what is recorded of a claim, past the hooks: as another instance does.
    pub(super) fn rewrite(
        &self,
        uid: &ClaimUid,
        change: impl FnOnce(&mut Record) + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let (store, uid) = (self.records(), uid.clone());
        move || {
            let Found::Stored { mut record, .. } = store.load(&uid).unwrap() else { panic!("no record") };
            change(&mut record);
            store.remove(&uid).unwrap();
            store.write(&record).unwrap();
        }
    }

    /// Lets the sync of the folder fail after these records were written.
    pub(super) fn fail_syncs(&self, of: impl Fn(&Record) -> bool + Send + 'static) {
        let store = self.records();
        *locked(&self.hooks.before_write) = Some(Box::new(move |record| {
            of(record).then(|| {
                store.write(record).unwrap();
                eio()
            })
        }));
    }

    pub(super) fn record(&self, name: &str) -> PathBuf {
        self.data().join(format!("claims/boot-1/uid-{name}.json"))
    }

    pub(super) fn cdi_file(&self, name: &str) -> PathBuf {
        let cdi = Directory::open(self.folder.path().join("cdi"), Kind::for_driver(DRIVER).unwrap()).unwrap();
        cdi.path_of(&dra_cdi::FileId::new(format!("uid-{name}")).unwrap())
    }

    /// Makes a claim that has these devices: `gpu-0`, or `gpu-0/share-1` for a share.
    pub(super) fn claim(&self, name: &str, devices: &[&str]) -> ClaimRef {
        let result = |device: &&str| {
            let (device, share) = device.split_once('/').map_or((*device, None), |(d, s)| (d, Some(s)));
            json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, "shareID": share})
        };
        let results: Vec<_> = devices.iter().map(result).collect();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")}, "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        locked(&self.objects).insert(name.to_owned(), object);
        ClaimRef::new("ns", name, format!("uid-{name}").parse().unwrap())
    }

    pub(super) fn delete(&self, claim: &ClaimRef) {
        locked(&self.objects).remove(&claim.name);
    }

    pub(super) async fn open(&self, driver: &Arc<Driver>, start: Start) -> Arc<Claims<Driver>> {
        let (data, deadline) = (self.data(), Instant::now() + Duration::from_secs(30));
        let instance = Arc::new(Instance::join(&data, start.pod, deadline).await.unwrap());
        let kind = Kind::for_driver(DRIVER).unwrap();
        let (told, driver_name) = (Arc::clone(&self.told), DRIVER.parse().unwrap());
        let records =
            Hooked { inner: Arc::new(FileRecords::in_folder(&data)), hooks: Arc::clone(&self.hooks) };
        let config = ClaimsConfig {
            plugin: Arc::clone(driver),
            tell: Arc::new(move |error: BackgroundError| locked(&told).push(error.to_string())),
            driver: DRIVER.parse().unwrap(),
            lookup: Lookup::new(self.client(), driver_name, NODE.parse().unwrap()),
            records: Arc::new(records),
            cdi: Directory::open(self.folder.path().join("cdi"), kind.clone()).unwrap(),
            kind,
            max_parallel: start.max_parallel,
            instance,
            status: StatusWriter::new(),
            go_helper: None,
        };
        Arc::new(Claims::open(config, &data, start.boot, start.pod, deadline).await.unwrap())
    }

    /// The same, recovered.
    pub(super) async fn start(&self, driver: &Arc<Driver>, start: Start) -> Arc<Claims<Driver>> {
        let claims = self.open(driver, start).await;
        Arc::clone(&claims).recover().await;
        claims
    }

    fn client(&self) -> kube::Client {
        let objects = Arc::clone(&self.objects);
        let hangs = Arc::clone(&self.api_hangs);
        let knows_no_node = Arc::clone(&self.api_knows_no_node);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let found = if path.contains("/nodes/") {
                let node = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}});
                (!knows_no_node.load(Ordering::SeqCst)).then_some(node)
            } else {
                locked(&objects).get(&name).cloned()
            };
            let (code, object) = found.map_or_else(|| (404, not_found()), |object| (200, object));
            let hangs = hangs.load(Ordering::SeqCst);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                let response = Response::builder().status(code).header("content-type", "application/json");
                Ok::<_, io::Error>(response.body(Body::from(object.to_string().into_bytes())).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

fn not_found() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": "not found", "reason": "NotFound", "code": 404,
    })
}

/// When the kubelet stops waiting.
pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(45)
}

pub(super) async fn prepare(
    claims: &Arc<Claims<Driver>>,
    claim: &ClaimRef,
) -> Result<Vec<AnsweredDevice>, Failure> {
    claims.prepare(claim.clone(), soon()).await
}

/// A prepare that fails, with a roll-back that fails too: the record goes on saying that it was started. So do all prepares of
/// the claim until [`Driver::fail_no_more`].
pub(super) async fn start_only(driver: &Driver, claims: &Arc<Claims<Driver>>, claim: &ClaimRef) {
    driver.fail(&format!("prepare {}", claim.name));
    driver.fail(&format!("rollback {}", claim.name));
    prepare(claims, claim).await.unwrap_err();
}

pub(super) fn gpu(name: &str) -> AdoptedDevice {
    DeviceRef::new(NODE.parse().unwrap(), name.parse().unwrap()).into()
}

/// A claim in the checkpoint of another program.
pub(super) fn adopted(name: &str, device: AdoptedDevice) -> AdoptedClaim<u64> {
    AdoptedClaim::new(format!("uid-{name}").parse().unwrap(), [device], 1).named("ns", name)
}

/// A driver that notes its calls, and holds up those that it is told to.
pub(super) struct Driver {
    log: watch::Sender<Vec<String>>,
    /// Calls that begin with one of these wait until it is opened.
    held_up: Mutex<Vec<(String, Arc<Semaphore>)>>,
    failing: Mutex<Vec<String>>,
    /// How long a save may take before it is dropped, and whether that is an error.
    pub(super) save: Mutex<Option<(Duration, bool)>>,
    pub(super) checkpoint: Mutex<Vec<AdoptedClaim<u64>>>,
    pub(super) current: Mutex<bool>,
    pub(super) in_use: AtomicBool,
    running: AtomicUsize,
    pub(super) most_running: AtomicUsize,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            log: watch::Sender::default(),
            held_up: Mutex::default(),
            failing: Mutex::default(),
            save: Mutex::default(),
            checkpoint: Mutex::default(),
            current: Mutex::new(true),
            in_use: AtomicBool::default(),
            running: AtomicUsize::default(),
            most_running: AtomicUsize::default(),
        }
    }
}

impl Driver {
    pub(super) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Holds up calls whose line begins so; a permit lets one go on.
    pub(super) fn hold_up(&self, line: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        locked(&self.held_up).push((line.to_owned(), Arc::clone(&gate)));
        gate
    }

    pub(super) fn fail(&self, line: &str) {
        locked(&self.failing).push(line.to_owned());
    }

    pub(super) fn fail_no_more(&self) {
        locked(&self.failing).clear();
    }

    /// Waits for a call whose line begins so.
    pub(super) async fn called(&self, line: &str) {
        let mut log = self.log.subscribe();
        let called = log.wait_for(|log| log.iter().any(|found| found.starts_with(line)));
        tokio::time::timeout(Duration::from_secs(600), called).await.expect(line).unwrap();
    }

    async fn call(&self, line: String) -> Result<(), PluginError> {
        struct Running<'a>(&'a AtomicUsize);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(&self.running);
        self.most_running.fetch_max(running, Ordering::SeqCst);
        self.log.send_modify(|log| log.push(line.clone()));
        let gate = locked(&self.held_up).iter().find(|(held, _)| line.starts_with(held)).cloned();
        if let Some((_, gate)) = gate {
            gate.acquire().await.unwrap().forget();
        }
        let fails = locked(&self.failing).iter().any(|failing| line.starts_with(failing));
        if fails { Err(PluginError::new("as told")) } else { Ok(()) }
    }
}

impl DriverPlugin for Driver {
    type State = u64;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<u64>,
    ) -> Result<Prepared<u64>, PluginError> {
        self.call(format!("prepare {}", claim.claim_ref().name)).await?;
        let save = *locked(&self.save);
        if let Some((limit, is_error)) = save {
            let saved = tokio::time::timeout(limit, cx.save(&7)).await;
            if saved.is_err() && is_error {
                return Err(PluginError::new("saving takes too long"));
            }
        }
        let calls = self.log().len();
        let edits = || ContainerEdits::new().env("CALLS", calls.to_string());
        Ok(claim.devices().iter().fold(Prepared::new(1), |prepared, device| prepared.device(device, edits())))
    }

    async fn unprepare(&self, held: &HeldClaim<u64>) -> Result<(), PluginError> {
        self.call(format!(
            "unprepare {} {:?}",
            held.claim.uid.as_str().trim_start_matches("uid-"),
            held.reason
        ))
        .await
    }

    async fn rollback(&self, held: &HeldClaim<u64>) -> Result<(), PluginError> {
        self.call(format!(
            "rollback {} {:?}",
            held.claim.uid.as_str().trim_start_matches("uid-"),
            held.reason
        ))
        .await
    }

    async fn unprepare_unknown(&self, claim: &ClaimRef) -> Result<(), PluginError> {
        self.call(format!("unknown {}", claim.name)).await
    }

    async fn is_current(&self, claim: &AllocatedClaim, _: Option<&u64>) -> Result<bool, PluginError> {
        let current = *locked(&self.current);
        if current {
            Ok(true)
        } else {
            self.call(format!("is_current {}", claim.claim_ref().name)).await.map(|()| false)
        }
    }

    async fn in_use(&self, _: &HeldClaim<u64>) -> Result<bool, PluginError> {
        Ok(self.in_use.load(Ordering::SeqCst))
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<u64>>, PluginError> {
        let checkpoint = locked(&self.checkpoint).clone();
        let busy = |gates: &Vec<(String, Arc<Semaphore>)>| gates.iter().any(|(line, _)| line == "adopt");
        let failing = locked(&self.failing).iter().any(|line| line == "adopt");
        if failing || busy(&locked(&self.held_up)) {
            self.call("adopt".to_owned()).await?;
        }
        let wanted = |claim: &AdoptedClaim<u64>| match which {
            Adopt::All => true,
            Adopt::Claim(uid) => claim.uid == *uid,
        };
        Ok(checkpoint.into_iter().filter(wanted).collect())
    }
}

/// Records with hooks around.
#[derive(Debug)]
struct Hooked {
    inner: Arc<dyn Records>,
    hooks: Arc<Hooks>,
}

/// Runs once, after the record of this claim was read.
type AfterLoad = Option<(String, Box<dyn FnOnce() + Send>)>;

type Hook = Box<dyn Fn(&Record) -> Option<io::Error> + Send>;

/// What the disk does beside what it should. Each is asked before or after the real thing.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) after_load: Mutex<AfterLoad>,
    /// May wait, or make a write fail before anything is written.
    pub(super) before_write: Mutex<Option<Hook>>,
    /// Makes removals fail after the record is gone, as a sync of its folder does.
    pub(super) fail_after_remove: Mutex<bool>,
    /// Makes listings of other boots fail, so many times.
    pub(super) failing_lists: AtomicUsize,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hooks")
    }
}

#[derive(Debug)]
struct HookedStore {
    inner: Arc<dyn Store>,
    hooks: Arc<Hooks>,
    other_boot: bool,
}

impl Records for Hooked {
    fn of_boot(&self, boot_id: &str) -> Result<Arc<dyn Store>, StoreError> {
        let (inner, hooks) = (self.inner.of_boot(boot_id)?, Arc::clone(&self.hooks));
        Ok(Arc::new(HookedStore { inner, hooks, other_boot: false }))
    }

    fn of_other_boots(&self, boot_id: &str) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        let hook = |inner| -> Arc<dyn Store> {
            Arc::new(HookedStore { inner, hooks: Arc::clone(&self.hooks), other_boot: true })
        };
        Ok(self.inner.of_other_boots(boot_id)?.into_iter().map(hook).collect())
    }
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn failed(path: &str, source: io::Error) -> StoreError {
    StoreError { operation: "testing", path: Path::new(path).to_owned(), source }
}

impl Store for HookedStore {
    fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError> {
        let found = self.inner.load(uid);
        let hook = locked(&self.hooks.after_load).take_if(|(wanted, _)| wanted == uid.as_str());
        if let Some((_, run)) = hook {
            run();
        }
        found
    }

    fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let failing = &self.hooks.failing_lists;
        let fails = self.other_boot
            && failing.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { Err(failed("boot", eio())) } else { self.inner.claims() }
    }

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        let error = locked(&self.hooks.before_write).as_ref().and_then(|hook| hook(record));
        if let Some(source) = error {
            return Err(failed("record", source));
        }
        self.inner.write(record)
    }

    fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        self.inner.mark_unpreparing(uid)
    }

    fn write_over(&self, record: &Record) -> Result<(), StoreError> {
        self.inner.write_over(record)
    }

    fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        self.inner.remove(uid)?;
        if *locked(&self.hooks.fail_after_remove) { Err(failed("folder", eio())) } else { Ok(()) }
    }

    fn sweep_leftovers(&self, older_than: Duration) -> Result<(), StoreError> {
        self.inner.sweep_leftovers(older_than)
    }

    fn remove_if_empty(&self) -> Result<(), StoreError> {
        self.inner.remove_if_empty()
    }
}
