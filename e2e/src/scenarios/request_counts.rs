//! How many requests a publisher makes of an API server in trouble, beside the Go helper's in the same run.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;

use super::go_driver;
use crate::{
    context::Context,
    scenario::{Scenario, Tier},
    troubled_api::{Requests, Trouble, TroubledApi},
};

const TIME: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_secs(1);
/// How long an API server drops taints, or does not.
const TURN: u64 = 30;
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// The longest back-off of a refusal is as long as the refusals have lasted.
const RECOVERS_WITHIN: Duration = Duration::from_secs(310);

/// What goes wrong.
#[derive(Clone, Copy)]
enum Case {
    Nothing,
    Answered(Trouble),
    /// The slice is deleted each second.
    Deleted,
    /// Taints are dropped and kept in turns.
    Turns,
}

/// The first part of a driver's name, the case, and its text in the output.
const CASES: [(&str, Case, &str); 6] = [
    ("quiet", Case::Nothing, "nothing happens"),
    (
        "busy",
        Case::Answered(Trouble::TooManyRequests),
        "each write is answered with 429 and `Retry-After: 30`",
    ),
    ("down", Case::Answered(Trouble::Unavailable), "each request is answered with 503"),
    ("denied", Case::Answered(Trouble::Denied), "each write is denied with 422"),
    ("deleted", Case::Deleted, "something else deletes the slice each second"),
    ("turns", Case::Turns, "an API server drops taints and keeps them in turns of 30 s"),
];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("requests_to_an_api_server_in_trouble_are_counted_beside_the_go_helpers", |cx| {
            Box::pin(counted(cx))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(900)),
    ]
}

async fn counted(cx: &Context) -> Result<()> {
    let inventory = cx.scratch.join("inventory.json");
    let taint = json!({"key": "example.com/odd", "effect": "NoSchedule"});
    let device = json!({"name": "gpu-0", "attributes": {}, "taints": [taint]});
    fs::write(&inventory, json!([{"devices": [device]}]).to_string()).context("writing an inventory")?;
    let go = go_driver::program(cx, go_driver::NEWEST)?;
    let ours = cx.binary("mock-gpu-driver");
    let rows = CASES.iter().flat_map(|(name, case, what)| {
        // The proxy reads what is written.
        let both = [("ours", ours.as_path(), &[][..]), ("go", go.as_path(), &["--json"][..])];
        both.map(|(whose, program, arguments)| {
            let driver = format!("{name}.{whose}.example.com");
            counted_of(cx, driver, (program, arguments), &inventory, *case, what)
        })
    });
    // All at once: each has an API server of its own, so to speak.
    let counts = try_join_all(rows).await?;
    for ((_, _, what), pair) in CASES.iter().zip(counts.chunks_exact(2)) {
        let [ours, go] = pair else { continue };
        println!("    {what}: ours {}; Go helper: {}", shown(ours), shown(go));
        let (ours, go) = (sum(ours), sum(go));
        ensure!(ours <= go.max(20), "{what}: {ours} requests, the Go helper needs {go}");
    }
    Ok(())
}

fn shown(requests: &Requests) -> String {
    let Requests { watches, lists, others } = requests;
    format!("{watches} watches, {lists} lists, {others} others")
}

fn sum(requests: &Requests) -> usize {
    requests.watches + requests.lists + requests.others
}

async fn counted_of(
    cx: &Context,
    driver: String,
    (program, more): (&Path, &[&str]),
    inventory: &Path,
    case: Case,
    what: &str,
) -> Result<Requests> {
    let api = TroubledApi::start(cx.client.clone()).await?;
    let kubeconfig = cx.scratch.join(format!("{driver}.kubeconfig"));
    api.write_kubeconfig(&kubeconfig)?;
    let [kubeconfig, inventory] = [&kubeconfig, inventory].map(|path| path.to_string_lossy().into_owned());
    let arguments = ["--driver-name", &driver, "--inventory", &inventory, "--kubeconfig", &kubeconfig];
    let process = cx.start_program(program, &[&arguments[..], more].concat())?;
    cx.wait_devices(&driver, 1, STARTS_WITHIN).await.with_context(|| driver.clone())?;
    // The watches have begun by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    api.take_counts();
    if let Case::Answered(trouble) = case {
        api.set(trouble);
        cx.remove_slices(&driver).await?;
    }
    for second in 0..TIME.as_secs() {
        match case {
            Case::Deleted => cx.remove_slices(&driver).await?,
            Case::Turns if second % TURN == 0 => {
                api.set(if (second / TURN).is_multiple_of(2) { Trouble::DropsTaints } else { Trouble::None });
                // Whatever it keeps or drops shows in the next write.
                cx.remove_slices(&driver).await?;
            }
            _ => {}
        }
        tokio::time::sleep(STEP).await;
    }
    let counts = api.take_counts();
    api.set(Trouble::None);
    cx.wait_devices(&driver, 1, RECOVERS_WITHIN).await.with_context(|| format!("{driver} after: {what}"))?;
    process.terminate(Duration::from_secs(20)).await?;
    Ok(counts)
}
