//! Brings a plugin up.

mod node;

use std::{path::Path, sync::Arc, time::Duration};

use dra_cdi::{Directory, Kind};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    background::{TellError, hand_errors_to},
    boot::{BOOT_ID, boot_id},
    claim_status::{StatusWriter, WriterConfig},
    claims::{
        Claims, ClaimsConfig, FileRecords, GoHelper, Instance, JoinError, Lookup, NOBODY_WRITES_FOR,
        OpenError,
    },
    error::StartError,
    file_limit::raise_file_limit,
    file_threads,
    handle::Handle,
    health::{HealthReporter, HealthVersion, Tainting},
    node_events,
    operations::{
        self, Figures, Liveness, Metrics, Operations, OperationsListener, Probed, Readiness, bind_operations,
        serve_operations,
    },
    options::Options,
    own_thread::ServerEnd,
    paths::Paths,
    plugin::DriverPlugin,
    publishing,
    registration::{
        Events, Registration, RegistrationServer, Surroundings, follow, keep_swept, tell_if_overdue,
    },
    server::{DraServer, SUPPORTED_VERSIONS, Served},
    stop::Parts,
    tasks::Tasks,
    wire::registration::PluginInfo,
};

/// How long a second instance waits for the first to go: a pod being replaced, say.
const INSTANCE_PATIENCE: Duration = Duration::from_secs(10);

/// Starts a plugin: serves the kubelet's calls, then shows it to the kubelet. Returns once the registration socket
/// is there; [`Handle::registration`] tells what the kubelet makes of it.
///
/// # Errors
///
/// Something on this node is not as it has to be; the error says what and where. The API server is not asked: a plugin
/// starts, registers and unprepares without it.
pub async fn start<P: DriverPlugin>(plugin: P, options: Options) -> Result<Handle, StartError> {
    raise_file_limit();
    let paths =
        Paths::new(&options.kubelet_root, &options.driver, options.pod_uid.as_deref(), node::start_id())?;
    node::make_folders(&options.kubelet_root, &paths)?;
    let boot_id = boot_id(options.boot_id.as_deref())
        .map_err(|source| StartError::BootId { path: BOOT_ID.into(), source })?;
    let plugin = Arc::new(plugin);
    let metrics = Metrics::new();
    let tell = hand_errors_to(Arc::clone(&plugin), metrics.clone());
    let instance = join_instances(&options, &paths.data).await?;
    let listeners = bind_operations(&options.operations)?;
    let claims =
        open_claims(plugin, Arc::clone(&tell), &options, &paths, &boot_id, Arc::clone(&instance)).await?;
    let turns = publishing::Files::open(&paths.data, instance.number(), options.pod_uid.as_deref());
    let turns = turns.map_err(|error| StartError::Lock(error.to_string()))?;

    let (events, received) = mpsc::unbounded_channel();
    let (state, registration) = watch::channel(Registration::Waiting { asked: false });
    let stop = CancellationToken::new();
    // Dropped with an early return, it stops what has been started.
    let guard = stop.clone().drop_guard();
    let health = HealthReporter::new();
    let liveness = Liveness { registration: paths.registration.clone(), dra: paths.dra.clone() };
    let served = Served {
        claims: Arc::clone(&claims),
        driver: options.driver.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
        health_versions: options.served_health().collect(),
        instance: Arc::clone(&instance),
    };
    let dra = DraServer::start(served, &paths.dra, events.clone(), options.kubelet_in_process)?;
    let (registrar, registrar_end) = register(&options, &paths, events)?;
    let look = {
        let paths = paths.clone();
        move || Surroundings::look(&paths)
    };
    let (tasks, panics) = Tasks::new(stop.clone());
    tasks.spawn_to_end("registration", follow(received, state, look, metrics.clone()));

    let background = Background { tasks: tasks.clone(), tell: Arc::clone(&tell), registration };
    background.mind_claims(&claims, &options);
    background.mind_registration(&options, paths);
    let Background { registration, .. } = background;
    let (publisher, turns) =
        publishing::start(tell, &options, turns, instance, registration.clone(), (&tasks, stop.clone()));
    if let Some(policy) = options.health_taints.clone() {
        health.taint(Tainting { policy, taints: publisher.taints() });
    }
    let readiness = keep_readiness(registration.clone(), publisher.status(), &tasks, stop.clone());
    let count_claims = Arc::downgrade(&claims);
    let figures = Figures {
        claims: Arc::new(move || Some(count_claims.upgrade()?.counts())),
        registration: registration.clone(),
        readiness: readiness.clone(),
        slices: publisher.status(),
        health: health.clone(),
    };
    let operations = Operations {
        driver: options.driver,
        metrics,
        figures,
        others: options.metrics,
        probed: Probed::new(liveness.clone()),
        liveness,
        readiness,
    };
    let addresses = listeners.iter().map(OperationsListener::address).collect();
    let served = serve_operations(listeners, &operations)?;
    guard.disarm();
    let parts = Parts {
        registrar,
        registrar_end,
        dra,
        work: claims.work(),
        turns,
        panics,
        served,
        stop_within: options.stop_within,
    };
    let main = tokio::spawn(parts.run(stop.clone()));
    Ok(Handle { publisher, health, registration, operations, addresses, stop, main })
}

/// Tasks that end with the plugin.
struct Background {
    tasks: Tasks,
    tell: TellError,
    registration: watch::Receiver<Registration>,
}

impl Background {
    /// Recovery, claims' statuses, and the collection of what nobody will ask for any more.
    fn mind_claims<P: DriverPlugin>(&self, claims: &Arc<Claims<P>>, options: &Options) {
        self.tasks.spawn("recovery", Arc::clone(claims).recover());
        let statuses = WriterConfig {
            client: options.client.clone(),
            driver: options.driver.clone(),
            tell: Arc::clone(&self.tell),
        };
        self.tasks.spawn("claim statuses", claims.status_writer().run(statuses));
        self.tasks.spawn("orphans", Arc::clone(claims).collect_orphans(self.registration.clone()));
    }

    /// The word when it does not come, and the sweep of dead sockets once it has.
    fn mind_registration(&self, options: &Options, paths: Paths) {
        let socket = paths.registration.clone();
        let overdue = tell_if_overdue(Arc::clone(&self.tell), self.registration.clone(), socket);
        self.tasks.spawn("overdue registration", overdue);
        if options.node_events {
            let writer = node_events::Writer::new(&options.client, &options.driver, &options.node);
            let events = writer.run(self.registration.clone(), Arc::clone(&self.tell));
            self.tasks.spawn("node events", events);
        }
        let swept = keep_swept(options.driver.clone(), paths, self.registration.clone());
        self.tasks.spawn("dead sockets", swept);
    }
}

/// Whether the plugin is ready, as a watch; once it stops it is not.
fn keep_readiness(
    registration: watch::Receiver<Registration>,
    slices: watch::Receiver<dra_resourceslice::SliceStatus>,
    tasks: &Tasks,
    stop: CancellationToken,
) -> watch::Receiver<Readiness> {
    let (readiness, seen) = watch::channel(Readiness::starting());
    let following = operations::follow(registration, slices, readiness.clone());
    tasks.spawn_to_end("readiness", async move {
        stop.run_until_cancelled(following).await;
        readiness.send_replace(Readiness::stopping());
    });
    seen
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
    tell: TellError,
    options: &Options,
    paths: &Paths,
    boot_id: &str,
    instance: Arc<Instance>,
) -> Result<Arc<Claims<P>>, StartError> {
    let pod_uid = options.pod_uid.as_deref();
    let deadline = Instant::now() + INSTANCE_PATIENCE;
    let kind = Kind::for_driver(options.driver.as_str())?;
    let (root, of_kind) = (options.cdi_root.clone(), kind.clone());
    let opened = file_threads::run(move || {
        let cdi = Directory::open(root, of_kind)?;
        cdi.sweep_temps(NOBODY_WRITES_FOR)?;
        Ok::<_, dra_cdi::Error>(cdi)
    });
    let cdi = opened.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    let config = ClaimsConfig {
        plugin,
        tell,
        driver: options.driver.clone(),
        lookup: Lookup::new(options.client.clone(), options.driver.clone(), options.node.clone()),
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
    let health = options.served_health().map(HealthVersion::advertised);
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
