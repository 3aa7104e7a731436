//! Events, errors and processes, through the real loader.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use fake_nvml::{Event, Gpu, Machine, Model, Process};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{ComputeMode, EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{Loaded, load, raw, zeroed};

const WHOLE: u32 = u32::MAX;
const TIMEOUT: u32 = 10;
const GPU_IS_LOST: u32 = 15;
/// Long enough on any machine; nothing waits so long when all is well.
const LONG: u32 = 60_000;

fn two_gpus() -> Machine {
    Machine::new([0, 1].map(|number| Gpu::new(Model::A100Sxm4_40Gb, number)))
}

/// A set in which both GPUs are.
fn watch(loaded: &Loaded) -> sys::nvmlEventSet_t {
    let mut set = ptr::null_mut();
    raw!(loaded, nvmlEventSetCreate(&raw mut set)).expect("creates");
    for index in 0..2 {
        let types = (sys::nvmlEventTypeXidCriticalError | sys::nvmlEventTypeDoubleBitEccError).into();
        raw!(loaded, nvmlDeviceRegisterEvents(loaded.handle(index), types, set)).expect("registers");
    }
    set
}

fn wait(loaded: &Loaded, set: sys::nvmlEventSet_t, at_most: u32) -> Result<sys::nvmlEventData_t, u32> {
    let mut data = zeroed();
    raw!(loaded, nvmlEventSetWait_v2(set, &raw mut data, at_most))?;
    Ok(data)
}

#[test]
fn an_xid_of_a_whole_gpu_is_told_once_with_all_ones_for_its_instances() {
    let loaded = load(&two_gpus());
    let set = watch(&loaded);
    let (folder, second) = (loaded.folder.clone(), loaded.handle(1));
    let adds = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        folder.change(|machine| machine.gpus[1].events.push(Event::xid(79))).expect("changes");
    });
    let event = wait(&loaded, set, LONG).expect("an event");
    adds.join().expect("no panic");
    assert_eq!((event.device, event.eventType, event.eventData), (second, 8, 79));
    assert_eq!((event.gpuInstanceId, event.computeInstanceId), (WHOLE, WHOLE));
    assert_eq!(wait(&loaded, set, 0).err(), Some(TIMEOUT));
}

#[test]
fn an_xid_of_a_mig_device_tells_its_instances() {
    let loaded = load(&two_gpus());
    let set = watch(&loaded);
    loaded.folder.change(|machine| machine.gpus[0].events.push(Event::xid(43).on(7, 0))).expect("changes");
    let event = wait(&loaded, set, LONG).expect("an event");
    assert_eq!((event.device, event.gpuInstanceId, event.computeInstanceId), (loaded.handle(0), 7, 0));
}

#[test]
fn what_happened_before_or_was_not_asked_for_is_not_told() {
    let mut machine = two_gpus();
    machine.gpus[0].events.push(Event::xid(1));
    let loaded = load(&machine);
    let set = watch(&loaded);
    loaded.folder.change(|machine| machine.gpus[0].events.push(Event::new(1, 0))).expect("changes");
    assert_eq!(wait(&loaded, set, 0).err(), Some(TIMEOUT));
    loaded.folder.change(|machine| machine.gpus[0].events.push(Event::double_bit_error())).expect("changes");
    assert_eq!(wait(&loaded, set, LONG).expect("an event").eventType, 2);
}

#[test]
fn a_wait_takes_its_time() {
    let loaded = load(&two_gpus());
    let set = watch(&loaded);
    let start = Instant::now();
    assert_eq!(wait(&loaded, set, 100).err(), Some(TIMEOUT));
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_gpu_that_is_lost_ends_a_wait_and_hides_no_event_of_another() {
    let loaded = load(&two_gpus());
    let set = watch(&loaded);
    loaded
        .folder
        .change(|machine| {
            machine.gpus[0].lost = true;
            machine.gpus[1].events.push(Event::xid(48));
        })
        .expect("changes");
    assert_eq!(wait(&loaded, set, LONG).expect("an event").eventData, 48);
    assert_eq!(wait(&loaded, set, LONG).err(), Some(GPU_IS_LOST));
    assert_eq!(wait(&loaded, set, 0).err(), Some(TIMEOUT), "told once");
}

#[test]
fn a_set_that_was_freed_is_none() {
    let loaded = load(&two_gpus());
    let set = watch(&loaded);
    assert_eq!(raw!(loaded, nvmlEventSetFree(set)), Ok(()));
    assert_eq!(wait(&loaded, set, LONG).err(), Some(2));
    assert_eq!(raw!(loaded, nvmlEventSetFree(set)), Err(2));
}

#[test]
fn only_what_a_gpu_supports_can_be_registered_for() {
    let loaded = load(&two_gpus());
    let gpu = loaded.gpu(0);
    let supported = gpu.supported_event_types().expect("told");
    assert!(supported.contains(EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR));
    let set = loaded.nvml.create_event_set().expect("creates");
    let result = gpu.register_events(EventTypes::POWER_SOURCE_CHANGE, set);
    assert!(matches!(result.err().map(|error| error.error), Some(NvmlError::NotSupported)));
}

#[test]
fn errors_of_memory_are_counted() {
    let mut machine = two_gpus();
    let ecc = &mut machine.gpus[0].ecc;
    (ecc.corrected_volatile, ecc.uncorrected_volatile) = (1, 2);
    (ecc.corrected_aggregate, ecc.uncorrected_aggregate) = (3, 4);
    (ecc.remapped_uncorrected, ecc.remapping_pending) = (5, true);
    let loaded = load(&machine);
    let gpu = loaded.gpu(0);
    assert!(gpu.is_ecc_enabled().expect("mode").currently_enabled);
    let count = |error, counter| gpu.total_ecc_errors(error, counter).expect("count");
    assert_eq!(count(MemoryError::Corrected, EccCounter::Volatile), 1);
    assert_eq!(count(MemoryError::Uncorrected, EccCounter::Volatile), 2);
    assert_eq!(count(MemoryError::Corrected, EccCounter::Aggregate), 3);
    assert_eq!(count(MemoryError::Uncorrected, EccCounter::Aggregate), 4);
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (9, 9, 9, 9);
    raw!(
        loaded,
        nvmlDeviceGetRemappedRows(
            loaded.handle(0),
            &raw mut corrected,
            &raw mut uncorrected,
            &raw mut pending,
            &raw mut failed
        )
    )
    .expect("told");
    assert_eq!((corrected, uncorrected, pending, failed), (0, 5, 1, 0));
}

#[test]
fn processes_are_told_and_their_memory_is_used() {
    let mut machine = two_gpus();
    machine.gpus[0].processes = vec![Process::new(17, 1_000), Process::new(18, 24)];
    let loaded = load(&machine);
    let gpu = loaded.gpu(0);
    let processes = gpu.running_compute_processes().expect("told");
    let first = processes.first().expect("two of them");
    assert_eq!((processes.len(), first.pid), (2, 17));
    assert_eq!(first.used_gpu_memory, UsedGpuMemory::Used(1_000 << 20));
    let memory = gpu.memory_info().expect("memory");
    assert_eq!((memory.used, memory.free), (1_024 << 20, (40_960 - 1_024) << 20));
    assert_eq!(loaded.gpu(1).running_compute_processes().expect("told"), []);
}

#[test]
fn the_compute_mode_stays_as_it_was_set() {
    let loaded = load(&two_gpus());
    assert_eq!(loaded.gpu(0).compute_mode().expect("mode"), ComputeMode::Default);
    assert_eq!(raw!(loaded, nvmlDeviceSetComputeMode(loaded.handle(0), 3)), Ok(()));
    assert_eq!(loaded.gpu(0).compute_mode().expect("mode"), ComputeMode::ExclusiveProcess);
    assert_eq!(loaded.gpu(1).compute_mode().expect("mode"), ComputeMode::Default);
    assert_eq!(raw!(loaded, nvmlDeviceSetComputeMode(loaded.handle(0), 4)), Err(2));
}

#[test]
fn what_few_gpus_have_is_not_supported_unless_the_machine_says_so() {
    let mut machine = two_gpus();
    let gpu = &mut machine.gpus[1];
    (gpu.addressing_mode, gpu.module_id, gpu.numa_node) = (Some(1), Some(4), Some(2));
    let loaded = load(&machine);
    let ask = |index| {
        let gpu = loaded.handle(index);
        let mut mode: sys::nvmlDeviceAddressingMode_t = zeroed();
        mode.version = 0x0100_0008;
        let (mut module, mut node) = (0, 0);
        (
            raw!(loaded, nvmlDeviceGetAddressingMode(gpu, &raw mut mode)).map(|()| mode.value),
            raw!(loaded, nvmlDeviceGetModuleId(gpu, &raw mut module)).map(|()| module),
            raw!(loaded, nvmlDeviceGetNumaNodeId(gpu, &raw mut node)).map(|()| node),
        )
    };
    assert_eq!(ask(0), (Err(3), Err(3), Err(3)));
    assert_eq!(ask(1), (Ok(1), Ok(4), Ok(2)));
}
