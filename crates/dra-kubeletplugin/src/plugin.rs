//! What a driver author writes: [`DriverPlugin`].

use std::{fmt, future::Future, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    adopt::{Adopt, AdoptedClaim},
    claim::{AllocatedClaim, ClaimRef, DeviceRef},
    config::{ConfigError, OpaqueConfig},
    error::BackgroundError,
    held::HeldClaim,
    prepared::Prepared,
};

/// What is special about the hardware: how a device becomes usable, and how it is given back.
///
/// The SDK calls it for one claim at a time; different claims run side by side. It keeps the record of what is
/// prepared, so the driver needs no checkpoint of its own and may assume that `prepare` is called for a claim only if
/// it is not prepared.
///
/// ```
/// use dra_kubeletplugin::{
///     AllocatedClaim, ContainerEdits, DriverPlugin, HeldClaim, PluginError, PrepareContext, Prepared,
/// };
///
/// struct Gpus;
///
/// impl DriverPlugin for Gpus {
///     type State = ();
///
///     async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
///         let edits = |name: &str| ContainerEdits::new().env("GPU", name);
///         Ok(claim.devices().iter().map(|d| (d, edits(d.device().as_str()))).collect())
///     }
///
///     async fn unprepare(&self, _claim: &HeldClaim<()>) -> Result<(), PluginError> {
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    note = "implement `prepare` and `unprepare` as plain `async fn`s; their futures must be `Send`"
)]
pub trait DriverPlugin: Send + Sync + 'static {
    /// What unprepare must know beyond the claim itself; `()` for most drivers. It is stored as JSON.
    type State: Serialize + DeserializeOwned + Send + Sync;

    /// Makes the devices of a claim usable and says how they get into a container.
    ///
    /// Runs in a task of its own and is never stopped half-way, whatever becomes of the kubelet's call. A panic
    /// counts as an error.
    ///
    /// # Errors
    ///
    /// An error belongs to this claim only: it is rolled back, and the kubelet tries again 60 to 90 s later (seen
    /// with kubelet 1.34 to 1.37). The text stands in an event of the pod.
    fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<Self::State>,
    ) -> impl Future<Output = Result<Prepared<Self::State>, PluginError>> + Send;

    /// Whether what containers were given for a prepared claim is still right; asked when the kubelet has it prepared
    /// again, before the answer of the first time is repeated. By default it is.
    ///
    /// If not, as the device has other nodes since its kernel driver was loaded anew, say, [`prepare`](Self::prepare) is
    /// called once more without an unprepare before it: it has to find its own work from the first time, which a container
    /// may be using. What it returns takes the place of what there was; if it fails, everything stays as it was. `state` is
    /// that of the first time, or what was saved last; none if it does not fit this version of the driver.
    ///
    /// Containers that start again in a pod that lives on are no reason for the kubelet to ask.
    ///
    /// # Errors
    ///
    /// The claim cannot be used any more, or the driver cannot tell. It is that claim's error, and nothing changes. A call
    /// that takes more than 30 s is dropped and counts as an error.
    fn is_current(
        &self,
        claim: &AllocatedClaim,
        state: Option<&Self::State>,
    ) -> impl Future<Output = Result<bool, PluginError>> + Send {
        let _ = (claim, state);
        std::future::ready(Ok(true))
    }

    /// Undoes [`prepare`](Self::prepare). Must succeed if there is nothing left to undo.
    ///
    /// # Errors
    ///
    /// The claim stays held and the pod Terminating; the kubelet tries again after 10 to 15 s.
    fn unprepare(
        &self,
        claim: &HeldClaim<Self::State>,
    ) -> impl Future<Output = Result<(), PluginError>> + Send;

    /// Undoes a [`prepare`](Self::prepare) that failed or died half-way; by default what unprepare does.
    ///
    /// # Errors
    ///
    /// The claim stays held until a later try succeeds.
    fn rollback(
        &self,
        claim: &HeldClaim<Self::State>,
    ) -> impl Future<Output = Result<(), PluginError>> + Send {
        self.unprepare(claim)
    }

    /// The kubelet wants a claim unprepared that no record tells of; by default a success.
    ///
    /// # Errors
    ///
    /// The pod stays Terminating; the kubelet tries again after 10 to 15 s.
    fn unprepare_unknown(&self, claim: &ClaimRef) -> impl Future<Output = Result<(), PluginError>> + Send {
        let _ = claim;
        std::future::ready(Ok(()))
    }

    /// Whether something on this node still uses the devices of a claim whose object is gone from the API server:
    /// containers outlive it when the kubelet is stopped or a pod is deleted by force. Asked before such a claim is
    /// collected; by default no. An error counts as yes.
    ///
    /// # Errors
    ///
    /// The driver cannot tell; asked again later. A call that takes more than 30 s is dropped and counts as an error.
    fn in_use(
        &self,
        claim: &HeldClaim<Self::State>,
    ) -> impl Future<Output = Result<bool, PluginError>> + Send {
        let _ = claim;
        std::future::ready(Ok(false))
    }

    /// Whether a device that is held keeps another one from being given away although they have different names: a full
    /// GPU and a partition of it, say. Called for each pair of a held and a wanted device with different names; by
    /// default they never conflict.
    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        let _ = (held, wanted);
        false
    }

    /// Tells of claims that another program has prepared, so that they can be unprepared and their devices are not given
    /// away: for taking a node over from a driver that kept its own books. By default there are none.
    ///
    /// The first prepare of an adopted claim with the same devices calls [`prepare`](Self::prepare) without an unprepare
    /// before it, as a container may be using them. If it fails, nothing is rolled back: the claim stays as it was adopted,
    /// and the next prepare tries again.
    ///
    /// A claim that is still in the earlier program's books after it was unprepared would be adopted again at the next
    /// start: unprepare has to take it out of them.
    ///
    /// # Errors
    ///
    /// The checkpoint cannot be read. At start nothing is prepared until it can. A call that takes more than 30 s is
    /// dropped and repeated.
    fn adopt(
        &self,
        which: Adopt<'_>,
    ) -> impl Future<Output = Result<Vec<AdoptedClaim<Self::State>>, PluginError>> + Send {
        let _ = which;
        std::future::ready(Ok(Vec::new()))
    }

    /// Checks a configuration before anything is done for its claim; by default all are fine. A validating webhook can
    /// call the same function.
    ///
    /// # Errors
    ///
    /// The mistake, with the path of the field. It becomes the claim's error.
    fn validate(&self, config: &OpaqueConfig) -> Result<(), ConfigError> {
        let _ = config;
        Ok(())
    }

    /// Hears of errors that no call can return, each once, in order. The SDK has logged and counted them; by default
    /// nothing more is done.
    ///
    /// It is called on a thread of its own, within the runtime: it may publish, stop the plugin, start tasks or wait.
    /// While it does not return, up to 256 further errors wait; the rest is only logged. A panic is logged.
    fn on_background_error(&self, error: &BackgroundError) {
        let _ = error;
    }
}

/// What goes with a call of [`DriverPlugin::prepare`].
pub struct PrepareContext<S> {
    pub(crate) deadline: Instant,
    pub(crate) cancelled: CancellationToken,
    pub(crate) saver: Arc<dyn SaveState>,
    pub(crate) state: std::marker::PhantomData<fn(&S)>,
}

/// Makes a driver's state durable; the record behind it is the SDK's business.
pub(crate) trait SaveState: Send + Sync {
    fn save(
        &self,
        state: serde_json::Value,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), PluginError>> + Send + '_>>;
}

impl<S: Serialize> PrepareContext<S> {
    /// Until when the kubelet can be answered: some seconds before it stops waiting. After that it learns that prepare is
    /// still running, and its next call finds what came of it.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Completes once the claim is to be unprepared: what is being prepared is not wanted any more. A driver may
    /// return an error then; if it goes on, the claim is unprepared after it.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Whether [`cancelled`](Self::cancelled) has completed.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Makes `state` durable before the driver goes on. If the process dies later in this prepare, the roll-back
    /// gets the state that was saved last.
    ///
    /// # Errors
    ///
    /// The state could not be encoded or written; nothing has changed on disk.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped half-way does not end the write: the state may be saved or not. Nothing is written after
    /// [`prepare`](DriverPlugin::prepare) has returned.
    pub async fn save(&self, state: &S) -> Result<(), PluginError> {
        self.saver.save(serde_json::to_value(state)?).await
    }
}

impl<S> fmt::Debug for PrepareContext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrepareContext").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// An error of a driver: any error becomes one by `?`.
///
/// Like `anyhow::Error` it is no [`std::error::Error`] itself, which is what makes that conversion possible.
pub struct PluginError(Box<dyn std::error::Error + Send + Sync>);

impl PluginError {
    /// Makes an error from a text or an error.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for PluginError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ErrorChain(self.0.as_ref()).fmt(f)
    }
}

impl fmt::Debug for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Shows an error with its causes, as one line.
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            // Errors that repeat their cause in their own text are common.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            next = cause.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("opening /dev/x")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_driver_error_shows_its_causes_once() {
        let error = PluginError::from(Outer(std::io::Error::other("gone")));
        assert_eq!(error.to_string(), "opening /dev/x: gone");
        assert_eq!(PluginError::new("no such GPU").to_string(), "no such GPU");
    }
}
