//! A socket in front of a driver's. What a kubelet says goes through it, and on command is lost.

mod frames;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinHandle,
};

use frames::AnswerCount;

/// What becomes of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// They are answered.
    Forward,
    /// So many are answered on each connection. Then, in place of an answer, the connection is closed; by then the driver
    /// has done what it was asked.
    AnswersUpTo(usize),
    /// So many reach the driver on each connection. Then the connection is closed, and the driver hears nothing of the call.
    CallsUpTo(usize),
    /// Connections are closed at once.
    Refuse,
}

/// A listening socket that connects to another one for each connection. Dropped, it is gone with all its connections.
pub(crate) struct SocketProxy {
    path: PathBuf,
    shared: Arc<Shared>,
    /// Sent to, all connections end.
    cut: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

struct Shared {
    target: PathBuf,
    rule: Mutex<Rule>,
    connections: AtomicUsize,
    /// By the number of the answer on its connection.
    answered: Mutex<BTreeMap<usize, usize>>,
    lost: AtomicUsize,
}

impl SocketProxy {
    /// Listens on `path`, in front of `target`. The socket appears when it can be connected to.
    pub(crate) fn start(path: &Path, target: &Path, rule: Rule) -> Result<Self> {
        let listener = listen(path).with_context(|| format!("listening on {}", path.display()))?;
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            rule: Mutex::new(rule),
            connections: AtomicUsize::new(0),
            answered: Mutex::default(),
            lost: AtomicUsize::new(0),
        });
        let cut = watch::Sender::new(());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), cut.clone()));
        Ok(Self { path: path.to_owned(), shared, cut, accepting })
    }

    /// From now on, on open connections too.
    pub(crate) fn set(&self, rule: Rule) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = rule;
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(());
    }

    /// How many connections were made by somebody who then said something. A driver that looks for dead sockets connects and
    /// says nothing.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// On how many connections the answer of this number, from 1, went through.
    pub(crate) fn answered(&self, number: usize) -> usize {
        self.shared.answered().get(&number).copied().unwrap_or_default()
    }

    /// How many answers or calls were lost.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for SocketProxy {
    fn drop(&mut self) {
        // A kubelet sees the socket go first, as when a driver ends.
        let _ = fs::remove_file(&self.path);
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn rule(&self) -> Rule {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call, the `number`-th on its connection, reaches the driver.
    fn reaches(&self, number: usize) -> bool {
        let lost = matches!(self.rule(), Rule::CallsUpTo(calls) if number > calls);
        if lost {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
        !lost
    }

    /// Whether an answer, the `number`-th on its connection, goes through.
    fn passes(&self, number: usize) -> bool {
        let passes = match self.rule() {
            Rule::Forward | Rule::CallsUpTo(_) => true,
            Rule::AnswersUpTo(answers) => number <= answers,
            Rule::Refuse => false,
        };
        if passes {
            *self.answered().entry(number).or_default() += 1;
        } else {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
        passes
    }
}

/// The kubelet ignores names that begin with a dot.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!(".{name}"));
    let listener = UnixListener::bind(&hidden)?;
    fs::rename(&hidden, path)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, shared: Arc<Shared>, cut: watch::Sender<()>) {
    // An error would be that of this process, which has no descriptors left, say. The scenario then waits in vain.
    while let Ok((client, _)) = listener.accept().await {
        if shared.rule() == Rule::Refuse {
            continue;
        }
        let (shared, mut cut) = (Arc::clone(&shared), cut.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                // However it ends, both sides are closed.
                _ = forward(client, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

/// Until one side ends, or an answer is lost.
async fn forward(client: UnixStream, shared: &Shared) -> io::Result<()> {
    let server = UnixStream::connect(&shared.target).await?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (mut answers, mut calls) = (AnswerCount::default(), AnswerCount::of_calls());
    let (mut said, mut known, mut called) = (false, 0, 0);
    tokio::select! {
        ended = copy(from_client, to_server, |bytes| {
            if !std::mem::replace(&mut said, true) {
                shared.connections.fetch_add(1, Ordering::SeqCst);
            }
            (0..calls.feed(bytes)).all(|_| {
                called += 1;
                shared.reaches(called)
            })
        }) => ended,
        ended = copy(from_server, to_client, |bytes| {
            let begun = answers.feed(bytes);
            (0..begun).all(|_| {
                known += 1;
                shared.passes(known)
            })
        }) => ended,
    }
}

/// As long as `passes` agrees to what was read.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut passes: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 || !passes(&buffer[..read]) {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
    }
}
