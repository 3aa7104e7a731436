//! What a driver does for a claim that costs others: requests to the API server, and syncs of the disk.

use std::{path::Path, process::Stdio};

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::Client;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::node;

/// How many requests the API server has answered that only drivers send while no pod runs. A watch counts when it ends,
/// and has nothing to do with claims.
pub(crate) async fn requests(client: &Client) -> Result<f64> {
    let request = Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("reading the API server's metrics")?;
    Ok(count_requests(&text))
}

fn count_requests(metrics: &str) -> f64 {
    let of_drivers = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("group=\"resource.k8s.io\"")
            && !line.contains("verb=\"WATCH\"")
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    // Not `sum`: that of nothing is -0.
    metrics.lines().filter(of_drivers).filter_map(value).fold(0.0, |sum, count| sum + count)
}

/// Counts a process's syncs from outside, which makes it slow: nothing else is measured meanwhile.
pub(crate) struct SyncCounter {
    strace: Child,
    pid: u32,
}

impl SyncCounter {
    /// Begins to count; `file` is where strace writes.
    pub(crate) async fn start(pid: u32, file: &Path) -> Result<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync", "-p"]);
        strace.arg(pid.to_string()).arg("-o").arg(file);
        strace.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut strace = strace.spawn().context("running strace (Debian package strace)")?;
        let pid = strace.id().context("strace ended at once")?;
        let errors = strace.stderr.take().context("strace without a standard error")?;
        let mut lines = BufReader::new(errors).lines();
        let said = lines.next_line().await.context("reading what strace says")?.unwrap_or_default();
        ensure!(said.contains("attached"), "strace could not attach: {said}");
        // Or strace would come to a halt once the pipe is full: it says a line for each thread.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { strace, pid })
    }

    /// Stops; gives how many there were.
    pub(crate) async fn stop(mut self, file: &Path) -> Result<f64> {
        node::signal("INT", self.pid).await?;
        self.strace.wait().await.context("waiting for strace")?;
        let text = std::fs::read_to_string(file);
        Ok(count_syncs(&text.with_context(|| format!("reading {}", file.display()))?))
    }
}

/// The sum of strace's table: `% time, seconds, usecs/call, calls, errors (if any), name`.
fn count_syncs(table: &str) -> f64 {
    let calls = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let name = *fields.last()?;
        (name.contains("sync") && !name.contains('/')).then(|| fields.get(3)?.parse::<f64>().ok()).flatten()
    };
    table.lines().filter_map(calls).fold(0.0, |sum, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_claims_and_slices_count_and_watches_do_not() {
        let metrics = "# HELP apiserver_request_total x\n\
            apiserver_request_total{code=\"200\",group=\"resource.k8s.io\",verb=\"GET\"} 41\n\
            apiserver_request_total{code=\"201\",group=\"resource.k8s.io\",verb=\"POST\"} 1\n\
            apiserver_request_total{code=\"200\",group=\"resource.k8s.io\",verb=\"WATCH\"} 7\n\
            apiserver_request_total{code=\"200\",group=\"\",verb=\"GET\"} 90\n";
        assert!((count_requests(metrics) - 42.0).abs() < 1e-9);
    }

    #[test]
    fn calls_are_the_fourth_column_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            \u{20}80.00    0.001000           2       500           fsync\n\
            \u{20}20.00    0.000100           1       100         3 fdatasync\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.001100           1       600         3 total\n";
        assert!((count_syncs(table) - 600.0).abs() < 1e-9);
        assert_eq!(count_syncs("").to_string(), "0");
    }
}
