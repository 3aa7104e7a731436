//! Whether pods that are given devices of this node can start.

use dra_resourceslice::{PoolState, PoolStatus, PublishError, SliceStatus};
use tokio::sync::watch;

use crate::{plugin::ErrorChain, registration::Registration, untrusted::Untrusted};

/// Whether the driver is ready: the kubelet has registered it, and what it wishes to publish has been seen in the API
/// once, whichever instance wrote it. That the wish has been seen is kept from then on, as an API server that is away
/// stops no pod that has its devices. So a driver stops being ready only with its registration, or when it cannot trust the
/// certificate of the API server: that does not mend itself.
///
/// Watch it with [`Handle::readiness`](crate::Handle::readiness).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// Something is missing.
    #[non_exhaustive]
    NotReady {
        /// What.
        reason: String,
    },
    /// Nothing is missing.
    Ready,
}

impl Readiness {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }

    pub(crate) fn starting() -> Self {
        Self::not("the plugin is starting")
    }

    pub(crate) fn stopping() -> Self {
        Self::not("the plugin is stopping")
    }

    fn not(reason: impl Into<String>) -> Self {
        Self::NotReady { reason: reason.into() }
    }
}

/// Says whether the plugin is ready for as long as the two last.
pub(crate) async fn follow(
    mut registration: watch::Receiver<Registration>,
    mut slices: watch::Receiver<SliceStatus>,
    readiness: watch::Sender<Readiness>,
) {
    let mut seen = false;
    loop {
        let (missing, untrusted) = {
            let slices = slices.borrow_and_update();
            (missing_slices(&slices), untrusted(&slices))
        };
        seen |= missing.is_none();
        let missing = missing.filter(|_| !seen).or(untrusted);
        let now = judge(&registration.borrow_and_update(), missing);
        readiness.send_if_modified(|old| {
            let changed = *old != now;
            *old = now;
            changed
        });
        tokio::select! {
            Ok(()) = registration.changed() => {}
            Ok(()) = slices.changed() => {}
            else => return,
        }
    }
}

fn judge(registration: &Registration, missing: Option<String>) -> Readiness {
    if let Some(reason) = registration.trouble() {
        return Readiness::not(format!("not registered by the kubelet: {reason}"));
    }
    missing.map_or(Readiness::Ready, Readiness::not)
}

/// That the API server's certificate is not trusted.
fn untrusted(slices: &SliceStatus) -> Option<String> {
    slices.last_error.as_ref().and_then(|error| Untrusted::within(error)).map(ToString::to_string)
}

/// What keeps the wish from having been seen in the API, less what the API does not allow: devices that were left out of
/// it, and pools that are refused as a whole. But if nothing else is left of a wish the driver is not ready: a node that
/// offers nothing is not what was wished for, and an update to such a driver must not go on.
fn missing_slices(slices: &SliceStatus) -> Option<String> {
    let because = |error: Option<&PublishError>| {
        error.map(|error| format!(": {}", ErrorChain(error))).unwrap_or_default()
    };
    if slices.wish == 0 {
        return Some("the driver has not published yet".to_owned());
    }
    if !slices.listed {
        return Some(format!("ResourceSlices are not listed{}", because(slices.last_error.as_ref())));
    }
    let wished = slices.pools.iter().filter(|(_, pool)| pool.state != PoolState::Removing);
    let (seen, missing): (Vec<_>, Vec<_>) = wished.partition(|(_, pool)| pool.published);
    let is_refused = |pool: &PoolStatus| pool.state == PoolState::Refused;
    let missing = missing.into_iter().find(|(_, pool)| !is_refused(pool) || seen.is_empty());
    missing.map(|(name, pool)| {
        let what =
            if is_refused(pool) { "is refused, and no other is there" } else { "is not in the API yet" };
        format!("pool {name} {what}{}", because(pool.last_error.as_ref()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(state: PoolState, published: bool) -> PoolStatus {
        let mut pool = PoolStatus::default();
        (pool.state, pool.published) = (state, published);
        pool
    }

    fn status(wish: u64, listed: bool, pools: &[(PoolState, bool)]) -> SliceStatus {
        let mut status = SliceStatus::default();
        (status.wish, status.listed) = (wish, listed);
        let named = pools.iter().enumerate();
        status.pools =
            named.map(|(i, (state, seen))| (format!("p{i}").parse().unwrap(), pool(*state, *seen))).collect();
        status
    }

    #[test]
    fn the_wish_has_to_be_in_the_api_less_what_is_left_out_or_on_its_way_out() {
        use PoolState::{Pending, Published, Refused, Removing};
        let table = [
            (status(0, true, &[]), Some("the driver has not published yet")),
            (status(1, false, &[]), Some("ResourceSlices are not listed")),
            (status(1, true, &[]), None),
            (status(1, true, &[(Pending, false)]), Some("pool p0 is not in the API yet")),
            (status(1, true, &[(Published, true)]), None),
            (status(1, true, &[(Pending, true)]), None),
            (status(1, true, &[(Published, true), (Refused, false)]), None),
            (
                status(1, true, &[(Refused, false), (Pending, false)]),
                Some("pool p0 is refused, and no other is there"),
            ),
            (
                status(1, true, &[(Refused, false), (Pending, false), (Published, true)]),
                Some("pool p1 is not in the API yet"),
            ),
            (status(1, true, &[(Refused, false)]), Some("pool p0 is refused, and no other is there")),
            (status(2, true, &[(Published, true), (Removing, false)]), None),
        ];
        for (status, expected) in table {
            assert_eq!(missing_slices(&status).as_deref(), expected, "{status:?}");
        }
    }

    #[tokio::test]
    async fn ready_is_kept_until_the_registration_is_lost_and_comes_back_with_it() {
        let registered = || Registration::Registered { epoch: 1 };
        let (registration, registration_seen) = watch::channel(Registration::Waiting { asked: false });
        let (slices, slices_seen) = watch::channel(status(0, false, &[]));
        let (readiness, mut seen) = watch::channel(Readiness::starting());
        tokio::spawn(follow(registration_seen, slices_seen, readiness));
        let reason = |readiness: &Readiness| match readiness {
            Readiness::Ready => String::new(),
            Readiness::NotReady { reason } => reason.clone(),
        };
        let says = |text: &'static str| move |now: &Readiness| reason(now).contains(text);
        seen.wait_for(says("GetInfo")).await.unwrap();
        registration.send_replace(registered());
        seen.wait_for(says("has not published")).await.unwrap();
        slices.send_replace(status(1, true, &[(PoolState::Published, true)]));
        seen.wait_for(Readiness::is_ready).await.unwrap();
        slices.send_replace(status(2, false, &[(PoolState::Pending, false)]));
        registration.send_replace(Registration::Lost);
        seen.wait_for(says("is gone")).await.unwrap();
        registration.send_replace(registered());
        seen.wait_for(Readiness::is_ready).await.unwrap();
    }
}
