//! Device selectors against the scheduler's own CEL package. Needs no cluster, but the Go helpers.

use anyhow::{Context as _, Result};

use crate::{cel_oracle, context::Context, scenario::Scenario};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("selectors_mean_the_same_to_the_go_package", |cx| Box::pin(oracle(cx)))]
}

async fn oracle(cx: &Context) -> Result<()> {
    let (program, cases) = (cx.helper("cel-oracle"), cx.helper("cel-cases.json"));
    let summary = tokio::task::spawn_blocking(move || cel_oracle::run(&program, &cases));
    print!("{}", summary.await.context("the comparison broke off")??);
    Ok(())
}
