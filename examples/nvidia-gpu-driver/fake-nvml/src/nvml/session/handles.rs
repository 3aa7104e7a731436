//! What the handles that were given out stand for.

use super::super::border::Handle;
use super::super::code::Code;
use crate::machine::PciAddress;

/// What a handle stands for. A GPU is known by where it is plugged in, as for the kernel; what is on it by the count of
/// all that were made there, since numbers are given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Gpu(PciAddress),
    GpuInstance(PciAddress, u64),
    ComputeInstance(PciAddress, u64),
    /// The compute instance, seen as a device.
    MigDevice(PciAddress, u64),
    EventSet(u64),
}

/// Never forgets: the same thing gets the same handle, and one for a thing that is gone stands for nothing else.
pub(super) struct Handles(Vec<Target>);

/// Handles are spaced like pointers, and start where no object of a program is.
const FIRST: usize = 0x100;
const STEP: usize = 0x10;

impl Handles {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn of(&mut self, target: Target) -> Handle {
        let place = self.0.iter().position(|known| *known == target).unwrap_or_else(|| {
            self.0.push(target);
            self.0.len() - 1
        });
        Handle(FIRST + STEP * place)
    }

    pub(super) fn target(&self, handle: Handle) -> Result<Target, Code> {
        let offset = handle.0.checked_sub(FIRST).filter(|offset| offset % STEP == 0);
        let place = offset.ok_or(Code::INVALID_ARGUMENT)? / STEP;
        self.0.get(place).copied().ok_or(Code::INVALID_ARGUMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_stands_for_one_thing_and_a_made_up_one_for_none() {
        let address = |text: &str| Target::Gpu(text.parse().expect("an address"));
        let mut handles = Handles::new();
        let first = handles.of(address("00000000:07:00.0"));
        let second = handles.of(address("00000000:0F:00.0"));
        assert_ne!(first, second);
        assert_eq!(handles.of(address("00000000:07:00.0")), first);
        assert_eq!(handles.target(second), Ok(address("00000000:0F:00.0")));
        for made_up in [0, 1, FIRST + 1, FIRST + 2 * STEP, usize::MAX] {
            assert_eq!(handles.target(Handle(made_up)), Err(Code::INVALID_ARGUMENT));
        }
    }
}
