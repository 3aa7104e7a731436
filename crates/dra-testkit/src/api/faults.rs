//! What goes wrong on purpose.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::calls::{Call, Matcher};
use super::lock;
use super::status::ApiStatus;

/// All rules in force. Cheap to clone: all clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    rules: Arc<Mutex<Rules>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Rules {
    next_id: u64,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    matcher: Matcher,
    effect: Effect,
    /// How many requests the rule still meets; `None` for all.
    left: Option<usize>,
}

/// What happens to a request that a rule meets.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// Refused, nothing is done.
    Refuse(ApiStatus),
    /// Done, but the answer is this.
    LoseAnswer(ApiStatus),
    /// Served after a pause.
    Delay(Duration),
    /// Not answered while the rule is in force.
    Hang,
    /// The connection is cut without an answer.
    Cut,
}

/// A fault that lasts until this guard is dropped.
///
/// ```
/// # use dra_testkit::api::{ApiServer, ApiStatus, Matcher};
/// let api = ApiServer::new();
/// let outage = api.fail_while(Matcher::any(), ApiStatus::unavailable());
/// // … every request is refused …
/// drop(outage);
/// ```
#[derive(Debug)]
#[must_use = "the fault ends when the guard is dropped"]
pub struct FaultGuard {
    faults: Faults,
    id: u64,
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        lock(&self.faults.rules).rules.retain(|rule| rule.id != self.id);
        self.faults.changed.send_replace(());
    }
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { rules: Arc::default(), changed: watch::Sender::new(()) }
    }

    /// Puts a rule in force for the next `times` requests that it meets.
    pub(crate) fn add(&self, matcher: Matcher, effect: Effect, times: usize) {
        self.push(matcher, effect, Some(times));
    }

    /// Puts a rule in force until the guard is dropped.
    pub(crate) fn hold(&self, matcher: Matcher, effect: Effect) -> FaultGuard {
        FaultGuard { id: self.push(matcher, effect, None), faults: self.clone() }
    }

    /// The effect on this request, if a rule meets it. Waits out hangs and delays.
    pub(crate) async fn meet(&self, call: &Call) -> Option<Effect> {
        self.wait_while_hanging(call).await;
        match self.take(call) {
            Some(Effect::Delay(pause)) => {
                tokio::time::sleep(pause).await;
                self.take_other_than_delay(call)
            }
            effect => effect,
        }
    }

    /// Returns once no rule makes this request hang.
    pub(crate) async fn wait_while_hanging(&self, call: &Call) {
        let mut changed = self.changed.subscribe();
        while self.hangs(call) {
            // The sender lives as long as `self`, so this cannot fail.
            let _ = changed.changed().await;
        }
    }

    fn push(&self, matcher: Matcher, effect: Effect, left: Option<usize>) -> u64 {
        let mut rules = lock(&self.rules);
        rules.next_id += 1;
        let id = rules.next_id;
        rules.rules.push(Rule { id, matcher, effect, left });
        drop(rules);
        self.changed.send_replace(());
        id
    }

    fn hangs(&self, call: &Call) -> bool {
        let rules = lock(&self.rules);
        rules.rules.iter().any(|rule| matches!(rule.effect, Effect::Hang) && rule.matcher.matches(call))
    }

    fn take(&self, call: &Call) -> Option<Effect> {
        self.take_if(call, |_| true)
    }

    fn take_other_than_delay(&self, call: &Call) -> Option<Effect> {
        self.take_if(call, |effect| !matches!(effect, Effect::Delay(_)))
    }

    /// The oldest rule that meets the call; counts it down.
    fn take_if(&self, call: &Call, wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let mut rules = lock(&self.rules);
        let rules = &mut rules.rules;
        let meets = |rule: &Rule| rule.left != Some(0) && wanted(&rule.effect) && rule.matcher.matches(call);
        let rule = rules.iter_mut().find(|rule| meets(rule))?;
        if let Some(left) = &mut rule.left {
            *left -= 1;
        }
        let effect = rule.effect.clone();
        rules.retain(|rule| rule.left != Some(0));
        Some(effect)
    }
}
