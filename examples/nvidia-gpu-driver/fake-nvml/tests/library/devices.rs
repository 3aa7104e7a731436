//! What is told of GPUs, through the real loader.

use std::ffi::CStr;

use fake_nvml::{Folder, Gpu, LIBRARY_NAME, Machine, Model, Text};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::InitFlags;
use nvml_wrapper::enum_wrappers::device::{Brand, GpuVirtualizationMode};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{load, one_of_each, raw, zeroed};

#[test]
fn the_system_tells_its_versions() {
    let loaded = load(&one_of_each());
    let nvml = &loaded.nvml;
    assert_eq!(nvml.sys_driver_version().expect("driver"), "580.82.07");
    assert_eq!(nvml.sys_nvml_version().expect("library"), "13.580.82.07");
    assert_eq!(nvml.sys_cuda_driver_version().expect("CUDA"), 13_000);
}

#[test]
fn each_model_tells_its_public_figures() {
    let loaded = load(&one_of_each());
    assert_eq!(loaded.nvml.device_count().expect("count"), 5);
    let rows: Vec<_> = (0..5)
        .map(|index| {
            let gpu = loaded.nvml.device_by_index(index).expect("a GPU");
            let capability = gpu.cuda_compute_capability().expect("capability");
            assert_eq!(gpu.index().expect("index"), index);
            assert_eq!(gpu.brand().expect("brand"), Brand::Nvidia);
            (
                gpu.name().expect("name"),
                gpu.memory_info().expect("memory").total >> 20,
                gpu.architecture().expect("architecture").to_string(),
                (capability.major, capability.minor),
                gpu.pci_info().expect("PCI").pci_device_id,
                gpu.mig_mode().map(|mode| mode.current).ok(),
            )
        })
        .collect();
    let row = |name: &str, memory, architecture: &str, capability, pci, mig| {
        (name.to_owned(), memory, architecture.to_owned(), capability, pci, mig)
    };
    assert_eq!(
        rows,
        [
            row("NVIDIA A100-SXM4-40GB", 40_960, "Ampere", (8, 0), 0x20b0_10de, Some(0)),
            row("NVIDIA A100-SXM4-80GB", 81_920, "Ampere", (8, 0), 0x20b2_10de, Some(0)),
            row("NVIDIA H100 80GB HBM3", 81_559, "Hopper", (9, 0), 0x2330_10de, Some(0)),
            row("NVIDIA H200", 143_771, "Hopper", (9, 0), 0x2335_10de, Some(0)),
            row("NVIDIA L4", 23_034, "Ada", (8, 9), 0x27b8_10de, None),
        ]
    );
}

#[test]
fn a_gpu_is_found_by_index_uuid_and_pci_address_and_is_the_same() {
    let loaded = load(&one_of_each());
    let nvml = &loaded.nvml;
    let gpu = nvml.device_by_index(2).expect("by index");
    let uuid = gpu.uuid().expect("UUID");
    let address = gpu.pci_info().expect("PCI").bus_id;
    assert_eq!(uuid, "GPU-00000002-fa4e-4000-8000-000000000002");
    assert_eq!(address, "00000000:17:00.0");
    for found in [
        nvml.device_by_uuid(uuid.as_str()).expect("by UUID"),
        nvml.device_by_pci_bus_id(address.as_str()).expect("by address"),
        nvml.device_by_pci_bus_id("0000:17:00.0").expect("by the kernel's form of it"),
    ] {
        assert_eq!(found.minor_number().expect("minor"), 2);
        assert_eq!(found.index().expect("index"), 2);
    }
    assert!(matches!(nvml.device_by_index(5), Err(NvmlError::InvalidArg)));
    assert!(matches!(nvml.device_by_uuid("GPU-none"), Err(NvmlError::NotFound)));
}

#[test]
fn without_gpus_only_an_initialization_that_allows_it_succeeds() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path(), &Machine::default()).expect("a folder");
    let library = folder.install(directory.path().join("lib")).expect("is built");
    let builder = || {
        let mut builder = Nvml::builder();
        builder.lib_path(library.as_os_str());
        builder
    };
    assert!(matches!(builder().init(), Err(NvmlError::NotFound)));
    let nvml = builder().flags(InitFlags::NO_GPUS).init().expect("is allowed");
    assert_eq!(nvml.device_count().expect("count"), 0);
}

#[test]
fn without_a_machine_the_driver_is_not_loaded_and_with_one_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::open(directory.path().join("later"));
    let library = folder.install(directory.path().join("lib")).expect("is built");
    assert_eq!(library.file_name(), Some(LIBRARY_NAME.as_ref()));
    let init = || Nvml::builder().lib_path(library.as_os_str()).init();
    assert!(matches!(init(), Err(NvmlError::DriverNotLoaded)));
    Folder::create(folder.path(), &one_of_each()).expect("a folder");
    assert_eq!(init().expect("loaded by now").device_count().expect("count"), 5);
}

#[test]
fn gpus_come_and_go_while_the_library_is_loaded() {
    let loaded = load(&one_of_each());
    let second = loaded.nvml.device_by_index(1).expect("a GPU");
    let last = loaded.nvml.device_by_index(4).expect("a GPU");
    loaded.folder.change(|machine| drop(machine.gpus.remove(1))).expect("changes");
    assert_eq!(loaded.nvml.device_count().expect("count"), 4);
    assert!(matches!(second.uuid(), Err(NvmlError::GpuLost)));
    assert_eq!(last.index().expect("still there"), 3);
    assert_eq!(last.minor_number().expect("still the same"), 4);
}

#[test]
fn a_lost_gpu_is_counted_and_hides_no_other() {
    let loaded = load(&one_of_each());
    let lost = loaded.nvml.device_by_index(0).expect("a GPU");
    loaded.folder.change(|machine| machine.gpus[0].lost = true).expect("changes");
    assert_eq!(loaded.nvml.device_count().expect("count"), 5);
    assert!(matches!(lost.memory_info(), Err(NvmlError::GpuLost)));
    assert!(matches!(loaded.nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(loaded.nvml.device_by_index(1).expect("healthy").uuid().is_ok());
}

#[test]
fn a_gpu_may_differ_from_its_model_and_have_values_nobody_knows() {
    let mut gpu = Gpu::new(Model::L4, 0);
    gpu.name = Some("NVIDIA Z1".into());
    gpu.uuid = Some("GPU-mine".into());
    gpu.minor = Some(7);
    gpu.pci = Some("00000001:C1:00.0".to_owned());
    gpu.memory_mib = Some(0);
    gpu.architecture = Some(77);
    gpu.brand = Some(88);
    gpu.compute_capability = Some((12, 1));
    let mut machine = Machine::new([gpu]);
    machine.driver_version = "999.beta".into();
    let loaded = load(&machine);
    let nvml = &loaded.nvml;
    let gpu = nvml.device_by_uuid("GPU-mine").expect("the GPU");
    assert_eq!(gpu.name().expect("name"), "NVIDIA Z1");
    assert_eq!(gpu.minor_number().expect("minor"), 7);
    assert_eq!(gpu.pci_info().expect("PCI").bus_id, "00000001:C1:00.0");
    assert_eq!(gpu.memory_info().expect("memory").total, 0);
    assert!(matches!(gpu.architecture(), Err(NvmlError::UnexpectedVariant(77))));
    assert!(matches!(gpu.brand(), Err(NvmlError::UnexpectedVariant(88))));
    assert_eq!(nvml.sys_driver_version().expect("version"), "999.beta");
}

#[test]
fn a_name_that_is_not_utf8_is_handed_on_as_it_is() {
    let mut gpu = Gpu::new(Model::L4, 0);
    gpu.name = Some(Text::Raw { bytes: vec![b'L', 0xff], unterminated: false });
    let loaded = load(&Machine::new([gpu]));
    let nvml = &loaded.nvml;
    let name = nvml.device_by_index(0).expect("a GPU").name();
    assert!(matches!(name, Err(NvmlError::Utf8Error(_))), "{name:?}");
}

#[test]
fn sixteen_gpus_are_told_apart_and_seventeen_are_too_many() {
    let machine = |count| Machine::new((0..count).map(|number| Gpu::new(Model::H200Sxm5_141Gb, number)));
    let loaded = load(&machine(16));
    let mut addresses: Vec<_> =
        (0..16).map(|index| loaded.gpu(index).pci_info().expect("PCI").bus_id).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 16);
    let error = loaded.folder.change(|now| *now = machine(17)).expect_err("too many");
    assert!(error.to_string().contains("17 GPUs"), "{error}");
    assert_eq!(loaded.nvml.device_count().expect("count"), 16, "nothing changed");
}

#[test]
fn older_functions_tell_what_the_newer_ones_do() {
    let loaded = load(&one_of_each());
    let mut memory: sys::nvmlMemory_t = zeroed();
    raw!(loaded, nvmlDeviceGetMemoryInfo(loaded.handle(0), &raw mut memory)).expect("memory");
    assert_eq!((memory.total, memory.free, memory.used), (40_960 << 20, 40_960 << 20, 0));
    let mut version = 0;
    raw!(loaded, nvmlSystemGetCudaDriverVersion(&raw mut version)).expect("version");
    assert_eq!(version, loaded.nvml.sys_cuda_driver_version().expect("version"));
}

#[test]
fn a_struct_of_another_version_is_refused_and_left_alone() {
    let loaded = load(&one_of_each());
    let mut memory: sys::nvmlMemory_v2_t = zeroed();
    memory.version = 0x0300_0028;
    let result = raw!(loaded, nvmlDeviceGetMemoryInfo_v2(loaded.handle(0), &raw mut memory));
    assert_eq!((result, memory.total), (Err(25), 0));
}

#[test]
fn a_gpu_tells_its_serial_number_persistence_and_virtualization() {
    let loaded = load(&one_of_each());
    let gpu = loaded.gpu(3);
    assert_eq!(gpu.serial().expect("serial"), "1320000000003");
    assert!(gpu.is_in_persistent_mode().expect("mode"));
    assert_eq!(gpu.virtualization_mode().expect("mode"), GpuVirtualizationMode::Bare);
}

#[test]
fn a_code_has_a_text() {
    let loaded = load(&one_of_each());
    let text = |code| {
        let function = loaded.library().nvmlErrorString.as_ref().expect("the library has it");
        // SAFETY: takes any number, and returns a string that lives as long as the library.
        #[allow(unsafe_code, reason = "a call of C")]
        unsafe { CStr::from_ptr(function(code)) }.to_str().expect("UTF-8").to_owned()
    };
    assert_eq!([0, 3, 15, 12_345].map(text), ["Success", "Not Supported", "GPU is lost", "Unknown Error"]);
}
