//! Who has written to the API server, and whether two did at once.

use std::sync::{Arc, Mutex, MutexGuard};

use dra_kubeletplugin::kube::{Client, client::Body};
use http::{Method, Request};

/// Sees the writes of several clients. Clones see the same.
#[derive(Clone, Default)]
pub(crate) struct Writers(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Writer and method of each write, in the order in which they began.
    writes: Vec<(&'static str, Method)>,
    under_way: Vec<&'static str>,
    offences: Vec<String>,
}

impl Writers {
    /// A client whose writes are seen under this name.
    pub(crate) fn client(&self, client: &Client, name: &'static str) -> Client {
        let (writers, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (writers, client) = (writers.clone(), client.clone());
            async move {
                let dry = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
                let changes = request.method() != Method::GET && !dry;
                let _write = changes.then(|| writers.begin(name, request.method()));
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }

    /// The writes since they were last taken.
    pub(crate) fn take(&self) -> Vec<(&'static str, Method)> {
        let mut seen = self.seen();
        assert!(seen.offences.is_empty(), "{:?}", seen.offences);
        std::mem::take(&mut seen.writes)
    }

    /// How many writes since then were this writer's.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.seen().writes.iter().filter(|(writer, _)| *writer == name).count()
    }

    fn begin(&self, name: &'static str, method: &Method) -> Write {
        let mut seen = self.seen();
        let others: Vec<_> = seen.under_way.iter().copied().filter(|other| *other != name).collect();
        if !others.is_empty() {
            seen.offences.push(format!("{name}: {method} during a write of {others:?}"));
        }
        seen.writes.push((name, method.clone()));
        seen.under_way.push(name);
        Write { writers: self.clone(), name }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }
}

/// A write that is under way.
struct Write {
    writers: Writers,
    name: &'static str,
}

impl Drop for Write {
    fn drop(&mut self) {
        let mut seen = self.writers.seen();
        if let Some(place) = seen.under_way.iter().position(|name| *name == self.name) {
            seen.under_way.remove(place);
        }
    }
}
