//! What the log says of what is published.

use std::collections::BTreeMap;

use dra_resourceslice::{PoolName, SliceStatus};
use tokio::sync::watch;

use crate::registration::Registration;

/// Says that the driver's devices are published, once the kubelet has registered it: from then on pods can have them.
/// And says so again whenever other devices are. What is in the way is told as errors of the background.
pub(super) async fn say_published(
    mut status: watch::Receiver<SliceStatus>,
    mut registration: watch::Receiver<Registration>,
) {
    if registration.wait_for(Registration::is_registered).await.is_err() {
        return;
    }
    let mut said = None;
    loop {
        let published = generations(&status.borrow_and_update());
        if published.is_some() && published != said {
            tracing::info!(generations = ?published.iter().flatten().collect::<Vec<_>>(), "devices published");
            said = published;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// The generation of each pool, if the API server has all that is wished for.
fn generations(status: &SliceStatus) -> Option<BTreeMap<PoolName, i64>> {
    let all = status.pools.values().all(|pool| pool.published);
    let generations = || status.pools.iter().map(|(name, pool)| (name.clone(), pool.generation)).collect();
    (status.wish > 0 && status.listed && all).then(generations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(wish: u64, published: &[bool]) -> SliceStatus {
        let mut status = SliceStatus::default();
        (status.wish, status.listed) = (wish, true);
        for (number, published) in published.iter().enumerate() {
            let name = format!("pool-{number}").parse().unwrap();
            let pool = status.pools.entry(name).or_default();
            (pool.published, pool.generation) = (*published, 3);
        }
        status
    }

    #[test]
    fn nothing_is_said_before_all_that_is_wished_for_is_there() {
        assert_eq!(generations(&status(0, &[])), None);
        assert_eq!(generations(&status(1, &[true, false])), None);
        let mut not_seen = status(1, &[true]);
        not_seen.listed = false;
        assert_eq!(generations(&not_seen), None);
        let all = generations(&status(1, &[true, true])).unwrap();
        assert_eq!(all.into_values().collect::<Vec<_>>(), [3, 3]);
        assert_eq!(generations(&status(2, &[])), Some(BTreeMap::new()));
    }
}
