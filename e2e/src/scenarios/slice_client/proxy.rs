//! A way to the API server that can fall silent, as behind a firewall that has forgotten a connection.

use anyhow::{Context as _, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

const API_SERVER: &str = "127.0.0.1:6443";

/// Passes connections on, whatever is in them. Ends with this.
pub(super) struct Proxy {
    /// `https://127.0.0.1:PORT`: the API server's certificate has this address.
    pub(super) url: String,
    /// How many of the connections so far are frozen, oldest first.
    frozen: watch::Sender<u64>,
    accepted: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        let url = format!("https://{}", listener.local_addr()?);
        let (frozen, seen) = watch::channel(0);
        let (count, accepted) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let number = *count.borrow();
                tokio::spawn(pass_on(client, number, seen.clone()));
            }
        });
        Ok(Self { url, frozen, accepted, task })
    }

    /// How many connections there have been.
    pub(super) fn accepted(&self) -> u64 {
        *self.accepted.borrow()
    }

    /// Lets all connections that are open fall silent without closing them. New ones work. Tells how many have.
    pub(super) fn freeze(&self) -> u64 {
        let count = self.accepted();
        self.frozen.send_replace(count);
        count
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes one connection on until it is closed or frozen; a frozen one stays open until the proxy ends.
async fn pass_on(mut client: TcpStream, number: u64, mut frozen: watch::Receiver<u64>) {
    let Ok(mut server) = TcpStream::connect(API_SERVER).await else { return };
    tokio::select! {
        // However it ends, both sides are closed.
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = frozen.wait_for(|count| *count >= number) => {}
    }
    while frozen.changed().await.is_ok() {}
}
