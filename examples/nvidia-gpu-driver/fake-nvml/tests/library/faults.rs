//! What goes wrong on purpose, through the real loader.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, ptr, thread};

use fake_nvml::{FOLDER_VARIABLE, Gpu, Machine, Model, Moment, Text};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{load, load_without, one_of_each, raw, with_mig};

#[test]
fn a_function_fails_with_the_code_that_it_is_told_even_one_that_does_not_exist() {
    let loaded = load(&one_of_each());
    let uuid = |code| {
        let fault = ("nvmlDeviceGetUUID".to_owned(), code);
        loaded.folder.change(|machine| machine.faults.fail = [fault].into()).expect("changes");
        loaded.gpu(0).uuid()
    };
    assert!(matches!(uuid(3), Err(NvmlError::NotSupported)));
    assert!(matches!(uuid(999), Err(NvmlError::Unknown)));
    assert!(uuid(12_345).is_err());
    loaded.folder.change(|machine| machine.faults.fail.clear()).expect("changes");
    assert!(loaded.gpu(0).uuid().is_ok());
}

#[test]
fn a_fault_of_one_gpu_touches_no_other() {
    let mut machine = one_of_each();
    machine.gpus[1].faults.fail.insert("nvmlDeviceGetHandleByIndex_v2".to_owned(), 999);
    machine.gpus[2].faults.fail.insert("nvmlDeviceGetMemoryInfo_v2".to_owned(), 3);
    let loaded = load(&machine);
    assert!(matches!(loaded.nvml.device_by_index(1), Err(NvmlError::Unknown)));
    assert!(matches!(loaded.gpu(2).memory_info(), Err(NvmlError::NotSupported)));
    for healthy in [0, 3, 4] {
        assert!(loaded.gpu(healthy).memory_info().is_ok());
    }
}

#[test]
fn a_function_that_fails_does_nothing() {
    let mut machine = with_mig();
    machine.gpus[0].faults.fail.insert("nvmlDeviceCreateGpuInstance".to_owned(), 999);
    let loaded = load(&machine);
    let mut instance = ptr::null_mut();
    let result = raw!(loaded, nvmlDeviceCreateGpuInstance(loaded.handle(0), 19, &raw mut instance));
    assert_eq!(result, Err(999));
    assert!(instance.is_null());
    assert!(loaded.folder.hardware().expect("reads").gpus.is_empty());
}

#[test]
fn a_function_that_is_missing_is_told_as_such_and_the_others_work() {
    let loaded = load_without(&one_of_each(), &["nvmlDeviceGetUUID", "nvmlDeviceGetMigMode"]);
    assert!(matches!(loaded.gpu(0).uuid(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert!(matches!(loaded.gpu(0).mig_mode(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert_eq!(loaded.gpu(0).minor_number().expect("works"), 0);
}

#[test]
fn a_slow_function_takes_longer_and_holds_up_no_other() {
    let loaded = load(&one_of_each());
    let slow = ("nvmlDeviceGetUUID".to_owned(), 500);
    loaded.folder.change(|machine| machine.gpus[0].faults.slow_ms = [slow].into()).expect("changes");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            loaded.gpu(0).uuid().expect("at last");
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            loaded.gpu(1).uuid().expect("at once");
        }
    });
}

#[test]
fn a_function_that_is_held_waits_until_it_is_let_go() {
    let loaded = load(&with_mig());
    let name = "nvmlDeviceCreateGpuInstance";
    loaded.folder.change(|machine| machine.faults.hold = [name.to_owned()].into()).expect("changes");
    let (gpu, done) = (loaded.handle(0).addr(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut instance = ptr::null_mut();
            let gpu = ptr::without_provenance_mut(gpu);
            raw!(loaded, nvmlDeviceCreateGpuInstance(gpu, 19, &raw mut instance)).expect("creates");
            done.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!done.load(Ordering::SeqCst));
        assert!(loaded.folder.hardware().expect("reads").gpus.is_empty());
        loaded.folder.change(|machine| machine.faults.hold.clear()).expect("changes");
    });
    assert!(done.load(Ordering::SeqCst));
}

/// Runs one test of this file again, as a process that may die. It says where its library is.
fn run_again(test: &str, library: &std::path::Path) -> std::process::ExitStatus {
    let program = env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.args(["--exact", test]).env("FAKE_NVML_TEST_LIBRARY", library);
    command.env_remove(FOLDER_VARIABLE).output().expect("runs").status
}

#[test]
fn a_process_ends_before_or_after_an_instance_is_made_and_leaves_what_it_made() {
    if let Some(library) = env::var_os("FAKE_NVML_TEST_LIBRARY") {
        let copy = Copy(Nvml::builder().lib_path(&library).init().expect("initializes"));
        copy.create_one_slice();
        return;
    }
    for (moment, left) in [(Moment::Before, 0), (Moment::After, 1)] {
        let loaded = load(&with_mig());
        let fault = ("nvmlDeviceCreateGpuInstance".to_owned(), moment);
        loaded.folder.change(|machine| machine.faults.crash = [fault].into()).expect("changes");
        let status = run_again(
            "faults::a_process_ends_before_or_after_an_instance_is_made_and_leaves_what_it_made",
            &loaded.directory.path().join("lib").join(fake_nvml::LIBRARY_NAME),
        );
        assert_eq!(status.signal(), Some(9), "{moment:?}");
        let hardware = loaded.folder.hardware().expect("reads");
        let instances = hardware.gpus.values().map(|gpu| gpu.instances.len()).sum::<usize>();
        assert_eq!(instances, left, "{moment:?}");
    }
}

struct Copy(Nvml);

impl Copy {
    fn library(&self) -> &sys::NvmlLib {
        self.0.lib()
    }

    fn create_one_slice(&self) {
        let (mut device, mut instance) = (ptr::null_mut(), ptr::null_mut());
        raw!(self, nvmlDeviceGetHandleByIndex_v2(0, &raw mut device)).expect("the GPU");
        raw!(self, nvmlDeviceCreateGpuInstance(device, 19, &raw mut instance)).expect("creates");
    }
}

#[test]
fn calls_are_written_down_if_the_machine_says_so() {
    let mut machine = one_of_each();
    machine.faults.fail.insert("nvmlDeviceGetName".to_owned(), 999);
    let loaded = load(&machine);
    loaded.gpu(0).uuid().expect("UUID");
    assert_eq!(loaded.folder.calls().expect("reads"), Vec::<String>::new());
    loaded.folder.change(|machine| machine.log_calls = true).expect("changes");
    loaded.gpu(0).uuid().expect("UUID");
    assert!(loaded.gpu(0).name().is_err());
    let pid = std::process::id();
    assert_eq!(
        loaded.folder.calls().expect("reads"),
        [
            format!("{pid} nvmlDeviceGetHandleByIndex_v2 0"),
            format!("{pid} nvmlDeviceGetUUID 0"),
            format!("{pid} nvmlDeviceGetHandleByIndex_v2 0"),
            format!("{pid} nvmlDeviceGetName 999"),
        ]
    );
    assert_eq!(loaded.folder.count("nvmlDeviceGetUUID").expect("reads"), 1);
}

#[test]
fn a_string_without_an_end_fills_the_buffer_and_no_more() {
    let mut gpu = Gpu::new(Model::L4, 0);
    gpu.name = Some(Text::Raw { bytes: vec![b'x'], unterminated: true });
    let loaded = load(&Machine::new([gpu]));
    let mut buffer = [1; 8];
    let result = raw!(loaded, nvmlDeviceGetName(loaded.handle(0), buffer.as_mut_ptr(), 6));
    assert_eq!(result, Ok(()));
    assert_eq!(buffer.map(std::ffi::c_char::to_ne_bytes).concat(), b"xxxxxx\x01\x01");
}

#[test]
fn a_string_that_does_not_fit_is_refused() {
    let loaded = load(&one_of_each());
    let mut buffer = [1; 8];
    assert_eq!(raw!(loaded, nvmlDeviceGetName(loaded.handle(0), buffer.as_mut_ptr(), 8)), Err(7));
    assert_eq!(buffer, [1; 8]);
}

#[test]
fn a_null_pointer_or_a_made_up_handle_is_an_invalid_argument() {
    let loaded = load(&one_of_each());
    assert_eq!(raw!(loaded, nvmlDeviceGetCount_v2(ptr::null_mut())), Err(2));
    assert_eq!(raw!(loaded, nvmlDeviceGetMinorNumber(loaded.handle(0), ptr::null_mut())), Err(2));
    assert_eq!(raw!(loaded, nvmlDeviceGetHandleByUUID(ptr::null(), ptr::null_mut())), Err(6));
    let mut minor = 0;
    for made_up in [0, 3, 0xdead_0000] {
        let handle = ptr::without_provenance_mut(made_up);
        assert_eq!(raw!(loaded, nvmlDeviceGetMinorNumber(handle, &raw mut minor)), Err(2));
    }
}

#[test]
fn after_the_last_shutdown_nothing_is_initialized() {
    let loaded = load(&one_of_each());
    let mut count = 0;
    assert_eq!(raw!(loaded, nvmlInit_v2()), Ok(()));
    assert_eq!(raw!(loaded, nvmlShutdown()), Ok(()));
    assert_eq!(raw!(loaded, nvmlDeviceGetCount_v2(&raw mut count)), Ok(()), "one is left");
    assert_eq!(raw!(loaded, nvmlShutdown()), Ok(()));
    assert_eq!(raw!(loaded, nvmlDeviceGetCount_v2(&raw mut count)), Err(1));
    assert_eq!(raw!(loaded, nvmlShutdown()), Err(1));
}

#[test]
fn a_machine_that_cannot_be_read_makes_calls_fail_until_it_can() {
    let loaded = load(&one_of_each());
    let path = loaded.folder.path().join("machine.json");
    let good = fs::read(&path).expect("reads");
    fs::write(&path, "{").expect("writes");
    assert!(matches!(loaded.nvml.device_count(), Err(NvmlError::Unknown)));
    fs::remove_file(&path).expect("removes");
    assert!(matches!(loaded.nvml.device_count(), Err(NvmlError::DriverNotLoaded)));
    fs::write(&path, good).expect("writes");
    assert_eq!(loaded.nvml.device_count().expect("count"), 5);
}
