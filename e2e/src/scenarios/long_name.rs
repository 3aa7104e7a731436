//! A driver whose name is as long as the API allows, in rolling updates: its folder alone takes 88 of the 107 bytes that a
//! socket's path may have.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{gpu, updates};
use crate::{context::Context, driver::Driver, node, pod::ShellPod, scenario::Scenario};

const NAME: &str = "graphics-processing-units-with-the-longest-name.dra.example.com";
const SOON: Duration = Duration::from_secs(10);
const RUNS_WITHIN: Duration = Duration::from_secs(60);
/// Room for the closing NUL is not part of it.
const LONGEST_PATH: usize = 107;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("rolling_update_works_with_a_driver_name_of_63_letters", |cx| Box::pin(update(cx)))]
}

async fn update(cx: &Context) -> Result<()> {
    ensure!(NAME.len() == 63, "{NAME} has {} letters", NAME.len());
    apply_class_and_template(cx).await?;
    let old = start_instance(cx, 1).await?;
    cx.wait_devices(NAME, 8, SOON).await?;
    run_pod(cx, "before").await?;
    let new = start_instance(cx, 2).await?;
    let sockets = sockets()?;
    ensure!(sockets.len() == 4, "two instances have the sockets {sockets:?}");
    let longest = sockets.iter().map(String::len).max().unwrap_or_default();
    ensure!(longest <= LONGEST_PATH, "{longest} bytes: {sockets:?}");
    println!("    socket paths of up to {longest} bytes");
    run_pod(cx, "beside").await?;
    updates::end(&old).await?;
    run_pod(cx, "after").await?;
    for pod in ["before", "beside", "after"] {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    updates::no_prepare_has_failed(cx).await?;
    updates::end(&new).await?;
    let left = self::sockets()?;
    ensure!(left.is_empty(), "both have ended and left {left:?}");
    gpu::nothing_left().await
}

async fn start_instance(cx: &Context, pod: u32) -> Result<Driver> {
    let arguments = ["--driver-name", NAME, "--pod-uid", &updates::pod_uid(pod)];
    let driver = cx.start_driver("mock-gpu-driver", &arguments)?;
    driver.wait_log("registered by the kubelet", Duration::from_secs(5)).await?;
    Ok(driver)
}

async fn run_pod(cx: &Context, name: &str) -> Result<()> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, RUNS_WITHIN).await?;
    let driver = cx.wait_log_line(name, "DRA_RESOURCE_DRIVER_NAME=", SOON).await?;
    ensure!(driver == NAME, "pod {name} has a device of {driver}");
    Ok(())
}

/// All registration sockets, and the driver's DRA sockets.
fn sockets() -> Result<Vec<String>> {
    let mut sockets = Vec::new();
    for folder in [Path::new(node::PLUGIN_REGISTRY), &Path::new(node::PLUGINS).join(NAME)] {
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "sock") {
                sockets.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(sockets)
}

async fn apply_class_and_template(cx: &Context) -> Result<()> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": NAME},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{NAME}'")}}]},
    });
    let template = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": NAME}}]}}},
    });
    for object in [class, template] {
        cx.apply(&object.to_string()).await?;
    }
    Ok(())
}
