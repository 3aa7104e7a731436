//! GPUs that are bound to `vfio-pci`, to be given to virtual machines. NVML does not see them; sysfs does.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{
    AttributeValue, ContainerEdits, Device, DeviceNode, QualifiedName, Quantity,
    resourceslice::{
        InvalidName,
        sysfs::{NumaForm, PciAddress, Sysfs},
    },
};
use uuid::Uuid;

use crate::config::VfioUse;

const NVIDIA: &str = "0x10de";
/// Display controllers: VGA and 3D. Switches and sound are none.
const CLASS: &str = "0x03";
/// In the flags of a region: memory, with 64-bit addresses.
const MEMORY_64_BIT: u64 = 0x0200 | 0x04;
/// Base address registers of a device; more lines are of its virtual functions.
const REGISTERS: usize = 6;

/// A GPU that no driver of NVIDIA has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VfioGpu {
    /// Its place among NVIDIA's GPUs on the bus, however they are bound.
    pub(crate) index: usize,
    pub(crate) pci: PciAddress,
    /// Such as `0x2330`.
    device_id: String,
    /// The N of `/dev/vfio/N`.
    iommu_group: String,
    /// The name below `/dev/vfio/devices`, where the kernel has IOMMUFD.
    iommufd: Option<String>,
    /// In bytes.
    addressable_memory: u64,
    place: Vec<(QualifiedName, AttributeValue)>,
}

/// GPUs that are bound to `vfio-pci` or one of its variants, in the order of their addresses. One that cannot be read is
/// left out and logged.
///
/// # Errors
/// There is no sysfs with PCI devices.
pub(crate) fn read(root: &Path) -> io::Result<Vec<VfioGpu>> {
    let mut gpus: Vec<(PciAddress, PathBuf)> = Vec::new();
    for entry in fs::read_dir(root.join("bus/pci/devices"))? {
        let path = entry?.path();
        let address = path.file_name().and_then(|name| PciAddress::new(name.to_str()?).ok());
        if let Some(address) = address.filter(|_| is_gpu(&path)) {
            gpus.push((address, path));
        }
    }
    gpus.sort();
    let bound = gpus.into_iter().enumerate().filter(|(_, (_, path))| is_bound_to_vfio(path));
    let read = bound.filter_map(|(index, (pci, path))| match gpu(root, index, &pci, &path) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            tracing::warn!(%pci, %error, "a GPU for virtual machines that cannot be read");
            None
        }
    });
    Ok(read.collect())
}

impl VfioGpu {
    /// The device as it is published.
    ///
    /// # Errors
    /// None in practice: all names are fixed.
    pub(crate) fn device(&self) -> Result<Device, InvalidName> {
        let device = Device::named(&format!("gpu-vfio-{}", self.index))?
            .try_attribute("type", "vfio")?
            .try_attribute("uuid", self.uuid())?
            .try_attribute("vendorID", NVIDIA)?
            .try_attribute("deviceID", self.device_id.as_str())?
            .try_attribute("iommuFDEnabled", self.iommufd.is_some())?
            .try_capacity("addressableMemory", Quantity::binary(self.addressable_memory))?;
        Ok(self
            .place
            .iter()
            .fold(device, |device, (name, value)| device.attribute(name.clone(), value.clone())))
    }

    /// The nodes by which a program in the container drives it.
    pub(crate) fn edits(&self, usage: VfioUse) -> ContainerEdits {
        let (own, api) = match (&self.iommufd, usage.prefer_iommufd) {
            (Some(name), true) => (format!("/dev/vfio/devices/{name}"), "/dev/iommu"),
            _ => (format!("/dev/vfio/{}", self.iommu_group), "/dev/vfio/vfio"),
        };
        let edits = ContainerEdits::new().device_node(DeviceNode::new(own));
        if usage.api_device { edits.device_node(DeviceNode::new(api)) } else { edits }
    }

    /// It has none that could be read; this one is of its address, as in the Go driver.
    fn uuid(&self) -> String {
        Uuid::new_v5(&Uuid::NAMESPACE_DNS, self.pci.as_str().as_bytes()).to_string()
    }
}

fn gpu(root: &Path, index: usize, pci: &PciAddress, path: &Path) -> io::Result<VfioGpu> {
    let group = fs::read_link(path.join("iommu_group"))?;
    let group = group.file_name().and_then(|name| name.to_str());
    Ok(VfioGpu {
        index,
        pci: pci.clone(),
        device_id: text(&path.join("device"))?,
        iommu_group: group.ok_or_else(|| io::Error::other("an IOMMU group without a number"))?.to_owned(),
        iommufd: iommufd(&path.join("vfio-dev")),
        addressable_memory: addressable_memory(&text(&path.join("resource"))?),
        place: Sysfs::at(root).attributes(pci, NumaForm::Scalar),
    })
}

fn is_gpu(path: &Path) -> bool {
    let is = |file: &str, start: &str| text(&path.join(file)).is_ok_and(|text| text.starts_with(start));
    is("vendor", NVIDIA) && is("class", CLASS)
}

/// NVIDIA has a variant of its own for some GPUs.
fn is_bound_to_vfio(path: &Path) -> bool {
    let driver = fs::read_link(path.join("driver")).ok();
    let name = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.is_some_and(|name| name == "vfio-pci" || name.ends_with("-vfio-pci") || name.ends_with("_vfio_pci"))
}

fn iommufd(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("vfio")).min()
}

/// The sum of the regions with 64-bit addresses, rounded up to a power of two, as the Go driver has it. A line of the file is
/// first and last address, and flags.
fn addressable_memory(resource: &str) -> u64 {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let size = |line: &str| -> Option<u64> {
        let mut fields = line.split_whitespace();
        let (first, last, flags) = (hex(fields.next()?)?, hex(fields.next()?)?, hex(fields.next()?)?);
        let is_memory = flags & MEMORY_64_BIT == MEMORY_64_BIT;
        is_memory.then(|| last.checked_sub(first)?.checked_add(1)).flatten()
    };
    let sum = resource.lines().take(REGISTERS).filter_map(size).fold(0u64, u64::saturating_add);
    if sum == 0 { 0 } else { sum.checked_next_power_of_two().unwrap_or(u64::MAX) }
}

fn text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::symlink};

    use super::*;

    const PROMISED: &str = include_str!("../../../docs/nvidia-attributes.md");

    /// An H100's regions: registers of 16 MiB, memory of 128 GiB, 32 MiB more, and one of the old kind.
    const RESOURCE: &str = "0x0000000042000000 0x0000000042ffffff 0x0000000000140204\n\
                            0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                            0x0000021000000000 0x0000022fffffffff 0x000000000014220c\n\
                            0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                            0x0000020d40000000 0x0000020d41ffffff 0x000000000014220c\n\
                            0x0000000000001000 0x0000000000001fff 0x0000000000040200\n\
                            0x0000000000000000 0x00000fffffffffff 0x000000000014220c\n";

    fn add(root: &Path, address: &str, driver: &str, class: &str) {
        let device = root.join("devices/pci0000:00").join(address);
        fs::create_dir_all(device.join("vfio-dev/vfio3")).unwrap();
        for (file, text) in [
            ("vendor", "0x10de\n"),
            ("device", "0x2330\n"),
            ("class", class),
            ("numa_node", "1\n"),
            ("resource", RESOURCE),
        ] {
            fs::write(device.join(file), text).unwrap();
        }
        symlink(format!("../../../../kernel/iommu_groups/{}", address.len()), device.join("iommu_group"))
            .unwrap();
        symlink(format!("../../../bus/pci/drivers/{driver}"), device.join("driver")).unwrap();
        let bus = root.join("bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        symlink(format!("../../../devices/pci0000:00/{address}"), bus.join(address)).unwrap();
    }

    fn sysfs() -> (tempfile::TempDir, Vec<VfioGpu>) {
        let folder = tempfile::tempdir().unwrap();
        add(folder.path(), "0000:65:00.0", "vfio-pci", "0x030200\n");
        add(folder.path(), "0000:17:00.0", "nvidia", "0x030200\n");
        add(folder.path(), "0000:ca:00.0", "nvgrace_gpu_vfio_pci", "0x030200\n");
        add(folder.path(), "0000:65:00.1", "vfio-pci", "0x040300\n");
        let gpus = read(folder.path()).unwrap();
        (folder, gpus)
    }

    #[test]
    fn gpus_that_are_bound_to_vfio_are_found_and_counted_among_all() {
        let (_folder, gpus) = sysfs();
        let found: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.pci.as_str())).collect();
        assert_eq!(found, [(1, "0000:65:00.0"), (2, "0000:ca:00.0")]);
        assert_eq!(gpus[0].addressable_memory, 256 << 30);
        read(Path::new("/nowhere")).unwrap_err();
    }

    #[test]
    fn nothing_that_is_promised_is_missing_and_nothing_else_is_published() {
        let (_folder, gpus) = sysfs();
        let device = gpus[0].device().unwrap();
        assert_eq!(device.name().as_str(), "gpu-vfio-1");
        let attributes = device.attributes().map(|(name, _)| name.as_str().to_owned());
        let published: BTreeSet<String> =
            attributes.chain(device.capacities().map(|(name, _)| name.as_str().to_owned())).collect();
        let section =
            PROMISED.split("\n## ").find(|section| section.starts_with("GPU for a virtual")).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        assert_eq!(published, rows.map(|(name, _)| name.to_owned()).collect());
    }

    /// `VfioDeviceInfo.GetDevice` in `cmd/gpu-kubelet-plugin/deviceinfo.go` of the Go driver, at 95932046.
    const GO: [&str; 10] = [
        "addressableMemory",
        "deviceID",
        "iommuFDEnabled",
        "productName",
        "resource.kubernetes.io/numaNode",
        "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot",
        "type",
        "uuid",
        "vendorID",
    ];

    #[test]
    fn what_the_go_driver_publishes_is_there_but_the_name_that_only_nvml_tells() {
        let (_folder, gpus) = sysfs();
        let device = gpus[0].device().unwrap();
        let attributes = device.attributes().map(|(name, _)| name.as_str().to_owned());
        let published: BTreeSet<String> =
            attributes.chain(device.capacities().map(|(name, _)| name.as_str().to_owned())).collect();
        let expected = GO.into_iter().filter(|name| *name != "productName").map(str::to_owned);
        assert_eq!(published, expected.collect());
    }

    #[test]
    fn the_container_gets_the_nodes_of_the_way_that_was_asked_for() {
        let (_folder, mut gpus) = sysfs();
        let paths = |gpu: &VfioGpu, prefer_iommufd: bool, api_device: bool| -> Vec<String> {
            let edits = gpu.edits(VfioUse { prefer_iommufd, api_device });
            edits.device_nodes.iter().map(|node| node.path.display().to_string()).collect()
        };
        assert_eq!(paths(&gpus[0], false, true), ["/dev/vfio/12", "/dev/vfio/vfio"]);
        assert_eq!(paths(&gpus[0], true, true), ["/dev/vfio/devices/vfio3", "/dev/iommu"]);
        assert_eq!(paths(&gpus[0], true, false), ["/dev/vfio/devices/vfio3"]);
        gpus[0].iommufd = None;
        assert_eq!(paths(&gpus[0], true, true), ["/dev/vfio/12", "/dev/vfio/vfio"]);
    }
}
