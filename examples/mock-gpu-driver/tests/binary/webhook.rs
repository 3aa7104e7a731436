//! The webhook as a process: HTTPS, a certificate that is replaced, and its end.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use axum::http::Request;
use kube::{Client, Config};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::program::{Running, program, run};

/// Far longer than anything here takes, on a busy machine too.
const SOON: Duration = Duration::from_secs(60);

const REVIEW: &str = "/validate-resource-claim-parameters";

/// A certificate of its own authority, for the local host.
struct Certificate {
    der: Vec<u8>,
    pem: String,
    key: String,
}

impl Certificate {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        Self { der: made.cert.der().to_vec(), pem: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join("tls.crt"), &self.pem).unwrap();
        fs::write(folder.join("tls.key"), &self.key).unwrap();
    }

    /// A client that trusts nothing else.
    fn client(&self, address: &str) -> Client {
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![self.der.clone()]);
        Client::try_from(config).unwrap()
    }
}

/// Starts the webhook with the certificate in the folder; gives its address too.
async fn start(folder: &Path) -> (Running, String) {
    let (cert, key, log) = (folder.join("tls.crt"), folder.join("tls.key"), folder.join("log"));
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let mut command = program(["webhook", "--address", "127.0.0.1:0"].iter().chain(&files));
    command.stderr(File::create(&log).unwrap());
    let process = Running::start(command);
    let address = soon("an address", async || {
        let text = fs::read_to_string(&log).unwrap();
        let (_, address) = text.split_once("/readyz on ")?;
        Some(address.split_once('\n')?.0.to_owned())
    });
    (process, address.await)
}

/// Looks until there is something.
async fn soon<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn get(client: &Client, path: &str) -> kube::Result<String> {
    client.request_text(Request::get(path).body(Vec::new()).unwrap()).await
}

async fn post(client: &Client, body: &Value) -> kube::Result<Value> {
    client.request(Request::post(REVIEW).body(body.to_string().into_bytes()).unwrap()).await
}

#[tokio::test]
async fn claims_are_reviewed_by_https_also_with_a_certificate_that_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Certificate::new(), Certificate::new());
    first.write(folder.path());
    let (process, address) = start(folder.path()).await;
    let client = first.client(&address);
    assert_eq!(get(&client, "/readyz").await.unwrap(), "ok\n");
    let config = json!({"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Odd"}}});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "operation": "CREATE",
            "userInfo": {},
            "object": {"metadata": {"name": "one"}, "spec": {"devices": {"config": [config]}}},
        },
    });
    let answer = post(&client, &review).await.unwrap();
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.devices.config[0].opaque.parameters.apiVersion: "), "{message}");
    assert!(post(&client, &json!({})).await.unwrap_err().to_string().contains("no AdmissionReview"));

    assert!(get(&second.client(&address), "/readyz").await.is_err(), "it has the first certificate");
    fs::write(folder.path().join("tls.key"), "no key").unwrap();
    assert_eq!(get(&first.client(&address), "/readyz").await.unwrap(), "ok\n");
    second.write(folder.path());
    soon("the second certificate", async || get(&second.client(&address), "/readyz").await.ok()).await;

    process.signal(Signal::SIGTERM);
    let ended = soon("its end", async || process.ended()).await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let arguments = ["webhook", "--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let missing = run(program(arguments));
    assert!(missing.error().contains("reading") && missing.error().contains("tls.crt"), "{}", missing.err);
    Certificate::new().write(folder.path());
    fs::write(&key, Certificate::new().key).unwrap();
    let foreign = run(program(arguments));
    assert!(foreign.error().contains("tls.key"), "{}", foreign.err);
}

/// The most memory that a process has had, in KiB.
fn peak(process: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A review whose object has this beside what is judged, or in a configuration of the driver.
fn heavy(unit: &str, place: &str) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "x", "namespace": "d", "userInfo": {},
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "object": {"metadata": {"name": "x"}, "spec": {"other": "OTHER", "devices": {"config": "CONFIG"}}},
        },
    });
    let many = format!("[{}{}]", unit.repeat(((3 << 20) - 1000) / unit.len()), unit.trim_end_matches(','));
    let ours = |json: &str| format!(r#"[{{"opaque":{{"driver":"gpu.example.com","parameters":{json}}}}}]"#);
    let config = match place {
        "parameters" => ours(&many),
        "config" => many.clone(),
        _ => ours("{}"),
    };
    let other = if place == "other" { many.as_str() } else { "0" };
    review.to_string().replace("\"OTHER\"", other).replace("\"CONFIG\"", &config).into_bytes()
}

/// With a limit of 64 MiB as in the chart it would be killed, and all claims with it.
#[tokio::test]
async fn no_review_and_no_number_of_connections_takes_the_memory_of_the_chart() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::new();
    certificate.write(folder.path());
    let (process, address) = start(folder.path()).await;
    let client = certificate.client(&address);
    let send = async |body: Vec<u8>| {
        let request = Request::post(REVIEW).body(body).unwrap();
        // Whether it is a review or refused does not matter here.
        let _ = client.request_text(request).await;
    };
    for unit in ["[],", "{\"a\":0},"] {
        for place in ["other", "config", "parameters"] {
            futures::future::join_all((0..8).map(|_| send(heavy(unit, place)))).await;
        }
    }
    send(vec![0xff; (3 << 20) - 1]).await;
    let too_large = Request::post(REVIEW).body(vec![b' '; (3 << 20) + 1]).unwrap();
    let refused = client.request_text(too_large).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("more than 3145728 bytes"), "{refused}");

    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    assert_eq!(get(&certificate.client(&address), "/readyz").await.unwrap(), "ok\n");
    assert!(peak(&process) < 64 << 10, "{} KiB", peak(&process));
}
