//! Programs of NVIDIA's driver.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

/// Runs a program with this input, and waits for its end.
///
/// # Errors
/// It cannot be run, fails, or takes longer than `patience`; the error has what it said. What one that succeeds writes on its
/// standard error output is logged.
pub(crate) async fn run(mut command: Command, input: &str, patience: Duration) -> anyhow::Result<()> {
    let arguments = command.as_std().get_args().map(|argument| argument.to_string_lossy());
    let words: Vec<_> = arguments.chain([input.trim_end().into()]).filter(|word| !word.is_empty()).collect();
    let what = format!("{} {}", command.as_std().get_program().display(), words.join(" "));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let work = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that reads none may have ended.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output =
        timeout(patience, work).await.with_context(|| format!("{what}: no answer in {patience:?}"))?;
    let output = output.with_context(|| what.clone())?;
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    ensure!(output.status.success(), "{what}: {}: {}", output.status, said.trim());
    if !output.stderr.is_empty() {
        tracing::warn!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
