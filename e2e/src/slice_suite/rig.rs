//! A publisher under test, with what it has written, reported and left in the API.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{
    Device, DriverName, DriverResources, Gate, NodeName, Pool, PoolName, PublishError, Published, Publisher,
    Scope, Slice,
};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};

use super::{Recorder, Suite, recorded};
use crate::eventually::eventually;

/// How long a wish may take on a busy machine.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(30);

/// A publisher, and everything that can be seen of it.
pub(crate) struct Rig {
    pub(crate) publisher: Publisher,
    pub(crate) recorder: Recorder,
    scope: Scope,
    reported: Arc<Mutex<Vec<PublishError>>>,
    slices: Api<ResourceSlice>,
}

/// What a publisher is started with.
pub(crate) struct Start {
    pub(crate) driver_client: Client,
    pub(crate) admin: Client,
    pub(crate) scope: Scope,
}

impl Rig {
    /// Starts a publisher whose gate is open.
    pub(crate) fn start(start: &Start) -> Self {
        let (client, recorder) = recorded(&start.driver_client);
        let reported: Arc<Mutex<Vec<PublishError>>> = Arc::default();
        let sink = Arc::clone(&reported);
        let publisher = Publisher::start(client, start.scope.clone(), Gate::always_open(), move |error| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(error.clone());
        });
        let slices = Api::all(start.admin.clone());
        Self { publisher, recorder, scope: start.scope.clone(), reported, slices }
    }

    /// A publisher for the suite's node.
    pub(crate) fn on_node(suite: &Suite, driver: &DriverName) -> Self {
        Self::start(&suite.start(Scope::node(driver.clone(), suite.node.clone())))
    }

    /// Publishes and waits until that is done.
    pub(crate) async fn publish(&self, resources: DriverResources) -> Result<Published> {
        self.outcome(resources).await?.context("publishing")
    }

    /// Publishes and waits until it is decided how that ends.
    pub(crate) async fn outcome(
        &self,
        resources: DriverResources,
    ) -> Result<std::result::Result<Published, PublishError>> {
        let mut ticket = self.publisher.publish(resources);
        let ended = tokio::time::timeout(PUBLISHED_WITHIN, ticket.published()).await;
        ended.with_context(|| {
            format!("not published after {PUBLISHED_WITHIN:?}; {:?}", self.publisher.status().borrow())
        })
    }

    /// Stops it; the slices stay.
    pub(crate) async fn stop(self) {
        self.publisher.stop().await;
    }

    /// The slices of the scope, by name.
    pub(crate) async fn slices(&self) -> Result<Vec<ResourceSlice>> {
        let of_driver = ListParams::default().fields(&format!("spec.driver={}", self.scope.driver()));
        let mut found = self.slices.list(&of_driver).await.context("listing slices")?.items;
        found.retain(|slice| self.scope.contains(slice));
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found)
    }

    /// Waits until the slices fulfil a condition.
    pub(crate) async fn wait_slices(
        &self,
        what: &str,
        within: Duration,
        fulfil: impl Fn(&[ResourceSlice]) -> bool,
    ) -> Result<Vec<ResourceSlice>> {
        eventually(what, within, || async {
            let slices = self.slices().await?;
            Ok(fulfil(&slices).then_some(slices))
        })
        .await
    }

    /// Deletes a slice as somebody else would.
    pub(crate) async fn delete(&self, slice: &ResourceSlice) -> Result<()> {
        let name = slice.metadata.name.as_deref().context("a slice without a name")?;
        self.slices.delete(name, &DeleteParams::default()).await.context("deleting a slice")?;
        Ok(())
    }

    /// The slices as somebody else writes them.
    pub(crate) fn api(&self) -> Api<ResourceSlice> {
        self.slices.clone()
    }

    /// What the publisher has reported so far.
    pub(crate) fn reported(&self) -> Vec<PublishError> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks the writes since the last look by their methods, and starts anew.
    pub(crate) fn expect_writes(&self, when: &str, expected: &[&str]) -> Result<()> {
        let methods = self.recorder.methods();
        ensure!(methods == expected, "{when}: wrote {methods:?}, not {expected:?}");
        self.recorder.clear();
        Ok(())
    }

    /// Removes everything, so that others do not see it.
    pub(crate) async fn finish(self) -> Result<()> {
        let mut ticket = self.publisher.remove_all();
        let ended = tokio::time::timeout(PUBLISHED_WITHIN, ticket.published()).await;
        ended.context("the slices are not removed")?.context("removing the slices")?;
        let left = self.slices().await?;
        ensure!(left.is_empty(), "{} slices are left after remove_all", left.len());
        self.stop().await;
        Ok(())
    }
}

impl Suite {
    /// How to start a publisher here.
    pub(crate) fn start(&self, scope: Scope) -> Start {
        Start { driver_client: self.driver.clone(), admin: self.admin.clone(), scope }
    }
}

/// A driver name that only this case has.
pub(crate) fn driver(case: &str) -> Result<DriverName> {
    Ok(DriverName::new(format!("{case}.suite.example.com"))?)
}

/// The pool of a node.
pub(crate) fn pool_name(node: &NodeName) -> PoolName {
    PoolName::from(node)
}

/// A device with nothing but a name.
pub(crate) fn device(name: &str) -> Result<Device> {
    Ok(Device::named(name)?)
}

/// Devices `d0`, `d1` and so on.
pub(crate) fn devices(count: usize) -> Result<Vec<Device>> {
    (0..count).map(|index| device(&format!("d{index}"))).collect()
}

/// A pool of that many slices with one device each, whose attribute `a` has this value.
pub(crate) fn slices_of_one(count: usize, value: i64) -> Result<Pool> {
    let slice = |device: Device| Ok(Slice::new([device.try_attribute("a", value)?]));
    let slices: Vec<Slice> = devices(count)?.into_iter().map(slice).collect::<Result<_>>()?;
    Ok(Pool::from_slices(slices))
}
