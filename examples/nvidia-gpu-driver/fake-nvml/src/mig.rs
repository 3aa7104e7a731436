//! Into what shapes a GPU can be cut, from NVIDIA's public tables for Multi-Instance GPU (MIG).

use crate::Model;

/// A shape of GPU instances on one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// Its number in NVML's list of profiles, `NVML_GPU_INSTANCE_PROFILE_…`.
    pub(crate) index: u32,
    /// What calls and `nvidia-smi mig -lgip` name it by.
    pub(crate) id: u32,
    /// As `1g.5gb+me`.
    pub(crate) name: &'static str,
    /// Compute slices.
    pub(crate) slices: u32,
    /// How many of it can be at once.
    pub(crate) most: u32,
    /// The first memory slice of each place where it can be.
    pub(crate) starts: &'static [u32],
    /// How many memory slices it takes.
    pub(crate) size: u32,
    pub(crate) memory_mib: u64,
    pub(crate) multiprocessors: u32,
    pub(crate) copy_engines: u32,
    pub(crate) decoders: u32,
    pub(crate) jpeg_engines: u32,
    pub(crate) ofa_engines: u32,
}

/// A shape of compute instances on a GPU instance. Its number in NVML's list is also its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComputeProfile {
    pub(crate) id: u32,
    pub(crate) slices: u32,
    pub(crate) multiprocessors: u32,
    /// The first slice of each place where it can be.
    pub(crate) starts: &'static [u32],
}

impl Model {
    /// The shapes it can be cut into; none without MIG.
    pub(crate) fn profiles(self) -> Vec<Profile> {
        let Some(engines) = self.engines() else {
            return Vec::new();
        };
        let shapes = SHAPES.iter().zip(engines);
        let profile = |(shape, engines): (&Shape, Engines)| Profile {
            index: shape.index,
            id: shape.id,
            name: engines.name,
            slices: shape.slices,
            most: shape.most,
            starts: shape.starts,
            size: shape.size,
            memory_mib: engines.memory_mib,
            multiprocessors: engines.multiprocessors,
            copy_engines: engines.copy,
            decoders: engines.decoders,
            jpeg_engines: engines.jpeg,
            ofa_engines: u32::from(matches!(shape.id, 20 | 0)),
        };
        shapes.map(profile).collect()
    }

    /// `NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX` (0x11) of `nvml.h` since CUDA 13.2. No public table has its figures: they are
    /// those of three slices here.
    pub(crate) fn newest_profile(self) -> Option<Profile> {
        let three = self.profiles().into_iter().find(|profile| profile.slices == 3)?;
        let name: &'static str = match self {
            Self::A100Sxm4_40Gb => "3g.20gb+gfx",
            Self::A100Sxm4_80Gb | Self::H100Sxm5_80Gb => "3g.40gb+gfx",
            Self::H200Sxm5_141Gb => "3g.71gb+gfx",
            Self::L4 => return None,
        };
        Some(Profile { index: 0x11, id: 70, name, most: 1, ..three })
    }

    /// For each of the [`SHAPES`].
    fn engines(self) -> Option<[Engines; 7]> {
        let engines = |name, memory_mib, multiprocessors, copy, decoders, jpeg| Engines {
            name,
            memory_mib,
            multiprocessors,
            copy,
            decoders,
            jpeg,
        };
        match self {
            Self::A100Sxm4_40Gb => Some([
                engines("1g.5gb", 4_864, 14, 1, 0, 0),
                engines("1g.5gb+me", 4_864, 14, 1, 1, 1),
                engines("1g.10gb", 9_856, 14, 1, 1, 0),
                engines("2g.10gb", 9_856, 28, 2, 1, 0),
                engines("3g.20gb", 19_968, 42, 3, 2, 0),
                engines("4g.20gb", 19_968, 56, 4, 2, 0),
                engines("7g.40gb", 40_192, 98, 7, 5, 1),
            ]),
            Self::A100Sxm4_80Gb => Some([
                engines("1g.10gb", 9_728, 14, 1, 0, 0),
                engines("1g.10gb+me", 9_728, 14, 1, 1, 1),
                engines("1g.20gb", 19_968, 14, 1, 1, 0),
                engines("2g.20gb", 19_968, 28, 2, 1, 0),
                engines("3g.40gb", 40_192, 42, 3, 2, 0),
                engines("4g.40gb", 40_192, 56, 4, 2, 0),
                engines("7g.80gb", 80_896, 98, 7, 5, 1),
            ]),
            Self::H100Sxm5_80Gb => Some([
                engines("1g.10gb", 9_984, 16, 1, 1, 1),
                engines("1g.10gb+me", 9_984, 16, 1, 1, 1),
                engines("1g.20gb", 20_096, 26, 1, 1, 1),
                engines("2g.20gb", 20_096, 32, 2, 2, 2),
                engines("3g.40gb", 40_448, 60, 3, 3, 3),
                engines("4g.40gb", 40_448, 64, 4, 4, 4),
                engines("7g.80gb", 81_152, 132, 8, 7, 7),
            ]),
            Self::H200Sxm5_141Gb => Some([
                engines("1g.18gb", 16_384, 16, 1, 1, 1),
                engines("1g.18gb+me", 16_384, 16, 1, 1, 1),
                engines("1g.35gb", 33_280, 26, 1, 1, 1),
                engines("2g.35gb", 33_280, 32, 2, 2, 2),
                engines("3g.71gb", 71_424, 60, 3, 3, 3),
                engines("4g.71gb", 71_424, 64, 4, 4, 4),
                engines("7g.141gb", 142_848, 132, 8, 7, 7),
            ]),
            Self::L4 => None,
        }
    }
}

impl Profile {
    /// The compute instances that it can hold.
    pub(crate) fn compute_profiles(&self) -> Vec<ComputeProfile> {
        let one = match self.multiprocessors / self.slices {
            ..16 => 14,
            16.. => 16,
        };
        let fits = |(id, slices): (u32, u32)| {
            let starts = compute_starts(slices, self.slices)?;
            let whole = slices == self.slices;
            let multiprocessors = if whole { self.multiprocessors } else { slices * one };
            Some(ComputeProfile { id, slices, multiprocessors, starts })
        };
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 7)].into_iter().filter_map(fits).collect()
    }
}

/// Where compute instances of so many slices can start on a GPU instance of so many.
fn compute_starts(slices: u32, of: u32) -> Option<&'static [u32]> {
    match (slices, of) {
        (1, 1..=7) => ANYWHERE.get(..of as usize),
        (2, 2 | 3) | (3, 3) | (4, 4 | 7) | (7, 7) => Some(&[0]),
        (2, 4) => Some(&[0, 2]),
        (2, 7) => Some(&[0, 2, 4]),
        (3, 7) => Some(&[0, 4]),
        _ => None,
    }
}

/// A profile without what differs from model to model.
struct Shape {
    index: u32,
    id: u32,
    slices: u32,
    most: u32,
    starts: &'static [u32],
    size: u32,
}

struct Engines {
    name: &'static str,
    memory_mib: u64,
    multiprocessors: u32,
    copy: u32,
    decoders: u32,
    jpeg: u32,
}

const ANYWHERE: &[u32] = &[0, 1, 2, 3, 4, 5, 6];

/// The same on all models with seven compute and eight memory slices.
const SHAPES: [Shape; 7] = [
    Shape { index: 0, id: 19, slices: 1, most: 7, starts: ANYWHERE, size: 1 },
    Shape { index: 7, id: 20, slices: 1, most: 1, starts: ANYWHERE, size: 1 },
    Shape { index: 9, id: 15, slices: 1, most: 4, starts: &[0, 2, 4, 6], size: 2 },
    Shape { index: 1, id: 14, slices: 2, most: 3, starts: &[0, 2, 4], size: 2 },
    Shape { index: 2, id: 9, slices: 3, most: 2, starts: &[0, 4], size: 4 },
    Shape { index: 3, id: 5, slices: 4, most: 1, starts: &[0], size: 4 },
    Shape { index: 4, id: 0, slices: 7, most: 1, starts: &[0], size: 8 },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mig() -> impl Iterator<Item = Model> {
        Model::ALL.into_iter().filter(|model| model.has_mig())
    }

    #[test]
    fn the_models_with_mig_are_those_with_profiles() {
        for model in Model::ALL {
            assert_eq!(model.has_mig(), !model.profiles().is_empty(), "{model:?}");
        }
    }

    /// The name's gigabytes are the whole GPU's, times the share of its memory rounded up to an eighth.
    #[test]
    fn the_memory_of_a_profile_is_that_of_its_name() {
        for model in with_mig() {
            let whole_gib = model.memory_mib().div_ceil(1024);
            for profile in model.profiles() {
                let eighths = (profile.memory_mib * 8).div_ceil(model.memory_mib());
                let gigabytes = (whole_gib * eighths + 4) / 8;
                let extension = if profile.id == 20 { "+me" } else { "" };
                let name = format!("{}g.{gigabytes}gb{extension}", profile.slices);
                assert_eq!(profile.name, name, "{model:?}");
                assert_eq!(eighths, u64::from(profile.size), "{model:?} {name}");
            }
        }
    }

    #[test]
    fn no_place_reaches_behind_the_eighth_memory_slice() {
        for profile in with_mig().flat_map(Model::profiles) {
            for start in profile.starts {
                assert!(start + profile.size <= 8, "{}", profile.name);
            }
            assert!(profile.most as usize <= profile.starts.len(), "{}", profile.name);
        }
    }

    #[test]
    fn the_largest_compute_instance_is_the_whole_gpu_instance() {
        for profile in with_mig().flat_map(Model::profiles) {
            let shapes = profile.compute_profiles();
            let largest = shapes.last().expect("at least one");
            assert_eq!(largest.slices, profile.slices, "{}", profile.name);
            assert_eq!(largest.multiprocessors, profile.multiprocessors, "{}", profile.name);
            assert_eq!(largest.starts, [0], "{}", profile.name);
            for shape in &shapes {
                let end = shape.starts.iter().max().expect("a place") + shape.slices;
                assert!(end <= profile.slices, "{} {shape:?}", profile.name);
            }
        }
    }

    #[test]
    fn compute_instances_have_the_shapes_that_nvidia_smi_lists() {
        let shapes = |id| {
            let profile = crate::Gpu::new(Model::A100Sxm4_40Gb, 0).profile(id).expect("a profile");
            let shapes = profile.compute_profiles();
            shapes.iter().map(|shape| (shape.id, shape.slices, shape.starts.len())).collect::<Vec<_>>()
        };
        assert_eq!(shapes(0), [(0, 1, 7), (1, 2, 3), (2, 3, 2), (3, 4, 1), (4, 7, 1)]);
        assert_eq!(shapes(5), [(0, 1, 4), (1, 2, 2), (3, 4, 1)]);
        assert_eq!(shapes(9), [(0, 1, 3), (1, 2, 1), (2, 3, 1)]);
        assert_eq!(shapes(19), [(0, 1, 1)]);
    }
}
