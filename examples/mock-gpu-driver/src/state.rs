//! Commands for the person who has to put a node right.

use dra_kubeletplugin::state::{self, StateLocation};

use crate::options::StateOptions;

pub(crate) async fn repair(options: StateOptions) -> anyhow::Result<()> {
    let mut location = StateLocation::new(options.driver_name);
    location.kubelet_root = options.kubelet_root;
    location.cdi_root = options.cdi_root;
    let set_aside = state::repair(&location).await?;
    for record in &set_aside {
        println!("claim {}: {}; kept at {}", record.claim, record.why, record.kept_at.display());
    }
    println!("{} damaged records put aside", set_aside.len());
    Ok(())
}
