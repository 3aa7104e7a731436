//! The ways to call a function of the library.

use nvml_wrapper_sys::bindings as sys;

use crate::{Code, NvmlError};

/// More than any GPU has of anything that is listed.
pub(crate) const MOST: u32 = 64;
/// Texts of the library are not longer than this.
pub(crate) const TEXT: u32 = 96;

/// Calls a function by name; a missing one is an error of this call.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        match &$functions.$function {
            // SAFETY: the symbol was looked up under this name, and its type is the one of NVIDIA's header. Handles come
            // from the same library, which is still open; pointers point to live values of the types that it writes.
            Ok(function) => {
                $crate::call::check(stringify!($function), unsafe { function($($argument),*) })
            }
            Err(_) => Err($crate::call::missing(stringify!($function))),
        }
    }};
}

/// Calls a function that takes, last, where to put its answer; gives the answer.
macro_rules! ask {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut answer = $crate::call::blank();
        let outcome = $crate::call::call!($functions, $function($($argument,)* &raw mut answer));
        outcome.and_then(|()| $crate::call::answered(stringify!($function), answer))
    }};
}

/// Calls a function that takes, last, where to put its answers and for how many there is room; gives the answers.
macro_rules! list {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut answers = [$crate::call::blank(); $crate::call::MOST as usize];
        let mut count = $crate::call::MOST;
        let outcome =
            $crate::call::call!($functions, $function($($argument,)* answers.as_mut_ptr(), &raw mut count));
        outcome.and_then(|()| $crate::call::listed(stringify!($function), &answers, count))
    }};
}

/// Calls a function that takes, last, where to put a text and how long that may be; gives the text.
macro_rules! read {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut buffer = [0; $crate::call::TEXT as usize];
        let outcome =
            $crate::call::call!($functions, $function($($argument,)* buffer.as_mut_ptr(), $crate::call::TEXT));
        outcome.map(|()| $crate::text::text(&buffer))
    }};
}

pub(crate) use {ask, call, list, read};

/// What the library fills in.
///
/// # Safety
/// All bits zero are a value of the type.
pub(crate) unsafe trait Answer: Copy {
    /// Whether a call that succeeded may leave it so.
    fn makes_sense(&self) -> bool {
        true
    }
}

macro_rules! answers {
    ($($type:ty),* $(,)?) => {
        // SAFETY: numbers, and structures of numbers, texts and pointers that may be null.
        $(unsafe impl Answer for $type {})*
    };
}

answers!(
    i32,
    u32,
    u64,
    sys::nvmlComputeInstanceInfo_t,
    sys::nvmlComputeInstanceProfileInfo_t,
    sys::nvmlEventData_t,
    sys::nvmlFieldValue_t,
    sys::nvmlGpuInstanceInfo_t,
    sys::nvmlGpuInstancePlacement_t,
    sys::nvmlGpuInstanceProfileInfo_t,
    sys::nvmlMemory_t,
    sys::nvmlPciInfo_t,
    sys::nvmlProcessInfo_t,
);

// SAFETY: it is null.
unsafe impl<T> Answer for *mut T {
    fn makes_sense(&self) -> bool {
        !self.is_null()
    }
}

/// Nothing yet, to be filled in.
pub(crate) fn blank<T: Answer>() -> T {
    // SAFETY: the type says that zeros are a value of it.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn check(function: &'static str, code: sys::nvmlReturn_t) -> Result<(), NvmlError> {
    match code {
        sys::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
        code => Err(NvmlError { function, code: Code::Returned(code) }),
    }
}

pub(crate) fn answered<T: Answer>(function: &'static str, answer: T) -> Result<T, NvmlError> {
    if answer.makes_sense() { Ok(answer) } else { Err(bad_answer(function, "no handle")) }
}

pub(crate) fn listed<T: Answer>(
    function: &'static str,
    answers: &[T],
    count: u32,
) -> Result<Vec<T>, NvmlError> {
    let listed = answers.get(..count as usize);
    let listed = listed.ok_or_else(|| bad_answer(function, "more of them than any GPU has"))?;
    listed.iter().map(|answer| answered(function, *answer)).collect()
}

pub(crate) fn missing(function: &'static str) -> NvmlError {
    NvmlError { function, code: Code::Missing }
}

pub(crate) fn bad_answer(function: &'static str, what: &'static str) -> NvmlError {
    NvmlError { function, code: Code::BadAnswer(what) }
}

/// The version of a structure, as NVML packs it: its size and its number.
pub(crate) fn version_of<T>(number: u32) -> u32 {
    // No structure is near 16 MiB.
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX >> 8) | number << 24
}
