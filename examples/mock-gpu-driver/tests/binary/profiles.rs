//! What containers get of each kind of device: the driver as a process, with stand-ins for all around it.

use std::collections::BTreeMap;
use std::time::Duration;

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_testkit::TempNode;
use dra_testkit::api::{ApiServer, ServedApi};
use dra_testkit::kubelet::Kubelet;
use dra_testkit::runtime::{OciSpec, Runtime};
use dra_testkit::scheduler::Scheduler;
use serde_json::{Value, json};

use crate::instance;
use crate::program::{Running, program};

const PATIENCE: Duration = Duration::from_secs(60);

/// A node with the driver of one profile.
struct Cluster {
    driver: String,
    folders: TempNode,
    api: ApiServer,
    kubelet: Kubelet,
    _served: ServedApi,
    _process: Running,
}

impl Cluster {
    async fn start(profile: &str, options: &[&str]) -> Self {
        let (folders, api) = (TempNode::new().unwrap(), ApiServer::new());
        api.node("node-1").unwrap();
        let driver = format!("{profile}.example.com");
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]},
        });
        api.apply_yaml(&class.to_string()).unwrap();
        let served = api.serve().await.unwrap();
        let kubeconfig = folders.root().join("kubeconfig");
        served.write_kubeconfig(&kubeconfig).unwrap();
        let kubelet = Kubelet::builder(folders.kubelet()).start();
        let mut command = program(["run", "--node-name", "node-1", "--device-profile", profile]);
        command.args(options).arg("--kubeconfig").arg(kubeconfig);
        command.arg("--kubelet-root").arg(folders.kubelet()).arg("--cdi-root").arg(folders.cdi());
        let process = Running::start(command);
        kubelet.wait_registered(&driver, PATIENCE).await.unwrap();
        Self { driver, folders, api, kubelet, _served: served, _process: process }
    }

    /// What a container sees that has a claim with this request and this configuration, if there is one; or why it has none.
    async fn env(
        &self,
        pod: &str,
        mut request: Value,
        parameters: Option<Value>,
    ) -> Result<BTreeMap<String, String>, String> {
        request["deviceClassName"] = json!(self.driver);
        let config = parameters.map(|it| json!({"opaque": {"driver": self.driver, "parameters": it}}));
        let config: Vec<_> = config.into_iter().collect();
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": pod},
            "spec": {"devices": {"requests": [{"name": "device", "exactly": request}], "config": config}},
        });
        let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "claim"}]}});
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"containers": [container], "resourceClaims": [{"name": "claim", "resourceClaimName": pod}]},
        });
        for object in [claim, object] {
            self.api.apply_yaml(&object.to_string()).unwrap();
        }
        let placed = Scheduler::new(&self.api).schedule_within(("default", pod), PATIENCE).await.unwrap();
        let prepared = self.kubelet.prepare_pod(&self.api, &placed.pod).await;
        let prepared = prepared.map_err(|error| error.to_string())?;
        let mut container = OciSpec::default();
        let ids = prepared.cdi_device_ids(&placed.pod, "c");
        Runtime::new([self.folders.cdi()]).apply(&mut container, &ids).unwrap();
        let variables = container.env.iter().filter_map(|variable| variable.split_once('='));
        Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

fn assert_has(env: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(env.get(*name).map(String::as_str), Some(*value), "{name} in {env:?}");
    }
}

fn gpu_config(sharing: &Value) -> Value {
    json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": sharing})
}

#[tokio::test]
async fn a_gpu_is_shared_as_the_claim_says() {
    let cluster = Cluster::start("gpu", &[]).await;
    let env = cluster.env("plain", json!({}), None).await.unwrap();
    assert_has(
        &env,
        &[
            ("KUBERNETES_NODE_NAME", "node-1"),
            ("DRA_RESOURCE_DRIVER_NAME", "gpu.example.com"),
            ("DRA_ADMIN_ACCESS", "false"),
            ("GPU_DEVICE_0", "gpu-0"),
            ("GPU_DEVICE_0_SHARING_STRATEGY", "TimeSlicing"),
            ("GPU_DEVICE_0_TIMESLICE_INTERVAL", "Default"),
        ],
    );
    let claim: ResourceClaim = cluster.api.get(("default", "plain")).unwrap();
    assert_has(&env, &[("GPU_DEVICE_GPU_0_RESOURCE_CLAIM", &claim.metadata.uid.unwrap())]);

    let long = gpu_config(&json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}));
    let env = cluster.env("long", json!({}), Some(long)).await.unwrap();
    assert_has(&env, &[("GPU_DEVICE_1_TIMESLICE_INTERVAL", "Long")]);
    let parts = json!({"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}});
    let env = cluster.env("parts", json!({}), Some(gpu_config(&parts))).await.unwrap();
    assert_has(
        &env,
        &[("GPU_DEVICE_2_SHARING_STRATEGY", "SpacePartitioning"), ("GPU_DEVICE_2_PARTITION_COUNT", "10")],
    );

    let endless =
        gpu_config(&json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Endless"}}));
    let error = cluster.env("endless", json!({}), Some(endless)).await.unwrap_err();
    let expected = "parameters.sharing.timeSlicingConfig.interval: unknown time-slice interval \"Endless\"";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn a_container_knows_its_partition_and_its_part_of_it() {
    let cluster = Cluster::start("gpu", &["--gpu-partitions", "4", "--gpu-allow-multiple-allocations"]).await;
    let request = json!({"capacity": {"requests": {"memory": "5Gi", "compute": "10"}}});
    let mut shares = Vec::new();
    for pod in ["one", "two"] {
        let env = cluster.env(pod, request.clone(), None).await.unwrap();
        assert_has(
            &env,
            &[
                ("GPU_DEVICE_0_PARTITION_0", "gpu-0-partition-0"),
                ("GPU_DEVICE_0_PARTITION_0_MEMORY", "5Gi"),
                ("GPU_DEVICE_0_PARTITION_0_COMPUTE", "10"),
            ],
        );
        shares.push(env["GPU_DEVICE_0_PARTITION_0_SHARE_ID"].clone());
    }
    assert_ne!(shares[0], shares[1]);
    // What is left of that partition is too little.
    let env = cluster.env("all", json!({"capacity": {"requests": {"memory": "20Gi"}}}), None).await.unwrap();
    assert_has(
        &env,
        &[("GPU_DEVICE_0_PARTITION_1_MEMORY", "20Gi"), ("GPU_DEVICE_0_PARTITION_1_COMPUTE", "25")],
    );
}

#[tokio::test]
async fn the_whole_of_a_gpu_is_not_prepared_while_a_partition_of_it_is() {
    let node = instance::Node::new().await;
    let (part, whole) = (node.claim("part", "gpu-0-partition-1"), node.claim("whole", "gpu-0-full"));
    let options = ["--gpu-partitions", "2"];
    let driver = node.start_with("pod-1", Duration::ZERO, instance::LOG, &options).await;
    driver.prepare(&part).await.expect("it lives").unwrap();
    let error = driver.prepare(&whole).await.expect("it lives").unwrap_err();
    assert!(error.contains("gpu-0-partition-1") && error.contains(&part.uid), "{error}");
    driver.unprepare(&part).await.expect("it lives").unwrap();
    driver.prepare(&whole).await.expect("it lives").unwrap();
}

#[tokio::test]
async fn a_container_knows_its_rates_and_bursts() {
    let cluster = Cluster::start("net", &["--num-devices", "1"]).await;
    let request = json!({"capacity": {"requests": {"ingressBandwidth": "10G"}}});
    let burst = json!({
        "apiVersion": "net.resource.example.com/v1alpha1", "kind": "NetConfig", "bwBurst": {"egressBurst": 7},
    });
    let env = cluster.env("fast", request, Some(burst)).await.unwrap();
    assert_has(
        &env,
        &[
            ("NET_DEVICE_0", "nic-0"),
            ("NET_DEVICE_0_INGRESS_RATE", "10000000000"),
            ("NET_DEVICE_0_EGRESS_RATE", "1000000000"),
            ("NET_DEVICE_0_EGRESS_BURST", "7"),
        ],
    );
    assert!(!env.contains_key("NET_DEVICE_0_INGRESS_BURST"), "{env:?}");
    assert!(env.contains_key("NET_DEVICE_NIC_0_RESOURCE_CLAIM"), "{env:?}");
}

#[tokio::test]
async fn a_container_knows_its_cpus() {
    let cluster = Cluster::start("cpu", &["--num-devices", "1", "--cpus-per-numa-node", "2"]).await;
    let request = json!({"capacity": {"requests": {"cpu.example.com/cpu": "2"}}});
    let env = cluster.env("two", request, None).await.unwrap();
    assert_has(&env, &[("CPU_DEVICE_0", "numa-0"), ("CPU_DEVICE_0_CONSUMED_CPU", "2")]);
}
