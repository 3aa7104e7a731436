//! Which scenario brings about which kind of finding. The same stands in the documentation of `dra-doctor`.

use anyhow::{Result, ensure};
use dra_doctor::{FindingKind, ObstacleKind};

use super::run::{name_of, named};
use crate::context::Context;

const SOCKETS: &str = "doctor_names_what_is_wrong_with_sockets";
const PLUGINS: &str = "doctor_names_plugins_that_no_kubelet_takes";
const CDI_OFF: &str = "doctor_names_a_runtime_with_cdi_off_whose_pods_do_not_start";
const WAITING: &str = "doctor_names_why_a_pod_waits_for_devices";
const KEPT_AWAY: &str = "doctor_names_why_each_device_is_kept_from_a_claim";
const HELD: &str = "doctor_names_who_holds_a_claim_or_a_device";
const UNUSABLE: &str = "doctor_names_what_keeps_a_claim_from_being_used";
const MISSING: &str = "doctor_names_what_does_not_exist_or_is_not_whole";
const API_SERVER: &str = "doctor_names_an_api_server_that_drops_fields_or_the_whole_group";

const FINDINGS: [(FindingKind, &str); 36] = [
    (FindingKind::OtherKubeletRoot, SOCKETS),
    (FindingKind::DriverBelowOtherRoot, SOCKETS),
    (FindingKind::NoRegistrationSocket, SOCKETS),
    (FindingKind::DeadRegistrationSocket, SOCKETS),
    (FindingKind::UndialableSocket, SOCKETS),
    (FindingKind::NoAnswer, PLUGINS),
    (FindingKind::ServiceUnreachable, SOCKETS),
    (FindingKind::UnacceptablePlugin, PLUGINS),
    (FindingKind::SameEndpoint, SOCKETS),
    (FindingKind::NotRegistered, "doctor_names_a_driver_that_is_not_registered"),
    (FindingKind::CdiOff, CDI_OFF),
    (FindingKind::CdiFolderNotRead, "doctor_names_a_runtime_that_does_not_read_cdi_files"),
    (FindingKind::ApiNotServed, API_SERVER),
    (FindingKind::NotPermitted, "doctor_names_missing_permissions"),
    (FindingKind::NothingPublished, PLUGINS),
    (FindingKind::SliceCountsDiffer, MISSING),
    (FindingKind::PoolIncomplete, MISSING),
    (FindingKind::OldGeneration, MISSING),
    (FindingKind::DeviceTwice, MISSING),
    (FindingKind::ClaimMissing, MISSING),
    (FindingKind::TemplateMissing, MISSING),
    (FindingKind::ClassMissing, MISSING),
    (FindingKind::ClaimNotMade, UNUSABLE),
    (FindingKind::FieldsDropped, API_SERVER),
    (FindingKind::ClaimProtected, HELD),
    (FindingKind::ClaimHeldBack, UNUSABLE),
    (FindingKind::ClaimFull, UNUSABLE),
    (FindingKind::ClaimUsedElsewhere, HELD),
    (FindingKind::ClaimInvalid, WAITING),
    (FindingKind::NoDevices, WAITING),
    (FindingKind::NoCombination, WAITING),
    (FindingKind::NoFreeDevice, WAITING),
    (FindingKind::ClaimUnused, UNUSABLE),
    (FindingKind::NotPreempted, HELD),
    (FindingKind::NotPrepared, "doctor_names_why_devices_cannot_be_prepared"),
    (FindingKind::ContainerNotCreated, CDI_OFF),
];

const REASONS: [(ObstacleKind, &str); 7] = [
    (ObstacleKind::Selector, WAITING),
    (ObstacleKind::Taint, KEPT_AWAY),
    (ObstacleKind::Held, HELD),
    (ObstacleKind::Counters, KEPT_AWAY),
    (ObstacleKind::Capacity, KEPT_AWAY),
    (ObstacleKind::NoAttribute, WAITING),
    (ObstacleKind::OtherNode, KEPT_AWAY),
];

/// Name of each kind, of findings first, and its scenario.
fn all() -> Result<Vec<(String, &'static str)>> {
    let findings = FINDINGS.iter().map(|(kind, scenario)| Ok((name_of(kind)?, *scenario)));
    let reasons = REASONS.iter().map(|(kind, scenario)| Ok((name_of(kind)?, *scenario)));
    findings.chain(reasons).collect()
}

/// A scenario that has to see the doctor name all that the tables say of it.
///
/// # Errors
/// Those of the scenario; it has not seen one of the kinds named.
pub(super) async fn provoking(cx: &Context, scenario: impl Future<Output = Result<()>>) -> Result<()> {
    scenario.await?;
    let named = named(cx)?;
    let own = cx.scratch.file_name().unwrap_or_default();
    for (kind, _) in all()?.iter().filter(|(_, scenario)| own == *scenario) {
        ensure!(named.contains(kind), "the doctor was not seen to name {kind}; it has named {named:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_a_scenario_that_exists() {
        assert_eq!(FINDINGS.map(|(kind, _)| kind), FindingKind::ALL);
        assert_eq!(REASONS.map(|(kind, _)| kind), ObstacleKind::ALL);
        let known: BTreeSet<&str> = crate::scenarios::all().iter().map(|scenario| scenario.name).collect();
        for (kind, scenario) in all().unwrap() {
            assert!(known.contains(scenario), "there is no scenario {scenario}, which brings about {kind}");
        }
    }

    #[test]
    fn the_documentation_of_the_doctor_names_these_scenarios() {
        let document = include_str!("../../../../crates/dra-doctor/README.md");
        let told = document.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let &["", kind, .., scenario, ""] = &cells[..] else { return None };
            scenario.starts_with("doctor_").then(|| (kind.to_owned(), scenario))
        });
        assert_eq!(told.collect::<Vec<_>>(), all().unwrap());
    }
}
