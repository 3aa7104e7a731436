//! What a scenario works with: a namespace, drivers, and questions to the cluster.

mod clean_up;
mod objects;
mod pods;

pub(crate) use pods::phase;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{SoakOptions, driver::Driver, eventually::eventually, node, scenario::Tier};

/// What all scenarios of a run share.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) tier: Tier,
    pub(crate) kubernetes: String,
    pub(crate) binaries: PathBuf,
    pub(crate) helpers: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) soak: SoakOptions,
    /// Whether documents are given the output that there is now.
    pub(crate) updates: bool,
}

impl Setup {
    /// The minor version of the cluster: the 37 of 1.37.2; `None` if nobody has said which it is.
    pub(crate) fn minor(&self) -> Option<u32> {
        self.kubernetes.split('.').nth(1)?.parse().ok()
    }
}

/// One scenario's own.
pub(crate) struct Context {
    /// Speaks for a cluster administrator.
    pub(crate) client: Client,
    /// What is run; loops are longer in `Tier::Full`.
    pub(crate) tier: Tier,
    /// The cluster's version, such as `1.37.2`.
    pub(crate) kubernetes: String,
    /// A namespace of its own, for pods and claims.
    pub(crate) namespace: String,
    /// A folder of its own. Its regular files are kept when something fails.
    pub(crate) scratch: PathBuf,
    pub(crate) soak: SoakOptions,
    /// Whether a document whose output is out of date is brought up to date, which is a failure else.
    pub(crate) updates: bool,
    binaries: PathBuf,
    helpers: PathBuf,
    drivers: Mutex<Vec<Driver>>,
}

impl Context {
    /// Makes the namespace and the folder.
    pub(crate) async fn new(setup: &Setup, scenario: &str) -> Result<Self> {
        let scratch = setup.scratch.join(scenario);
        fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        let namespace = create_namespace(&setup.client, scenario).await.context("making a namespace")?;
        Ok(Self {
            client: setup.client.clone(),
            tier: setup.tier,
            kubernetes: setup.kubernetes.clone(),
            namespace,
            scratch,
            soak: setup.soak,
            updates: setup.updates,
            binaries: setup.binaries.clone(),
            helpers: setup.helpers.clone(),
            drivers: Mutex::default(),
        })
    }

    /// Starts a driver of this workspace by its binary's name. Its environment has `KUBECONFIG` (the driver's rights,
    /// no more) and `NODE_NAME`; its output goes to a file in the scratch folder. It is ended with the scenario, after
    /// the pods.
    pub(crate) fn start_driver(&self, binary: &str, arguments: &[&str]) -> Result<Driver> {
        self.start_program(&self.binary(binary), arguments)
    }

    /// The same for a driver that is not of this workspace.
    pub(crate) fn start_program(&self, program: &Path, arguments: &[&str]) -> Result<Driver> {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = program.file_name().unwrap_or_default().display();
        let log = self.scratch.join(format!("{name}-{}.log", drivers.len() + 1));
        let driver = Driver::start(program, arguments, &node::driver_environment(), log)?;
        drivers.push(driver.clone());
        Ok(driver)
    }

    /// The minor version of the cluster: the 37 of 1.37.2.
    pub(crate) fn minor(&self) -> Result<u32> {
        let minor = self.kubernetes.split('.').nth(1).and_then(|minor| minor.parse().ok());
        minor.with_context(|| format!("{:?} is no version of Kubernetes", self.kubernetes))
    }

    /// The path of a binary of this workspace.
    pub(crate) fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// `PATH` with the programs of this workspace: drivers and `dra-doctor`, which lies beside this one.
    pub(crate) fn path_with_programs(&self) -> Result<OsString> {
        let own = std::env::current_exe().context("finding this program")?;
        let known = std::env::var_os("PATH").unwrap_or_default();
        let folders = own.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&known));
        std::env::join_paths([self.binaries.clone()].into_iter().chain(folders)).context("making a PATH")
    }

    /// The path of a Go helper: `grpc-dial`.
    pub(crate) fn helper(&self, name: &str) -> PathBuf {
        self.helpers.join(name)
    }

    /// The helpers whose name starts with `prefix`, as the rest of the name and the path: for `cdi-oracle-`, one for each
    /// version of the library.
    pub(crate) fn helpers_like(&self, prefix: &str) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        for entry in
            fs::read_dir(&self.helpers).with_context(|| format!("reading {}", self.helpers.display()))?
        {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(rest) = name.strip_prefix(prefix) {
                found.push((rest.to_owned(), path));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Prints the end of what the last drivers have printed.
    pub(crate) fn print_driver_logs(&self) {
        const DRIVERS: usize = 2;
        const LINES: usize = 20;
        for driver in self.drivers().iter().rev().take(DRIVERS).rev() {
            let text = driver.log().unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            println!("--- the last of {1} lines of {0}", driver.log_path().display(), lines.len());
            lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("    {line}"));
        }
    }

    fn drivers(&self) -> Vec<Driver> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes a namespace and waits until pods can be made in it.
async fn create_namespace(client: &Client, scenario: &str) -> Result<String> {
    let prefix: String = scenario.replace('_', "-").chars().take(50).collect();
    let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made =
        namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let name = made.metadata.name.context("the API server gave the namespace no name")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    let what = format!("a default service account in {name}");
    // After an outage of the API server the controller that makes it may wait for long before it tries again.
    eventually(&what, Duration::from_secs(120), || async { Ok(accounts.get_opt("default").await?) }).await?;
    Ok(name)
}
