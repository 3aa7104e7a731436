//! The tasks of the SDK, all watched: a panic in one ends the plugin, which would go on without a part of itself.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Starts tasks. Clones are the same.
#[derive(Clone)]
pub(crate) struct Tasks {
    stop: CancellationToken,
    panics: mpsc::UnboundedSender<String>,
}

/// Hears of panics.
pub(crate) struct Panics(mpsc::UnboundedReceiver<String>);

impl Tasks {
    pub(crate) fn new(stop: CancellationToken) -> (Self, Panics) {
        let (panics, heard) = mpsc::unbounded_channel();
        (Self { stop, panics }, Panics(heard))
    }

    /// Starts a task that ends with the plugin.
    pub(crate) fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_to_end(name, self.stop.clone().run_until_cancelled_owned(task));
    }

    /// Starts a task that sees to its end itself.
    pub(crate) fn spawn_to_end<F>(&self, name: &'static str, task: F) -> JoinHandle<()>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let panics = self.panics.clone();
        tokio::spawn(async move {
            // Nothing of a task is looked at once it has panicked.
            if let Err(payload) = AssertUnwindSafe(task).catch_unwind().await {
                // Nobody hears of it while the plugin stops.
                let _ = panics.send(format!("{name}: {}", text(&*payload)));
            }
        })
    }

    /// Says that a task has ended that another library has started, and that ends only with the plugin or by a panic.
    pub(crate) fn ended(&self, name: &'static str) {
        if !self.stop.is_cancelled() {
            let _ = self.panics.send(format!("{name} has ended"));
        }
    }
}

impl Panics {
    /// The first panic; never, if there is none.
    pub(crate) async fn first(&mut self) -> String {
        match self.0.recv().await {
            Some(panic) => panic,
            None => std::future::pending().await,
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_with_the_name_of_its_task() {
        let (tasks, mut panics) = Tasks::new(CancellationToken::new());
        tasks.spawn("one that ends", async {});
        tasks.spawn("recovery", async { panic!("on {}", "purpose") });
        assert_eq!(panics.first().await, "recovery: on purpose");
    }

    #[tokio::test]
    async fn tasks_end_with_the_plugin_and_that_is_no_panic() {
        let stop = CancellationToken::new();
        let (tasks, mut panics) = Tasks::new(stop.clone());
        let (alive, mut gone) = mpsc::channel::<()>(1);
        tasks.spawn("waits", async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        stop.cancel();
        assert_eq!(gone.recv().await, None);
        tasks.ended("publisher");
        assert!(panics.0.try_recv().is_err());
    }
}
