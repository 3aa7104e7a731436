//! The functions of NVML.
//!
//! `border` holds all that C needs: pointers, panics, result codes. The modules beside it say what the functions do, in
//! safe code; the macro below joins the two.

mod border;
mod code;
mod compute_instance;
mod device;
mod events;
mod gpu_instance;
mod lookup;
mod mig;
mod session;
mod state;
mod system;

pub(crate) fn functions() -> Vec<&'static str> {
    let mut names = [
        system::NAMES,
        lookup::NAMES,
        device::NAMES,
        state::NAMES,
        events::NAMES,
        mig::NAMES,
        gpu_instance::NAMES,
        compute_instance::NAMES,
    ]
    .concat();
    names.sort_unstable();
    names
}

/// Defines functions of NVML.
///
/// Each argument has its C type and, behind `as`, the type of [`border`] as which the body sees it. The body gets the
/// [`session::Call`] and returns `Result<(), Code>`. Besides the exported function it makes the list of names, and checks
/// while compiling that each has the type that `nvml-wrapper-sys` calls it with.
macro_rules! nvml {
    ($(
        fn $name:ident($call:ident $(, $argument:ident: $c:ty as $seen:ty)* $(,)?) $body:block
    )*) => {
        $(
            #[allow(non_snake_case, reason = "the name in C")]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $c),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
                $crate::nvml::session::serve(stringify!($name), |$call| {
                    // SAFETY: who calls NVML promises that a pointer is null or points to what the function's
                    // declaration says, for as long as the call lasts. The values do not outlive this closure.
                    $(let $argument = unsafe { <$seen as $crate::nvml::border::FromC<$c>>::from_c($argument) };)*
                    $body
                })
            }
        )*

        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        const _: fn(&mut nvml_wrapper_sys::bindings::NvmlLib) = |_library| {
            $(_library.$name = Ok($name);)*
        };
    };
}
use nvml;
