//! Commands for the person who has to put a node right.

mod options;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::ensure;
use dra_kubeletplugin::{
    DeviceRef, Pool,
    state::{self, Release, Released, StateLocation, Way},
};
use tokio::sync::watch;

pub(crate) use options::StateCommand;
use options::{ReleaseOptions, ShowOptions};

use crate::{
    exit_code, faults::Faults, go_books::GoBooks, inventory::Inventory, one_line, options::Place,
    plugin::MockDriver, profile::ProfileOptions,
};

pub(crate) async fn run(command: StateCommand) -> ExitCode {
    match command {
        StateCommand::Show(options) => show(options).await,
        StateCommand::Repair(place) => exit_code(repair(place).await),
        StateCommand::Release(options) => exit_code(release(options).await),
    }
}

/// Exit code 0 if all is well, 1 if something is inconsistent, 2 if it could not look.
async fn show(options: ShowOptions) -> ExitCode {
    let mut location = location(options.place);
    location.boot_id = options.boot_id;
    let printed = state::show(&location).await.map_err(anyhow::Error::from).and_then(|report| {
        let text =
            if options.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() };
        // Whoever reads it may have seen enough.
        let _ = io::stdout().write_all(text.as_bytes());
        Ok(report.findings.is_empty())
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            ExitCode::from(2)
        }
    }
}

async fn repair(place: Place) -> anyhow::Result<()> {
    let set_aside = state::repair(&location(place)).await?;
    for record in &set_aside {
        println!("claim {}: {}; kept at {}", record.claim, record.why, record.kept_at.display());
    }
    println!("{} damaged records put aside", set_aside.len());
    Ok(())
}

async fn release(options: ReleaseOptions) -> anyhow::Result<()> {
    let driver = options.place.driver_name.clone();
    let (profile, devices) = (options.place.device_profile, ProfileOptions::default());
    let plugin = MockDriver {
        profile,
        devices: profile.build(&driver, &options.node_name, &devices),
        // Nothing is prepared any more.
        inventory: watch::channel(Arc::new(Inventory::new(Pool::new([])))).1,
        go_books: options.adopt_from.map(|file| GoBooks::new(file, driver.clone())),
        driver,
        node: options.node_name,
        describes_devices: true,
        faults: Faults::default(),
    };
    let mut location = location(options.place);
    location.boot_id = options.boot_id;
    let which = if options.all { Release::All } else { Release::Claims(options.claim.into_iter().collect()) };
    let released = state::release(&location, plugin, &which).await?;
    print!("{}", table(&released));
    let held = released.iter().filter(|one| one.outcome.is_err()).count();
    println!("{} claims of {} let go of", released.len() - held, location.data().display());
    ensure!(held == 0, "{held} claims are still held: see above; end their pods, or try again");
    let unknown = released.iter().filter(|one| one.outcome == Ok(Way::NotHeld)).count();
    ensure!(unknown == 0, "{unknown} of the claims are not held by this driver: are their UIDs right?");
    Ok(())
}

fn location(place: Place) -> StateLocation {
    let mut location = StateLocation::new(place.driver_name);
    location.kubelet_root = place.kubelet_root;
    location.cdi_root = place.cdi_root;
    location
}

/// A line for each claim.
fn table(released: &[Released]) -> String {
    let mut rows = vec![["UID", "CLAIM", "DEVICES", "OUTCOME"].map(str::to_owned)];
    rows.extend(released.iter().map(row));
    let widths: [usize; 3] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or_default());
    let line = |[uid, claim, devices, outcome]: [String; 4]| {
        let [first, second, third] = widths;
        format!("{uid:first$}  {claim:second$}  {devices:third$}  {outcome}\n")
    };
    rows.into_iter().map(line).collect()
}

fn row(released: &Released) -> [String; 4] {
    let claim = &released.claim;
    let name = match claim.name.as_str() {
        "" => "-".to_owned(),
        name => format!("{}/{name}", claim.namespace),
    };
    let devices: Vec<_> = released.devices.iter().map(DeviceRef::to_string).collect();
    let devices = if devices.is_empty() { "-".to_owned() } else { devices.join(",") };
    let outcome = match &released.outcome {
        Ok(Way::Unprepared) => "unprepared".to_owned(),
        Ok(Way::HandedBack) => "handed back".to_owned(),
        Ok(Way::NotHeld) => "not held".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("still held: {error}"),
    };
    [claim.uid.to_string(), name, devices, outcome]
}
