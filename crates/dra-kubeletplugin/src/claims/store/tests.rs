//! What every store must do, on files and in memory.

use proptest::prelude::*;

use super::*;
use crate::claim::{Allocation, ClaimRef};

fn record(uid: u8, completed: bool) -> Record {
    let uid = format!("claim-{uid}").parse().unwrap();
    Record { completed, ..Record::started(ClaimRef::new("ns", "c", uid), Allocation::default()) }
}

fn phase(store: &dyn Store, uid: &ClaimUid) -> Option<Phase> {
    match store.load(uid).unwrap() {
        Found::Nothing => None,
        Found::Stored { phase, .. } => Some(phase),
        other => panic!("{other:?}"),
    }
}

fn on_both(check: impl Fn(&dyn Records)) {
    let folder = tempfile::tempdir().unwrap();
    check(&FileRecords::in_folder(folder.path()));
    check(&MemoryRecords::default());
}

#[test]
fn a_record_goes_through_its_phases_and_leaves_nothing() {
    on_both(|records| {
        let store = records.of_boot("boot").unwrap();
        let mut record = record(1, false);
        let uid = record.claim.uid.clone();
        assert_eq!(phase(&*store, &uid), None);
        store.write(&record).unwrap();
        assert_eq!(phase(&*store, &uid), Some(Phase::Started));
        record.completed = true;
        store.write(&record).unwrap();
        assert_eq!(phase(&*store, &uid), Some(Phase::Prepared));
        store.mark_unpreparing(&uid).unwrap();
        assert_eq!(phase(&*store, &uid), Some(Phase::Unpreparing));
        assert_eq!(store.claims().unwrap(), std::slice::from_ref(&uid));
        store.remove(&uid).unwrap();
        store.remove(&uid).unwrap();
        assert_eq!(phase(&*store, &uid), None);
        assert_eq!(store.claims().unwrap(), []);
    });
}

#[test]
fn a_record_is_written_over_one_on_its_way_out_and_over_nothing() {
    on_both(|records| {
        let store = records.of_boot("boot").unwrap();
        let uid = record(1, true).claim.uid;
        store.write_over(&record(1, true)).unwrap();
        assert_eq!(phase(&*store, &uid), Some(Phase::Prepared));
        store.mark_unpreparing(&uid).unwrap();
        store.write_over(&record(1, false)).unwrap();
        assert_eq!(phase(&*store, &uid), Some(Phase::Started));
        store.write_over(&record(1, true)).unwrap();
        store.remove(&uid).unwrap();
        assert_eq!(phase(&*store, &uid), None, "nothing is left under the other name");
    });
}

#[test]
fn stores_of_other_boots_are_found_until_nothing_is_left_in_them() {
    on_both(|records| {
        for (boot, claim) in [("old", 1), ("new", 2)] {
            records.of_boot(boot).unwrap().write(&record(claim, true)).unwrap();
        }
        let old = || records.of_other_boots("new").unwrap();
        let [store] = &old()[..] else { panic!("one other boot") };
        let uid = record(1, true).claim.uid;
        assert_eq!(store.claims().unwrap(), std::slice::from_ref(&uid));
        store.remove_if_empty().unwrap();
        assert_eq!(old().len(), 1, "still holds a record");
        store.remove(&uid).unwrap();
        store.remove_if_empty().unwrap();
        assert_eq!(old().len(), 0);
        assert_eq!(store.claims().unwrap(), [], "whoever still has it sees nothing in it");
        store.remove(&uid).unwrap();
        store.remove_if_empty().unwrap();
    });
}

proptest! {
    #[test]
    fn memory_stores_what_files_store(steps in prop::collection::vec((0..4u8, 0..3u8), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let stores =
            [FileRecords::in_folder(folder.path()).of_boot("b").unwrap(), MemoryRecords::default().of_boot("b").unwrap()];
        for (step, claim) in steps {
            let uid = record(claim, false).claim.uid;
            let done = stores.each_ref().map(|store| match step {
                0 | 1 => store.write(&record(claim, step == 1)).is_ok(),
                2 => store.mark_unpreparing(&uid).is_ok(),
                _ => store.remove(&uid).is_ok(),
            });
            prop_assert_eq!(done[0], done[1]);
            let seen = stores.each_ref().map(|store| {
                let claims = store.claims().unwrap();
                let phases: Vec<_> = claims.iter().map(|uid| phase(&**store, uid)).collect();
                (claims, phases)
            });
            prop_assert_eq!(&seen[0], &seen[1]);
        }
    }
}
