//! The allocator of the test kit against the real scheduler: the same devices, or both refuse.
//!
//! The nodes exist only as objects: nothing runs on them, so claims are allocated and never prepared.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dra_testkit::scheduler::{Known, allocate};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod},
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    allocator::{self, Asking, Case, LABEL, fuzz},
    context::Context,
    eventually::eventually,
    scenario::{Scenario, Tier},
};

/// Cases that run at once.
const AT_ONCE: usize = 8;
const SCHEDULED_WITHIN: Duration = Duration::from_secs(90);
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// Random worlds of each run; `cargo xtask allocations` asks for more.
const WORLDS: fuzz::Settings = fuzz::Settings { cases: 1000, seed: 1 };

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("random_allocations_are_those_of_the_go_allocators", |cx| Box::pin(random(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("stand_in_allocates_as_the_scheduler_does", |cx| Box::pin(run(cx, true))),
        Scenario::new("stand_in_allocates_as_the_scheduler_does_in_all_cases", |cx| Box::pin(run(cx, false)))
            .tier(Tier::Full)
            .within(Duration::from_secs(400)),
    ]
}

/// Needs no cluster, but the oracle.
async fn random(cx: &Context) -> Result<()> {
    let oracle = cx.helper("allocator-oracle");
    let compared = tokio::task::spawn_blocking(move || fuzz::run(&oracle, WORLDS));
    print!("{}", compared.await.context("the comparison broke off")??);
    Ok(())
}

async fn run(cx: &Context, only_gate: bool) -> Result<()> {
    let cases: Vec<Case> = allocator::cases()?.into_iter().filter(|case| case.gate || !only_gate).collect();
    let outcome = all(cx, &cases).await;
    let cleaned = remove(cx).await;
    outcome?;
    cleaned
}

async fn all(cx: &Context, cases: &[Case]) -> Result<()> {
    // Without this label nobody may ask for access for administrators.
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    let namespaces: Api<Namespace> = Api::all(cx.client.clone());
    namespaces.patch(&cx.namespace, &PatchParams::default(), &Patch::Merge(&label)).await?;
    let mut failures = Vec::new();
    let mut published = Vec::new();
    for case in cases {
        match publish(cx, case).await {
            Ok(()) => published.push(case),
            Err(error) => failures.push(format!("{:?}: {error:#}", case.name)),
        }
    }
    let judged = |case| async move { (case, one(cx, case).await) };
    let outcomes: Vec<(&Case, Result<Outcome>)> =
        stream::iter(published).map(judged).buffer_unordered(AT_ONCE).collect().await;
    let (mut allocated, mut refused) = (0, 0);
    for (case, outcome) in outcomes {
        match outcome {
            Ok(outcome) => {
                allocated += outcome.allocated;
                refused += outcome.refused;
            }
            Err(error) => failures.push(format!("{:?}: {error:#}", case.name)),
        }
    }
    ensure!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
    println!("    {} cases: {allocated} pods with the same devices, {refused} refused by both", cases.len());
    Ok(())
}

/// Puts the case's node, class and slices there.
async fn publish(cx: &Context, case: &Case) -> Result<()> {
    let new = PostParams::default();
    Api::<Node>::all(cx.client.clone()).create(&new, &case.node()?).await.context("making the node")?;
    Api::<DeviceClass>::all(cx.client.clone())
        .create(&new, &case.class()?)
        .await
        .context("making the class")?;
    for slice in case.slices()? {
        Api::<ResourceSlice>::all(cx.client.clone()).create(&new, &slice).await.context("making a slice")?;
    }
    Ok(())
}

/// How the pods of a case went.
#[derive(Default)]
struct Outcome {
    allocated: usize,
    refused: usize,
}

async fn one(cx: &Context, case: &Case) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (number, pod) in case.pods() {
        let judged = pod_of(cx, case, number, pod).await.with_context(|| format!("pod {number}"))?;
        outcome.allocated += usize::from(judged);
        outcome.refused += usize::from(!judged);
    }
    Ok(outcome)
}

/// Schedules a pod; says whether it got devices. The stand-in is asked about what the API server has stored, which may lack
/// fields of gates that are off.
async fn pod_of(cx: &Context, case: &Case, number: usize, asking: &Asking) -> Result<bool> {
    let own = case.own_name();
    let all = ListParams::default();
    let slices = Api::<ResourceSlice>::all(cx.client.clone()).list(&all).await?.items;
    let classes = Api::<DeviceClass>::all(cx.client.clone()).list(&all).await?.items;
    let node = Api::<Node>::all(cx.client.clone()).get(&own).await?;
    let is_ours =
        |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with(&format!("{own}-")));
    let mut held = cx.api::<ResourceClaim>().list(&all).await?.items;
    held.retain(|claim| is_ours(&claim.metadata.name));
    let mut claims = Vec::new();
    for claim in case.claims(number)? {
        let made = cx.api().create(&PostParams::default(), &claim).await;
        claims.push(made.with_context(|| format!("making claim {:?}", claim.metadata.name))?);
    }
    cx.create_pod(&case.pod(number)?).await?;

    let known = Known { slices: &slices, classes: &classes, claims: &held, taint_rules: &[] };
    match (allocate(&known, &node, &claims), &asking.refused) {
        (Ok(expected), None) => {
            for (claim, expected) in claims.iter().zip(&expected) {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let allocated = allocation(cx, &format!("{own}-{number}"), name).await?;
                let (theirs, ours) = (allocator::facts(&allocated), allocator::facts(expected));
                ensure!(theirs == ours, "{name}: the scheduler has {theirs:#?}, the stand-in {ours:#?}");
            }
            Ok(true)
        }
        (Err(reason), Some(told)) => {
            let name = format!("{own}-{number}");
            refusal(cx, &name, told).await.with_context(|| format!("the stand-in says: {reason}"))?;
            Ok(false)
        }
        (Ok(_), Some(told)) => bail!("the stand-in allocates what has to be refused: {told}"),
        (Err(reason), None) => bail!("the stand-in refuses: {reason}"),
    }
}

/// Waits until the claim is allocated.
async fn allocation(cx: &Context, pod: &str, claim: &str) -> Result<AllocationResult> {
    let look = || async {
        let claim: ResourceClaim = cx.api().get(claim).await?;
        Ok(claim.status.and_then(|status| status.allocation))
    };
    match eventually(&format!("claim {claim} allocated"), SCHEDULED_WITHIN, look).await {
        Ok(allocation) => Ok(allocation),
        Err(error) => Err(error.context(format!("the scheduler says: {:?}", verdict(cx, pod).await?))),
    }
}

/// Waits until the scheduler refuses the pod with these words.
async fn refusal(cx: &Context, pod: &str, words: &str) -> Result<()> {
    let look = || async { Ok(verdict(cx, pod).await?.filter(|verdict| verdict.contains(words))) };
    match eventually(&format!("pod {pod} refused: {words}"), SCHEDULED_WITHIN, look).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.context(format!("the scheduler says: {:?}", verdict(cx, pod).await?))),
    }
}

/// What the scheduler says of a pod that it cannot schedule.
async fn verdict(cx: &Context, pod: &str) -> Result<Option<String>> {
    let pod = cx.api::<Pod>().get(pod).await?;
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let refused = conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    Ok(refused.map(|condition| condition.message.unwrap_or_default()))
}

/// Removes pods and nodes, which no kubelet would do.
async fn remove(cx: &Context) -> Result<()> {
    let pods = cx.api::<Pod>();
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    pods.delete_collection(&now, &all).await.context("deleting pods")?;
    let gone = || async { Ok(pods.list(&all).await?.items.is_empty().then_some(())) };
    eventually("no pods on nodes without a kubelet", GONE_WITHIN, gone).await?;
    let nodes: Api<Node> = Api::all(cx.client.clone());
    let of_cases = ListParams::default().labels(LABEL);
    nodes.delete_collection(&DeleteParams::default(), &of_cases).await.context("deleting nodes")?;
    let gone = || async { Ok(nodes.list(&of_cases).await?.items.is_empty().then_some(())) };
    eventually("no nodes without a kubelet", GONE_WITHIN, gone).await
}
