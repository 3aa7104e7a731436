//! Which gRPC service of a plugin the kubelet uses.

use std::fmt;

/// A version of the prepare service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DraService {
    /// `v1.DRAPlugin`, known by kubelets since 1.34.
    V1,
    /// `v1beta1.DRAPlugin`, known by kubelets since 1.32.
    V1Beta1,
}

impl DraService {
    /// The name by which plugins advertise it.
    #[must_use]
    pub fn advertised(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }
}

impl fmt::Display for DraService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.advertised())
    }
}

/// The first service of the plugin's list that the kubelet knows.
///
/// # Errors
/// The kubelet's reason for refusing the plugin.
pub(super) fn choose(advertised: &[String], known: &[DraService]) -> Result<DraService, String> {
    if advertised.is_empty() {
        return Err("the plugin lists no gRPC service (supported versions)".into());
    }
    let known_as = |name: &String| known.iter().find(|service| service.advertised() == name).copied();
    advertised.iter().find_map(known_as).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|service| service.advertised()).collect();
        format!(
            "the kubelet knows none of the plugin's services ({}), only {}",
            advertised.join(", "),
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_order_decides() {
        use DraService::{V1, V1Beta1};
        for (advertised, known, chosen) in [
            (vec!["v1.DRAPlugin", "v1beta1.DRAPlugin"], vec![V1, V1Beta1], Some(V1)),
            (vec!["v1beta1.DRAPlugin", "v1.DRAPlugin"], vec![V1, V1Beta1], Some(V1Beta1)),
            (vec!["v1.DRAPlugin", "v1beta1.DRAPlugin"], vec![V1Beta1], Some(V1Beta1)),
            (vec!["v1.DRAResourceHealth", "v1.DRAPlugin"], vec![V1], Some(V1)),
            (vec!["v1.DRAPlugin"], vec![V1Beta1], None),
            (vec!["1.0.0"], vec![V1, V1Beta1], None),
            (vec![], vec![V1], None),
        ] {
            let advertised: Vec<String> = advertised.into_iter().map(str::to_owned).collect();
            assert_eq!(choose(&advertised, &known).ok(), chosen, "{advertised:?} {known:?}");
        }
    }
}
