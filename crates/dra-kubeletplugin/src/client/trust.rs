//! An API server whose certificate is not trusted: most often its certificate authority was replaced.

use std::{
    error::Error,
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use kube::config::Kubeconfig;
use tower::BoxError;

use crate::{one_line::OneLine, untrusted::Untrusted};

/// What a client trusts.
#[derive(Debug)]
pub(super) struct Trust {
    /// Where the authorities are, if they are read again.
    file: Option<PathBuf>,
    /// Whether the last connection failed for this reason; said once.
    failed: AtomicBool,
}

impl Trust {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file, failed: AtomicBool::new(false) }
    }

    /// Names the reason of a connection that failed because of the server's certificate.
    pub(super) fn judge<T>(&self, connected: Result<T, BoxError>) -> Result<T, BoxError> {
        let error = match connected {
            Ok(connection) => {
                self.failed.store(false, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(error) => error,
        };
        let Some(reason) = certificate_problem(&*error) else { return Err(error) };
        let untrusted = Untrusted { reason, file: self.file.clone() };
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(error = %OneLine(&untrusted), "no connection to the API server");
        }
        Err(untrusted.into())
    }
}

/// What rustls has against the server's certificate, if that is why a connection failed.
fn certificate_problem(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(rustls::Error::InvalidCertificate(problem)) = error.downcast_ref() {
        return Some(problem.to_string());
    }
    // The source of an `io::Error` is the source of what it holds.
    let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match held {
        Some(held) => certificate_problem(held),
        None => certificate_problem(error.source()?),
    }
}

/// The file with certificate authorities that the current context names.
pub(super) fn authority_file(config: &Kubeconfig) -> Option<PathBuf> {
    let current = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let cluster = config.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    // The data goes before the file.
    cluster
        .certificate_authority
        .clone()
        .filter(|_| cluster.certificate_authority_data.is_none())
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_with_what_to_do() {
        let rustls = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let failed = |error: BoxError, file: Option<&str>| {
            Trust::new(file.map(Into::into)).judge::<()>(Err(error)).unwrap_err().to_string()
        };
        let nested = io::Error::other(io::Error::other(rustls()));
        let text = failed(nested.into(), Some("/ca.crt"));
        assert!(
            text.contains("UnknownIssuer") && text.contains("/ca.crt is read again each minute"),
            "{text}"
        );
        let text = failed(rustls().into(), None);
        assert!(text.contains("restart the driver"), "{text}");
        assert_eq!(failed(io::Error::other("refused").into(), None), "refused");
    }

    #[test]
    fn the_file_of_the_current_context_is_found() {
        let config = |cluster: &str| -> Kubeconfig {
            serde_json::from_value(serde_json::json!({
                "current-context": "one",
                "contexts": [{"name": "two", "context": {"cluster": "other"}}, {"name": "one", "context": {"cluster": "here"}}],
                "clusters": [{"name": "other", "cluster": {"server": "https://b"}},
                    {"name": "here", "cluster": serde_json::from_str::<serde_json::Value>(cluster).unwrap()}],
            }))
            .unwrap()
        };
        let with_file = r#"{"server": "https://a", "certificate-authority": "/ca.crt"}"#;
        assert_eq!(authority_file(&config(with_file)), Some("/ca.crt".into()));
        let with_both = r#"{"server": "https://a", "certificate-authority": "/ca.crt", "certificate-authority-data": "eA=="}"#;
        assert_eq!(authority_file(&config(with_both)), None);
        assert_eq!(authority_file(&Kubeconfig::default()), None);
    }
}
