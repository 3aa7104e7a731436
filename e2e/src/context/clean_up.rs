//! Leaves the node as it was, so that scenarios do not see each other.
//!
//! Pods go first, while their drivers can still unprepare; then the drivers; then what they have left.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    resource::v1::{DeviceClass, ResourceSlice},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};

use super::Context;
use crate::{chart, eventually::eventually, node};

const PODS_GONE_WITHIN: Duration = Duration::from_secs(30);
const DRIVERS_GONE_WITHIN: Duration = Duration::from_secs(5);

impl Context {
    /// Removes everything that the scenario made.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        self.remove_pods().await.context("removing the scenario's pods")?;
        self.end_drivers().await.context("ending the scenario's drivers")?;
        chart::uninstall_all_but(self, None).await.context("uninstalling the scenario's release")?;
        self.clean_node().await?;
        self.remove_namespace().await
    }

    /// Removes pods and namespace, and leaves a driver that others use too.
    pub(crate) async fn clean_up_pods(&self) -> Result<()> {
        self.remove_pods().await.context("removing the scenario's pods")?;
        self.end_drivers().await.context("ending the scenario's drivers")?;
        self.remove_namespace().await
    }

    /// Removes what drivers have left on the node and in the API.
    pub(crate) async fn clean_node(&self) -> Result<()> {
        let everything = ListParams::default();
        let now = DeleteParams::default();
        Api::<ResourceSlice>::all(self.client.clone()).delete_collection(&now, &everything).await?;
        Api::<DeviceClass>::all(self.client.clone()).delete_collection(&now, &everything).await?;
        for folder in [node::PLUGINS, node::PLUGIN_REGISTRY, node::CDI] {
            empty(Path::new(folder)).with_context(|| format!("emptying {folder}"))?;
        }
        Ok(())
    }

    async fn remove_namespace(&self) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn remove_pods(&self) -> Result<()> {
        let pods = self.api::<Pod>();
        let all = ListParams::default();
        pods.delete_collection(&DeleteParams::default(), &all).await?;
        let gone = || async { Ok(pods.list(&all).await?.items.is_empty().then_some(())) };
        if eventually("no pods", PODS_GONE_WITHIN, gone).await.is_err() {
            // No driver answers, so the kubelet cannot end them. It forgets the claims once a later driver does.
            println!("note: pods are forced out of {}: the kubelet could not end them", self.namespace);
            pods.delete_collection(&DeleteParams::default().grace_period(0), &all).await?;
            eventually("no pods after they were forced out", PODS_GONE_WITHIN, gone).await?;
        }
        Ok(())
    }

    async fn end_drivers(&self) -> Result<()> {
        for driver in self.drivers() {
            if driver.terminate(DRIVERS_GONE_WITHIN).await.is_err() {
                driver.kill().await?;
            }
        }
        Ok(())
    }
}

fn empty(folder: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
