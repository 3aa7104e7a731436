//! Names of what NVML tells by numbers. They are the ones that `nvidia-smi` and the Go driver use.

use nvidia_nvml::GpuInstanceProfile;

use super::Architecture;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The name of a brand.
pub(crate) fn brand(brand: u32) -> &'static str {
    match brand {
        1 => "Quadro",
        2 => "Tesla",
        3 => "NVS",
        4 => "Grid",
        5 => "GeForce",
        6 => "Titan",
        7 => "NvidiaVApps",
        8 => "NvidiaVPC",
        9 => "NvidiaVCS",
        10 => "NvidiaVWS",
        11 => "NvidiaCloudGaming",
        12 => "QuadroRTX",
        13 => "NvidiaRTX",
        14 => "Nvidia",
        15 => "GeForceRTX",
        16 => "TitanRTX",
        _ => "Unknown",
    }
}

impl Architecture {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            2 => "Kepler",
            3 => "Maxwell",
            4 => "Pascal",
            5 => "Volta",
            6 => "Turing",
            7 => "Ampere",
            8 => "Ada Lovelace",
            9 => "Hopper",
            10 => "Blackwell",
            _ => "Unknown",
        }
    }
}

/// The name of a shape on a GPU with this much memory, such as `1g.5gb+me`, or `1c.2g.10gb` for a compute instance that has
/// one of two slices.
pub(crate) fn profile_name(shape: &GpuInstanceProfile, compute_slices: u32, gpu_bytes: u64) -> String {
    let compute = match compute_slices {
        same if same == shape.slices => String::new(),
        part => format!("{part}c."),
    };
    let gigabytes = gigabytes(shape.memory_mib, gpu_bytes);
    format!("{compute}{}g.{gigabytes}gb{}", shape.slices, special(shape.index))
}

/// The name of a partition as a device.
pub(crate) fn mig_device_name(minor: u32, profile: &str, profile_id: u32, start: u32) -> String {
    let profile: String = profile
        .chars()
        .filter(|c| *c != '.')
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    format!("gpu-{minor}-mig-{}-{profile_id}-{start}", profile.trim_matches('-'))
}

/// What a shape has or lacks beside its size: media engines, graphics.
fn special(index: u32) -> &'static str {
    match index {
        7 | 8 => "+me",
        10..=12 | 17 => "+gfx",
        13 | 14 => "-me",
        15 | 16 => "+me.all",
        _ => "",
    }
}

/// Eighths of the GPU's memory, rounded up, in whole gigabytes: the driver keeps some of each slice for itself.
fn gigabytes(mib: u64, gpu_bytes: u64) -> u64 {
    if gpu_bytes == 0 {
        return 0;
    }
    let eighths = (u128::from(mib) * u128::from(MIB) * 8).div_ceil(u128::from(gpu_bytes));
    let whole = u128::from(gpu_bytes.div_ceil(GIB));
    u64::try_from((eighths * whole + 4) / 8).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_the_names_that_nvidia_smi_shows() {
        let (a100_40, h100_80) = (40_960 * MIB, 81_559 * MIB);
        let table = [
            (0, 1, 4_864, 1, a100_40, "1g.5gb"),
            (7, 1, 4_864, 1, a100_40, "1g.5gb+me"),
            (9, 1, 9_856, 1, a100_40, "1g.10gb"),
            (1, 2, 9_856, 2, a100_40, "2g.10gb"),
            (1, 2, 9_856, 1, a100_40, "1c.2g.10gb"),
            (2, 3, 19_968, 3, a100_40, "3g.20gb"),
            (4, 7, 40_192, 7, a100_40, "7g.40gb"),
            (0, 1, 9_984, 1, h100_80, "1g.10gb"),
            (4, 7, 81_152, 7, h100_80, "7g.80gb"),
            (0, 1, 4_864, 1, 0, "1g.0gb"),
        ];
        for (index, slices, mib, compute, total, expected) in table {
            let shape = GpuInstanceProfile::new(index, 19, slices, mib);
            assert_eq!(profile_name(&shape, compute, total), expected);
        }
    }

    #[test]
    fn a_partition_is_named_after_gpu_profile_and_place() {
        assert_eq!(mig_device_name(0, "1g.24gb", 19, 0), "gpu-0-mig-1g24gb-19-0");
        assert_eq!(mig_device_name(3, "1g.5gb+me", 20, 6), "gpu-3-mig-1g5gb-me-20-6");
        assert_eq!(mig_device_name(3, "1g.12gb+me.all", 20, 6), "gpu-3-mig-1g12gb-meall-20-6");
    }

    #[test]
    fn unknown_numbers_have_a_name_too() {
        assert_eq!(brand(99), "Unknown");
        assert_eq!(Architecture(u32::MAX).name(), "Unknown");
        assert!(!Architecture(u32::MAX).switches_mig_mode_at_once());
        assert!(!Architecture(7).switches_mig_mode_at_once());
        assert!(Architecture(9).switches_mig_mode_at_once());
    }
}
