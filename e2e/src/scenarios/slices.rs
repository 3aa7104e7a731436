//! Slices at the real API server, without a kubelet in between: publishers of our own, in this process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use dra_resourceslice::NodeName;
use kube::{Client, Config, config::KubeConfigOptions, config::Kubeconfig};

use crate::{
    context::Context,
    node,
    scenario::{Scenario, Tier},
    slice_suite::{self, Server, Suite},
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("slice_suite_passes_on_the_real_api_server", |cx| Box::pin(suite(cx)))
            .tier(Tier::Smoke)
            .within(Duration::from_secs(240)),
        Scenario::new("slice_limits_are_those_of_the_real_api_server", |cx| Box::pin(limits(cx)))
            .tier(Tier::Smoke),
    ]
}

/// A client with a driver's rights.
async fn driver_client() -> Result<Client> {
    let [(_, path), _] = node::driver_environment();
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {path}"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn real(cx: &Context) -> Result<Suite> {
    Ok(Suite {
        admin: cx.client.clone(),
        driver: driver_client().await?,
        node: NodeName::new(node::NAME)?,
        server: Server::ask(&cx.client).await?,
    })
}

async fn suite(cx: &Context) -> Result<()> {
    let suite = real(cx).await?;
    let start = Instant::now();
    let cases = slice_suite::run(&suite).await?;
    println!("    {cases} cases in {:.1} s on {}", start.elapsed().as_secs_f64(), suite.server);
    Ok(())
}

async fn limits(cx: &Context) -> Result<()> {
    let suite = real(cx).await?;
    let judged = slice_suite::run_limits(&suite).await?;
    println!(
        "    {} contents judged by the API server and by us, {} by us alone (their gates are off)",
        judged.by_both, judged.locally
    );
    Ok(())
}
