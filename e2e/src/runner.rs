//! Runs scenarios one after the other, each with a deadline and a clean node.

use std::{any::Any, panic::AssertUnwindSafe, time::Instant};

use anyhow::{Result, anyhow};
use futures::FutureExt as _;

use crate::{
    chart,
    context::{Context, Setup},
    queue::Queue,
    scenario::Scenario,
};

/// How many passed and failed, and how many need another version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) unsuited: u32,
}

/// Runs what is in the queue and prints a line for each scenario, with the chain of causes if it failed.
///
/// # Errors
/// The queue breaks.
pub(crate) async fn run(setup: &Setup, mut queue: Queue) -> Result<Count> {
    let mut count = Count::default();
    while let Some(batch) = queue.take()? {
        for scenario in &batch {
            run_counted(setup, scenario, &mut count).await;
        }
    }
    Ok(count)
}

async fn run_counted(setup: &Setup, scenario: &Scenario, count: &mut Count) {
    let start = Instant::now();
    if setup.minor().is_some_and(|minor| minor < scenario.since) {
        count.unsuited += 1;
        println!("test {} ... needs Kubernetes 1.{}", scenario.name, scenario.since);
        return;
    }
    let outcome = run_one(setup, scenario).await;
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            count.passed += 1;
            println!("test {} ... ok ({seconds:.1} s)", scenario.name);
        }
        Err(error) => {
            count.failed += 1;
            println!("test {} ... FAILED ({seconds:.1} s)", scenario.name);
            error.chain().for_each(|cause| println!("    {}", cause.to_string().replace('\n', "\n    ")));
        }
    }
}

async fn run_one(setup: &Setup, scenario: &Scenario) -> Result<()> {
    let context = Context::new(setup, scenario.name).await?;
    let work = async {
        // What scenarios before this one have shared.
        if chart::uninstall_all_but(&context, scenario.release.map(|release| release.chart)).await? {
            context.clean_node().await?;
        }
        if let Some(release) = scenario.release {
            release.chart.install(&context, release.values).await?;
        }
        (scenario.run)(&context).await
    };
    let work = AssertUnwindSafe(work).catch_unwind();
    let outcome = match tokio::time::timeout(scenario.deadline, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(anyhow!("{}", text_of(&*panic))),
        Err(_) => Err(anyhow!("not done after {} s", scenario.deadline.as_secs())),
    };
    if outcome.is_err() {
        context.print_driver_logs();
    }
    // The first error is the one that tells what is wrong.
    let cleaned = match scenario.release {
        Some(_) => context.clean_up_pods().await,
        None => context.clean_up().await,
    };
    outcome.and(cleaned)
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}
