//! What a driver on the SDK cannot do without, and nothing else: for each claim a GET, two records and a CDI file, each
//! synced with its folder; at unprepare a rename and two removals, each folder synced. Prints figures as `go-load` does.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

#[derive(Parser)]
struct Options {
    /// Kubeconfig file.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// JSON file with the claims.
    #[arg(long)]
    claims: PathBuf,
    /// Folder for the records.
    #[arg(long)]
    records: PathBuf,
    /// Folder for the CDI files.
    #[arg(long)]
    cdi: PathBuf,
    /// Claims in one call.
    #[arg(long)]
    per_call: usize,
    /// Calls at once.
    #[arg(long)]
    at_once: usize,
    /// `prepare` and `unprepare`.
    #[arg(long, value_delimiter = ',')]
    phases: Vec<String>,
    /// Seconds between the first GET, which opens the connection, and the first call.
    #[arg(long, default_value_t = 0)]
    silence: u64,
}

#[derive(Clone, Deserialize)]
struct Claim {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Serialize)]
struct Figures<'a> {
    phase: &'a str,
    claims: usize,
    total: f64,
    p50: f64,
    p99: f64,
}

/// The sizes of what `mock-gpu-driver` writes.
const STARTED: [u8; 700] = [b's'; 700];
const CDI: [u8; 800] = [b'c'; 800];
const PREPARED: [u8; 1900] = [b'p'; 1900];

/// As many as the SDK does at once.
const GETS: usize = 16;
const AT_DISK: usize = 4;

#[derive(Clone)]
struct Floor {
    client: Client,
    records: PathBuf,
    cdi: PathBuf,
    gets: Arc<Semaphore>,
    disk: Arc<Semaphore>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let text = fs::read(&options.claims).with_context(|| format!("reading {}", options.claims.display()))?;
    let claims: Vec<Claim> = serde_json::from_slice(&text).context("reading the claims")?;
    fs::create_dir_all(&options.records).context("making the folder of the records")?;
    let floor = Floor {
        client: dra_kubeletplugin::client_from(Some(&options.kubeconfig)).await?,
        records: options.records,
        cdi: options.cdi,
        gets: Arc::new(Semaphore::new(GETS)),
        disk: Arc::new(Semaphore::new(AT_DISK)),
    };
    let first = claims.first().context("there are no claims")?;
    // A driver has its connection by then.
    floor.get(first).await?;
    tokio::time::sleep(Duration::from_secs(options.silence)).await;
    for phase in &options.phases {
        let start = Instant::now();
        let calls = claims.chunks(options.per_call).map(|claims| floor.clone().call(phase, claims.to_vec()));
        let mut times: Vec<_> = stream::iter(calls).buffer_unordered(options.at_once).try_collect().await?;
        let total = start.elapsed();
        times.sort_unstable();
        let figures = Figures {
            phase,
            claims: claims.len(),
            total: milliseconds(total),
            p50: milliseconds(times[(times.len() - 1) / 2]),
            p99: milliseconds(times[(times.len() - 1) * 99 / 100]),
        };
        println!("{}", serde_json::to_string(&figures)?);
    }
    Ok(())
}

impl Floor {
    /// All claims of a call at once; gives how long it took.
    async fn call(self, phase: &str, claims: Vec<Claim>) -> Result<Duration> {
        let start = Instant::now();
        let works: Vec<_> = match phase {
            "prepare" => claims.into_iter().map(|claim| tokio::spawn(self.clone().prepare(claim))).collect(),
            "unprepare" => {
                claims.into_iter().map(|claim| tokio::spawn(self.clone().unprepare(claim))).collect()
            }
            other => bail!("there is no phase {other:?}"),
        };
        try_join_all(works).await?.into_iter().collect::<Result<()>>()?;
        Ok(start.elapsed())
    }

    async fn get(&self, claim: &Claim) -> Result<ResourceClaim> {
        let _permit = self.gets.acquire().await?;
        Ok(Api::namespaced(self.client.clone(), &claim.namespace).get(&claim.name).await?)
    }

    async fn prepare(self, claim: Claim) -> Result<()> {
        self.get(&claim).await.with_context(|| format!("getting claim {}", claim.name))?;
        let (records, cdi) = (self.records.clone(), self.cdi.clone());
        let _permit = self.disk.acquire().await?;
        let written = tokio::task::spawn_blocking(move || {
            let record = format!("{}.json", claim.uid);
            write(&records, &record, &STARTED)?;
            write(&cdi, &format!("{}.json", claim.uid), &CDI)?;
            write(&records, &record, &PREPARED)
        });
        written.await?.context("writing")
    }

    async fn unprepare(self, claim: Claim) -> Result<()> {
        let (records, cdi) = (self.records.clone(), self.cdi.clone());
        let _permit = self.disk.acquire().await?;
        let removed = tokio::task::spawn_blocking(move || {
            let (record, marked) = (format!("{}.json", claim.uid), format!("{}.unpreparing", claim.uid));
            fs::rename(records.join(&record), records.join(&marked))?;
            File::open(&records)?.sync_all()?;
            fs::remove_file(cdi.join(record))?;
            File::open(&cdi)?.sync_all()?;
            fs::remove_file(records.join(marked))?;
            File::open(&records)?.sync_all()
        });
        removed.await?.context("removing")
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = folder.join(format!(".{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
