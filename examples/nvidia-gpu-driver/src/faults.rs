//! Each function of NVML that the driver uses fails in turn, on one GPU: nothing panics, and the other GPUs do not notice.
//! The list is made from the source of the binding, so none is forgotten.

use std::{collections::BTreeSet, path::Path, time::Duration};

use dra_kubeletplugin::{AttributeValue, resourceslice::sysfs::Sysfs};
use fake_nvml::{Folder, Gpu, Machine, MigInstance, Model};
use nvidia_nvml::{ComputeMode, Library, Placement};
use serde_json::json;

use crate::{
    device,
    gpu::{self, Reading},
    made::Made,
    partition,
    state::Partition,
};

const BINDING: [&str; 4] = [
    include_str!("../nvml/src/device.rs"),
    include_str!("../nvml/src/events.rs"),
    include_str!("../nvml/src/instances.rs"),
    include_str!("../nvml/src/library.rs"),
];
/// Unknown, not supported, lost.
const CODES: [u32; 3] = [999, 3, 15];

/// The names of all calls in the binding: words that begin with `nvml` and are followed by a bracket.
fn used() -> BTreeSet<&'static str> {
    let calls = BINDING.iter().flat_map(|source| source.split('(')).filter_map(|before| {
        let start = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        before.get(start + 1..)
    });
    calls.filter(|word| word.starts_with("nvml")).collect()
}

/// A GPU that works, and one that may not; the second has a partition.
fn machine() -> Machine {
    let mut second = Gpu::new(Model::H100Sxm5_80Gb, 1);
    second.mig = true;
    second.instances = vec![MigInstance::new("1g.10gb", 6)];
    Machine::new([Gpu::new(Model::A100Sxm4_40Gb, 0), second])
}

struct Bench {
    fake: Folder,
    library: Library,
    made: Made,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Folder::create(folder.path().join("fake"), &machine()).unwrap();
        let library = Library::open(&fake.install(folder.path().join("lib")).unwrap()).unwrap();
        let made = Made::open(folder.path(), Some("boot")).unwrap();
        Self { fake, library, made, _folder: folder }
    }

    fn fail(&self, function: &str, code: u32) {
        let fail = |machine: &mut Machine| {
            machine.gpus[1].faults.fail.insert(function.to_owned(), code);
        };
        self.fake.change(fail).unwrap();
    }

    fn heal(&self) {
        let heal = |machine: &mut Machine| {
            machine.gpus[1].faults.fail.clear();
            machine.faults.fail.clear();
        };
        self.fake.change(heal).unwrap();
    }

    fn read(&self) -> Reading {
        gpu::read(&self.library, &Sysfs::at("/nowhere"), None).unwrap()
    }
}

#[test]
fn the_list_of_functions_is_the_binding() {
    let used = used();
    assert!(used.len() > 35, "{used:?}");
    for function in
        ["nvmlDeviceGetUUID", "nvmlGpuInstanceDestroy", "nvmlEventSetWait_v2", "nvmlInitWithFlags"]
    {
        assert!(used.contains(function), "{function} in {used:?}");
    }
    let known = fake_nvml::functions();
    for function in used {
        assert!(known.contains(&function), "the stand-in has no {function}");
    }
}

#[test]
fn a_function_that_fails_on_one_gpu_hides_no_other_one() {
    let bench = Bench::new();
    let whole = bench.read();
    assert_eq!((whole.gpus.len(), whole.broken.len()), (2, 0));
    assert_eq!(whole.gpus[1].migs.len(), 1);
    for function in used() {
        for code in CODES {
            bench.fail(function, code);
            let reading = bench.read();
            assert_eq!(reading.gpus.first(), whole.gpus.first(), "{function} {code}");
            assert_eq!(reading.gpus.len() + reading.broken.len(), 2, "{function} {code}");
        }
        bench.heal();
    }
    assert_eq!(bench.read().gpus, whole.gpus);
}

#[test]
fn a_function_that_fails_for_the_whole_machine_is_an_error_or_nothing() {
    let bench = Bench::new();
    for function in used() {
        let fail = |machine: &mut Machine| {
            machine.faults.fail.insert(function.to_owned(), 999);
        };
        bench.fake.change(fail).unwrap();
        // What comes of it is told as an error; no GPU is made up.
        if let Ok(reading) = gpu::read(&bench.library, &Sysfs::at("/nowhere"), None) {
            assert_eq!(reading.gpus.len() + reading.broken.len(), 2, "{function}");
        }
        bench.heal();
    }
}

#[test]
fn a_partition_that_cannot_be_made_or_removed_now_is_gone_after_the_next_try() {
    let bench = Bench::new();
    let gpu = bench.read().gpus.remove(1);
    let profile = gpu.profiles.iter().find(|profile| profile.name == "1g.10gb").unwrap().clone();
    let placement = profile.placements[0];
    let partition = Partition::new(&gpu, &profile, placement);
    let make = || partition::make(&bench.library, &gpu, &profile, placement, &bench.made);
    let remove = || partition::remove(&bench.library, &partition, &bench.made);
    let at_start = || {
        let device = bench.library.device(1).unwrap();
        let instances = device.gpu_instances(profile.shape.id).unwrap();
        instances.iter().filter(|one| one.info().unwrap().placement.start == 0).count()
    };
    let (mut failed_to_make, mut failed_to_remove) = (0, 0);
    for function in used() {
        for code in CODES {
            bench.fail(function, code);
            failed_to_make += usize::from(make().is_err());
            bench.heal();
            remove().unwrap();
            assert_eq!(at_start(), 0, "{function} {code}");

            make().unwrap();
            assert_eq!(at_start(), 1, "{function} {code}");
            bench.fail(function, code);
            failed_to_remove += usize::from(remove().is_err());
            bench.heal();
            remove().unwrap();
            assert_eq!(at_start(), 0, "{function} {code}");
            assert_eq!(bench.made.all().unwrap(), []);
        }
    }
    assert!(failed_to_make > 5 && failed_to_remove > 3, "{failed_to_make} and {failed_to_remove}");
    // The partition that was there all the time still is, and nothing takes it for one of ours.
    let (mig, other) = (bench.read().gpus[1].migs.remove(0), Placement::new(6, 1));
    let foreign = Partition::new(&gpu, &profile, other);
    assert_eq!((mig.placement, mig.profile.as_str()), (other, "1g.10gb"));
    partition::remove(&bench.library, &foreign, &bench.made).unwrap();
    let error = partition::make(&bench.library, &gpu, &profile, other, &bench.made).unwrap_err().to_string();
    assert!(error.contains("was not made by this driver"), "{error}");
    partition::remove(&bench.library, &foreign, &bench.made).unwrap();
    assert_eq!(bench.read().gpus[1].migs, [mig]);
}

#[test]
fn events_and_modes_that_fail_are_errors() {
    let bench = Bench::new();
    for function in used() {
        bench.fail(function, 999);
        let events = bench.library.event_set().unwrap();
        for index in 0..2 {
            if let Ok(device) = bench.library.device(index) {
                let _ = events.register(&device);
                let _ = device.set_compute_mode(ComputeMode::Default);
                let listed = device.compute_processes();
                let fails = index == 1 && function == "nvmlDeviceGetComputeRunningProcesses_v3";
                assert_eq!(listed.is_err(), fails, "{function}: {listed:?}");
            } else {
                assert_eq!(index, 1, "{function}");
            }
        }
        assert!(events.wait(Duration::ZERO).unwrap().is_none(), "{function}");
        bench.heal();
    }
}

#[test]
fn odd_answers_make_a_device_of_what_makes_sense() {
    let folder = tempfile::tempdir().unwrap();
    let machine: Machine = serde_json::from_value(json!({
        "driverVersion": {"bytes": [255, 46], "unterminated": true},
        "gpus": [{
            "model": "l4", "number": 0, "name": {"bytes": [76, 255], "unterminated": true}, "memoryMib": 0,
            "uuid": {"bytes": [71, 255], "unterminated": true}, "architecture": 99, "brand": 77,
            "computeCapability": [-1, 0],
        }],
    }))
    .unwrap();
    let fake = Folder::create(folder.path().join("fake"), &machine).unwrap();
    let library = Library::open(&fake.install(folder.path().join("lib")).unwrap()).unwrap();
    let reading = gpu::read(&library, &Sysfs::at("/nowhere"), None).unwrap();
    let device = device::whole(&reading.gpus[0], false).unwrap();
    let Some(AttributeValue::String(name)) = device.attribute_value("productName") else {
        panic!("no productName: {device:?}");
    };
    assert!(name.starts_with("L\u{fffd}") && name.len() <= 64, "{name:?}");
    let uuid = format!("{:?}", device.attribute_value("uuid"));
    assert!(uuid.contains("G\u{fffd}"), "{uuid}");
    assert_eq!(device.attribute_value("architecture"), Some(&"Unknown".into()));
    assert_eq!(device.attribute_value("brand"), Some(&"Unknown".into()));
    assert_eq!(device.attribute_value("driverVersion"), None);
    assert_eq!(device.attribute_value("cudaComputeCapability"), None);
    assert_eq!(device.capacities().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["memory"]);
}

#[test]
fn a_library_that_lacks_a_function_loads_and_only_its_calls_fail() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Folder::create(folder.path().join("fake"), &machine()).unwrap();
    let without =
        |name: &str, functions: &[&str]| fake.install_without(folder.path().join(name), functions).unwrap();
    let path = without("old", &["nvmlDeviceGetAddressingMode", "nvmlDeviceGetMigMode"]);
    let reading = gpu::read(&Library::open(&path).unwrap(), &Sysfs::at("/nowhere"), None).unwrap();
    assert_eq!(reading.gpus.len(), 2);
    assert!(reading.gpus.iter().all(|gpu| gpu.mig_enabled.is_none() && gpu.addressing_mode.is_none()));

    let path = without("broken", &["nvmlDeviceGetUUID"]);
    let reading = gpu::read(&Library::open(&path).unwrap(), &Sysfs::at("/nowhere"), None).unwrap();
    assert_eq!(reading.broken.len(), 2);
    assert!(reading.broken[0].1.to_string().contains("has no such function"), "{:?}", reading.broken);

    let error = Library::open(Path::new("/etc/hostname")).unwrap_err().to_string();
    assert!(error.contains("/etc/hostname"), "{error}");
}

#[test]
fn a_profile_whose_placements_are_refused_hides_neither_its_gpu_nor_the_18th_profile() {
    let bench = Bench::new();
    bench
        .fake
        .change(|machine| {
            machine.gpus[1].unplaceable = vec![15];
            machine.gpus[1].newest_profile = true;
        })
        .unwrap();
    let reading = bench.read();
    assert_eq!((reading.gpus.len(), reading.broken.len()), (2, 0), "{:?}", reading.broken);
    let names: Vec<&str> = reading.gpus[1].profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert!(!names.contains(&"1g.20gb") && names.contains(&"3g.40gb+gfx"), "{names:?}");
}
