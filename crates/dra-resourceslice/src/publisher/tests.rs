//! The publisher against a small API server, in paused time.

mod budgets;
mod counts;
mod errors;
mod fake;
mod gates;
mod publishing;
mod standby;
mod taints;
mod watching;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch as channel;

use self::fake::FakeApi;
use super::*;
use crate::{Device, DriverName, NodeName, Pool, Slice};

/// A publisher with its API server, its gate and what it has reported.
struct Setup {
    api: FakeApi,
    gate: channel::Sender<Gate>,
    publisher: Publisher,
    reported: Arc<Mutex<Vec<PublishError>>>,
}

impl Setup {
    /// A publisher for `node-1` that is registered.
    fn open() -> Self {
        Self::new(FakeApi::new(), node_scope(), Gate::open(1))
    }

    fn on(api: &FakeApi) -> Self {
        Self::new(api.clone(), node_scope(), Gate::open(1))
    }

    fn new(api: FakeApi, scope: Scope, gate: Gate) -> Self {
        let (gate, gate_rx) = channel::channel(gate);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let sink = reported.clone();
        let publisher = Publisher::start(api.client(), scope, gate_rx, move |error| {
            sink.lock().unwrap().push(error.clone());
        });
        Self { api, gate, publisher, reported }
    }

    /// Publishes and waits until that is done.
    async fn publish(&self, resources: DriverResources) -> Published {
        self.publisher.publish(resources).published().await.unwrap()
    }

    fn reported(&self) -> Vec<PublishError> {
        self.reported.lock().unwrap().clone()
    }

    fn count_reported(&self, kind: fn(&PublishError) -> bool) -> usize {
        self.reported().iter().filter(|error| kind(error)).count()
    }

    fn pool_status(&self, pool: &PoolName) -> PoolStatus {
        self.publisher.status().borrow().pools[pool].clone()
    }
}

fn node_scope() -> Scope {
    Scope::node(DriverName::new("gpu.example.com").unwrap(), NodeName::new("node-1").unwrap())
}

fn pool_name() -> PoolName {
    PoolName::new("node-1").unwrap()
}

fn device(name: &str) -> Device {
    Device::named(name).unwrap()
}

/// One pool with these devices.
fn devices(names: &[&str]) -> DriverResources {
    DriverResources::single_pool(pool_name(), names.iter().map(|name| device(name)))
}

/// One pool of that many slices with one device each, whose attribute has this value.
fn slices(count: usize, value: i64) -> DriverResources {
    let slice = |index| Slice::new([device(&format!("d{index}")).try_attribute("a", value).unwrap()]);
    DriverResources::new().pool(pool_name(), Pool::from_slices((0..count).map(slice)))
}

/// Lets the given time pass for everybody.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const SECOND: Duration = Duration::from_secs(1);
