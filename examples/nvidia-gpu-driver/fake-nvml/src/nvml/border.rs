//! The types as which functions see what C hands them. All `unsafe` of pointers is here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceProfileInfo_v2_t, nvmlDeviceAddressingMode_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlMemory_v2_t,
};

use super::code::Code;
use crate::Text;

/// Made from an argument of C.
pub(super) trait FromC<C> {
    /// # Safety
    ///
    /// A pointer is null or valid as the function's declaration in `nvml.h` says, and stays so as long as the value is used.
    unsafe fn from_c(argument: C) -> Self;
}

impl FromC<Self> for c_uint {
    unsafe fn from_c(argument: Self) -> Self {
        argument
    }
}

impl FromC<Self> for c_int {
    unsafe fn from_c(argument: Self) -> Self {
        argument
    }
}

impl FromC<Self> for c_ulonglong {
    unsafe fn from_c(argument: Self) -> Self {
        argument
    }
}

/// A number that C takes for a pointer: NVML's handles are opaque, so nothing is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) usize);

impl Handle {
    pub(super) fn to_c<T>(self) -> *mut T {
        ptr::without_provenance_mut(self.0)
    }
}

impl<T> FromC<*mut T> for Handle {
    unsafe fn from_c(argument: *mut T) -> Self {
        Self(argument.addr())
    }
}

/// Where one value is wanted; on the way in it may hold one, as a count or a version.
pub(super) struct Out<T>(*mut T);

impl<T> FromC<*mut T> for Out<T> {
    unsafe fn from_c(argument: *mut T) -> Self {
        Self(argument)
    }
}

impl<T> Out<T> {
    pub(super) fn put(&self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for a write of one `T`, by the promise to `from_c`.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// What the caller left there.
    pub(super) fn get(&self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for a read of one `T`, by the promise to `from_c`.
        Ok(unsafe { self.0.read() })
    }
}

/// A struct that begins with a `version: c_uint`, which the caller fills in before the call.
pub(super) trait Versioned {}

impl Versioned for nvmlMemory_v2_t {}
impl Versioned for nvmlDeviceAddressingMode_t {}
impl Versioned for nvmlGpuInstanceProfileInfo_v2_t {}
impl Versioned for nvmlComputeInstanceProfileInfo_v2_t {}

impl<T: Versioned> Out<T> {
    /// The version word of this version of the struct, if it is the one that the caller has.
    pub(super) fn version(&self, version: u32) -> Result<c_uint, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so it points to a `T`, which begins with a version that is filled in.
        let found = unsafe { self.0.cast::<c_uint>().read() };
        let word = struct_version::<T>(version);
        if found == word { Ok(word) } else { Err(Code::ARGUMENT_VERSION_MISMATCH) }
    }
}

/// `NVML_STRUCT_VERSION`: the size of the struct, and its version in the highest byte.
#[allow(clippy::cast_possible_truncation, reason = "structs of NVML have some hundred bytes")]
const fn struct_version<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

impl<T> Out<*mut T> {
    pub(super) fn put_handle(&self, handle: Handle) -> Result<(), Code> {
        self.put(handle.to_c())
    }
}

/// Where several values are wanted; how many there may be, another argument or the documentation says.
pub(super) struct ListOut<T>(*mut T);

impl<T> FromC<*mut T> for ListOut<T> {
    unsafe fn from_c(argument: *mut T) -> Self {
        Self(argument)
    }
}

impl<T> ListOut<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Changes the values that are there; another argument says how many.
    pub(super) fn change(&self, count: usize, change: impl FnMut(&mut T)) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for as many values as the function's other argument says, by the promise to `from_c`.
        unsafe { std::slice::from_raw_parts_mut(self.0, count) }.iter_mut().for_each(change);
        Ok(())
    }

    /// Where the documentation promises room for them all.
    pub(super) fn put(&self, values: &[T]) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for writes of as many values as the function gives, by the promise to `from_c`.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }
}

/// One value of the caller.
pub(super) struct In<T>(Option<T>);

impl<T: Copy> FromC<*const T> for In<T> {
    unsafe fn from_c(argument: *const T) -> Self {
        // SAFETY: null, or valid for a read of one `T`, by the promise of who calls.
        Self(unsafe { argument.as_ref() }.copied())
    }
}

impl<T: Copy> In<T> {
    pub(super) fn get(&self) -> Result<T, Code> {
        self.0.ok_or(Code::INVALID_ARGUMENT)
    }
}

/// A string of the caller.
pub(super) struct TextIn(Vec<u8>);

impl FromC<*const c_char> for TextIn {
    unsafe fn from_c(argument: *const c_char) -> Self {
        if argument.is_null() {
            return Self(Vec::new());
        }
        // SAFETY: not null, so it points to a string with an end, by the promise to `from_c`.
        Self(unsafe { CStr::from_ptr(argument) }.to_bytes().to_vec())
    }
}

impl TextIn {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where a string is wanted; how long it may be is another argument.
pub(super) struct TextOut(*mut c_char);

impl FromC<*mut c_char> for TextOut {
    unsafe fn from_c(argument: *mut c_char) -> Self {
        Self(argument)
    }
}

impl TextOut {
    pub(super) fn put(&self, text: &Text, length: c_uint) -> Result<(), Code> {
        let bytes = laid_out(text, length as usize)?;
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for writes of `length` bytes, by the promise to `from_c`; `laid_out` gives no more.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(())
    }
}

/// The bytes to write into a buffer, good strings with their end.
fn laid_out(text: &Text, length: usize) -> Result<Vec<u8>, Code> {
    match text {
        Text::Plain(text) if text.len() < length => Ok([text.as_bytes(), b"\0"].concat()),
        Text::Plain(_) => Err(Code::INSUFFICIENT_SIZE),
        Text::Raw { bytes, unterminated: true } if !bytes.is_empty() => {
            Ok(bytes.iter().copied().filter(|byte| *byte != 0).cycle().take(length).collect())
        }
        Text::Raw { bytes, .. } => {
            let ended = bytes.iter().copied().take(length.saturating_sub(1)).chain([0]);
            Ok(ended.take(length).collect())
        }
    }
}

/// A field of a struct for a string, filled with zeros behind it.
pub(super) fn field<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut field = [0; LENGTH];
    for (place, byte) in field.iter_mut().take(LENGTH - 1).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that NVIDIA's headers give for these versions, computed by hand from their fields.
    #[test]
    fn version_words_are_those_of_the_headers() {
        assert_eq!(struct_version::<nvmlMemory_v2_t>(2), 0x0200_0028);
        assert_eq!(struct_version::<nvmlDeviceAddressingMode_t>(1), 0x0100_0008);
        assert_eq!(struct_version::<nvmlGpuInstanceProfileInfo_v2_t>(2), 0x0200_0098);
        assert_eq!(struct_version::<nvmlComputeInstanceProfileInfo_v2_t>(2), 0x0200_0088);
    }

    #[test]
    fn good_strings_end_and_bad_ones_never_leave_the_buffer() {
        assert_eq!(laid_out(&"abc".into(), 4), Ok(b"abc\0".to_vec()));
        assert_eq!(laid_out(&"abc".into(), 3), Err(Code::INSUFFICIENT_SIZE));
        let raw = |unterminated| Text::Raw { bytes: vec![1, 2, 3], unterminated };
        assert_eq!(laid_out(&raw(false), 3), Ok(vec![1, 2, 0]));
        assert_eq!(laid_out(&raw(false), 0), Ok(vec![]));
        assert_eq!(laid_out(&raw(true), 5), Ok(vec![1, 2, 3, 1, 2]));
    }

    #[test]
    fn a_null_pointer_is_an_invalid_argument() {
        // SAFETY: null is allowed.
        let out = unsafe { Out::<c_uint>::from_c(ptr::null_mut()) };
        assert_eq!(out.put(1), Err(Code::INVALID_ARGUMENT));
        assert_eq!(out.get(), Err(Code::INVALID_ARGUMENT));
        // SAFETY: null is allowed.
        let text = unsafe { TextOut::from_c(ptr::null_mut()) };
        assert_eq!(text.put(&"a".into(), 9), Err(Code::INVALID_ARGUMENT));
    }
}
