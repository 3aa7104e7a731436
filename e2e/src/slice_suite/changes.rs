//! What changes, by the driver or by others, costs the fewest writes and is put right.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{
    Device, DriverResources, Placement, Pool, PoolName, PoolState, PublishError, Scope, Slice,
};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Case, Rig, Suite, device, devices, driver, pool_name, slices_of_one};

/// How soon a vanished slice must be back.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// The same with what a busy machine takes on top.
const WAIT: Duration = Duration::from_secs(10);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case { name: "a changed wish costs the fewest writes", run: |s| Box::pin(wish(s)) },
        Case { name: "two pools are independent", run: |s| Box::pin(two_pools(s)) },
        Case { name: "a bad pool does not stop a good one", run: |s| Box::pin(bad_pool(s)) },
        Case { name: "foreign content is corrected", run: |s| Box::pin(foreign_content(s)) },
        Case { name: "foreign metadata is left alone", run: |s| Box::pin(foreign_metadata(s)) },
        Case { name: "a deleted slice comes back", run: |s| Box::pin(deleted(s)) },
        Case { name: "a slice made anew by others is noticed", run: |s| Box::pin(made_anew(s)) },
        Case { name: "what vanished while stopped comes back", run: |s| Box::pin(missed(s)) },
        Case { name: "a conflict in the middle is resolved", run: |s| Box::pin(conflict(s)) },
        Case { name: "all slices are removed on demand", run: |s| Box::pin(remove_all(s)) },
        Case { name: "controllers of single pools share a driver", run: |s| Box::pin(single_pools(s)) },
        Case { name: "node and network slices of one driver", run: |s| Box::pin(two_scopes(s)) },
    ]
}

fn with_value(count: usize, changed: &[usize]) -> Result<Vec<Device>> {
    let value = |index: &usize| i64::from(changed.contains(index));
    devices(count)?
        .into_iter()
        .enumerate()
        .map(|(index, device)| Ok(device.try_attribute("a", value(&index))?))
        .collect()
}

async fn wish(suite: &Suite) -> Result<()> {
    let rig = Rig::on_node(suite, &driver("wish")?);
    let publish = async |devices: Vec<Device>| {
        let published = rig.publish(DriverResources::single_pool(pool_name(&suite.node), devices)).await?;
        anyhow::Ok(published.generation)
    };
    let table: [(&str, Vec<Device>, &[&str], i64); 6] = [
        ("300 devices", with_value(300, &[])?, &["POST"; 3], 1),
        ("one device changed", with_value(300, &[7])?, &["PUT"], 1),
        ("devices of two slices changed", with_value(300, &[8, 299])?, &["PUT"; 3], 2),
        ("more devices in the last slice", with_value(310, &[8, 299])?, &["PUT"], 2),
        ("one more slice", with_value(385, &[8, 299])?, &["PUT", "PUT", "PUT", "POST"], 3),
        ("one device left", with_value(1, &[])?, &["PUT", "DELETE", "DELETE", "DELETE"], 4),
    ];
    for (what, devices, expected, generation) in table {
        let count = devices.len();
        let reached = publish(devices).await.context(what)?;
        let mut methods = rig.recorder.methods();
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        methods.sort();
        expected.sort();
        ensure!(methods == expected, "{what}: wrote {methods:?}, not {expected:?}");
        ensure!(reached == generation, "{what}: generation {reached}, not {generation}");
        rig.recorder.clear();
        let slices = rig.slices().await?;
        let stored: usize = slices.iter().map(|slice| slice.spec.devices.iter().flatten().count()).sum();
        ensure!(stored == count, "{what}: {stored} devices are stored");
        ensure!(
            slices.iter().all(|slice| slice.spec.pool.generation == generation),
            "{what}: generations differ"
        );
    }
    rig.finish().await
}

async fn two_pools(suite: &Suite) -> Result<()> {
    let rig = Rig::on_node(suite, &driver("two-pools")?);
    let (first, second) = (PoolName::new("first")?, PoolName::new("second/half")?);
    let both = |value: &[usize]| {
        let resources = DriverResources::new().pool(first.clone(), Pool::new(with_value(2, value)?));
        anyhow::Ok(resources.pool(second.clone(), Pool::new(with_value(2, &[])?)))
    };
    rig.publish(both(&[])?).await?;
    rig.expect_writes("two pools", &["POST", "POST"])?;
    rig.publish(both(&[1])?).await?;
    rig.expect_writes("one of two pools changed", &["PUT"])?;
    let published =
        rig.publish(DriverResources::new().pool(first.clone(), Pool::new(with_value(2, &[1])?))).await?;
    rig.expect_writes("one of two pools gone", &["DELETE"])?;
    ensure!(published.generations.keys().eq([&first]), "{:?}", published.generations);
    rig.finish().await
}

async fn bad_pool(suite: &Suite) -> Result<()> {
    let rig = Rig::on_node(suite, &driver("bad-pool")?);
    let bad = Pool::new([device("a")?]).placement(Placement::AllNodes);
    // Before the good one in any order of names.
    let resources = DriverResources::new()
        .pool(PoolName::new("0-bad")?, bad)
        .pool(PoolName::new("good")?, Pool::new([device("a")?]));
    let outcome = rig.outcome(resources).await?;
    ensure!(matches!(outcome, Err(PublishError::Invalid(_))), "{outcome:?}");
    rig.wait_slices("the good pool", WAIT, |slices| slices.len() == 1).await?;
    let pools = rig.publisher.status().borrow().pools.clone();
    let states: Vec<_> = pools.values().map(|pool| pool.state).collect();
    ensure!(states == [PoolState::Refused, PoolState::Published], "{states:?}");
    rig.finish().await
}

/// Publishes three slices of one device.
async fn three(suite: &Suite, case: &str) -> Result<Rig> {
    let rig = Rig::on_node(suite, &driver(case)?);
    rig.publish(DriverResources::new().pool(pool_name(&suite.node), slices_of_one(3, 0)?)).await?;
    rig.recorder.clear();
    Ok(rig)
}

fn name(slice: &ResourceSlice) -> Result<&str> {
    slice.metadata.name.as_deref().context("a slice without a name")
}

async fn foreign_content(suite: &Suite) -> Result<()> {
    let rig = three(suite, "foreign").await?;
    let mut slice = rig.slices().await?.remove(1);
    slice.spec.devices.iter_mut().flatten().for_each(|device| device.name = "foreign".into());
    rig.api().replace(name(&slice)?, &PostParams::default(), &slice).await?;
    let right = |slices: &[ResourceSlice]| {
        let names = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        names.map(|device| device.name.as_str()).eq(["d0", "d1", "d2"])
    };
    let slices = rig.wait_slices("the right devices", WAIT, right).await?;
    rig.expect_writes("foreign content", &["PUT"])?;
    ensure!(slices.iter().all(|slice| slice.spec.pool.generation == 1), "the generation rose");
    rig.finish().await
}

async fn foreign_metadata(suite: &Suite) -> Result<()> {
    let rig = three(suite, "labels").await?;
    let slice = rig.slices().await?.remove(0);
    let patch = json!({"metadata": {"labels": {"example.com/by": "others"}}});
    rig.api().patch(name(&slice)?, &PatchParams::default(), &Patch::Merge(patch)).await?;
    tokio::time::sleep(BACK_WITHIN).await;
    rig.expect_writes("a foreign label", &[])?;
    rig.publish(DriverResources::new().pool(pool_name(&suite.node), slices_of_one(3, 1)?)).await?;
    let labels = rig.slices().await?.remove(0).metadata.labels;
    ensure!(labels.is_some_and(|labels| labels.contains_key("example.com/by")), "the label is gone");
    rig.finish().await
}

async fn deleted(suite: &Suite) -> Result<()> {
    let rig = three(suite, "deleted").await?;
    let before = rig.slices().await?;
    rig.delete(&before[1]).await?;
    let slices = rig.wait_slices("three slices", WAIT, |slices| slices.len() == 3).await?;
    rig.expect_writes("a slice was deleted", &["POST"])?;
    ensure!(name(&slices[1])? == name(&before[1])?, "it came back under another name");
    ensure!(slices.iter().all(|slice| slice.spec.pool.generation == 1), "the generation rose");
    rig.finish().await
}

async fn made_anew(suite: &Suite) -> Result<()> {
    let rig = three(suite, "anew").await?;
    let mut slice = rig.slices().await?.remove(0);
    let uid = slice.metadata.uid.take();
    slice.metadata.resource_version = None;
    slice.spec.devices = None;
    rig.delete(&slice).await?;
    // Either of us may be first; a conflict is then theirs.
    if let Err(error) = rig.api().create(&PostParams::default(), &slice).await {
        ensure!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
    }
    let right = |slices: &[ResourceSlice]| {
        let first = slices.first();
        slices.len() == 3
            && first.is_some_and(|slice| slice.spec.devices.is_some() && slice.metadata.uid != uid)
    };
    rig.wait_slices("the slice with its device", WAIT, right).await?;
    rig.finish().await
}

async fn missed(suite: &Suite) -> Result<()> {
    let rig = three(suite, "missed").await?;
    let (last, api) = (rig.slices().await?.remove(2), rig.api());
    rig.stop().await;
    api.delete(name(&last)?, &DeleteParams::default()).await?;
    let again = Rig::on_node(suite, &driver("missed")?);
    let wish = DriverResources::new().pool(pool_name(&suite.node), slices_of_one(3, 0)?);
    let published = again.publish(wish).await?;
    again.expect_writes("after a restart", &["POST"])?;
    ensure!(published.generation == 1, "the generation is {}", published.generation);
    again.finish().await
}

async fn conflict(suite: &Suite) -> Result<()> {
    let rig = three(suite, "conflict").await?;
    let (api, last) = (rig.api(), rig.slices().await?.remove(2));
    let victim = name(&last)?.to_owned();
    rig.recorder.before_update(0, async move {
        let patch = json!({"metadata": {"annotations": {"example.com/by": "others"}}});
        // If it fails there is no conflict, and the test says so.
        let _ = api.patch(&victim, &PatchParams::default(), &Patch::Merge(patch)).await;
    });
    let wish = DriverResources::new().pool(pool_name(&suite.node), slices_of_one(3, 1)?);
    let published = rig.publish(wish).await?;
    ensure!(published.generation == 2, "the generation is {}", published.generation);
    rig.expect_writes("a conflict at the last of three updates", &["PUT"; 4])?;
    ensure!(rig.reported().is_empty(), "a conflict was reported: {:?}", rig.reported());
    let slices = rig.slices().await?;
    ensure!(slices.iter().all(|slice| slice.spec.pool.generation == 2), "generations differ");
    ensure!(slices[2].metadata.annotations.is_some(), "the foreign annotation is gone");
    rig.finish().await
}

async fn remove_all(suite: &Suite) -> Result<()> {
    let rig = three(suite, "remove").await?;
    rig.publisher.remove_all().published().await?;
    rig.expect_writes("remove_all", &["DELETE"; 3])?;
    ensure!(rig.slices().await?.is_empty(), "slices are left");
    rig.publish(DriverResources::new().pool(pool_name(&suite.node), slices_of_one(1, 0)?)).await?;
    rig.finish().await
}

async fn single_pools(suite: &Suite) -> Result<()> {
    let driver = driver("racks")?;
    let rack = |name: &str| {
        let pool = PoolName::new(name)?;
        let content = Pool::from_slices([Slice::new([device("a")?]), Slice::new([device("b")?])]);
        let wish = DriverResources::new().pool(pool.clone(), content.placement(Placement::AllNodes));
        let rig = Rig::start(&suite.start(Scope::network_pool(driver.clone(), pool)));
        anyhow::Ok((rig, wish))
    };
    let ((a, wish_a), (b, wish_b)) = (rack("rack/a")?, rack("rack/b")?);
    a.publish(wish_a.clone()).await?;
    b.publish(wish_b).await?;
    a.delete(&a.slices().await?[0]).await?;
    a.wait_slices("two slices of rack a", WAIT, |slices| slices.len() == 2).await?;
    a.expect_writes("rack a", &["POST"; 3])?;
    b.expect_writes("rack b", &["POST"; 2])?;

    let refused = b.outcome(wish_a).await?;
    ensure!(matches!(refused, Err(PublishError::Invalid(_))), "the pool of another: {refused:?}");
    ensure!(a.slices().await?.len() == 2, "rack b took rack a's slices");
    ensure!(a.reported().is_empty(), "{:?}", a.reported());
    a.finish().await?;
    b.finish().await
}

async fn two_scopes(suite: &Suite) -> Result<()> {
    let driver = driver("scopes")?;
    let node = Rig::on_node(suite, &driver);
    let network = Rig::start(&suite.start(Scope::network(driver)));
    node.publish(DriverResources::single_pool(pool_name(&suite.node), devices(1)?)).await?;
    let pool = Pool::new(devices(1)?).placement(Placement::AllNodes);
    network.publish(DriverResources::new().pool(PoolName::new("net")?, pool)).await?;
    tokio::time::sleep(BACK_WITHIN).await;
    node.expect_writes("node", &["POST"])?;
    network.expect_writes("network", &["POST"])?;
    network.finish().await?;
    ensure!(node.slices().await?.len() == 1, "the network's controller removed the node's slice");
    node.finish().await
}
