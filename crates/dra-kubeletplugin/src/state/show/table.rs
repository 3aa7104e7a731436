//! A report as tables for people.

use std::fmt;

use super::{
    Report,
    snapshot::{CdiOwner, Liveness, LockedBy, RecordPhase, RecordState, RecordedDevice, SocketKind},
};
use crate::names::ClaimUid;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.snapshot;
        let last = state.last_start.as_deref().unwrap_or("nobody");
        writeln!(f, "driver     {}", state.driver)?;
        writeln!(f, "folder     {}", state.data.display())?;
        writeln!(f, "CDI folder {}", state.cdi_root.display())?;
        writeln!(f, "boot       {}", state.boot_id)?;
        writeln!(f, "starts     {}, the last one: {last}", state.starts)?;
        if !state.put_aside.is_empty() {
            writeln!(f, "put aside  {} damaged records", state.put_aside.len())?;
        }
        for table in self.tables() {
            write!(f, "\n{table}")?;
        }
        if self.findings.is_empty() {
            return writeln!(f, "\nall of it is consistent");
        }
        writeln!(f, "\n{} inconsistent:", self.findings.len())?;
        for finding in &self.findings {
            writeln!(f, "* {}\n  {}", finding.what, finding.advice)?;
        }
        Ok(())
    }
}

impl Report {
    fn tables(&self) -> [Table; 6] {
        [self.records(), self.cdi_files(), self.metadata(), self.locks(), self.sockets(), self.instances()]
    }

    fn records(&self) -> Table {
        let mut table = Table::new(["CLAIM UID", "CLAIM", "STATE", "AGE", "DEVICES", "CDI"]);
        for record in &self.snapshot.records {
            let claim = record.claim.as_ref().filter(|claim| !claim.name.is_empty());
            let claim = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
            let devices: Vec<_> = record.devices.iter().map(device).collect();
            let ids: Vec<_> =
                record.devices.iter().flat_map(|device| device.cdi_ids.iter().cloned()).collect();
            let phase = phase(record, record.boot_id == self.snapshot.boot_id);
            let uid = record.uid.to_string();
            table.row([uid, or_dash(claim), phase, age(record.age), list(&devices), list(&ids)]);
        }
        table
    }

    fn cdi_files(&self) -> Table {
        let mut table = Table::new(["CDI FILE", "OF", "AGE"]);
        let known = |uid: &ClaimUid| self.snapshot.records.iter().any(|record| record.uid == *uid);
        for file in &self.snapshot.cdi_files {
            let owner = match &file.owner {
                CdiOwner::Claim(uid) if known(uid) => format!("claim {uid}"),
                CdiOwner::Claim(uid) => format!("claim {uid}, which has no record"),
                CdiOwner::Foreign(_) => "another program, for claims that were adopted".to_owned(),
                CdiOwner::Other => file.kind.clone().unwrap_or_else(|| "somebody else".to_owned()),
            };
            table.row([file.name.clone(), owner, age(file.age)]);
        }
        table
    }

    fn metadata(&self) -> Table {
        let mut table = Table::new(["METADATA OF CLAIM", "REQUEST"]);
        for file in &self.snapshot.metadata {
            table.row([file.claim.to_string(), file.request.clone()]);
        }
        table
    }

    fn locks(&self) -> Table {
        let mut table = Table::new(["LOCK", "BYTES", "FOR", "PIDS"]);
        for lock in &self.snapshot.locks {
            let bytes = match lock.last {
                Some(last) if last == lock.first => last.to_string(),
                Some(last) => format!("{}-{last}", lock.first),
                None => format!("{}-end", lock.first),
            };
            let pids: Vec<_> = lock.pids.iter().map(u32::to_string).collect();
            table.row([lock.file.clone(), bytes, held_for(&lock.by), list(&pids)]);
        }
        table
    }

    fn sockets(&self) -> Table {
        let mut table = Table::new(["SOCKET", "FOR", "STATE", "AGE"]);
        for socket in &self.snapshot.sockets {
            let kind = match socket.kind {
                SocketKind::Registration => "registration",
                SocketKind::HiddenRegistration => "registration, not shown yet",
                SocketKind::Dra => "DRA",
                SocketKind::GoRegistration => "registration of a Go driver",
                SocketKind::GoDra => "DRA of a Go driver",
            };
            let liveness = match &socket.error {
                Some(error) => format!("{}: {error}", alive(socket.liveness)),
                None => alive(socket.liveness).to_owned(),
            };
            table.row([socket.path.display().to_string(), kind.to_owned(), liveness, age(socket.age)]);
        }
        table
    }

    fn instances(&self) -> Table {
        let mut table = Table::new(["INSTANCE", "POD UID", "STATE"]);
        for instance in &self.snapshot.instances {
            let pod = or_dash(instance.pod_uid.clone());
            table.row([instance.start.clone(), pod, alive(instance.liveness).to_owned()]);
        }
        table
    }
}

fn phase(record: &RecordState, in_boot: bool) -> String {
    let phase = match record.phase {
        RecordPhase::Started => "started",
        RecordPhase::Prepared => "prepared",
        RecordPhase::Unpreparing => "unpreparing",
        RecordPhase::Vacated => "vacated",
        RecordPhase::Damaged => "damaged",
    };
    let marks = [
        record.adopted.then_some(", adopted"),
        record.newer_format.map(|_| ", newer format"),
        (!in_boot).then_some(", other boot"),
    ];
    marks.into_iter().flatten().fold(phase.to_owned(), |text, mark| text + mark)
}

fn device(recorded: &RecordedDevice) -> String {
    let mut text = recorded.device.to_string();
    if let Some(share) = &recorded.share_id {
        text = format!("{text} (share {share})");
    }
    if recorded.admin_access {
        text += " (admin access)";
    }
    text
}

fn held_for(by: &LockedBy) -> String {
    let one_of = |what: &str, names: Vec<String>| match names.as_slice() {
        [] => format!("{what} without a record"),
        names => format!("{what} {}", names.join(" or ")),
    };
    match by {
        LockedBy::Instances => "instances that live".to_owned(),
        LockedBy::Admission => "admission of a claim".to_owned(),
        LockedBy::Claim(claims) => one_of("claim", claims.iter().map(ToString::to_string).collect()),
        LockedBy::Device(devices) => one_of("device", devices.iter().map(ToString::to_string).collect()),
        LockedBy::GoDriver => "a call of a Go driver".to_owned(),
        LockedBy::Publisher => "the instance that publishes".to_owned(),
        LockedBy::WaitsToPublish(start) => format!("an instance that waits to publish: start {start}"),
        LockedBy::Unknown => "not known".to_owned(),
    }
}

fn alive(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Live => "live",
        Liveness::Dead => "dead",
        Liveness::Unknown => "not known",
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn list(parts: &[String]) -> String {
    if parts.is_empty() { "-".to_owned() } else { parts.join(",") }
}

/// Columns under titles. One without rows is its first title and a dash.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned).into()] }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = &self.rows[0];
        if self.rows.len() == 1 {
            return writeln!(f, "{}\n-", titles[0]);
        }
        let width = |column: usize| self.rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        for row in &self.rows {
            let line: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let mut table = Table::new(["A", "LONG TITLE", "LAST"]);
        assert_eq!(table.to_string(), "A\n-\n");
        for row in [["one", "x", "y"], ["b", "very long cell", ""]] {
            table.row(row.map(str::to_owned));
        }
        let expected = "A    LONG TITLE      LAST\none  x               y\nb    very long cell\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        let table = [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")];
        for (seconds, expected) in table {
            assert_eq!(age(seconds), expected);
        }
    }
}
