use std::collections::BTreeSet;

use super::*;
use crate::gpu::testing::a100;

/// What users' selectors may name, by type of device. It is the table that the driver promises to keep.
const PROMISED: &str = include_str!("../../../../docs/nvidia-attributes.md");

/// What the Go driver publishes, from its source at 95932046 (`cmd/gpu-kubelet-plugin`), where nothing but the documented gates
/// adds to it: `GpuInfo.Attributes` in `deviceinfo.go`.
const GO_GPU: &[&str] = &[
    "addressingMode",
    "architecture",
    "brand",
    "cudaComputeCapability",
    "cudaDriverVersion",
    "driverVersion",
    "memory",
    "productName",
    "resource.kubernetes.io/numaNode",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "type",
    "uuid",
];
/// `CommonAttributesMig` and `CommonCapacitiesMig` in `mig.go`.
const GO_MIG: &[&str] = &[
    "addressingMode",
    "architecture",
    "brand",
    "copyEngines",
    "cudaComputeCapability",
    "cudaDriverVersion",
    "decoders",
    "driverVersion",
    "encoders",
    "jpegEngines",
    "memory",
    "multiprocessors",
    "ofaEngines",
    "parentUUID",
    "productName",
    "profile",
    "resource.kubernetes.io/numaNode",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "type",
];
/// What one that exists has besides: `MigDeviceInfo.GetDevice` in `deviceinfo.go`. The one of the test is on slice 2.
const GO_EXISTING_MIG: &[&str] = &["memorySlice2", "uuid"];

fn names(lists: &[&[&str]]) -> BTreeSet<String> {
    lists.iter().flat_map(|list| list.iter().map(|name| (*name).to_owned())).collect()
}

#[test]
fn devices_have_the_names_that_the_go_driver_publishes_and_no_others() {
    let gpu = a100();
    assert_eq!(published(&whole(&gpu, false).unwrap()), names(&[GO_GPU]));
    assert_eq!(published(&existing_mig(&gpu, &gpu.migs[0]).unwrap()), names(&[GO_MIG, GO_EXISTING_MIG]));
    let possible = possible_mig(&gpu, &gpu.profiles[0], gpu.profiles[0].placements[0]).unwrap();
    assert_eq!(published(&possible), names(&[GO_MIG]));
}

fn published(device: &Device) -> BTreeSet<String> {
    let attributes = device.attributes().map(|(name, _)| name.as_str().to_owned());
    attributes.chain(device.capacities().map(|(name, _)| name.as_str().to_owned())).collect()
}

/// The names in the first column of the table below this heading.
fn promised(heading: &str) -> BTreeSet<String> {
    let section = PROMISED.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn nothing_that_is_promised_of_a_gpu_is_missing_and_nothing_else_is_published() {
    assert_eq!(published(&whole(&a100(), false).unwrap()), promised("Full GPU"));
}

#[test]
fn nothing_that_is_promised_of_a_partition_is_missing_and_nothing_else_is_published() {
    let gpu = a100();
    let existing = published(&existing_mig(&gpu, &gpu.migs[0]).unwrap());
    assert_eq!(existing, promised("MIG device that exists"));
    let possible = possible_mig(&gpu, &gpu.profiles[0], gpu.profiles[0].placements[0]).unwrap();
    assert_eq!(published(&possible), promised("MIG device that can be made"));
}

#[test]
fn a_gpu_has_the_values_of_the_go_driver() {
    let device = whole(&a100(), false).unwrap();
    assert_eq!(device.name().as_str(), "gpu-0");
    let value = |name: &str| device.attribute_value(name).cloned().unwrap();
    assert_eq!(value("architecture"), "Ampere".into());
    assert_eq!(value("cudaComputeCapability"), AttributeValue::version("8.0.0"));
    assert_eq!(value("driverVersion"), AttributeValue::version("550.127.8"));
    assert_eq!(value("cudaDriverVersion"), AttributeValue::version("12.4.0"));
    assert_eq!(value("resource.kubernetes.io/pciBusID"), "0000:65:00.0".into());
}

#[test]
fn a_gpu_that_shares_counters_takes_all_of_them() {
    let gpu = a100();
    let device = whole(&gpu, true).unwrap();
    let names: BTreeSet<_> = device.capacities().map(|(name, _)| name.as_str().to_owned()).collect();
    assert!(names.contains("multiprocessors") && names.contains("memory"), "{names:?}");
    let all = consumption(&gpu, &most(&gpu), Placement::new(0, 8)).unwrap();
    assert_eq!(whole(&gpu, false).unwrap().consumes(all.clone()).name(), device.name());
    let set = format!("{:?}", counters(&gpu).unwrap());
    assert!(set.contains("gpu-0-counter-set") && set.contains("copy-engines"), "{set}");
    assert!(set.contains("memory-slice-7") && !set.contains("memory-slice-8"), "{set}");
}

#[test]
fn odd_answers_of_nvml_leave_attributes_out_and_cut_texts() {
    let mut gpu = a100();
    gpu.driver_version = "unknown".to_owned();
    gpu.cuda_compute_capability = (-1, 0);
    gpu.product_name = "ä".repeat(50);
    gpu.memory = Some(0);
    let device = whole(&gpu, false).unwrap();
    assert_eq!(device.attribute_value("driverVersion"), None);
    assert_eq!(device.attribute_value("cudaComputeCapability"), None);
    assert_eq!(device.attribute_value("productName"), Some(&"ä".repeat(32).into()));
}

#[test]
fn two_compute_instances_of_one_gpu_instance_have_different_names() {
    let gpu = a100();
    let mut second = gpu.migs[0].clone();
    second.compute_instance = 1;
    assert_ne!(existing_mig_name(&gpu, &second), existing_mig_name(&gpu, &gpu.migs[0]));
}

#[test]
fn what_somebody_else_has_made_is_not_there_to_share() {
    let mut gpu = a100();
    let free = counters(&gpu).unwrap();
    gpu.foreign = vec![(gpu.profiles[0].shape, Placement::new(2, 1))];
    let left =
        [("multiprocessors", 84), ("copy-engines", 6), ("memory", 35_328 << 20), ("memory-slice-2", 0)];
    let expected =
        left.iter().fold(free, |set, (name, left)| set.counter(name, Quantity::binary(*left)).unwrap());
    assert_eq!(counters(&gpu).unwrap(), expected);
}
