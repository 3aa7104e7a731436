//! A node with GPUs that do not exist, and a driver on it.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use dra_testkit::{
    TempNode,
    api::{ApiServer, ServedApi},
    kubelet::{Kubelet, PreparedPod},
    runtime::{OciSpec, Runtime},
    scheduler::{Scheduled, Scheduler},
};
use fake_nvml::{Folder, Machine, Process};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
pub(crate) const NODE: &str = "node-1";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The classes that the driver's users have.
const CLASSES: [(&str, &str); 2] = [("gpu.nvidia.com", "gpu"), ("mig.nvidia.com", "mig")];

pub(crate) struct Rig {
    pub(crate) api: ApiServer,
    pub(crate) kubelet: Kubelet,
    pub(crate) fake: Folder,
    _served: ServedApi,
    folders: TempNode,
    options: Vec<String>,
    process: Option<Child>,
}

impl Rig {
    /// A node with this hardware, and NVML installed. The driver is started with these options.
    pub(crate) async fn new(machine: &Machine, options: &[&str]) -> Self {
        let mut rig = Self::without_nvml(machine, options).await;
        rig.install();
        rig.start();
        rig
    }

    /// The same before anybody has installed NVIDIA's driver, and started ours.
    pub(crate) async fn without_nvml(machine: &Machine, options: &[&str]) -> Self {
        let (folders, api) = (TempNode::new().unwrap(), ApiServer::new());
        api.node(NODE).unwrap();
        let served = api.serve().await.unwrap();
        served.write_kubeconfig(folders.root().join("kubeconfig")).unwrap();
        for (name, kind) in CLASSES {
            let cel =
                format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'");
            let class = format!(
                "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: {{selectors: [{{cel: {{expression: \"{cel}\"}}}}]}}"
            );
            api.apply_yaml(&class).unwrap();
        }
        let fake = Folder::create(folders.root().join("fake"), machine).unwrap();
        let kubelet = Kubelet::builder(folders.kubelet()).start();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let rig = Self { api, kubelet, fake, _served: served, folders, options, process: None };
        rig.make_sysfs(machine);
        rig
    }

    /// Puts the stand-in where NVML would be.
    pub(crate) fn install(&self) {
        let libraries = self.root().join("usr/lib64");
        fs::create_dir_all(&libraries).unwrap();
        self.fake.install(&libraries).unwrap();
    }

    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-gpu-driver"));
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.args(["--node-name", NODE]).env("POLL_INTERVAL", "1");
        for (option, value) in [
            ("--kubeconfig", self.folders.root().join("kubeconfig")),
            ("--kubelet-root", self.folders.kubelet()),
            ("--cdi-root", self.folders.cdi()),
        ] {
            command.args([option.to_owned(), path(value)]);
        }
        command.args(self.machine_options());
        self.process = Some(command.args(&self.options).spawn().unwrap());
    }

    /// Where the driver finds the machine.
    pub(crate) fn machine_options(&self) -> Vec<String> {
        let options = [
            ("--nvidia-driver-root", self.root()),
            ("--sysfs", self.folders.root().join("sys")),
            ("--procfs", self.fake.path().join("proc")),
        ];
        let options =
            options.iter().flat_map(|(option, value)| [(*option).to_owned(), value.display().to_string()]);
        options.chain(["--mps-without-mounts".to_owned()]).collect()
    }

    /// Gives an option another value from the next start on.
    pub(crate) fn set_option(&mut self, option: &str, value: &str) {
        let place = self.options.iter().position(|one| one == option).unwrap();
        value.clone_into(&mut self.options[place + 1]);
    }

    /// The device that the claim of this name has.
    pub(crate) fn allocated_device(&self, claim: &str) -> String {
        let claims = self.api.list::<ResourceClaim>();
        let claim = claims.iter().find(|one| one.metadata.name.as_deref() == Some(claim)).unwrap();
        let claim = serde_json::to_value(claim).unwrap();
        claim["status"]["allocation"]["devices"]["results"][0]["device"].as_str().unwrap().to_owned()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// The driver's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.as_ref().unwrap().id()).unwrap())
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn wait_dead(&mut self) {
        let Some(process) = self.process.as_mut() else { return };
        while process.try_wait().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.process = None;
    }

    /// Starts the driver again once it has died by itself; from then on it does not.
    pub(crate) async fn revive(&mut self) {
        self.wait_dead().await;
        self.fake.change(|machine| machine.faults.crash.clear()).unwrap();
        self.start();
        self.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
    }

    /// The root of NVIDIA's driver.
    pub(crate) fn root(&self) -> PathBuf {
        self.folders.root().join("root")
    }

    /// Where the driver has what it keeps.
    pub(crate) fn data(&self) -> PathBuf {
        self.folders.plugins().join(DRIVER)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folders.root().join("log")
    }

    /// Waits until the published devices are these, in the order of their names.
    pub(crate) async fn devices(&self, expected: &[&str]) -> Vec<Value> {
        let what = format!("devices {expected:?}; the log:\n{}", self.log());
        let found = |api: &ApiServer| {
            let mut devices = devices(api);
            devices.sort_by_key(|device| device["name"].as_str().unwrap().to_owned());
            let names: Vec<&str> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
            (names == expected && !api.list::<ResourceSlice>().is_empty()).then_some(devices)
        };
        let devices = self.api.wait_until(&what, PATIENCE, found).await;
        devices.unwrap_or_else(|error| panic!("{error}; there are {:?}", names(&self.api)))
    }

    /// Waits until the device looks as wanted.
    pub(crate) async fn device(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = |api: &ApiServer| {
            devices(api).into_iter().find(|device| device["name"] == name && wanted(device))
        };
        let device = self.api.wait_until(what, PATIENCE, found).await;
        device.unwrap_or_else(|error| panic!("{error}: {:#?}; the log:\n{}", devices(&self.api), self.log()))
    }

    /// A pod of two containers with a claim for a device of a class; `more` goes into the request, `config` into the claim.
    pub(crate) async fn pod(&self, name: &str, class: &str, more: &str, config: &str) -> Scheduled {
        let requests = format!("[{{name: gpu, exactly: {{deviceClassName: {class}{more}}}}}]");
        self.pod_with(name, &format!("requests: {requests}{config}")).await
    }

    /// The same with these fields of the claim's `spec.devices`.
    pub(crate) async fn pod_with(&self, name: &str, devices: &str) -> Scheduled {
        let claim = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, namespace: default}}\nspec: {{devices: {{{devices}}}}}"
        );
        self.api.apply_yaml(&claim).unwrap();
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec: {{containers: [{{name: a, image: x, resources: {{claims: [{{name: gpu}}]}}}}, {{name: b, image: x, resources: {{claims: [{{name: gpu}}]}}}}], resourceClaims: [{{name: gpu, resourceClaimName: {name}}}]}}"
        );
        self.api.apply_yaml(&pod).unwrap();
        self.kubelet.wait_registered(DRIVER, PATIENCE).await.unwrap();
        let scheduled = Scheduler::new(&self.api).schedule_within(("default", name), PATIENCE).await;
        scheduled.unwrap_or_else(|error| panic!("{error}; the log:\n{}", self.log()))
    }

    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<PreparedPod, String> {
        self.kubelet.prepare_pod(&self.api, pod).await.map_err(|error| error.to_string())
    }

    /// Tries again until the claims are prepared, as the kubelet does.
    pub(crate) async fn prepare_in_the_end(&self, pod: &Pod) -> PreparedPod {
        let patience = Instant::now() + PATIENCE;
        loop {
            match self.prepare(pod).await {
                Ok(prepared) => return prepared,
                Err(error) => assert!(Instant::now() < patience, "{error}; the log:\n{}", self.log()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The same for their end.
    pub(crate) async fn unprepare_in_the_end(&self, prepared: &PreparedPod) {
        let patience = Instant::now() + PATIENCE;
        while let Err(error) = self.kubelet.unprepare_pod(prepared).await {
            assert!(Instant::now() < patience, "{error}; the log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Deletes a pod and its claim.
    pub(crate) fn forget(&self, name: &str) {
        self.api.remove::<Pod>(("default", name));
        self.api.remove::<ResourceClaim>(("default", name));
    }

    /// Makes the GPUs what they were in the beginning.
    pub(crate) fn reset_hardware(&self) {
        // Without it nothing was changed.
        let _ = fs::remove_file(self.fake.path().join("hardware.json"));
    }

    /// How often a function of NVML was called; only if the machine logs calls.
    pub(crate) fn calls(&self, function: &str) -> usize {
        assert!(self.fake.machine().unwrap().log_calls, "the machine does not log calls");
        self.fake.count(function).unwrap()
    }

    /// What calls of NVML have done to each GPU: the file of the stand-in.
    pub(crate) fn hardware(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.fake.path().join("hardware.json")).unwrap_or_default();
        let hardware: Value = serde_json::from_str(&text).unwrap_or_default();
        hardware["gpus"].as_object().into_iter().flatten().map(|(_, gpu)| gpu.clone()).collect()
    }

    /// GPU instances of all GPUs, each with the number of its compute instances.
    pub(crate) fn instances(&self) -> Vec<(String, usize)> {
        let hardware = self.hardware();
        let instances = hardware.iter().flat_map(|gpu| gpu["instances"].as_array().into_iter().flatten());
        let computes = |instance: &Value| instance["computeInstances"].as_array().map_or(0, Vec::len);
        instances.map(|one| (one["name"].as_str().unwrap().to_owned(), computes(one))).collect()
    }

    /// Waits until there is none, and the driver remembers none.
    pub(crate) async fn wait_for_no_partition(&self, what: &str) {
        let patience = Instant::now() + PATIENCE;
        let remembered = || files_below(&self.folders.plugins().join(DRIVER).join("partitions"));
        while !self.instances().is_empty() || !remembered().is_empty() {
            let left = (self.instances(), remembered());
            assert!(Instant::now() < patience, "{what}: {left:?}; the log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What a container of the pod would look like.
    pub(crate) fn container(&self, pod: &Pod, prepared: &PreparedPod, container: &str) -> OciSpec {
        let mut spec = OciSpec::default();
        let ids = prepared.cdi_device_ids(pod, container);
        Runtime::new([self.folders.cdi()]).apply(&mut spec, &ids).unwrap();
        spec
    }

    /// A process that computes on a GPU, or with `on` on one of its instances.
    pub(crate) fn run_process(&self, gpu: usize, process: Process, name: &str) {
        let folder = self.fake.path().join("proc").join(process.pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        self.fake.change(|machine| machine.gpus[gpu].processes.push(process)).unwrap();
    }

    pub(crate) fn end_processes(&self) {
        self.fake.change(|machine| machine.gpus.iter_mut().for_each(|gpu| gpu.processes.clear())).unwrap();
    }

    /// Asks the running driver to close NVML (`release`), or to open it again (`resume`), as an operator does.
    pub(crate) async fn gpus(&self, what: &str) {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_nvidia-gpu-driver"));
        command.env_clear().args(["gpus", what, "--kubelet-root"]).arg(self.folders.kubelet());
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{output:?}; the log:\n{}", self.log());
    }

    /// Unloads the kernel's driver, which forgets partitions and is refused while NVML is open; changes the machine and loads
    /// it again.
    pub(crate) async fn reload_driver(&self, change: impl FnOnce(&mut Machine)) {
        self.gpus("release").await;
        self.fake.unload().unwrap();
        self.fake.load().unwrap();
        self.fake.change(change).unwrap();
        self.gpus("resume").await;
        let back =
            |api: &ApiServer| devices(api).iter().all(|device| device["taints"].is_null()).then_some(());
        self.api.wait_until("no GPU released", PATIENCE, back).await.unwrap();
    }

    /// Removes the records of claims, as no program would.
    pub(crate) fn lose_records(&self) {
        fs::remove_dir_all(self.folders.plugins().join(DRIVER).join("claims")).unwrap();
    }

    /// Waits until the log has this text in it so often.
    pub(crate) async fn wait_for_log(&self, text: &str, times: usize) {
        let patience = Instant::now() + PATIENCE;
        while self.log().matches(text).count() < times {
            assert!(Instant::now() < patience, "no {text:?} in the log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The CDI file of the only claim that is prepared.
    pub(crate) fn cdi_file(&self) -> String {
        let files = files_below(&self.folders.cdi());
        assert_eq!(files.len(), 1, "{files:?}");
        fs::read_to_string(&files[0]).unwrap()
    }

    /// CDI files and records that are left.
    pub(crate) fn books(&self) -> Vec<PathBuf> {
        let records = self.data().join("claims");
        files_below(&records).into_iter().chain(files_below(&self.folders.cdi())).collect()
    }

    /// The first two GPUs are below one root complex, and each further two below another.
    fn make_sysfs(&self, machine: &Machine) {
        let devices = self.folders.root().join("sys/bus/pci/devices");
        fs::create_dir_all(&devices).unwrap();
        for gpu in &machine.gpus {
            let address = format!("0000:{:02x}:00.0", 7 + 8 * gpu.number);
            let root = format!("pci{:04x}:00", gpu.number / 2);
            let folder = self.folders.root().join("sys/devices").join(&root).join(&address);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("numa_node"), "0\n").unwrap();
            symlink(format!("../../../devices/{root}/{address}"), devices.join(&address)).unwrap();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All published devices, as they are written.
pub(crate) fn devices(api: &ApiServer) -> Vec<Value> {
    let slices = api.list::<ResourceSlice>();
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.map(|device| serde_json::to_value(device).unwrap()).collect()
}

fn names(api: &ApiServer) -> Vec<String> {
    devices(api).iter().map(|device| device["name"].to_string()).collect()
}

fn files_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { vec![entry.path()] })
        .collect()
}
