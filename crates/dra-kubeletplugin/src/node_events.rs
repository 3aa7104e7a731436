//! Events on the Node about the registration, for those who look at the cluster and not at logs.
//!
//! They are written as the API asks of reporters: one Event for each kind of news, and if the same is to be said again it
//! becomes a series, of which only count and time change.

use std::{collections::HashMap, time::Duration};

use dra_resourceslice::{DriverName, NodeName};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    background::TellError,
    error::BackgroundError,
    pace::{Chance, Pace},
    plugin::ErrorChain,
    registration::Registration,
};

/// Where Events about objects without a namespace have to be.
const NAMESPACE: &str = "default";
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// The least between two writes: what came to nothing meanwhile is left out.
const PAUSE: Duration = Duration::from_secs(10);
/// After a failure.
const PACE: Pace = Pace { first: PAUSE, longest: Duration::from_secs(300) };
/// The API server's limits, in bytes (Kubernetes 1.34 to 1.37).
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;

/// Something worth an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct News {
    kind: Kind,
    note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Refused,
    NotRegistered,
    Registered,
}

/// An Event that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    name: String,
    note: String,
    count: i32,
}

/// Writes the Events of one plugin.
pub(crate) struct Writer {
    events: Api<Event>,
    driver: DriverName,
    node: NodeName,
    /// The last Event of each kind.
    written: HashMap<Kind, Written>,
}

impl Kind {
    /// For programs: as Events name their reasons.
    fn reason(self) -> &'static str {
        match self {
            Self::Refused => "DRADriverRefused",
            Self::NotRegistered => "DRADriverNotRegistered",
            Self::Registered => "DRADriverRegistered",
        }
    }

    fn event_type(self) -> &'static str {
        match self {
            Self::Refused | Self::NotRegistered => "Warning",
            Self::Registered => "Normal",
        }
    }
}

/// What is to be said of this state, if anything. `trouble`: whether trouble was the last that was said.
fn news(driver: &DriverName, state: &Registration, trouble: bool) -> Option<News> {
    let (kind, note) = match state {
        Registration::Refused { reason } => {
            (Kind::Refused, format!("the kubelet refused DRA driver {driver}: {reason}"))
        }
        Registration::Overdue { tried } => {
            (Kind::NotRegistered, format!("the kubelet has not registered DRA driver {driver}: {tried}"))
        }
        Registration::Registered { .. } if trouble => {
            (Kind::Registered, format!("the kubelet has registered DRA driver {driver}"))
        }
        _ => return None,
    };
    Some(News { kind, note: cut(note, LONGEST_NOTE) })
}

/// The longest beginning of `text` that has at most `most` bytes.
fn cut(mut text: String, most: usize) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=most.min(text.len())).rev().find(fits).unwrap_or_default();
    text.truncate(end);
    text
}

impl Writer {
    pub(crate) fn new(client: &Client, driver: &DriverName, node: &NodeName) -> Self {
        Self {
            events: Api::namespaced(client.clone(), NAMESPACE),
            driver: driver.clone(),
            node: node.clone(),
            written: HashMap::new(),
        }
    }

    /// Says what is to be said for as long as the registration is followed. What cannot be written is tried again as
    /// long as it is so.
    pub(crate) async fn run(mut self, mut registration: watch::Receiver<Registration>, tell: TellError) {
        // What was said last, and how often in a row it could not be written; the driver hears of a failure once.
        let (mut said, mut failures) = (None, 0);
        loop {
            let trouble = matches!(&said, Some(News { kind, .. }) if *kind != Kind::Registered);
            let news = news(&self.driver, &registration.borrow_and_update(), trouble);
            let Some(news) = news.filter(|news| failures > 0 || said.as_ref() != Some(news)) else {
                failures = 0;
                if registration.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let error = match timeout(WRITE_LIMIT, self.write(&news)).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(text(&error)),
                Err(_) => Some(format!("no answer within {} s", WRITE_LIMIT.as_secs())),
            };
            said = Some(news);
            let Some(message) = error else {
                failures = 0;
                sleep(PAUSE).await;
                continue;
            };
            if failures == 0 {
                tell(BackgroundError::NodeEvent { message });
            }
            sleep(PACE.pause(failures, Chance::random())).await;
            failures += 1;
        }
    }

    async fn write(&mut self, news: &News) -> kube::Result<()> {
        if let Some(last) = self.written.get_mut(&news.kind).filter(|last| last.note == news.note) {
            let count = last.count + 1;
            let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(Timestamp::now())}});
            match self.events.patch(&last.name, &PatchParams::default(), &Patch::Merge(series)).await {
                Ok(_) => {
                    last.count = count;
                    return Ok(());
                }
                // Events are kept for an hour.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let made = self.events.create(&PostParams::default(), &self.event(news)).await?;
        let name = made.metadata.name.unwrap_or_default();
        self.written.insert(news.kind, Written { name, note: news.note.clone(), count: 1 });
        Ok(())
    }

    fn event(&self, news: &News) -> Event {
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", self.driver)),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(news.kind.event_type().to_owned()),
            reason: Some(news.kind.reason().to_owned()),
            action: Some("Register".to_owned()),
            note: Some(news.note.clone()),
            event_time: Some(MicroTime(Timestamp::now())),
            // The kubelet too puts the name where the UID belongs, and `kubectl describe node` looks for both.
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node.to_string()),
                uid: Some(self.node.to_string()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(self.driver.to_string()),
            reporting_instance: Some(cut(self.node.to_string(), LONGEST_INSTANCE)),
            ..Event::default()
        }
    }
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "{} (the driver's service account needs create and patch on events of events.k8s.io in namespace {NAMESPACE})",
            status.message
        ),
        kube::Error::Api(status) => status.message.clone(),
        error => ErrorChain(error).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dra_testkit::api::{ApiServer, ApiStatus, Matcher};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_that_are_refused_are_tried_less_and_less_often() {
        let api = ApiServer::new();
        let refused = api.fail_while(Matcher::any().resource("events"), ApiStatus::forbidden());
        let writer =
            Writer::new(&api.client(), &"gpu.example.com".parse().unwrap(), &"node-1".parse().unwrap());
        let (_state, seen) = watch::channel(Registration::Refused { reason: "no".into() });
        let tell: TellError = Arc::new(|_| {});
        tokio::spawn(writer.run(seen, tell));
        sleep(Duration::from_secs(3600)).await;
        let tries = api.calls().len();
        assert!((12..=24).contains(&tries), "{tries} tries in an hour");
        drop(refused);
        let begun = Instant::now();
        while api.list::<Event>().is_empty() {
            assert!(begun.elapsed() <= PACE.longest);
            sleep(Duration::from_secs(1)).await;
        }
    }

    #[test]
    fn trouble_is_news_and_its_end_is_too() {
        let driver = "gpu.example.com".parse().unwrap();
        let registered = Registration::Registered { epoch: 1 };
        let table = [
            (Registration::Waiting { asked: true }, false, None),
            (Registration::Lost, true, None),
            (
                Registration::Refused { reason: "no".into() },
                false,
                Some((Kind::Refused, "gpu.example.com: no")),
            ),
            (
                Registration::Overdue { tried: "all".into() },
                true,
                Some((Kind::NotRegistered, "gpu.example.com: all")),
            ),
            (registered.clone(), false, None),
            (registered, true, Some((Kind::Registered, "has registered DRA driver gpu.example.com"))),
        ];
        for (state, trouble, expected) in table {
            let found = news(&driver, &state, trouble);
            match (&found, expected) {
                (None, None) => {}
                (Some(found), Some((kind, text))) => {
                    assert!(found.kind == kind && found.note.contains(text), "{found:?}");
                }
                _ => panic!("{state:?} {trouble}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_note_is_cut_between_letters_to_what_the_api_takes() {
        assert_eq!(cut(format!("a{}", "ü".repeat(600)), LONGEST_NOTE).len(), 1023);
        assert_eq!(cut("short".into(), LONGEST_NOTE), "short");
    }
}
