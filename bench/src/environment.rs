//! Where it was measured, without the name of a machine.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::node;

/// What figures depend on.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) kubernetes: String,
    pub(crate) processors: usize,
    pub(crate) processor: String,
    /// Of the folder of the drivers' data.
    pub(crate) file_system: String,
    /// One durable write there: a small file, synced, renamed, its folder synced.
    pub(crate) durable_write: Duration,
    /// How many processes would have liked to run when it began.
    pub(crate) load: String,
}

impl Environment {
    /// Looks; `scratch` is a folder on the disk that drivers will write to.
    pub(crate) async fn look(commit: String, kubernetes: String, scratch: &Path) -> Result<Self> {
        let cpus = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
        let load = fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
        let mut date = Command::new("date");
        date.args(["-u", "+%F"]);
        let mut stat = Command::new("stat");
        stat.args(["--file-system", "--format=%T"]).arg(scratch);
        Ok(Self {
            commit,
            date: node::run(date).await?.trim().to_owned(),
            kubernetes,
            processors: std::thread::available_parallelism().context("counting processors")?.get(),
            processor: processor(&cpus).unwrap_or("unknown").to_owned(),
            file_system: node::run(stat).await?.trim().to_owned(),
            durable_write: durable_write(scratch).context("trying out a durable write")?,
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        })
    }
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches(|c: char| c.is_whitespace() || c == ':'))
}

/// The middle of some.
fn durable_write(folder: &Path) -> Result<Duration> {
    const TRIES: usize = 51;
    const SIZE: usize = 1000;
    let (temporary, path) = (folder.join("durable.tmp"), folder.join("durable"));
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let start = Instant::now();
        let mut file = File::create(&temporary)?;
        file.write_all(&[b'x'; SIZE])?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(folder)?.sync_all()?;
        times.push(start.elapsed());
    }
    fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[TRIES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_as_the_kernel_does() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n"), Some("Fast CPU @ 3 GHz"));
        assert_eq!(processor(""), None);
    }
}
