//! Two instances at work at once, as during a rolling update. Their locks belong to open files, so that two in one
//! process exclude each other as two processes do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dra_kubeletplugin::{
    AllocatedClaim, ContainerEdits, DriverPlugin, Handle, HeldClaim, PluginError, PrepareContext, Prepared,
};
use dra_testkit::kubelet::ClaimRef;
use futures::future::join_all;

use crate::support::{Direct, Rig, device};

const DEVICES: usize = 8;
const CLAIMS: usize = 200;

/// What both instances drive. A device knows its user, and takes offence at a second one.
#[derive(Clone, Default)]
struct Hardware(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    users: BTreeMap<String, String>,
    offences: Vec<String>,
    /// Calls by their name and the claim's.
    calls: BTreeMap<(&'static str, String), usize>,
}

impl Hardware {
    fn with<T>(&self, use_table: impl FnOnce(&mut Table) -> T) -> T {
        use_table(&mut self.0.lock().unwrap())
    }

    fn user(&self, device: &str) -> Option<String> {
        self.with(|table| table.users.get(device).cloned())
    }

    /// Forgets the calls, and gives those with this name.
    fn take_calls(&self, name: &str) -> Vec<(String, usize)> {
        let calls = self.with(|table| std::mem::take(&mut table.calls));
        calls.into_iter().filter(|((call, _), _)| *call == name).map(|((_, claim), n)| (claim, n)).collect()
    }
}

impl Table {
    fn called(&mut self, call: &'static str, claim: &str) {
        *self.calls.entry((call, claim.to_owned())).or_default() += 1;
    }
}

impl DriverPlugin for Hardware {
    type State = ();

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        _: &PrepareContext<()>,
    ) -> Result<Prepared<()>, PluginError> {
        let name = &claim.claim_ref().name;
        self.with(|table| {
            table.called("prepare", name);
            for device in claim.devices() {
                if let Some(user) = table.users.insert(device.device().to_string(), name.clone()) {
                    table.offences.push(format!("{} went from {user} to {name}", device.device()));
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let edits = ContainerEdits::new().env("GPU", name.as_str());
        Ok(claim.devices().iter().fold(Prepared::new(()), |done, device| done.device(device, edits.clone())))
    }

    async fn unprepare(&self, claim: &HeldClaim<()>) -> Result<(), PluginError> {
        let name = &claim.claim.name;
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.with(|table| {
            table.called("unprepare", name);
            for held in &claim.devices {
                let device = held.device_ref().device.as_str();
                if table.users.remove(device).as_ref() != Some(name) {
                    table.offences.push(format!("{device} was taken from somebody by {name}"));
                }
            }
        });
        Ok(())
    }
}

struct Two {
    rig: Rig,
    hardware: Hardware,
    _handles: [Handle; 2],
    through: [Direct; 2],
}

impl Two {
    async fn new() -> Self {
        let (rig, hardware) = (Rig::new(), Hardware::default());
        let (old, through_old) =
            Direct::start(&rig, hardware.clone(), rig.options().rolling_update("pod-old")).await;
        let (new, through_new) =
            Direct::start(&rig, hardware.clone(), rig.options().rolling_update("pod-new")).await;
        Self { rig, hardware, _handles: [old, new], through: [through_old, through_new] }
    }

    /// Claims that fight for the devices.
    fn claims(&self, count: usize) -> Vec<ClaimRef> {
        let claim = |i| self.rig.claim(&format!("claim-{i}"), &[device(&format!("gpu-{}", i % DEVICES))]);
        (0..count).map(claim).collect()
    }

    /// Prepares all at once, half through each instance; gives the winners.
    async fn race<'a>(&self, claims: &[&'a ClaimRef]) -> Vec<&'a ClaimRef> {
        // Eight neighbours want eight devices; every other eight go through the same instance.
        let through = |i: usize| &self.through[i / DEVICES % 2];
        let asked = claims.iter().enumerate().map(|(i, claim)| through(i).prepare_one(claim));
        let answers = join_all(asked).await;
        let mut winners = Vec::new();
        for (claim, answer) in claims.iter().zip(answers) {
            let gpu = gpu_of(claim);
            let user = self.hardware.user(&gpu).expect("somebody has won it");
            match answer {
                Ok(devices) => {
                    assert_eq!((devices.len(), &devices[0].device_name, &user), (1, &gpu, &claim.name));
                    winners.push(*claim);
                }
                Err(error) => {
                    assert!(error.contains(&format!("default/{user} (")) && error.contains(&gpu), "{error}");
                }
            }
        }
        winners
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_claims_on_8_devices_through_two_instances_each_device_goes_to_one_at_a_time() {
    let two = Two::new().await;
    let claims = two.claims(CLAIMS);
    let mut waiting: Vec<&ClaimRef> = claims.iter().collect();
    for wave in 0..3 {
        let winners = two.race(&waiting).await;
        assert_eq!(winners.len(), DEVICES, "one for each device in wave {wave}");
        let asked =
            winners.iter().enumerate().map(|(i, claim)| two.through[(i + wave) % 2].unprepare_one(claim));
        for done in join_all(asked).await {
            done.unwrap();
        }
        waiting.retain(|claim| !winners.contains(claim));
    }
    two.hardware.with(|table| assert_eq!((&table.offences[..], table.users.len()), (&[][..], 0)));
    assert_eq!(two.hardware.take_calls("prepare").len(), 3 * DEVICES, "no loser got as far as the driver");
    assert_eq!(two.rig.files(), [""; 0]);
}

/// The device that a claim has been given.
fn gpu_of(claim: &ClaimRef) -> String {
    let number: usize = claim.name.rsplit('-').next().unwrap().parse().unwrap();
    format!("gpu-{}", number % DEVICES)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_claims_through_two_instances_at_once_are_one_driver_call_each() {
    let two = Two::new().await;
    let claims = two.claims(DEVICES);
    let once: Vec<(String, usize)> = claims.iter().map(|claim| (claim.name.clone(), 1)).collect();
    let through = |i: usize| claims.iter().map(move |claim| (i, claim));
    for _ in 0..5 {
        let asked = through(0).chain(through(1)).map(|(i, claim)| two.through[i].prepare_one(claim));
        let answers = join_all(asked).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(answers[..DEVICES], answers[DEVICES..], "both answer the same");
        assert_eq!(two.hardware.take_calls("prepare"), once);
        let asked = through(0).chain(through(1)).map(|(i, claim)| two.through[i].unprepare_one(claim));
        for done in join_all(asked).await {
            done.unwrap();
        }
        assert_eq!(two.hardware.take_calls("unprepare"), once);
    }
    two.hardware.with(|table| assert_eq!((&table.offences[..], table.users.len()), (&[][..], 0)));
    assert_eq!(two.rig.files(), [""; 0]);
}
