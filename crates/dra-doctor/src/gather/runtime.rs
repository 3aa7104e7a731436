//! Asks the container runtime what it makes of CDI: CRI's `Status`, which containerd answers with its configuration.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use prost::Message;
use serde_json::Value;

use crate::grpc;
use crate::snapshot::Runtime;

/// Where runtimes listen; the last ones are those of K3s, k0s and `MicroK8s`.
const USUAL: [&str; 5] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];
const WITHIN: Duration = Duration::from_secs(5);

/// `runtime.v1.StatusRequest` of CRI.
#[derive(Clone, PartialEq, Eq, Message)]
struct StatusRequest {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

/// `runtime.v1.StatusResponse` of CRI, as far as it matters.
#[derive(Clone, PartialEq, Eq, Message)]
struct StatusResponse {
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
}

/// # Errors
/// If no runtime answers.
pub(super) async fn look(endpoint: Option<&Path>) -> Result<Runtime, String> {
    let usual = || USUAL.iter().map(Path::new).find(|path| path.exists());
    let endpoint = endpoint.or_else(usual).ok_or_else(|| {
        format!("no container runtime is at {}: name its socket with --runtime", USUAL.join(" or "))
    })?;
    let request = StatusRequest { verbose: true }.encode_to_vec();
    let method = "/runtime.v1.RuntimeService/Status";
    let answer = grpc::call(endpoint, "localhost", method, &request, WITHIN).await;
    let answer = answer.map_err(|error| format!("asking {}: {error}", endpoint.display()))?;
    let answer = StatusResponse::decode(answer.as_slice());
    let answer = answer.map_err(|error| format!("reading the answer of {}: {error}", endpoint.display()))?;
    let (enable_cdi, cdi_folders) = cdi_of(&answer.info);
    let real = |folder: PathBuf| folder.canonicalize().unwrap_or(folder);
    Ok(Runtime {
        endpoint: endpoint.to_owned(),
        enable_cdi,
        cdi_folders: cdi_folders.map(|folders| folders.into_iter().map(real).collect()),
    })
}

/// What the verbose status says of CDI: containerd gives its configuration as JSON, CRI-O as TOML, where CDI is always on.
fn cdi_of(info: &HashMap<String, String>) -> (Option<bool>, Option<Vec<PathBuf>>) {
    let Some(config) = info.get("config") else { return (None, None) };
    if let Ok(config) = serde_json::from_str::<Value>(config) {
        let folders = config["cdiSpecDirs"].as_array();
        let folders =
            folders.map(|folders| folders.iter().filter_map(Value::as_str).map(Into::into).collect());
        return (config["enableCDI"].as_bool(), folders);
    }
    (None, folders_in_toml(config))
}

/// The list `cdi_spec_dirs` of a TOML file, which may go over several lines.
fn folders_in_toml(config: &str) -> Option<Vec<PathBuf>> {
    let (_, rest) = config.split_once("cdi_spec_dirs")?;
    let list = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('[')?;
    let (list, _) = list.split_once(']')?;
    let texts = list.split(',').map(|text| text.trim().trim_matches(['"', '\'']));
    Some(texts.filter(|text| !text.is_empty()).map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_tells_of_cdi_in_either_form() {
        let folders = |folders: &[&str]| Some(folders.iter().map(PathBuf::from).collect());
        for (config, expected) in [
            (
                r#"{"enableCDI": true, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}"#,
                (Some(true), folders(&["/etc/cdi", "/var/run/cdi"])),
            ),
            (r#"{"enableCDI": false}"#, (Some(false), None)),
            (
                "[crio.runtime]\ncdi_spec_dirs = [\n\t\"/etc/cdi\",\n\t\"/var/run/cdi\",\n]\n",
                (None, folders(&["/etc/cdi", "/var/run/cdi"])),
            ),
            ("[crio]\n", (None, None)),
        ] {
            let info = HashMap::from([("config".to_owned(), config.to_owned())]);
            assert_eq!(cdi_of(&info), expected, "{config}");
        }
        assert_eq!(cdi_of(&HashMap::new()), (None, None));
    }

    /// As containerd before 2.4 answers with CDI off; it has no such setting any more, so no newer one can stand here.
    #[tokio::test]
    async fn a_runtime_is_asked_over_its_socket() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cri.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let config = r#"{"enableCDI": false, "cdiSpecDirs": ["/etc/cdi"]}"#.to_owned();
        let answer = StatusResponse { info: HashMap::from([("config".to_owned(), config)]) }.encode_to_vec();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            // The request ends with the message: a flag, its length, and field 1 set.
            while !asked.ends_with(&[0, 0, 0, 0, 2, 8, 1]) {
                stream.read_buf(&mut asked).await.unwrap();
            }
            let asked = String::from_utf8_lossy(&asked).into_owned();
            assert!(asked.contains("/runtime.v1.RuntimeService/Status"), "{asked}");
            let length = u8::try_from(answer.len()).unwrap();
            let data = [&[0, 0, length + 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, length][..], &answer].concat();
            stream.write_all(&data).await.unwrap();
        });
        let runtime = look(Some(&socket)).await.unwrap();
        server.await.unwrap();
        assert_eq!(runtime.enable_cdi, Some(false));
        assert_eq!(runtime.cdi_folders, Some(vec!["/etc/cdi".into()]));
        assert!(look(Some(&folder.path().join("none"))).await.is_err());
    }
}
