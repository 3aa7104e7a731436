//! Which claim holds which device: kept in memory, made from the records at start. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::claim::{AllocatedDevice, ClaimRef, DeviceRef};
use crate::names::ClaimUid;

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct Index {
    devices: BTreeMap<DeviceRef, Vec<Hold>>,
    claims: HashMap<ClaimUid, Vec<DeviceRef>>,
}

/// One claim's hold on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    claim: ClaimRef,
    share_id: Option<String>,
    admin_access: bool,
}

/// A device that another claim holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {device} is held by claim {holder}, which has not been unprepared yet")]
pub(crate) struct Held {
    pub(crate) device: DeviceRef,
    pub(crate) holder: ClaimRef,
}

impl Index {
    /// Takes the devices for the claim, all or none. What the claim held before is replaced.
    ///
    /// A device is given to one claim alone, or to several that each have a share of it. Admin access stands aside:
    /// it neither blocks nor is blocked. `conflicts(held, wanted)` tells of devices with different names that exclude
    /// each other all the same.
    pub(crate) fn admit(
        &mut self,
        claim: &ClaimRef,
        wanted: &[AllocatedDevice],
        conflicts: impl Fn(&DeviceRef, &DeviceRef) -> bool,
    ) -> Result<(), Held> {
        for result in wanted.iter().filter(|result| !result.admin_access()) {
            let holds = self.devices.get(result.device_ref()).into_iter().flatten();
            let blocking = |hold: &&Hold| {
                hold.claim.uid != claim.uid
                    && !hold.admin_access
                    && (hold.share_id.is_none() || result.share_id().is_none())
            };
            if let Some(hold) = holds.into_iter().find(blocking) {
                return Err(Held { device: result.device_ref().clone(), holder: hold.claim.clone() });
            }
            let others = self.devices.iter().filter(|(device, _)| *device != result.device_ref());
            for (device, holds) in others {
                let uses = |hold: &&Hold| hold.claim.uid != claim.uid && !hold.admin_access;
                if let Some(hold) = holds.iter().find(uses)
                    && conflicts(device, result.device_ref())
                {
                    return Err(Held { device: device.clone(), holder: hold.claim.clone() });
                }
            }
        }
        self.insert(claim, wanted);
        Ok(())
    }

    /// Notes what a record says, whatever others hold.
    pub(crate) fn insert(&mut self, claim: &ClaimRef, devices: &[AllocatedDevice]) {
        self.release(&claim.uid);
        for result in devices {
            self.devices.entry(result.device_ref().clone()).or_default().push(Hold {
                claim: claim.clone(),
                share_id: result.share_id().map(str::to_owned),
                admin_access: result.admin_access(),
            });
        }
        let refs = devices.iter().map(|result| result.device_ref().clone()).collect();
        self.claims.insert(claim.uid.clone(), refs);
    }

    /// Lets go of all that the claim holds.
    pub(crate) fn release(&mut self, claim: &ClaimUid) {
        for device in self.claims.remove(claim).into_iter().flatten() {
            if let Some(holds) = self.devices.get_mut(&device) {
                holds.retain(|hold| hold.claim.uid != *claim);
                if holds.is_empty() {
                    self.devices.remove(&device);
                }
            }
        }
    }

    /// Whether the claim holds a device.
    pub(crate) fn holds_any(&self, claim: &ClaimUid) -> bool {
        self.claims.get(claim).is_some_and(|devices| !devices.is_empty())
    }

    /// Which other claims use the device; those with admin access only look on.
    pub(crate) fn others(&self, claim: &ClaimUid, device: &DeviceRef) -> Vec<ClaimRef> {
        let holds = self.devices.get(device).into_iter().flatten();
        let others = holds.filter(|hold| hold.claim.uid != *claim && !hold.admin_access);
        others.map(|hold| hold.claim.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(number: u8) -> ClaimRef {
        ClaimRef::new("ns", format!("c{number}"), format!("uid-{number}").parse().unwrap())
    }

    fn device(name: &str, share: Option<u8>, admin: bool) -> AllocatedDevice {
        let json = serde_json::json!({
            "request": "r", "pool": "node-1", "device": name, "adminAccess": admin,
            "shareId": share.map(|s| format!("share-{s}")),
        });
        serde_json::from_value(json).unwrap()
    }

    fn admit(index: &mut Index, claim: &ClaimRef, wanted: &[AllocatedDevice]) -> Result<(), Held> {
        index.admit(claim, wanted, |_, _| false)
    }

    fn admits(first: &AllocatedDevice, second: &AllocatedDevice) -> bool {
        let mut index = Index::default();
        admit(&mut index, &claim(1), std::slice::from_ref(first)).unwrap();
        admit(&mut index, &claim(2), std::slice::from_ref(second)).is_ok()
    }

    #[test]
    fn a_device_has_one_claim_or_several_shares() {
        let (alone, admin) = (device("gpu-0", None, false), device("gpu-0", None, true));
        let (share, other_share) = (device("gpu-0", Some(1), false), device("gpu-0", Some(2), false));
        let table = [
            (&alone, &alone, false),
            (&alone, &share, false),
            (&share, &alone, false),
            (&share, &other_share, true),
            (&alone, &admin, true),
            (&admin, &alone, true),
            (&admin, &admin, true),
        ];
        for (first, second, expected) in table {
            assert_eq!(admits(first, second), expected, "{first:?} then {second:?}");
        }
    }

    #[test]
    fn a_refused_claim_gets_none_of_its_devices_and_learns_the_holder() {
        let mut index = Index::default();
        admit(&mut index, &claim(1), &[device("gpu-1", None, false)]).unwrap();
        let wanted = [device("gpu-0", None, false), device("gpu-1", None, false)];
        let held = admit(&mut index, &claim(2), &wanted).unwrap_err();
        assert_eq!((held.holder, held.device.device.as_str()), (claim(1), "gpu-1"));
        admit(&mut index, &claim(3), &[device("gpu-0", None, false)]).unwrap();
    }

    #[test]
    fn the_driver_can_make_devices_of_different_names_exclude_each_other() {
        let conflicts = |held: &DeviceRef, wanted: &DeviceRef| {
            let gpu = |device: &DeviceRef| device.device.as_str()[..5].to_owned();
            gpu(held) == gpu(wanted) && (held.device.as_str().len() == 5 || wanted.device.as_str().len() == 5)
        };
        let mut index = Index::default();
        index.admit(&claim(1), &[device("gpu-0-mig-1", None, false)], conflicts).unwrap();
        index.admit(&claim(2), &[device("gpu-0-mig-2", None, false)], conflicts).unwrap();
        let held = index.admit(&claim(3), &[device("gpu-0", None, false)], conflicts).unwrap_err();
        assert_eq!((held.holder, held.device.device.as_str()), (claim(1), "gpu-0-mig-1"));
        index.admit(&claim(3), &[device("gpu-0", None, true)], conflicts).unwrap();
        index.admit(&claim(4), &[device("gpu-1", None, false)], conflicts).unwrap();
    }

    #[test]
    fn a_leaving_admin_frees_nothing_and_is_nobody() {
        let mut index = Index::default();
        admit(&mut index, &claim(1), &[device("gpu-0", None, false)]).unwrap();
        admit(&mut index, &claim(2), &[device("gpu-0", None, true)]).unwrap();
        let gpu = device("gpu-0", None, false).device_ref().clone();
        assert_eq!(index.others(&claim(1).uid, &gpu), []);
        index.release(&claim(2).uid);
        assert!(admit(&mut index, &claim(3), &[device("gpu-0", None, false)]).is_err());
    }

    proptest! {
        #[test]
        fn nobody_is_ever_beside_a_sole_holder(
            steps in proptest::collection::vec((0u8..5, 0u8..3, proptest::option::of(0u8..2), any::<bool>()), 1..60)
        ) {
            let mut index = Index::default();
            for (who, which, share, leave) in steps {
                if leave {
                    index.release(&claim(who).uid);
                } else {
                    // A refusal is a fine answer too.
                    let _ = admit(&mut index, &claim(who), &[device(&format!("gpu-{which}"), share, false)]);
                }
                for holds in index.devices.values() {
                    prop_assert!(!holds.is_empty());
                    prop_assert!(holds.len() == 1 || holds.iter().all(|hold| hold.share_id.is_some()));
                }
                let held: usize = index.devices.values().map(Vec::len).sum();
                prop_assert_eq!(held, index.claims.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
