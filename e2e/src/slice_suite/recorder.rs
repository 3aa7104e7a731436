//! A client that counts what goes through it, and can let somebody else in between.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Method, Request};
use http_body::Body as _;
use kube::client::Body;

/// One request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) dry_run: bool,
    /// The length of the body in bytes.
    pub(crate) bytes: u64,
}

impl Sent {
    /// Whether it changes something.
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET && !self.dry_run
    }
}

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What went through a client. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    /// What comes before an update, and how many updates come before that.
    before_update: Option<(usize, Hook)>,
}

/// The same client with a record of what it sends.
pub(crate) fn recorded(client: &kube::Client) -> (kube::Client, Recorder) {
    let recorder = Recorder::default();
    let (client, log) = (client.clone(), recorder.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, hook) = (client.clone(), log.note(&request));
        async move {
            if let Some(hook) = hook {
                hook.await;
            }
            client.send(request).await
        }
    });
    (kube::Client::new(service, "default"), recorder)
}

impl Recorder {
    /// The writes so far, without dry runs.
    pub(crate) fn writes(&self) -> Vec<Sent> {
        self.state().sent.iter().filter(|sent| sent.is_write()).cloned().collect()
    }

    /// The methods of the writes so far: `["POST", "PUT"]`.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.writes().iter().map(|sent| sent.method.to_string()).collect()
    }

    /// Starts anew.
    pub(crate) fn clear(&self) {
        self.state().sent.clear();
    }

    /// Does something just before an update is sent: the next one, or one that comes some updates later.
    pub(crate) fn before_update(&self, later: usize, hook: impl Future<Output = ()> + Send + 'static) {
        self.state().before_update = Some((later, Box::pin(hook)));
    }

    /// Notes a request, and tells what comes before it.
    fn note(&self, request: &Request<Body>) -> Option<Hook> {
        let query = request.uri().query().unwrap_or_default();
        let sent = Sent {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            dry_run: query.contains("dryRun=All"),
            bytes: request.body().size_hint().exact().unwrap_or_default(),
        };
        let mut state = self.state();
        let update = sent.method == Method::PUT && !sent.dry_run;
        state.sent.push(sent);
        if !update {
            return None;
        }
        let due = state.before_update.take_if(|(later, _)| *later == 0);
        if let Some((later, _)) = &mut state.before_update {
            *later -= 1;
        }
        due.map(|(_, hook)| hook)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
