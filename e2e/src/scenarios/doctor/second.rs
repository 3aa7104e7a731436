//! Components beside those of the cluster, with other settings: the cluster itself is left alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use dra_doctor::FindingKind;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::DeleteParams;
use tokio::process::{Child, Command};

use super::Doctor;
use crate::{context::Context, eventually::eventually, scenarios::gpu};

const UP_WITHIN: Duration = Duration::from_secs(60);
const CONF: &str = "/run/cluster/conf";

/// A template with a field that depends on a gate, and one with none.
const TEMPLATE: &str = r"
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: tolerant}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.example.com
            tolerations: [{key: broken, operator: Exists}]
";

/// An API server that drops fields, and one that does not serve the group.
pub(super) async fn api_server(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let dropping =
        ApiServer::start(cx, "--feature-gates=DRADeviceTaintRules=false,DRADeviceTaints=false", "/readyz")
            .await?;
    let applied = kubectl_apply(cx, &dropping.kubeconfig).await;
    dropping.end().await?;
    applied?;
    // The cluster's own has the gate, and what it has stored says so still.
    let said = Doctor::run(cx, &["cluster"]).await?;
    said.names(FindingKind::FieldsDropped, "spec.spec.devices.requests[0].exactly.tolerations")?;
    said.names(FindingKind::FieldsDropped, "DRADeviceTaints")?;
    // The spec of a template cannot be changed.
    let templates = cx.api::<ResourceClaimTemplate>();
    templates.delete("tolerant", &DeleteParams::default()).await.context("deleting the template")?;
    kubectl_apply(cx, Path::new("/run/cluster/conf/admin.kubeconfig")).await?;
    Doctor::run(cx, &["cluster"]).await?.is_silent()?;

    let without = "--runtime-config=api/beta=false,resource.k8s.io/v1=false";
    // It is never ready: the authorizer of nodes goes on asking for ResourceSlices.
    let without = ApiServer::start(cx, without, "/apis/apps/v1").await?;
    let kubeconfig = without.kubeconfig.display().to_string();
    let said = Doctor::run_with(cx, &["cluster"], &[("KUBECONFIG", &kubeconfig)]).await;
    without.end().await?;
    said?.names(FindingKind::ApiNotServed, "does not serve v1")
}

/// As a user does it: only so it is known afterwards what was meant.
async fn kubectl_apply(cx: &Context, kubeconfig: &Path) -> Result<()> {
    let file = cx.scratch.join("template.yaml");
    fs::write(&file, TEMPLATE).with_context(|| format!("writing {}", file.display()))?;
    let mut command = Command::new("kubectl");
    command.args(["apply", "--namespace", &cx.namespace, "--filename"]).arg(&file);
    let output = command.env("KUBECONFIG", kubeconfig).output().await.context("running kubectl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// An API server over the same etcd.
struct ApiServer {
    process: Child,
    kubeconfig: PathBuf,
}

impl ApiServer {
    const PORT: &str = "6444";

    /// Starts one with the flags of the cluster's own, but for `flag`, and waits until it serves `page`.
    async fn start(cx: &Context, flag: &str, page: &str) -> Result<Self> {
        let pid = fs::read_to_string("/run/cluster/pid-apiserver").context("finding the API server")?;
        let command =
            fs::read(format!("/proc/{}/cmdline", pid.trim())).context("reading its command line")?;
        let name = flag.split_once('=').map_or(flag, |(name, _)| name);
        let same = command.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        let same: Vec<_> = same.filter(|part| !part.is_empty() && !part.starts_with(name)).collect();
        let (program, arguments) = same.split_first().context("an empty command line")?;
        let log = cx.scratch.join("second-apiserver.log");
        let log = fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).args([
            flag,
            "--endpoint-reconciler-type=none",
            &format!("--secure-port={}", Self::PORT),
        ]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let process = command.spawn().with_context(|| format!("running {program}"))?;

        let admin =
            fs::read_to_string(format!("{CONF}/admin.kubeconfig")).context("reading the kubeconfig")?;
        let kubeconfig = cx.scratch.join("second.kubeconfig");
        fs::write(&kubeconfig, admin.replace(":6443", &format!(":{}", Self::PORT)))?;
        let ready = || async {
            let mut command = Command::new("kubectl");
            command.args(["get", "--raw", page]).env("KUBECONFIG", &kubeconfig);
            Ok(command.output().await.context("running kubectl")?.status.success().then_some(()))
        };
        eventually(&format!("{page} of a second API server"), UP_WITHIN, ready).await?;
        Ok(Self { process, kubeconfig })
    }

    async fn end(mut self) -> Result<()> {
        self.process.kill().await.context("ending the second API server")
    }
}

/// A containerd with folders of its own.
pub(super) struct Containerd {
    process: Child,
    state: PathBuf,
}

impl Containerd {
    /// Starts one with the configuration of the cluster's own, with `from` as `to`.
    pub(super) async fn start(cx: &Context, from: &str, to: &str) -> Result<Self> {
        let path = format!("{CONF}/containerd.toml");
        let config = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        ensure!(config.contains(from), "{path} has no {from:?}");
        let state = PathBuf::from("/run/second-containerd");
        let config = config
            .replace(from, to)
            .replace("/run/containerd-root", "/run/second-containerd-root")
            .replace("/run/containerd", "/run/second-containerd")
            .replace("/run/second-containerd-root", "/run/second-containerd/root");
        let file = cx.scratch.join("second-containerd.toml");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let log = cx.scratch.join("second-containerd.log");
        let log = fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(&file).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.kill_on_drop(true).spawn().context("running containerd")?;
        let containerd = Self { process, state };
        let socket = containerd.socket();
        let up = || async {
            let mut command = Command::new("ctr");
            command.args(["--address", &socket, "version"]);
            Ok(command.output().await.context("running ctr")?.status.success().then_some(()))
        };
        eventually("a second containerd answers", UP_WITHIN, up).await?;
        Ok(containerd)
    }

    pub(super) fn socket(&self) -> String {
        self.state.join("containerd.sock").display().to_string()
    }

    pub(super) async fn end(mut self) -> Result<()> {
        self.process.kill().await.context("ending the second containerd")?;
        fs::remove_dir_all(&self.state).with_context(|| format!("removing {}", self.state.display()))
    }
}
