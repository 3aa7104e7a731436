//! MIG, through the real loader.

use std::ptr;

use fake_nvml::{MigInstance, Process};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::support::{Loaded, load, one_of_each, raw, with_mig, zeroed};

const NOT_SUPPORTED: u32 = 3;
const INVALID_ARGUMENT: u32 = 2;
const NOT_FOUND: u32 = 6;
const IN_USE: u32 = 19;
const INSUFFICIENT_RESOURCES: u32 = 23;
const VERSION_MISMATCH: u32 = 25;

/// Ids of profiles.
const ONE_SLICE: u32 = 19;
const THREE_SLICES: u32 = 9;

fn create(loaded: &Loaded, profile: u32, start: u32, size: u32) -> Result<sys::nvmlGpuInstance_t, u32> {
    let place = sys::nvmlGpuInstancePlacement_t { start, size };
    let mut instance = ptr::null_mut();
    raw!(
        loaded,
        nvmlDeviceCreateGpuInstanceWithPlacement(
            loaded.handle(0),
            profile,
            &raw const place,
            &raw mut instance
        )
    )?;
    Ok(instance)
}

fn create_compute(
    loaded: &Loaded,
    instance: sys::nvmlGpuInstance_t,
    profile: u32,
) -> Result<sys::nvmlComputeInstance_t, u32> {
    let mut compute = ptr::null_mut();
    raw!(loaded, nvmlGpuInstanceCreateComputeInstance(instance, profile, &raw mut compute))?;
    Ok(compute)
}

fn info(loaded: &Loaded, instance: sys::nvmlGpuInstance_t) -> sys::nvmlGpuInstanceInfo_t {
    let mut info = zeroed();
    raw!(loaded, nvmlGpuInstanceGetInfo(instance, &raw mut info)).expect("is there");
    info
}

#[test]
fn the_profiles_of_an_a100_are_those_that_nvidia_smi_lists() {
    let loaded = load(&with_mig());
    let mut found = Vec::new();
    for index in 0..sys::NVML_GPU_INSTANCE_PROFILE_COUNT {
        let mut profile: sys::nvmlGpuInstanceProfileInfo_t = zeroed();
        match raw!(loaded, nvmlDeviceGetGpuInstanceProfileInfo(loaded.handle(0), index, &raw mut profile)) {
            Ok(()) => {
                found.push((profile.id, profile.sliceCount, profile.instanceCount, profile.memorySizeMB));
            }
            Err(code) => assert_eq!(code, NOT_SUPPORTED),
        }
    }
    assert_eq!(
        found,
        [
            (19, 1, 7, 4_864),
            (14, 2, 3, 9_856),
            (9, 3, 2, 19_968),
            (5, 4, 1, 19_968),
            (0, 7, 1, 40_192),
            (20, 1, 1, 4_864),
            (15, 1, 4, 9_856),
        ]
    );
    let mut profile = zeroed();
    // `nvml.h` of CUDA 13.2 has 18 of them.
    let behind = 18;
    let result =
        raw!(loaded, nvmlDeviceGetGpuInstanceProfileInfo(loaded.handle(0), behind, &raw mut profile));
    assert_eq!(result, Err(INVALID_ARGUMENT));
}

#[test]
fn a_profile_tells_its_name_to_who_knows_the_version_of_the_struct() {
    let loaded = load(&with_mig());
    let mut profile: sys::nvmlGpuInstanceProfileInfo_v2_t = zeroed();
    let ask =
        |profile: &mut _| raw!(loaded, nvmlDeviceGetGpuInstanceProfileInfoV(loaded.handle(0), 7, profile));
    assert_eq!(ask(&mut profile), Err(VERSION_MISMATCH));
    profile.version = 0x0200_0098;
    assert_eq!(ask(&mut profile), Ok(()));
    assert_eq!(text(&profile.name), "MIG 1g.5gb+me");
    let by_id = raw!(loaded, nvmlDeviceGetGpuInstanceProfileInfoByIdV(loaded.handle(0), 9, &raw mut profile));
    assert_eq!(by_id, Ok(()));
    assert_eq!(text(&profile.name), "MIG 3g.20gb");
}

fn text(field: &[std::ffi::c_char]) -> String {
    let bytes = field.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0);
    String::from_utf8(bytes.collect()).expect("UTF-8")
}

#[test]
fn placements_are_counted_before_they_are_told() {
    let loaded = load(&with_mig());
    let mut count = 0;
    let ask = |places: *mut _, count: &mut u32| {
        raw!(
            loaded,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(loaded.handle(0), THREE_SLICES, places, count)
        )
    };
    assert_eq!(ask(ptr::null_mut(), &mut count), Ok(()));
    assert_eq!(count, 2);
    let mut places: [sys::nvmlGpuInstancePlacement_t; 2] = zeroed();
    assert_eq!(ask(places.as_mut_ptr(), &mut count), Ok(()));
    assert_eq!(places.map(|place| (place.start, place.size)), [(0, 4), (4, 4)]);
    count = 1;
    assert_eq!(ask(places.as_mut_ptr(), &mut count), Err(7), "too little room");
}

#[test]
fn an_instance_is_made_found_and_destroyed() {
    let loaded = load(&with_mig());
    let instance = create(&loaded, THREE_SLICES, 4, 4).expect("room");
    let made = info(&loaded, instance);
    assert_eq!((made.id, made.profileId, made.placement.start, made.placement.size), (1, THREE_SLICES, 4, 4));
    assert_eq!(made.device, loaded.handle(0));

    let mut same = ptr::null_mut();
    raw!(loaded, nvmlDeviceGetGpuInstanceById(loaded.handle(0), 1, &raw mut same)).expect("is there");
    assert_eq!(same, instance);
    let mut list = [ptr::null_mut(); 2];
    let mut count = 0;
    let ask = |list: &mut [_; 2], count: &mut _| {
        raw!(loaded, nvmlDeviceGetGpuInstances(loaded.handle(0), THREE_SLICES, list.as_mut_ptr(), count))
    };
    assert_eq!(ask(&mut list, &mut count), Ok(()));
    assert_eq!((count, list[0]), (1, instance));

    let compute = create_compute(&loaded, instance, 2).expect("room");
    let mut compute_info: sys::nvmlComputeInstanceInfo_t = zeroed();
    raw!(loaded, nvmlComputeInstanceGetInfo_v2(compute, &raw mut compute_info)).expect("is there");
    assert_eq!((compute_info.id, compute_info.profileId, compute_info.placement.size), (0, 2, 3));
    assert_eq!(compute_info.gpuInstance, instance);
    let mut same = ptr::null_mut();
    raw!(loaded, nvmlGpuInstanceGetComputeInstanceById(instance, 0, &raw mut same)).expect("is there");
    assert_eq!(same, compute);
    let mut list = [ptr::null_mut(); 2];
    raw!(loaded, nvmlGpuInstanceGetComputeInstances(instance, 2, list.as_mut_ptr(), &raw mut count))
        .expect("is there");
    assert_eq!((count, list[0]), (1, compute));

    assert_eq!(raw!(loaded, nvmlGpuInstanceDestroy(instance)), Err(IN_USE));
    assert_eq!(raw!(loaded, nvmlComputeInstanceDestroy(compute)), Ok(()));
    assert_eq!(raw!(loaded, nvmlComputeInstanceDestroy(compute)), Err(INVALID_ARGUMENT));
    assert_eq!(raw!(loaded, nvmlGpuInstanceDestroy(instance)), Ok(()));
    let mut none = ptr::null_mut();
    let by_id = raw!(loaded, nvmlDeviceGetGpuInstanceById(loaded.handle(0), 1, &raw mut none));
    assert_eq!(by_id, Err(NOT_FOUND));
    assert_eq!(loaded.folder.hardware().expect("reads").gpus["00000000:07:00.0"].instances, []);
}

#[test]
fn instances_conflict_as_on_hardware() {
    let loaded = load(&with_mig());
    create(&loaded, THREE_SLICES, 4, 4).expect("room");
    assert_eq!(create(&loaded, ONE_SLICE, 5, 1).err(), Some(INSUFFICIENT_RESOURCES));
    assert_eq!(create(&loaded, THREE_SLICES, 1, 4).err(), Some(INVALID_ARGUMENT));
    let mut left = 0;
    let ask =
        raw!(loaded, nvmlDeviceGetGpuInstanceRemainingCapacity(loaded.handle(0), ONE_SLICE, &raw mut left));
    assert_eq!((ask, left), (Ok(()), 4));
    let mut instance = ptr::null_mut();
    let first_free =
        raw!(loaded, nvmlDeviceCreateGpuInstance(loaded.handle(0), THREE_SLICES, &raw mut instance));
    assert_eq!(first_free, Ok(()));
    assert_eq!(info(&loaded, instance).placement.start, 0);
}

#[test]
fn compute_instances_share_a_gpu_instance() {
    let loaded = load(&with_mig());
    let instance = create(&loaded, THREE_SLICES, 0, 4).expect("room");
    let mut shape: sys::nvmlComputeInstanceProfileInfo_t = zeroed();
    let ask = |index, engine, shape: &mut _| {
        raw!(loaded, nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, engine, shape))
    };
    assert_eq!(ask(0, 0, &mut shape), Ok(()));
    assert_eq!((shape.id, shape.sliceCount, shape.instanceCount, shape.multiprocessorCount), (0, 1, 3, 14));
    assert_eq!(ask(4, 0, &mut shape), Err(NOT_SUPPORTED));
    assert_eq!(ask(0, 1, &mut shape), Err(INVALID_ARGUMENT));

    let mut named: sys::nvmlComputeInstanceProfileInfo_v2_t = zeroed();
    named.version = 0x0200_0088;
    let ask = raw!(loaded, nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, 1, 0, &raw mut named));
    assert_eq!((ask, text(&named.name)), (Ok(()), "MIG 2c.3g.20gb".to_owned()));

    let place = sys::nvmlComputeInstancePlacement_t { start: 2, size: 1 };
    let mut compute = ptr::null_mut();
    let create = raw!(
        loaded,
        nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, 0, &raw const place, &raw mut compute)
    );
    assert_eq!(create, Ok(()));
    assert_eq!(create_compute(&loaded, instance, 2).err(), Some(INSUFFICIENT_RESOURCES));
    let mut left = 0;
    let ask = raw!(loaded, nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0, &raw mut left));
    assert_eq!((ask, left), (Ok(()), 2));
    let mut places: [sys::nvmlComputeInstancePlacement_t; 3] = zeroed();
    let mut count = 3;
    let ask = raw!(
        loaded,
        nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance, 0, places.as_mut_ptr(), &raw mut count)
    );
    assert_eq!((ask, count, places[2].start), (Ok(()), 3, 2));
}

#[test]
fn a_mig_device_tells_what_it_is_and_of_which_gpu() {
    let mut machine = with_mig();
    machine.gpus[0].instances = vec![MigInstance::new("1g.5gb", 6), MigInstance::new("3g.20gb", 0)];
    let loaded = load(&machine);
    let parent = loaded.gpu(0);
    assert_eq!(parent.mig_device_count().expect("count"), 7, "the most that are possible");
    assert!(matches!(parent.mig_device_by_index(2), Err(NvmlError::NotFound)));
    let device = parent.mig_device_by_index(1).expect("the second");
    assert!(device.mig_is_mig_device_handle().expect("told"));
    assert!(!parent.mig_is_mig_device_handle().expect("told"));
    assert_eq!(device.name().expect("name"), "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
    assert_eq!(device.memory_info().expect("memory").total, 19_968 << 20);
    let attributes = device.attributes().expect("attributes");
    assert_eq!((attributes.multiprocessor_count, attributes.memory_size_mb), (42, 19_968));
    let uuid = device.uuid().expect("UUID");
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    let found = loaded.nvml.device_by_uuid(uuid.as_str()).expect("by its UUID");
    let back = found.mig_parent_device().expect("the GPU");
    assert_eq!(back.uuid().expect("UUID"), parent.uuid().expect("UUID"));
    assert!(matches!(device.minor_number(), Err(NvmlError::NotSupported)));
}

#[test]
fn a_mig_device_tells_its_instances() {
    let mut machine = with_mig();
    machine.gpus[0].instances = vec![MigInstance::new("2g.10gb", 4)];
    let loaded = load(&machine);
    let (mut device, mut instance, mut compute) = (ptr::null_mut(), 99, 99);
    raw!(loaded, nvmlDeviceGetMigDeviceHandleByIndex(loaded.handle(0), 0, &raw mut device))
        .expect("is there");
    raw!(loaded, nvmlDeviceGetGpuInstanceId(device, &raw mut instance)).expect("told");
    raw!(loaded, nvmlDeviceGetComputeInstanceId(device, &raw mut compute)).expect("told");
    assert_eq!((instance, compute), (3, 0));
    let of_gpu = raw!(loaded, nvmlDeviceGetGpuInstanceId(loaded.handle(0), &raw mut instance));
    assert_eq!(of_gpu, Err(INVALID_ARGUMENT));
}

#[test]
fn mig_goes_on_and_off_where_there_is_mig() {
    let loaded = load(&one_of_each());
    let mode = |index| loaded.gpu(index).mig_mode().map(|mode| mode.current).ok();
    let mut activation = 99;
    let mut set =
        |index, on| raw!(loaded, nvmlDeviceSetMigMode(loaded.handle(index), on, &raw mut activation));
    assert_eq!((mode(2), set(2, 1), mode(2)), (Some(0), Ok(()), Some(1)));
    assert_eq!((set(2, 0), mode(2)), (Ok(()), Some(0)));
    assert_eq!((set(2, 2), set(4, 1)), (Err(INVALID_ARGUMENT), Err(NOT_SUPPORTED)));
    assert_eq!(loaded.gpu(0).mig_device_count().expect("count"), 0, "off");
    loaded.folder.change(|machine| machine.gpus[0].processes.push(Process::new(1, 1))).expect("changes");
    assert_eq!(set(0, 1), Ok(()));
    assert_eq!(mode(0), Some(0), "a process uses it: the mode is pending");
}

#[test]
fn an_instance_with_a_process_is_not_destroyed() {
    let mut machine = with_mig();
    machine.gpus[0].instances = vec![MigInstance::new("2g.10gb", 4)];
    machine.gpus[0].processes = vec![Process::new(42, 100).on(3, 0)];
    let loaded = load(&machine);
    let (mut instance, mut compute) = (ptr::null_mut(), ptr::null_mut());
    raw!(loaded, nvmlDeviceGetGpuInstanceById(loaded.handle(0), 3, &raw mut instance)).expect("is there");
    raw!(loaded, nvmlGpuInstanceGetComputeInstanceById(instance, 0, &raw mut compute)).expect("is there");
    assert_eq!(raw!(loaded, nvmlComputeInstanceDestroy(compute)), Err(IN_USE));
    loaded.folder.change(|machine| machine.gpus[0].processes.clear()).expect("changes");
    assert_eq!(raw!(loaded, nvmlComputeInstanceDestroy(compute)), Ok(()));
}

#[test]
fn instances_outlive_the_program_and_not_the_machine() {
    let loaded = load(&with_mig());
    let instance = create(&loaded, THREE_SLICES, 0, 4).expect("room");
    create_compute(&loaded, instance, 2).expect("room");
    let file = loaded.folder.path().join("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access");
    assert!(file.exists());

    let again = loaded.folder.install(loaded.directory.path().join("other")).expect("is built");
    let nvml = nvml_wrapper::Nvml::builder().lib_path(again.as_os_str()).init().expect("initializes");
    let gpu = nvml.device_by_index(0).expect("the GPU");
    assert!(gpu.mig_device_by_index(0).is_ok());

    loaded.folder.reboot().expect("starts anew");
    assert!(matches!(gpu.mig_device_by_index(0), Err(NvmlError::NotFound)));
    assert_eq!(gpu.mig_mode().expect("mode").current, 1, "an A100 keeps it");
    assert!(!file.exists());
}

#[test]
fn two_programs_never_make_instances_over_each_other() {
    let loaded = load(&with_mig());
    let paths: Vec<_> = (0..3)
        .map(|copy| loaded.folder.install(loaded.directory.path().join(format!("{copy}"))).expect("is built"))
        .collect();
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = paths
            .iter()
            .map(|path| {
                scope.spawn(|| {
                    let nvml =
                        nvml_wrapper::Nvml::builder().lib_path(path.as_os_str()).init().expect("starts");
                    let copy = Copy(nvml);
                    (0..7).filter(|_| copy.create_one_slice()).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(made, 7);
    let hardware = loaded.folder.hardware().expect("reads");
    let mut starts: Vec<_> =
        hardware.gpus["00000000:07:00.0"].instances.iter().map(|instance| instance.start).collect();
    starts.sort_unstable();
    assert_eq!(starts, [0, 1, 2, 3, 4, 5, 6]);
}

/// Another copy of the library.
struct Copy(nvml_wrapper::Nvml);

impl Copy {
    fn library(&self) -> &sys::NvmlLib {
        self.0.lib()
    }

    fn create_one_slice(&self) -> bool {
        let (mut device, mut instance) = (ptr::null_mut(), ptr::null_mut());
        raw!(self, nvmlDeviceGetHandleByIndex_v2(0, &raw mut device)).expect("the GPU");
        raw!(self, nvmlDeviceCreateGpuInstance(device, ONE_SLICE, &raw mut instance)).is_ok()
    }
}
