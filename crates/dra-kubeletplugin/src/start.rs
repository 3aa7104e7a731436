//! Brings a plugin up, keeps watch over its parts, and takes it down.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder},
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dra_cdi::{Directory, Kind};
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    claim_status::{StatusWriter, WriterConfig},
    claims::{
        Claims, ClaimsConfig, FileRecords, GoHelper, Instance, JoinError, NOBODY_WRITES_FOR, OpenError,
    },
    error::{BackgroundError, RunError, StartError},
    handle::Handle,
    health::{HealthReporter, keep_tainted},
    operations::{
        self, Figures, Liveness, Metrics, Operations, OperationsListener, OperationsServer, Readiness,
    },
    options::Options,
    own_thread::ServerEnd,
    paths::{Paths, is_dra_socket, is_registration_socket_of},
    plugin::DriverPlugin,
    publishing,
    registration::{Events, Registration, RegistrationServer, Sweep, follow, sweep_dead_sockets},
    server::{Connections, DraService, HEALTH_VERSIONS, HealthService, SUPPORTED_VERSIONS},
    socket::BoundSocket,
    wire::{
        dra_v1::dra_plugin_server::DraPluginServer,
        dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginV1beta1,
        health_v1::dra_resource_health_server::DraResourceHealthServer,
        health_v1alpha1::dra_resource_health_server::DraResourceHealthServer as DraResourceHealthV1alpha1,
        registration::PluginInfo,
    },
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How long a second instance waits for the first to go: a pod being replaced, say.
const INSTANCE_PATIENCE: Duration = Duration::from_secs(10);

/// How long calls in flight may take once the plugin stops.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Registration usually takes a second: the kubelet looks every second.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(30);

const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Starts a plugin: serves the kubelet's calls, then shows it to the kubelet. Returns once the registration socket
/// is there; [`Handle::registration`] tells what the kubelet makes of it.
///
/// # Errors
///
/// Something on this node is not as it has to be; the error says what and where. The API server is not asked: a plugin
/// starts, registers and unprepares without it.
pub async fn start<P: DriverPlugin>(plugin: P, options: Options) -> Result<Handle, StartError> {
    let paths = Paths::new(&options.kubelet_root, &options.driver, options.pod_uid.as_deref(), start_id())?;
    make_folders(&options.kubelet_root, &paths)?;
    let boot_id = boot_id(options.boot_id.as_deref())?;
    let plugin = Arc::new(plugin);
    let instance = join_instances(&options, &paths.data).await?;
    let listeners = bind_operations(&options.operations)?;
    let claims = open_claims(Arc::clone(&plugin), &options, &paths, &boot_id, Arc::clone(&instance)).await?;
    let turns = publishing::Files::open(&paths.data, instance.number(), options.pod_uid.as_deref());
    let turns = turns.map_err(|error| StartError::Lock(error.to_string()))?;

    let (events, received) = mpsc::unbounded_channel();
    let (state, registration) = watch::channel(Registration::Waiting { asked: false });
    let stop = CancellationToken::new();
    // Dropped with an early return, it stops what has been started.
    let guard = stop.clone().drop_guard();
    let health = HealthReporter::new();
    let metrics = Metrics::new();
    let liveness = Liveness { registration: paths.registration.clone(), dra: paths.dra.clone() };
    let served = Served {
        claims: Arc::clone(&claims),
        driver: options.driver.clone(),
        metrics: metrics.clone(),
        health: options.health.then(|| health.clone()),
        instance: Arc::clone(&instance),
    };
    let dra = DraServer::start(served, &paths, events.clone(), options.kubelet_in_process)?;
    let (registrar, registrar_end) = register(&options, &paths, events)?;
    tokio::spawn(follow(received, state));
    tokio::spawn(stop.clone().run_until_cancelled_owned(Arc::clone(&claims).recover()));
    let told = Arc::clone(&plugin);
    let writing = claims.status_writer().run(WriterConfig {
        client: options.client.clone(),
        driver: options.driver.clone(),
        on_error: Box::new(move |error| told.on_background_error(error)),
    });
    tokio::spawn(stop.clone().run_until_cancelled_owned(writing));
    let count_claims = Arc::downgrade(&claims);
    tokio::spawn(stop.clone().run_until_cancelled_owned(claims.collect_orphans(registration.clone())));
    tokio::spawn(stop.clone().run_until_cancelled_owned(tell_if_unregistered(
        Arc::clone(&plugin),
        registration.clone(),
        paths.registration.clone(),
    )));
    tokio::spawn(stop.clone().run_until_cancelled_owned(sweep(
        options.driver.clone(),
        paths,
        registration.clone(),
    )));
    let (publisher, turns) =
        publishing::start(plugin, &options, turns, instance, registration.clone(), stop.clone());
    if let Some(policy) = options.health_taints.clone() {
        let tainting = keep_tainted(policy, health.clone(), publisher.taints());
        tokio::spawn(stop.clone().run_until_cancelled_owned(tainting));
    }
    let (readiness, readiness_seen) = watch::channel(Readiness::starting());
    let follow_readiness = operations::follow(registration.clone(), publisher.status(), readiness.clone());
    let stopped = stop.clone();
    tokio::spawn(async move {
        stopped.run_until_cancelled(follow_readiness).await;
        readiness.send_replace(Readiness::stopping());
    });
    let figures = Figures {
        claims: Arc::new(move || Some(count_claims.upgrade()?.counts())),
        registration: registration.clone(),
        readiness: readiness_seen.clone(),
        slices: publisher.status(),
        health: health.clone(),
    };
    let operations = Operations {
        driver: options.driver,
        metrics,
        figures,
        others: options.metrics,
        liveness,
        readiness: readiness_seen,
    };
    let addresses = listeners.iter().map(OperationsListener::address).collect();
    let served = serve_operations(listeners, &operations)?;
    guard.disarm();
    let parts = Parts { registrar, registrar_end, dra, turns, served };
    let main = tokio::spawn(parts.run(stop.clone()));
    Ok(Handle { publisher, health, registration, operations, addresses, stop, main })
}

/// New at each start, so that no socket name is ever used twice.
fn start_id() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = since.as_nanos() ^ (u128::from(std::process::id()) << 12);
    // Microseconds are what differs between two starts of one pid.
    u32::try_from((mixed >> 10) & 0x00ff_ffff).unwrap_or_default()
}

fn make_folders(root: &Path, paths: &Paths) -> Result<(), StartError> {
    for folder in [root, &paths.registry] {
        if !folder.is_dir() {
            return Err(StartError::KubeletFolder { path: folder.to_owned() });
        }
    }
    let made = DirBuilder::new().recursive(true).mode(0o750).create(&paths.data);
    made.map_err(|source| StartError::DataFolder { path: paths.data.clone(), source })
}

/// It becomes the name of a folder.
fn boot_id(given: Option<&str>) -> Result<String, StartError> {
    let fail = |source| StartError::BootId { path: BOOT_ID.into(), source };
    let id = match given {
        Some(id) => id.to_owned(),
        None => fs::read_to_string(BOOT_ID).map_err(fail)?.trim().to_owned(),
    };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(fail(io::Error::other(format!("{id:?} is no boot id: letters, digits and '-' only"))));
    }
    Ok(id)
}

async fn join_instances(options: &Options, data: &Path) -> Result<Arc<Instance>, StartError> {
    let deadline = Instant::now() + INSTANCE_PATIENCE;
    let joined = Instance::join(data, options.pod_uid.as_deref(), deadline).await;
    joined.map(Arc::new).map_err(|error| match error {
        JoinError::Other { note } => StartError::SecondInstance { other: note },
        JoinError::Lock(error) => StartError::Lock(error.to_string()),
    })
}

async fn open_claims<P: DriverPlugin>(
    plugin: Arc<P>,
    options: &Options,
    paths: &Paths,
    boot_id: &str,
    instance: Arc<Instance>,
) -> Result<Arc<Claims<P>>, StartError> {
    let pod_uid = options.pod_uid.as_deref();
    let deadline = Instant::now() + INSTANCE_PATIENCE;
    let kind = Kind::for_driver(options.driver.as_str())?;
    let (root, of_kind) = (options.cdi_root.clone(), kind.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let cdi = Directory::open(root, of_kind)?;
        cdi.sweep_temps(NOBODY_WRITES_FOR)?;
        Ok::<_, dra_cdi::Error>(cdi)
    });
    let cdi = opened.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    let config = ClaimsConfig {
        plugin,
        driver: options.driver.clone(),
        node: options.node.clone(),
        client: options.client.clone(),
        records: Arc::new(FileRecords::in_folder(&paths.data)),
        cdi,
        kind,
        max_parallel: options.max_parallel,
        instance,
        status: StatusWriter::new(),
        go_helper: Some(GoHelper { registry: paths.registry.clone(), driver: options.driver.clone() }),
    };
    let claims =
        Claims::open(config, &paths.data, boot_id, pod_uid, deadline).await.map_err(|error| match error {
            OpenError::Store(error) => StartError::Store(error),
            OpenError::Lock(error) => StartError::Lock(error.to_string()),
        })?;
    Ok(Arc::new(claims))
}

fn register(
    options: &Options,
    paths: &Paths,
    events: Events,
) -> Result<(RegistrationServer, ServerEnd), StartError> {
    let health = HEALTH_VERSIONS.into_iter().filter(|_| options.health);
    let versions = SUPPORTED_VERSIONS.into_iter().chain(health);
    let info = PluginInfo {
        r#type: "DRAPlugin".to_owned(),
        name: options.driver.to_string(),
        endpoint: paths.dra.to_string_lossy().into_owned(),
        supported_versions: versions.map(str::to_owned).collect(),
    };
    let started = RegistrationServer::start(
        &paths.registration_dot,
        &paths.registration,
        info,
        events,
        options.kubelet_in_process,
    );
    started.map_err(|source| StartError::Socket { path: paths.registration.clone(), source })
}

/// Early, as it fails if an address is taken.
fn bind_operations(addresses: &BTreeSet<SocketAddr>) -> Result<Vec<OperationsListener>, StartError> {
    let bind = |&address: &SocketAddr| {
        OperationsListener::bind(address).map_err(|source| StartError::Operations { address, source })
    };
    addresses.iter().map(bind).collect()
}

fn serve_operations(
    listeners: Vec<OperationsListener>,
    operations: &Operations,
) -> Result<Vec<OperationsServer>, StartError> {
    let serve = |listener: OperationsListener| {
        let address = listener.address();
        let served = listener.serve(operations.clone());
        served.map_err(|source| StartError::Operations { address, source })
    };
    listeners.into_iter().map(serve).collect()
}

/// The served DRA socket.
struct DraServer {
    socket: BoundSocket,
    stop: CancellationToken,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// What is served on it.
struct Served<P: DriverPlugin> {
    claims: Arc<Claims<P>>,
    driver: dra_resourceslice::DriverName,
    metrics: Metrics,
    /// If the kubelet may ask for it.
    health: Option<HealthReporter>,
    instance: Arc<Instance>,
}

impl DraServer {
    fn start<P: DriverPlugin>(
        served: Served<P>,
        paths: &Paths,
        events: Events,
        count_own: bool,
    ) -> Result<Self, StartError> {
        let fail = |source| StartError::Socket { path: paths.dra.clone(), source };
        let mut socket = BoundSocket::bind(&paths.dra).map_err(fail)?;
        let listener = socket.take_listener().ok_or_else(|| fail(io::ErrorKind::NotConnected.into()))?;
        let listener = UnixListener::from_std(listener).map_err(fail)?;
        let connections = Connections::new(listener, events, count_own);
        let service = DraService::new(served.claims, served.driver, served.metrics);
        let stop = CancellationToken::new();
        let health = served.health.map(|reporter| {
            let instance = served.instance;
            let neighbours = move || instance.neighbours();
            HealthService { reporter, neighbours, stop: stop.clone() }
        });
        let served = tonic::transport::Server::builder()
            .add_service(DraPluginServer::new(service.clone()))
            .add_service(DraPluginV1beta1::new(service))
            .add_optional_service(health.clone().map(DraResourceHealthServer::new))
            .add_optional_service(health.map(DraResourceHealthV1alpha1::new))
            .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
        Ok(Self { socket, stop, served: tokio::spawn(served) })
    }
}

/// Says what is wrong when the kubelet does not register the plugin, once for each time.
async fn tell_if_unregistered<P: DriverPlugin>(
    plugin: Arc<P>,
    mut registration: watch::Receiver<Registration>,
    socket: PathBuf,
) {
    loop {
        let registered = registration.wait_for(Registration::is_registered);
        if tokio::time::timeout(REGISTRATION_PATIENCE, registered).await.is_err() {
            let Some(what) = registration.borrow().trouble() else { continue };
            let since = REGISTRATION_PATIENCE;
            plugin.on_background_error(&BackgroundError::NotRegistered {
                since,
                what,
                socket: socket.clone(),
            });
            if registration.wait_for(Registration::is_registered).await.is_err() {
                return;
            }
        }
        if registration.wait_for(|state| !state.is_registered()).await.is_err() {
            return;
        }
    }
}

/// Once registered, and every ten minutes: the kubelet goes on dialling sockets of dead instances.
async fn sweep(
    driver: dra_resourceslice::DriverName,
    paths: Paths,
    mut registration: watch::Receiver<Registration>,
) {
    if registration.wait_for(Registration::is_registered).await.is_err() {
        return;
    }
    let ours = |name: &str| is_registration_socket_of(&driver, name);
    loop {
        let sweeps = [
            Sweep { folder: &paths.registry, ours: &ours },
            Sweep { folder: &paths.data, ours: &is_dra_socket },
        ];
        sweep_dead_sockets(&sweeps).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// What has to be taken down in order.
struct Parts {
    registrar: RegistrationServer,
    registrar_end: ServerEnd,
    dra: DraServer,
    /// Ends once this instance does not publish any more.
    turns: JoinHandle<()>,
    /// Metrics and probes.
    served: Vec<OperationsServer>,
}

impl Parts {
    async fn run(mut self, stop: CancellationToken) -> Result<(), RunError> {
        let (registrar_path, dra_path) =
            (self.registrar.path().to_owned(), self.dra.socket.path().to_owned());
        let failed = |server, path: &Path, reason: String| {
            Err(RunError::Server { server, path: path.to_owned(), reason })
        };
        let outcome = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = &mut self.registrar_end => {
                let reason = match ended {
                    Ok(Err(reason)) => reason,
                    Ok(Ok(())) => "it stopped accepting".to_owned(),
                    Err(_) => "its thread panicked".to_owned(),
                };
                failed("registration", &registrar_path, reason)
            }
            ended = &mut self.dra.served => {
                let reason = match ended {
                    Ok(Err(error)) => error.to_string(),
                    Ok(Ok(())) => "it stopped accepting".to_owned(),
                    Err(error) => error.to_string(),
                };
                failed("DRA", &dra_path, reason)
            }
        };
        stop.cancel();
        self.take_down().await;
        outcome
    }

    /// The kubelet first loses sight of the plugin, then calls in flight end, then the socket and the lock go.
    async fn take_down(mut self) {
        join_thread_of(self.registrar).await;
        self.dra.stop.cancel();
        if !self.dra.served.is_finished()
            && tokio::time::timeout(LAST_CALLS, &mut self.dra.served).await.is_err()
        {
            tracing::warn!(
                seconds = LAST_CALLS.as_secs(),
                "calls or connections did not end in time; ending them"
            );
            self.dra.served.abort();
        }
        drop(self.dra.socket);
        // It has begun to end with the first of these steps.
        let _ = self.turns.await;
        // Until here they say that the plugin is stopping.
        join_thread_of(self.served).await;
    }
}

/// Takes a server down, off the async workers. If its thread panics, the process is ending anyway.
async fn join_thread_of(server: impl Send + 'static) {
    let _ = tokio::task::spawn_blocking(move || drop(server)).await;
}
