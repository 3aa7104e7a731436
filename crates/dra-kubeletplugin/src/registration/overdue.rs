//! Tells the driver when the kubelet does not register it.

use std::path::PathBuf;

use tokio::{sync::watch, time::timeout};

use super::{Registration, state::PATIENCE};
use crate::{background::TellError, error::BackgroundError};

/// Says what is wrong when the kubelet does not register the plugin, once for each time.
pub(crate) async fn tell_if_overdue(
    tell: TellError,
    mut registration: watch::Receiver<Registration>,
    socket: PathBuf,
) {
    loop {
        if timeout(PATIENCE, registration.wait_for(Registration::is_registered)).await.is_err() {
            // The two clocks do not tick together.
            let decided =
                |state: &Registration| !matches!(state, Registration::Waiting { .. } | Registration::Lost);
            let trouble = match registration.wait_for(decided).await {
                Ok(state) => state.trouble(),
                Err(_) => return,
            };
            if let Some(what) = trouble {
                tell(BackgroundError::NotRegistered { since: PATIENCE, what, socket: socket.clone() });
            }
        }
        if registration.wait_for(Registration::is_registered).await.is_err()
            || registration.wait_for(|state| !state.is_registered()).await.is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::{Duration, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_told_once_for_each_time_that_the_kubelet_stays_away() {
        let (state, seen) = watch::channel(Registration::Waiting { asked: false });
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let tell: TellError = Arc::new(move |error| noted.lock().unwrap().push(error.to_string()));
        tokio::spawn(tell_if_overdue(tell, seen, "/s".into()));
        let overdue = |tried: &str| Registration::Overdue { tried: tried.to_owned() };
        sleep(Duration::from_secs(29)).await;
        assert_eq!(told.lock().unwrap().len(), 0);
        sleep(Duration::from_secs(2)).await;
        for tried in ["first", "the same time still"] {
            state.send_replace(overdue(tried));
            sleep(Duration::from_secs(100)).await;
        }
        state.send_replace(Registration::Registered { epoch: 1 });
        sleep(Duration::from_secs(1)).await;
        state.send_replace(Registration::Refused { reason: "no".into() });
        sleep(Duration::from_secs(100)).await;
        let expected = ["first", "it refused the plugin: no"]
            .map(|what| format!("not registered by the kubelet for 30 s: {what}; registration socket: /s"));
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
