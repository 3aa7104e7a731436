//! Objects in general: apply YAML, list what belongs to a driver or to the scenario.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Event, resource::v1::ResourceSlice},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    discovery::{self, Scope},
};
use serde::{Deserialize as _, de::DeserializeOwned};

use super::Context;
use crate::eventually::eventually;

impl Context {
    /// The objects of a kind in the scenario's namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies each document of `yaml`, namespaced ones in the scenario's namespace unless they name another.
    pub(crate) async fn apply(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        let mut applied = Vec::new();
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            let value = serde_json::Value::deserialize(document).context("reading YAML")?;
            if !value.is_null() {
                applied.push(self.apply_one(&value).await.with_context(|| format!("applying {value}"))?);
            }
        }
        Ok(applied)
    }

    async fn apply_one(&self, value: &serde_json::Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(value.clone())?;
        let (api, name) = self.api_of(&object).await?;
        Ok(api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(value)).await?)
    }

    /// What the API server has under the kind and name of `object`.
    pub(crate) async fn get(&self, object: &DynamicObject) -> Result<Option<DynamicObject>> {
        let (api, name) = self.api_of(object).await?;
        api.get_opt(name).await.with_context(|| format!("reading {name}"))
    }

    /// Where an object belongs, and its name. Namespaced ones are in the scenario's namespace unless they name another.
    pub(crate) async fn api_of<'a>(
        &self,
        object: &'a DynamicObject,
    ) -> Result<(Api<DynamicObject>, &'a str)> {
        let types = object.types.as_ref().context("no apiVersion and kind")?;
        let kind = kube::core::GroupVersionKind::try_from(types)?;
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &kind).await?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_ref().unwrap_or(&self.namespace);
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        };
        Ok((api, object.metadata.name.as_deref().context("no metadata.name")?))
    }

    /// The slices that a driver has published, by name.
    pub(crate) async fn slices(&self, driver: &str) -> Result<Vec<ResourceSlice>> {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let of_driver = ListParams::default().fields(&format!("spec.driver={driver}"));
        let mut found = slices.list(&of_driver).await.context("listing ResourceSlices")?.items;
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found)
    }

    /// Deletes the slices of a driver.
    pub(crate) async fn remove_slices(&self, driver: &str) -> Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let of_driver = ListParams::default().fields(&format!("spec.driver={driver}"));
        let deleted = slices.delete_collection(&DeleteParams::default(), &of_driver).await;
        deleted.map(drop).with_context(|| format!("deleting the ResourceSlices of {driver}"))
    }

    /// Waits until a driver has published `count` devices in all.
    pub(crate) async fn wait_devices(
        &self,
        driver: &str,
        count: usize,
        within: Duration,
    ) -> Result<Vec<ResourceSlice>> {
        let what = format!("{count} devices in the ResourceSlices of {driver}");
        eventually(&what, within, || async {
            let slices = self.slices(driver).await?;
            let devices: usize = slices.iter().map(|slice| slice.spec.devices.iter().flatten().count()).sum();
            Ok((devices == count).then_some(slices))
        })
        .await
    }

    /// The events about the object of this name in the scenario's namespace, as `reason: message`.
    pub(crate) async fn events_of(&self, name: &str) -> Result<Vec<String>> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = self.api::<Event>().list(&about).await.context("listing events")?.items;
        let text = |text: Option<String>| text.unwrap_or_default();
        Ok(events
            .into_iter()
            .map(|event| format!("{}: {}", text(event.reason), text(event.message)))
            .collect())
    }

    /// Waits for an event with this reason about the object of this name.
    pub(crate) async fn wait_event(&self, name: &str, reason: &str, within: Duration) -> Result<()> {
        let (what, prefix) = (format!("an event {reason} of {name}"), format!("{reason}: "));
        eventually(&what, within, || async {
            Ok(self.events_of(name).await?.iter().any(|event| event.starts_with(&prefix)).then_some(()))
        })
        .await
    }
}
