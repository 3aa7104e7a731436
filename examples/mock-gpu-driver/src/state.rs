//! Commands for the person who has to put a node right.

use dra_kubeletplugin::state::{self, StateLocation};

use crate::options::Place;

pub(crate) async fn repair(place: Place) -> anyhow::Result<()> {
    let mut location = StateLocation::new(place.driver_name);
    location.kubelet_root = place.kubelet_root;
    location.cdi_root = place.cdi_root;
    let set_aside = state::repair(&location).await?;
    for record in &set_aside {
        println!("claim {}: {}; kept at {}", record.claim, record.why, record.kept_at.display());
    }
    println!("{} damaged records put aside", set_aside.len());
    Ok(())
}
