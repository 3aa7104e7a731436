//! The error of a connection to an API server whose certificate is not trusted.

use std::path::PathBuf;

/// Why there is no connection to the API server.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the certificate of the API server is not trusted ({reason}): was its certificate authority replaced? {}",
    advice(file.as_ref())
)]
pub(crate) struct Untrusted {
    /// What is wrong with the certificate.
    pub(crate) reason: String,
    /// Where the authorities are, if they are read again.
    pub(crate) file: Option<PathBuf>,
}

impl Untrusted {
    /// What an error comes from, if it is this.
    pub(crate) fn within<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        loop {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            error = error.source()?;
        }
    }
}

fn advice(file: Option<&PathBuf>) -> String {
    match file {
        Some(file) => format!("{} is read again each minute: bring it up to date", file.display()),
        None => "the driver's configuration holds the old one: bring it up to date and restart the driver"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn it_is_found_within_the_error_of_a_request() {
        let error = Untrusted { reason: "UnknownIssuer".to_owned(), file: None };
        let request = Arc::new(kube::Error::Service(Box::new(std::io::Error::other("x"))));
        assert!(Untrusted::within(&request).is_none());
        let request = Arc::new(kube::Error::Service(Box::new(error)));
        let found = Untrusted::within(&request).unwrap().to_string();
        assert!(found.contains("is not trusted (UnknownIssuer)"), "{found}");
    }
}
