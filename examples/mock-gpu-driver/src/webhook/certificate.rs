//! The certificate, read again when its files change: they are replaced while the webhook runs, each few months.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use axum_server::tls_rustls::RustlsConfig;
use clap::Args;
use tokio::fs;

/// Where the certificate and its key are, in PEM.
#[derive(Clone, Debug, Args)]
pub(crate) struct CertificateFiles {
    /// Certificate, with those of intermediate authorities behind it; read again when it changes.
    #[arg(long, env = "TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// Private key of the certificate; read again when it changes.
    #[arg(long, env = "TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
}

/// The content of both files.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// How often to look. A notification of the kernel would miss some of the ways in which a `Secret`'s files change.
const LOOK: Duration = Duration::from_secs(1);

/// A certificate that follows its files.
pub(crate) struct Certificate {
    files: CertificateFiles,
    seen: Pair,
    config: RustlsConfig,
}

impl Certificate {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// They cannot be read, or do not hold a certificate and its key.
    pub(crate) async fn open(files: CertificateFiles) -> anyhow::Result<Self> {
        let seen = files.read().await?;
        let config = RustlsConfig::from_pem(seen.cert.clone(), seen.key.clone()).await;
        let config = config.with_context(|| files.name())?;
        Ok(Self { files, seen, config })
    }

    /// What a server needs. It changes with the files once [`follow`](Self::follow) runs.
    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Reads the files again when they change. What cannot be used is logged, and the certificate stays as it was: two
    /// files may be replaced one after the other.
    pub(crate) async fn follow(mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = match self.files.read().await {
                Ok(now) if now == self.seen => continue,
                Ok(now) => now,
                Err(error) => {
                    tracing::error!("{error:#}; the certificate stays as it was");
                    continue;
                }
            };
            match self.config.reload_from_pem(now.cert.clone(), now.key.clone()).await {
                Ok(()) => tracing::info!("{} read again", self.files.name()),
                Err(error) => tracing::error!("{}: {error}; it stays as it was", self.files.name()),
            }
            self.seen = now;
        }
    }
}

impl CertificateFiles {
    async fn read(&self) -> anyhow::Result<Pair> {
        let read = |path: PathBuf| async move {
            fs::read(&path).await.with_context(|| format!("reading {}", path.display()))
        };
        Ok(Pair { cert: read(self.tls_cert.clone()).await?, key: read(self.tls_key.clone()).await? })
    }

    fn name(&self) -> String {
        format!("certificate {} with key {}", self.tls_cert.display(), self.tls_key.display())
    }
}
