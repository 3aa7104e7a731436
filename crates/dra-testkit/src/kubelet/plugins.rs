//! The registered plugins and their connections.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connection::{self, Client};
use super::health::{self, HealthService, Reports};
use super::services::DraService;
use crate::api::lock;

/// A plugin that the kubelet has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredPlugin {
    /// Name of the driver.
    pub driver: String,
    /// Its registration socket.
    pub socket: PathBuf,
    /// Its DRA socket.
    pub endpoint: PathBuf,
    /// The service that the kubelet uses.
    pub service: DraService,
    /// The health service that the kubelet uses, if the plugin has one that it knows.
    pub health: Option<HealthService>,
    /// What the plugin advertised, in its order.
    pub advertised: Vec<String>,
    /// Whether the kubelet's connection to the DRA socket is open.
    pub connected: bool,
}

/// State of a plugin's connection.
#[derive(Debug, Clone)]
pub(super) enum Link {
    Connecting,
    Ready(Client),
    Down(String),
}

/// All plugins in order of registration, and what could not be registered.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    pub(super) health: Arc<Reports>,
}

#[derive(Debug, Default)]
struct State {
    plugins: Vec<Plugin>,
    refused: BTreeMap<PathBuf, String>,
}

#[derive(Debug)]
struct Plugin {
    info: RegisteredPlugin,
    /// Whether the plugin has been told that it is registered.
    confirmed: bool,
    link: watch::Receiver<Link>,
    /// Closes the connection when the plugin is forgotten.
    _connection: DropGuard,
}

impl Plugins {
    /// Adds a plugin and opens its connection.
    ///
    /// # Errors
    /// The kubelet's reason if another plugin of the driver has the same endpoint.
    pub(super) fn add(
        &self,
        info: RegisteredPlugin,
        pauses: (Duration, Duration),
        health_pause: Duration,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        let twin =
            state.plugins.iter().find(|p| p.info.driver == info.driver && p.info.endpoint == info.endpoint);
        if twin.is_some() {
            let (endpoint, driver) = (info.endpoint.display(), &info.driver);
            return Err(format!(
                "another plugin of driver {driver} is already registered at endpoint {endpoint}"
            ));
        }
        let stop = CancellationToken::new();
        let (sender, link) = watch::channel(Link::Connecting);
        let (endpoint, changed) = (info.endpoint.clone(), self.changed.clone());
        if let Some(service) = info.health {
            let (reports, driver) = (Arc::clone(&self.health), info.driver.clone());
            let link = link.clone();
            tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                watch_health(link, reports, driver, service, health_pause).await;
            }));
        }
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(keep_connected(endpoint, pauses, sender, changed)),
        );
        state.plugins.push(Plugin { info, confirmed: false, link, _connection: stop.drop_guard() });
        Ok(())
    }

    /// Notes that the plugin of this socket knows that it is registered.
    pub(super) fn confirm(&self, socket: &Path) {
        let mut state = lock(&self.state);
        state.refused.remove(socket);
        state.plugins.iter_mut().filter(|p| p.info.socket == socket).for_each(|p| p.confirmed = true);
        drop(state);
        self.changed.send_replace(());
    }

    /// Forgets the plugin of this socket and closes its connection.
    pub(super) fn remove(&self, socket: &Path) {
        lock(&self.state).plugins.retain(|plugin| plugin.info.socket != socket);
        self.changed.send_replace(());
    }

    /// Notes why a socket could not be registered.
    pub(super) fn refuse(&self, socket: &Path, reason: String) {
        lock(&self.state).refused.insert(socket.to_owned(), reason);
        self.changed.send_replace(());
    }

    /// Forgets the refusals of sockets that are not there any more.
    pub(super) fn keep_refusals(&self, is_there: impl Fn(&Path) -> bool) {
        lock(&self.state).refused.retain(|socket, _| is_there(socket));
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        *lock(&self.state) = State::default();
        self.changed.send_replace(());
    }

    /// The confirmed plugins, in order of registration.
    pub(super) fn registered(&self) -> Vec<RegisteredPlugin> {
        let state = lock(&self.state);
        state.plugins.iter().filter(|plugin| plugin.confirmed).map(Plugin::describe).collect()
    }

    /// The sockets that could not be registered, with the latest reason.
    pub(super) fn refused(&self) -> BTreeMap<PathBuf, String> {
        lock(&self.state).refused.clone()
    }

    /// The drivers that have a plugin, and whether one of these is connected.
    pub(super) fn connected_drivers(&self) -> BTreeMap<String, bool> {
        let mut drivers = BTreeMap::new();
        for plugin in &lock(&self.state).plugins {
            *drivers.entry(plugin.info.driver.clone()).or_default() |= plugin.is_connected();
        }
        drivers
    }

    /// The plugin for a call: the newest connected one, else the newest.
    pub(super) fn select(&self, driver: &str) -> Option<(RegisteredPlugin, watch::Receiver<Link>)> {
        let state = lock(&self.state);
        let mut newest_first = state.plugins.iter().rev().filter(|p| p.confirmed && p.info.driver == driver);
        let newest = newest_first.clone().next();
        let chosen = newest_first.find(|plugin| plugin.is_connected()).or(newest)?;
        Some((chosen.describe(), chosen.link.clone()))
    }

    /// Changes of anything above.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl Plugin {
    fn is_connected(&self) -> bool {
        matches!(*self.link.borrow(), Link::Ready(_))
    }

    fn describe(&self) -> RegisteredPlugin {
        RegisteredPlugin { connected: self.is_connected(), ..self.info.clone() }
    }
}

/// Reads the plugin's stream of device health over each connection in turn.
async fn watch_health(
    mut link: watch::Receiver<Link>,
    reports: Arc<Reports>,
    driver: String,
    service: HealthService,
    pause: Duration,
) {
    loop {
        let client = match link.wait_for(|link| matches!(link, Link::Ready(_))).await.as_deref() {
            Ok(Link::Ready(client)) => client.clone(),
            _ => return,
        };
        tokio::select! {
            () = health::follow(Arc::clone(&reports), driver.clone(), service, client, pause) => return,
            gone = link.wait_for(|link| !matches!(link, Link::Ready(_))) => if gone.is_err() { return },
        }
    }
}

/// Holds one connection to the endpoint: opened at once, opened again whenever it ends.
async fn keep_connected(
    endpoint: PathBuf,
    (first_pause, longest_pause): (Duration, Duration),
    link: watch::Sender<Link>,
    changed: watch::Sender<()>,
) {
    let mut pause = first_pause;
    loop {
        match connection::connect(&endpoint).await {
            Ok((client, connection)) => {
                pause = first_pause;
                link.send_replace(Link::Ready(client));
                changed.send_replace(());
                let result = connection.await;
                tracing::debug!(endpoint = %endpoint.display(), ?result, "the driver's connection ended");
                link.send_replace(Link::Connecting);
                changed.send_replace(());
            }
            Err(error) => {
                link.send_replace(Link::Down(error.to_string()));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest_pause);
            }
        }
    }
}
