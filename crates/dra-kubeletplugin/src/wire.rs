//! The kubelet's bare gRPC contracts: messages, servers and clients, generated from `proto/`.
//!
//! For programs that need the protocol itself, such as a kubelet stand-in. A driver does not.

macro_rules! generated {
    ($($(#[$doc:meta])* $module:ident;)*) => {$(
        $(#[$doc])*
        #[allow(
            missing_docs,
            missing_debug_implementations,
            unreachable_pub,
            unnameable_types,
            dead_code,
            rust_2018_idioms,
            clippy::all,
            clippy::pedantic,
            clippy::exhaustive_enums,
            clippy::exhaustive_structs,
            clippy::use_self,
            clippy::or_fun_call,
            clippy::derive_partial_eq_without_eq
        )]
        pub mod $module {
            include!(concat!("wire/generated/", stringify!($module), ".rs"));
        }
    )*};
}

generated! {
    /// Plugin registration: package `pluginregistration`.
    registration;
    /// Prepare and unprepare: package `k8s.io.kubelet.pkg.apis.dra.v1`, advertised as `v1.DRAPlugin`.
    dra_v1;
    /// Prepare and unprepare: package `k8s.io.kubelet.pkg.apis.dra.v1beta1`, advertised as `v1beta1.DRAPlugin`.
    dra_v1beta1;
    /// Device health: package `v1`, advertised as `v1.DRAResourceHealth`.
    health_v1;
    /// Device health: package `v1alpha1`, advertised as `v1alpha1.DRAResourceHealth`.
    health_v1alpha1;
}
