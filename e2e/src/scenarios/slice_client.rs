//! Ways to the API server: addresses, rights, tokens.

mod proxy;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::PublishError;
use futures::future::try_join_all;
use k8s_openapi::api::{core::v1::Secret, resource::v1::ResourceSlice};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use self::proxy::Proxy;
use super::slices::{rig_with, wish};
use crate::{
    account::{Account, DRIVER_ROLE},
    context::Context,
    eventually::eventually,
    node,
    scenario::Scenario,
    slice_suite::slices_of_one,
};

/// kube reads a token file again after at most a minute, and the publisher's back-off adds half of one.
const RELOADED_WITHIN: Duration = Duration::from_secs(110);

/// With kube's client a watch is given up after 65 s at most, and the write after it has 5 s to be answered on the connection
/// that is silent too. Ours asks a silent server after 10 s, and gives it 5.
const NOTICED_WITHIN: Duration = Duration::from_secs(80);
const NOTICED_BY_OURS_WITHIN: Duration = Duration::from_secs(40);

/// Requests that one connection has to do for.
const AT_ONCE: usize = 50;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("slices_are_published_over_ipv6_and_by_ip_address", |cx| Box::pin(addresses(cx))),
        Scenario::new("requests_at_once_share_a_connection", |cx| Box::pin(one_connection(cx))),
        Scenario::new("driver_without_rights_is_told_which_and_publishes_once_it_has_them", |cx| {
            Box::pin(no_rights(cx))
        }),
    ]
}

/// A client with a driver's rights.
pub(super) async fn driver() -> Result<Client> {
    Ok(Client::try_from(config().await?)?)
}

async fn config() -> Result<Config> {
    let [(_, path), _] = node::driver_environment();
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {path}"))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// By way of a proxy.
async fn config_by(proxy: &Proxy) -> Result<Config> {
    let mut config = config().await?;
    config.cluster_url = proxy.url.parse()?;
    Ok(config)
}

/// A client that reads its token from a file, as one in a pod does.
async fn with_token_file(path: &Path) -> Result<Client> {
    let mut config = config().await?;
    config.auth_info.token = None;
    config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
    Ok(Client::try_from(config)?)
}

/// The server's certificate has only addresses for these, no names.
async fn addresses(cx: &Context) -> Result<()> {
    for (case, url) in [("v6", "https://[::1]:6443"), ("v4", "https://10.77.0.1:6443")] {
        let mut config = config().await?;
        config.cluster_url = url.parse()?;
        let rig = rig_with(cx, case, Client::try_from(config)?)?;
        rig.publish(wish(slices_of_one(1, 0)?)?).await.with_context(|| format!("at {url}"))?;
        rig.finish().await?;
    }
    Ok(())
}

async fn one_connection(cx: &Context) -> Result<()> {
    let proxy = Proxy::start().await?;
    let slices: Api<ResourceSlice> = Api::all(dra_kubeletplugin::client(config_by(&proxy).await?)?);
    let none = ListParams::default().fields(&format!("spec.driver={}", cx.namespace));
    slices.list(&none).await.context("the first request")?;
    try_join_all((0..AT_ONCE).map(|_| slices.list(&none))).await.context("many requests")?;
    ensure!(proxy.accepted() == 1, "{AT_ONCE} requests took {} connections", proxy.accepted());
    Ok(())
}

/// A token that holds until the secret of this name, which is made, is deleted.
async fn token(cx: &Context, account: &Account<'_>, secret: &str) -> Result<String> {
    let metadata = ObjectMeta { name: Some(secret.to_owned()), ..ObjectMeta::default() };
    let object = Secret { metadata, ..Secret::default() };
    account.token_with(&cx.api::<Secret>().create(&PostParams::default(), &object).await?).await
}

async fn no_rights(cx: &Context) -> Result<()> {
    let account = Account::create(cx, "powerless").await?;
    let file = cx.scratch.join("token");
    fs::write(&file, token(cx, &account, "powerless").await?)?;
    let rig = rig_with(cx, "rights", with_token_file(&file).await?)?;
    let mut ticket = rig.publisher.publish(wish(slices_of_one(1, 0)?)?);
    let told = || async { Ok(rig.reported().first().cloned()) };
    let told = eventually("a word about the missing rights", Duration::from_secs(20), told).await?;
    let text = told.to_string();
    ensure!(told.http_status() == Some(403) && text.contains("resourceslices.resource.k8s.io"), "{text}");
    println!("    {}", text.replace('\n', " "));

    let binding = account.bind(DRIVER_ROLE).await?;
    let published = tokio::time::timeout(Duration::from_secs(60), ticket.published()).await;
    published.context("not published with rights")??;
    rig.finish().await?;
    binding.remove().await
}

/// Rotates the token of a publisher and refuses the old one. Gives the time from then until a new wish was published.
pub(super) async fn rotated_token(cx: &Context) -> Result<Duration> {
    let account = Account::create(cx, "rotating").await?;
    let binding = account.bind(DRIVER_ROLE).await?;
    let file = cx.scratch.join("rotated");
    let first = token(cx, &account, "first").await?;
    fs::write(&file, &first)?;
    let rig = rig_with(cx, "token", with_token_file(&file).await?)?;
    rig.publish(wish(slices_of_one(1, 0)?)?).await?;

    let next = cx.scratch.join("rotated.next");
    fs::write(&next, token(cx, &account, "second").await?)?;
    fs::rename(&next, &file)?;
    cx.api::<Secret>().delete("first", &DeleteParams::default()).await?;
    refused(first).await?;
    let start = Instant::now();
    let mut ticket = rig.publisher.publish(wish(slices_of_one(1, 1)?)?);
    let published = tokio::time::timeout(RELOADED_WITHIN, ticket.published()).await;
    published.context("not published after the token was rotated")??;
    let took = start.elapsed();
    let others = |error: &PublishError| error.http_status() != Some(401);
    ensure!(!rig.reported().iter().any(others), "reported: {:?}", rig.reported());
    rig.finish().await?;
    binding.remove().await?;
    Ok(took)
}

/// Lets the publisher's connections fall silent, deletes a slice, and gives the time until it is back: with kube's client
/// and with ours.
pub(super) async fn silent_connections(cx: &Context) -> Result<[Duration; 2]> {
    let (theirs, ours) = (Proxy::start().await?, Proxy::start().await?);
    let theirs_client = Client::try_from(config_by(&theirs).await?)?;
    let ours_client = dra_kubeletplugin::client(config_by(&ours).await?)?;
    let both = tokio::try_join!(
        silent_connection(cx, "silent", &theirs, theirs_client, NOTICED_WITHIN),
        silent_connection(cx, "silent-h2", &ours, ours_client, NOTICED_BY_OURS_WITHIN)
    )?;
    Ok(both.into())
}

async fn silent_connection(
    cx: &Context,
    case: &str,
    proxy: &Proxy,
    client: Client,
    noticed_within: Duration,
) -> Result<Duration> {
    let rig = rig_with(cx, case, client)?;
    rig.publish(wish(slices_of_one(3, 0)?)?).await?;
    ensure!(proxy.freeze() > 0, "there was no connection to freeze");
    let victim = rig.slices().await?.remove(1);
    rig.delete(&victim).await?;
    let start = Instant::now();
    rig.wait_slices("the deleted slice", noticed_within, |slices| slices.len() == 3).await?;
    let took = start.elapsed();
    rig.finish().await?;
    Ok(took)
}

/// Waits until the API server refuses a token; it remembers good ones for some seconds.
async fn refused(token: String) -> Result<()> {
    let mut config = config().await?;
    config.auth_info.token = Some(token.into());
    let client = Client::try_from(config)?;
    eventually("the old token is refused", Duration::from_secs(60), || async {
        match client.apiserver_version().await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(Some(())),
            Err(error) => Err(error).context("asking with the old token"),
        }
    })
    .await
}
