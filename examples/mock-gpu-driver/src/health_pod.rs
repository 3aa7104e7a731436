//! The health of devices, played by annotations of a pod: `health.example.com/gpu-0: unhealthy`.
//!
//! One pod is watched, usually the driver's own, so this costs the API server next to nothing, and the driver has to read
//! no pods but that one.

use std::{collections::BTreeMap, fmt, str::FromStr};

use dra_kubeletplugin::{
    DeviceHealth, DeviceName,
    k8s_openapi::api::core::v1::Pod,
    kube::{self, Api, core::PartialObjectMeta, runtime::watcher},
};
use futures::StreamExt as _;
use tokio::sync::watch;

const PREFIX: &str = "health.example.com/";

/// A pod without its spec and status: reading those would be a tenth of this program.
type AnnotatedPod = PartialObjectMeta<Pod>;

/// What is said of devices, instead of what is so.
pub(crate) type Overrides = BTreeMap<DeviceName, DeviceHealth>;

/// Which pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    namespace: String,
    name: String,
}

impl FromStr for PodName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("not a pod as NAMESPACE/NAME"),
        }
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Follows the annotations of a pod for as long as somebody listens. While it cannot be read, what was last said stays.
pub(crate) fn follow(client: kube::Client, pod: PodName) -> watch::Receiver<Overrides> {
    let (sender, receiver) = watch::channel(Overrides::new());
    tokio::spawn(async move {
        let pods: Api<AnnotatedPod> = Api::namespaced(client, &pod.namespace);
        let mut seen = watcher::watch_object(pods, &pod.name).boxed();
        while let Some(found) = seen.next().await {
            match found {
                Ok(found) => {
                    let said = found.map(|found| read(&pod, &found)).unwrap_or_default();
                    sender.send_if_modified(|known| {
                        *known != said && {
                            *known = said;
                            true
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%pod, %error, "the pod whose annotations tell health cannot be read");
                }
            }
            if sender.is_closed() {
                break;
            }
        }
    });
    receiver
}

/// What a pod's annotations say. One that makes no sense is logged, and says nothing.
fn read(name: &PodName, pod: &AnnotatedPod) -> Overrides {
    let mut said = Overrides::new();
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        let Some(device) = key.strip_prefix(PREFIX) else { continue };
        let message = format!("so says annotation {key} of pod {name}");
        let health = match value.to_lowercase().as_str() {
            "healthy" => Some(DeviceHealth::healthy().message(message)),
            "unhealthy" => Some(DeviceHealth::unhealthy(message)),
            "unknown" => Some(DeviceHealth::unknown(message)),
            _ => None,
        };
        match (DeviceName::new(device), health) {
            (Ok(device), Some(health)) => {
                said.insert(device, health);
            }
            (Err(error), _) => {
                tracing::warn!(pod = %name, annotation = key, error = error.to_string(), "no device");
            }
            (_, None) => {
                tracing::warn!(pod = %name, annotation = key, value, "neither healthy, unhealthy nor unknown");
            }
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_say_how_devices_are() {
        let pod: AnnotatedPod = serde_json::from_value(serde_json::json!({"metadata": {"annotations": {
            "health.example.com/gpu-0": "unhealthy",
            "health.example.com/gpu-1": "Unknown",
            "health.example.com/gpu-2": "healthy",
            "health.example.com/gpu-3": "so so",
            "health.example.com/GPU_4": "healthy",
            "other.example.com/gpu-5": "unhealthy",
        }}}))
        .unwrap();
        let name: PodName = "drivers/driver-1".parse().unwrap();
        let message =
            |device: &str| format!("so says annotation health.example.com/{device} of pod drivers/driver-1");
        let expected = [
            ("gpu-0", DeviceHealth::unhealthy(message("gpu-0"))),
            ("gpu-1", DeviceHealth::unknown(message("gpu-1"))),
            ("gpu-2", DeviceHealth::healthy().message(message("gpu-2"))),
        ];
        let expected = expected.map(|(device, health)| (device.parse().unwrap(), health));
        assert_eq!(read(&name, &pod), Overrides::from(expected));
        assert_eq!(read(&name, &AnnotatedPod::default()), Overrides::new());
    }

    #[test]
    fn a_pod_is_named_with_its_namespace() {
        assert_eq!("a/b".parse::<PodName>().unwrap().to_string(), "a/b");
        for text in ["", "a", "/b", "a/", "a/b/c"] {
            assert!(text.parse::<PodName>().is_err(), "{text}");
        }
    }
}
