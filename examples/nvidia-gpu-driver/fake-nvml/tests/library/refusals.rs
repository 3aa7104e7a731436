//! What hardware refuses, with the sentence of `nvml.h` or the public issue that says so.

use std::ptr;

use fake_nvml::{Error, Gpu, Machine, Model};
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{Loaded, load, raw, with_mig, zeroed};

const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const RESET_REQUIRED: u32 = 16;
const IN_USE: u32 = 19;

fn set_mig(loaded: &Loaded, on: u32) -> (Result<(), u32>, u32) {
    let mut activation = 99;
    let called = raw!(loaded, nvmlDeviceSetMigMode(loaded.handle(0), on, &raw mut activation));
    (called, activation)
}

fn modes(loaded: &Loaded) -> (u32, u32) {
    let mode = loaded.gpu(0).mig_mode().expect("mode");
    (mode.current, mode.pending)
}

/// `nvml.h`, `nvmlDeviceSetComputeMode`: "On MIG-enabled GPUs, compute mode would be set to DEFAULT and changing it is not
/// supported."
#[test]
fn a_gpu_in_mig_mode_has_no_compute_mode() {
    let loaded = load(&with_mig());
    let set = |mode| raw!(loaded, nvmlDeviceSetComputeMode(loaded.handle(0), mode));
    assert_eq!((set(3), set(0)), (Err(NOT_SUPPORTED), Err(NOT_SUPPORTED)));
    assert_eq!(set_mig(&loaded, 0), (Ok(()), 0));
    assert_eq!(set(3), Ok(()));
    assert_eq!(set_mig(&loaded, 1), (Ok(()), 0));
    assert!(matches!(loaded.gpu(0).compute_mode(), Ok(ComputeMode::Default)));
}

/// `nvml.h`, `nvmlDeviceSetMigMode`: the call succeeds, and `activationStatus` says whether the mode counts; and "attributes
/// associated with the device, such as minor number, might change".
#[test]
fn a_mode_may_only_be_pending_and_a_change_may_move_the_minor_number() {
    let mut machine = Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 0)]);
    machine.gpus[0].mig_needs_reset = true;
    machine.gpus[0].minor_after_mig = Some(5);
    let loaded = load(&machine);
    assert_eq!((set_mig(&loaded, 1), modes(&loaded)), ((Ok(()), RESET_REQUIRED), (0, 1)));
    assert_eq!((set_mig(&loaded, 0), modes(&loaded)), ((Ok(()), 0), (0, 0)), "taken back");
    assert_eq!(loaded.gpu(0).minor_number().expect("told"), 0);
    loaded.folder.change(|machine| machine.gpus[0].mig_needs_reset = false).expect("changes");
    assert_eq!((set_mig(&loaded, 1), modes(&loaded)), ((Ok(()), 0), (1, 1)));
    assert_eq!(loaded.gpu(0).minor_number().expect("told"), 5);
    let process = fake_nvml::Process::new(1, 1);
    loaded.folder.change(|machine| machine.gpus[0].processes.push(process)).expect("changes");
    assert_eq!((set_mig(&loaded, 0), modes(&loaded)), ((Ok(()), IN_USE), (1, 0)));
}

/// NVIDIA/gpu-operator issue 118, NVIDIA/mig-parted issue 181, NVIDIA/dcgm-exporter issue 716: a client of NVML, or one that
/// only waits for events, keeps a GPU from a reset and the module from being unloaded.
#[test]
fn a_client_keeps_its_gpu_from_a_reset_and_the_driver_from_being_unloaded() {
    let loaded = load(&Machine::new([0, 1].map(|number| Gpu::new(Model::L4, number))));
    let is_refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::InUse(_)));
    assert!(is_refused(loaded.folder.unload()), "NVML is started");
    loaded.folder.reset(0).expect("nothing has opened it");
    let mut set = ptr::null_mut();
    raw!(loaded, nvmlEventSetCreate(&raw mut set)).expect("creates");
    raw!(loaded, nvmlDeviceRegisterEvents(loaded.handle(0), 8, set)).expect("registers");
    assert!(is_refused(loaded.folder.reset(0)));
    loaded.folder.reset(1).expect("nothing has opened it");
    let Loaded { nvml, folder, directory } = loaded;
    nvml.shutdown().expect("shuts down");
    folder.reset(0).expect("nothing has it open any more");
    folder.unload().expect("nothing has it open any more");
    assert!(folder.machine().is_err());
    folder.load().expect("loads");
    assert_eq!(folder.machine().expect("is back").gpus.len(), 2);
    drop(directory);
}

/// `nvml.h`, `nvmlDeviceGetGpuInstancePossiblePlacements_v2`: invalid argument "If device, profileId or count are
/// invalid".
#[test]
fn placements_of_a_profile_may_be_refused() {
    let mut machine = with_mig();
    machine.gpus[0].unplaceable = vec![15];
    let loaded = load(&machine);
    let mut count = 0;
    let mut ask = |profile| {
        let (gpu, none) = (loaded.handle(0), ptr::null_mut());
        raw!(loaded, nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, profile, none, &raw mut count))
    };
    assert_eq!((ask(15), ask(77), ask(9)), (Err(INVALID_ARGUMENT), Err(INVALID_ARGUMENT), Ok(())));
}

/// `nvml.h` of CUDA 13.2: `NVML_GPU_INSTANCE_PROFILE_COUNT` is 0x12.
#[test]
fn there_may_be_an_18th_profile() {
    let mut machine = with_mig();
    machine.gpus[0].newest_profile = true;
    let loaded = load(&machine);
    let mut profile: sys::nvmlGpuInstanceProfileInfo_t = zeroed();
    let mut ask =
        |index| raw!(loaded, nvmlDeviceGetGpuInstanceProfileInfo(loaded.handle(0), index, &raw mut profile));
    assert_eq!((ask(18), ask(17)), (Err(INVALID_ARGUMENT), Ok(())));
    assert_eq!(profile.sliceCount, 3);
}

/// `nvml.h`, `nvmlDeviceGetFieldValues`: each value has a result of its own.
#[test]
fn the_recovery_action_is_a_field_that_a_reset_clears() {
    let mut machine = with_mig();
    machine.gpus[0].recovery_action = Some(1);
    let loaded = load(&machine);
    let ask = |loaded: &Loaded, id| {
        let mut value: sys::nvmlFieldValue_t = zeroed();
        value.fieldId = id;
        raw!(loaded, nvmlDeviceGetFieldValues(loaded.handle(0), 1, &raw mut value)).expect("succeeds");
        #[allow(unsafe_code, reason = "a union of C")]
        // SAFETY: all members are numbers.
        (value.nvmlReturn, unsafe { value.value.uiVal })
    };
    assert_eq!((ask(&loaded, 230), ask(&loaded, 1).0), ((0, 1), NOT_SUPPORTED));
    let folder = loaded.folder.clone();
    let Loaded { nvml, directory, .. } = loaded;
    nvml.shutdown().expect("shuts down");
    folder.reset(0).expect("resets");
    assert_eq!(folder.machine().expect("reads").gpus[0].recovery_action, Some(0));
    drop(directory);
}
