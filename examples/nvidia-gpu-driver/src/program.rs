//! Programs of NVIDIA's driver.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use dra_kubeletplugin::with_former_file_limit;
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
        let mut child = with_former_file_limit(|| command.spawn())?;
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

#[cfg(test)]
mod tests {
    use dra_kubeletplugin::raise_file_limit;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[tokio::test]
    async fn a_program_gets_the_file_limit_that_the_driver_was_started_with() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 500, hard).unwrap();
        raise_file_limit();
        assert!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 > 500);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n; exit 1"]);
        let error = run(command, "", Duration::from_secs(60)).await.unwrap_err().to_string();
        assert!(error.ends_with(": 500"), "{error}");
    }
}
