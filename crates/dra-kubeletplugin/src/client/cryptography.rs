//! Which cryptography rustls takes. A process has one choice for all, made by the first who needs it; rustls makes it alone
//! only if exactly one provider is linked, and panics otherwise.

use rustls::crypto::CryptoProvider;

/// Sees to it that there is a choice. One that was made before stays.
///
/// # Errors
/// None is possible, with the reason.
pub(super) fn choose() -> Result<(), String> {
    if CryptoProvider::get_default().is_none() {
        install()?;
    }
    Ok(())
}

#[cfg(feature = "ring")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature there may be no choice")]
fn install() -> Result<(), String> {
    // Another thread may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(())
}

/// rustls has no other question for this than the builder that panics.
#[cfg(not(feature = "ring"))]
fn install() -> Result<(), String> {
    let tried = std::panic::catch_unwind(|| drop(rustls::ClientConfig::builder()));
    tried.map_err(|_| "several are linked, or none".to_owned())
}
