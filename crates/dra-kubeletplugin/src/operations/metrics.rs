//! What is counted as it happens: calls of the kubelet and what came of their claims.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::error::BackgroundError;

/// In seconds: a replay takes milliseconds, and the kubelet waits for 45 s.
const BUCKETS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0];

/// What the outcome of a claim is called if it is no failure.
const OK: &str = "ok";

const REGISTERED: &str = "registered";
const REFUSED: &str = "refused";

/// A call of the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Prepare,
    Unprepare,
}

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// The counters. Clones are the same counters.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Histograms,
    claims: Histograms,
    outcomes: Family<Labels<2>, Counter>,
    registrations: Family<Labels<1>, Counter>,
    background_errors: Family<Labels<1>, Counter>,
}

impl Method {
    /// As gRPC knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prepare => "NodePrepareResources",
            Self::Unprepare => "NodeUnprepareResources",
        }
    }

    fn label(self) -> Labels<1> {
        [("method", self.name())]
    }
}

impl Metrics {
    /// All at 0, so that a first failure is a rise.
    pub(crate) fn new() -> Self {
        let histograms = || Histograms::new_with_constructor(|| Histogram::new(BUCKETS));
        let metrics = Self {
            calls: histograms(),
            claims: histograms(),
            outcomes: Family::default(),
            registrations: Family::default(),
            background_errors: Family::default(),
        };
        for method in [Method::Prepare, Method::Unprepare] {
            drop(metrics.calls.get_or_create(&method.label()));
            drop(metrics.claims.get_or_create(&method.label()));
            drop(metrics.outcomes.get_or_create(&outcome(method, OK)));
        }
        for result in [REGISTERED, REFUSED] {
            drop(metrics.registrations.get_or_create(&[("result", result)]));
        }
        for class in BackgroundError::CLASSES {
            drop(metrics.background_errors.get_or_create(&[("class", class)]));
        }
        metrics
    }

    /// A call has been answered.
    pub(crate) fn call(&self, method: Method, took: Duration) {
        self.calls.get_or_create(&method.label()).observe(took.as_secs_f64());
    }

    /// A claim of a call is done with; `Err` has the class of the failure.
    pub(crate) fn claim(&self, method: Method, took: Duration, done: Result<(), &'static str>) {
        self.claims.get_or_create(&method.label()).observe(took.as_secs_f64());
        self.outcomes.get_or_create(&outcome(method, done.err().unwrap_or(OK))).inc();
    }

    /// The kubelet has told what came of a registration.
    pub(crate) fn registration(&self, taken: bool) {
        let result = if taken { REGISTERED } else { REFUSED };
        self.registrations.get_or_create(&[("result", result)]).inc();
    }

    /// Something went wrong that belongs to no call.
    pub(crate) fn background_error(&self, class: &'static str) {
        self.background_errors.get_or_create(&[("class", class)]).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "call_duration",
            "How long calls of the kubelet took",
            Unit::Seconds,
            self.calls.clone(),
        );
        registry.register_with_unit(
            "claim_duration",
            "How long each claim of a call took",
            Unit::Seconds,
            self.claims.clone(),
        );
        let help = "Claims of calls by outcome: ok, or the class of the failure";
        registry.register("claim_outcomes", help, self.outcomes.clone());
        let help = "Registrations with the kubelet by what it said";
        registry.register("registrations", help, self.registrations.clone());
        let help = "Errors that belong to no call, by class";
        registry.register("background_errors", help, self.background_errors.clone());
    }
}

fn outcome(method: Method, outcome: &'static str) -> Labels<2> {
    [("method", method.name()), ("outcome", outcome)]
}
