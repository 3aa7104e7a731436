//! CDI files against what reads them. Needs no cluster, but root and the Go libraries, as these scenarios do anyway.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    cdi_full_disk, cdi_oracle,
    context::Context,
    scenario::{Scenario, Tier},
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("cdi_files_mean_the_same_to_every_version_of_the_go_library", |cx| {
            Box::pin(oracles(cx))
        })
        // The full tier asks about ten times as many files as the gate, which takes two minutes on a busy machine.
        .within(Duration::from_secs(360)),
        Scenario::new("cdi_folder_on_a_full_disk_keeps_what_it_has", |cx| Box::pin(full_disk(cx))),
    ]
}

async fn oracles(cx: &Context) -> Result<()> {
    let cases = if cx.tier == Tier::Full { 5000 } else { 500 };
    let oracles = cx.helpers_like("cdi-oracle-")?;
    let scratch = cx.scratch.join("cdi");
    let summary = tokio::task::spawn_blocking(move || cdi_oracle::run(&oracles, &scratch, cases));
    println!("{}", summary.await.context("the comparison broke off")??);
    Ok(())
}

async fn full_disk(cx: &Context) -> Result<()> {
    let mount_point = cx.scratch.join("full");
    let summary = tokio::task::spawn_blocking(move || cdi_full_disk::run(&mount_point));
    println!("{}", summary.await.context("the test broke off")??);
    Ok(())
}
