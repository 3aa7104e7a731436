//! Every kind of content arrives as it was wished, and is recognised after a restart. Where a feature gate is off, its fields are
//! dropped and named.

mod everything;

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{
    AttributeValue, Capacity, Consequence, CounterConsumption, CounterSet, Device, DevicePlacement,
    DriverName, DriverResources, ErrorClass, Feature, IfDropped, NodeAllocatable, NodeOperation, Placement,
    Pool, PoolName, PublishError, QualifiedName, Quantity, RequestPolicy, Scope, Subject, Taint, k8s_openapi,
};
use k8s_openapi::api::{
    core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    resource::v1::{self as api, ResourceSlice},
};
use kube::Api;

use super::{Case, Rig, Suite, device, devices, driver, pool_name, slices_of_one};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case { name: "pools of 0, 1, 128, 129 and 300 devices are split", run: |s| Box::pin(split(s)) },
        Case { name: "a list of slices has more than one page", run: |s| Box::pin(pages(s)) },
        Case { name: "slices are owned by the node", run: |s| Box::pin(owner(s)) },
        Case { name: "attributes of all kinds", run: |s| Box::pin(attributes(s)) },
        Case { name: "list attributes", run: |s| Box::pin(lists(s)) },
        Case { name: "counters have slices of their own", run: |s| Box::pin(counters(s)) },
        Case { name: "partition types and compatibility groups", run: |s| Box::pin(partition_types(s)) },
        Case { name: "two taints keep their times", run: |s| Box::pin(taints(s)) },
        Case { name: "request policies", run: |s| Box::pin(policies(s)) },
        Case { name: "binding conditions", run: |s| Box::pin(binding(s)) },
        Case { name: "node allocatable resources", run: |s| Box::pin(node_allocatable(s)) },
        Case { name: "skipped operations", run: |s| Box::pin(skipped(s)) },
        Case { name: "devices that choose their nodes", run: |s| Box::pin(per_device(s)) },
        Case { name: "pools for all nodes and for selected nodes", run: |s| Box::pin(network(s)) },
        Case { name: "one bad device among good ones", run: |s| Box::pin(bad_device(s)) },
        Case { name: "everything at once", run: |s| Box::pin(everything::at_once(s)) },
        Case { name: "the biggest slice that the limits allow", run: |s| Box::pin(everything::biggest(s)) },
    ]
}

/// A wish, and what must come of it.
struct Expected<'a> {
    scope: Scope,
    pool: PoolName,
    content: Pool,
    /// The devices as they must be stored, if nothing is dropped.
    devices: Vec<Device>,
    /// How many slices it takes.
    slices: usize,
    /// The features that the content needs.
    needs: &'a [Feature],
}

/// Publishes, compares what is stored, and starts again, which must write nothing.
async fn arrives(suite: &Suite, expected: Expected<'_>) -> Result<()> {
    let Expected { scope, pool, content, devices, slices, needs } = expected;
    let wish = || DriverResources::new().pool(pool.clone(), content.clone());
    let start = suite.start(scope);
    let rig = Rig::start(&start);
    let published = rig.publish(wish()).await?;
    let off = suite.server.lacks(needs);
    // Where counters are dropped, there are no slices of counter sets.
    let slices = if off.contains(&Feature::PartitionableDevices) { 1 } else { slices };
    ensure!(published.dropped == off, "dropped are {:?}, not {off:?}", published.dropped);
    ensure!(published.problems.is_empty(), "{:?}", published.problems);
    ensure!(published.generation == 1, "the generation is {}", published.generation);
    let stored = rig.slices().await?;
    ensure!(stored.len() == slices, "{} slices, not {slices}", stored.len());
    ensure!(
        stored.iter().all(|slice| slice.spec.pool.resource_slice_count == i64::try_from(slices).unwrap_or(0)),
        "a slice tells another count than {slices}"
    );
    if off.is_empty() {
        same_devices(&stored, &devices)?;
    }
    tells_each_loss_once(&rig, &off)?;
    rig.recorder.clear();
    rig.publish(wish()).await?;
    rig.expect_writes("the same wish again", &[])?;
    rig.stop().await;

    let again = Rig::start(&start);
    let published = again.publish(wish()).await.context("after a restart")?;
    ensure!(published.dropped == off, "after a restart, dropped are {:?}, not {off:?}", published.dropped);
    if off.is_empty() {
        again.expect_writes("after a restart", &[])?;
    }
    let (before, after) = (versions(&stored), versions(&again.slices().await?));
    ensure!(before == after, "a restart changed {before:?} to {after:?}");
    again.finish().await
}

fn tells_each_loss_once(rig: &Rig, off: &[Feature]) -> Result<()> {
    let reported = rig.reported();
    let told: Vec<_> = reported
        .iter()
        .filter_map(|error| match error {
            PublishError::DroppedFields { features, .. } => Some(features.clone()),
            _ => None,
        })
        .collect();
    ensure!(told.len() == reported.len(), "reported: {reported:?}");
    ensure!(told.last().map_or(&[][..], Vec::as_slice) == off, "told of {told:?}, not of {off:?}");
    ensure!(told.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {told:?}");
    Ok(())
}

/// Compares devices as the model reads them: quantities by value, without the times that the server sets.
fn same_devices(stored: &[ResourceSlice], expected: &[Device]) -> Result<()> {
    let mut found = Vec::new();
    for slice in stored {
        for device in slice.spec.devices.iter().flatten() {
            let mut device = device.clone();
            device.taints.iter_mut().flatten().for_each(|taint| taint.time_added = None);
            found.push(Device::try_from(&device)?);
        }
    }
    ensure!(found.len() == expected.len(), "{} devices, not {}", found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        // What becomes of it without a feature is not in the API.
        let expected = Device::try_from(&api::Device::try_from(expected)?)?;
        ensure!(*found == expected, "stored is {found:?}, not {expected:?}");
    }
    Ok(())
}

fn versions(slices: &[ResourceSlice]) -> Vec<Option<String>> {
    slices.iter().map(|slice| slice.metadata.resource_version.clone()).collect()
}

/// The pool of the node arrives with these devices, in this number of slices.
async fn on_node(
    suite: &Suite,
    case: &str,
    content: Pool,
    devices: Vec<Device>,
    slices: usize,
    needs: &[Feature],
) -> Result<()> {
    let scope = Scope::node(driver(case)?, suite.node.clone());
    let pool = pool_name(&suite.node);
    arrives(suite, Expected { scope, pool, content, devices, slices, needs }).await
}

/// Shorthand for a pool of one slice.
async fn one_slice(suite: &Suite, case: &str, devices: Vec<Device>, needs: &[Feature]) -> Result<()> {
    on_node(suite, case, Pool::new(devices.clone()), devices, 1, needs).await
}

async fn split(suite: &Suite) -> Result<()> {
    for (count, slices) in [(0, 1), (1, 1), (128, 1), (129, 2), (300, 3)] {
        let all = devices(count)?;
        on_node(suite, &format!("split{count}"), Pool::new(all.clone()), all, slices, &[])
            .await
            .with_context(|| format!("{count} devices"))?;
    }
    Ok(())
}

async fn pages(suite: &Suite) -> Result<()> {
    let devices: Result<Vec<_>> =
        devices(120)?.into_iter().map(|device| Ok(device.try_attribute("a", 0)?)).collect();
    // By index, which is in the name, so that the stored ones come in this order.
    on_node(suite, "pages", slices_of_one(120, 0)?, devices?, 120, &[]).await
}

async fn owner(suite: &Suite) -> Result<()> {
    let node: Node = Api::all(suite.admin.clone()).get(suite.node.as_str()).await?;
    let rig = Rig::on_node(suite, &driver("owner")?);
    rig.publish(DriverResources::single_pool(pool_name(&suite.node), [device("a")?])).await?;
    for slice in rig.slices().await? {
        let owners = slice.metadata.owner_references.unwrap_or_default();
        let [owner] = owners.as_slice() else { anyhow::bail!("owners are {owners:?}") };
        ensure!((owner.kind.as_str(), Some(&owner.uid)) == ("Node", node.metadata.uid.as_ref()), "{owner:?}");
        ensure!(slice.spec.node_name.as_deref() == Some(suite.node.as_str()), "{:?}", slice.spec.node_name);
    }
    rig.finish().await
}

async fn attributes(suite: &Suite) -> Result<()> {
    let device = device("a")?
        .try_attribute("yes", true)?
        .try_attribute("no", false)?
        .try_attribute("least", i64::MIN)?
        .try_attribute("most", i64::MAX)?
        .try_attribute("empty", "")?
        .try_attribute("example.com/model", "Ä longer one, with \"quotes\"")?
        .try_attribute("version", AttributeValue::version("1.2.3-rc.1+build.5"))?;
    let capacities = ["0", "1000", "1024Mi", "1.5Gi", "100m", "3e6", "9E", "1n", "-5"];
    let device = capacities.iter().enumerate().try_fold(device, |device, (index, text)| {
        anyhow::Ok(device.try_capacity(&format!("c{index}"), Quantity::parse(*text)?)?)
    })?;
    one_slice(suite, "attributes", vec![device], &[]).await
}

async fn lists(suite: &Suite) -> Result<()> {
    let needs = [Feature::ListTypeAttributes];
    let listed = device("a")?
        .try_attribute("bools", vec![true, false])?
        .try_attribute("ints", vec![i64::MIN, 0, i64::MAX])?
        .try_attribute("strings", vec!["x".to_owned(), String::new()])?
        .try_attribute("versions", AttributeValue::Versions(vec!["1.0.0".into(), "2.0.0-a".into()]))?
        .try_attribute("plain", 7)?;
    one_slice(suite, "lists", vec![listed, device("b")?], &needs).await
}

fn partition(name: &str, sets: usize, groups: &[&str]) -> Result<Device> {
    let device = device(name)?.try_attribute("example.com/kind", "half")?;
    let device = device.if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
    (0..sets).try_fold(device, |device, set| {
        let consumption = CounterConsumption::new(&format!("set{set}"))?.counter("memory", 1)?;
        let consumption = groups
            .iter()
            .try_fold(consumption, |consumption, group| consumption.compatibility_group(group))?;
        Ok(device.consumes(consumption))
    })
}

fn counter_sets(count: usize) -> Result<Vec<CounterSet>> {
    (0..count)
        .map(|set| {
            let total = Quantity::parse("1024Mi")?;
            Ok(CounterSet::new(&format!("set{set}"))?.counter("memory", total)?.counter("engines", 1000)?)
        })
        .collect()
}

async fn counters(suite: &Suite) -> Result<()> {
    let devices = vec![partition("a", 2, &[])?, partition("b", 1, &[])?, device("c")?];
    let pool = Pool::new(devices.clone()).counter_sets(counter_sets(9)?);
    on_node(suite, "counters", pool, devices, 3, &[Feature::PartitionableDevices]).await
}

async fn partition_types(suite: &Suite) -> Result<()> {
    let needs = [
        Feature::PartitionableDevices,
        Feature::PartitionableDevicesType,
        Feature::DeviceCompatibilityGroups,
    ];
    let devices = vec![partition("a", 1, &["g", "h"])?, partition("b", 1, &["g"])?, device("c")?];
    let pool = Pool::new(devices.clone())
        .counter_sets(counter_sets(1)?)
        .partition_type_attribute(QualifiedName::new("example.com/kind")?);
    on_node(suite, "types", pool, devices, 2, &needs).await
}

async fn taints(suite: &Suite) -> Result<()> {
    let tainted = |value: i64| {
        let device = device("a")?.try_attribute("x", value)?;
        let taints = device.taint(Taint::no_schedule("example.com/odd").value("v"));
        anyhow::Ok(vec![taints.taint(Taint::new("example.com/odd", dra_resourceslice::TaintEffect::None))])
    };
    one_slice(suite, "taints", tainted(0)?, &[Feature::DeviceTaints]).await?;

    let rig = Rig::on_node(suite, &driver("times")?);
    let publish = async |value| {
        rig.publish(DriverResources::single_pool(pool_name(&suite.node), tainted(value)?)).await?;
        anyhow::Ok(times(&rig.slices().await?))
    };
    let before = publish(1).await?;
    let expected = if suite.server.has(Feature::DeviceTaints) { 2 } else { 0 };
    ensure!(before.len() == expected, "times are {before:?}");
    // The times have whole seconds; this moves the clock on.
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    let after = publish(2).await?;
    ensure!(before == after, "times went from {before:?} to {after:?}");
    rig.finish().await
}

fn times(slices: &[ResourceSlice]) -> Vec<String> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let taints = devices.flat_map(|device| device.taints.iter().flatten());
    taints.filter_map(|taint| taint.time_added.as_ref()).map(|time| time.0.to_string()).collect()
}

async fn policies(suite: &Suite) -> Result<()> {
    let q = |n: i64| Quantity::from(n);
    let gi = |n: i64| Quantity::from(n << 30);
    let shared = device("a")?
        .allow_multiple_allocations(true)
        .try_capacity("plain", gi(80))?
        .try_capacity("any", Capacity::new(gi(8)).with_policy(RequestPolicy::any(Some(gi(1)))))?
        .try_capacity(
            "values",
            Capacity::new(q(100)).with_policy(RequestPolicy::values(q(10), [q(5), q(10), q(100)])),
        )?
        .try_capacity(
            "range",
            Capacity::new(gi(80)).with_policy(RequestPolicy::range(gi(2), gi(1), Some(gi(40)), Some(gi(1)))),
        )?
        .try_capacity(
            "open",
            Capacity::new(q(9)).with_policy(RequestPolicy::range(q(1), q(1), None, None)),
        )?;
    let exclusive = device("b")?.try_capacity("memory", gi(1))?;
    one_slice(suite, "policies", vec![shared, exclusive], &[Feature::ConsumableCapacity]).await
}

async fn binding(suite: &Suite) -> Result<()> {
    let bound = device("a")?
        .binding_conditions(["example.com/ready", "b"], ["example.com/failed"])
        .binds_to_node(true)
        .if_dropped(Feature::DeviceBindingConditions, IfDropped::Keep);
    one_slice(suite, "binding", vec![bound, device("b")?], &[Feature::DeviceBindingConditions]).await
}

async fn node_allocatable(suite: &Suite) -> Result<()> {
    let capacity = QualifiedName::new("cores")?;
    let device = device("a")?
        .capacity(capacity.clone(), 4)
        .node_allocatable("cpu", NodeAllocatable::per_capacity(capacity, 1))
        .node_allocatable("memory", NodeAllocatable::per_device(Quantity::parse("1024Mi")?))
        .node_allocatable("hugepages-2Mi", NodeAllocatable::overhead(Some(0.into()), Some(1.into())));
    one_slice(suite, "allocatable", vec![device], &[Feature::NodeAllocatableResources]).await
}

async fn skipped(suite: &Suite) -> Result<()> {
    let needs = [Feature::OptionalNodeOperations];
    for (case, operations) in [
        ("skip-all", vec![NodeOperation::All]),
        ("skip-both", vec![NodeOperation::Prepare, NodeOperation::Unprepare]),
    ] {
        let pool = Pool::new([device("a")?]).skip_node_operations(operations);
        on_node(suite, case, pool, vec![device("a")?], 1, &needs).await.context(case)?;
    }
    Ok(())
}

/// The nodes with a label that is there on every node.
pub(super) fn some_nodes() -> NodeSelector {
    let by_label = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".into(),
        operator: "Exists".into(),
        values: None,
    };
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "NotIn".into(),
        values: Some(vec!["other".into()]),
    };
    let term =
        NodeSelectorTerm { match_expressions: Some(vec![by_label]), match_fields: Some(vec![by_name]) };
    NodeSelector { node_selector_terms: vec![term] }
}

fn network_scope(case: &str) -> Result<(DriverName, Scope, PoolName)> {
    let driver = driver(case)?;
    Ok((driver.clone(), Scope::network(driver), PoolName::new("rack-1/shelf.2")?))
}

async fn per_device(suite: &Suite) -> Result<()> {
    let (_, scope, pool) = network_scope("per-device")?;
    let devices = vec![
        device("a")?.placed(DevicePlacement::Node(suite.node.clone())),
        device("b")?.placed(DevicePlacement::Selector(Box::new(some_nodes()))),
        device("c")?.placed(DevicePlacement::AllNodes),
    ];
    let content = Pool::new(devices.clone()).placement(Placement::PerDevice);
    if suite.server.has(Feature::PartitionableDevices) {
        let needs = &[Feature::PartitionableDevices];
        return arrives(suite, Expected { scope, pool, content, devices, slices: 1, needs }).await;
    }
    // Without the field there is no placement left, so the API server refuses the slice.
    let rig = Rig::start(&suite.start(scope));
    let outcome = rig.outcome(DriverResources::new().pool(pool, content)).await?;
    let Err(error) = outcome else { anyhow::bail!("published: {outcome:?}") };
    ensure!(error.http_status() == Some(422) && error.class() == ErrorClass::Refused, "{error}");
    rig.finish().await
}

async fn network(suite: &Suite) -> Result<()> {
    for (case, placement) in
        [("all-nodes", Placement::AllNodes), ("some-nodes", Placement::Selector(Box::new(some_nodes())))]
    {
        let (_, scope, pool) = network_scope(case)?;
        let devices = devices(3)?;
        let content = Pool::new(devices.clone()).placement(placement);
        arrives(suite, Expected { scope, pool, content, devices, slices: 1, needs: &[] })
            .await
            .context(case)?;
    }
    Ok(())
}

async fn bad_device(suite: &Suite) -> Result<()> {
    let rig = Rig::on_node(suite, &driver("bad")?);
    let bad = device("bad")?.try_attribute("model", "x".repeat(65))?;
    let odd = device("odd")?.try_attribute("version", AttributeValue::version("550.127.08"))?;
    let all = [device("good")?, bad, odd, device("fine")?];
    let wish = || DriverResources::single_pool(pool_name(&suite.node), all.clone());
    let published = rig.publish(wish()).await?;
    let stored = rig.slices().await?;
    same_devices(&stored, &[device("good")?, device("odd")?, device("fine")?])?;

    let told: Vec<_> = published
        .problems
        .iter()
        .map(|problem| (problem.subject.clone(), problem.field.as_str(), problem.consequence))
        .collect();
    let expected = [
        (Subject::Device("bad".into()), "attributes[model]", Consequence::DeviceLeftOut),
        (Subject::Device("odd".into()), "attributes[version]", Consequence::AttributeLeftOut),
    ];
    ensure!(told == expected, "problems are {told:?}");
    rig.publish(wish()).await?;
    ensure!(rig.reported().len() == 2, "reported: {:?}", rig.reported());
    rig.expect_writes("one bad device, twice", &["POST"])?;
    rig.finish().await
}
