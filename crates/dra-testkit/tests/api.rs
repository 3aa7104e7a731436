//! The API server stand-in, seen through kube's own client, watcher and reflector.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use dra_testkit::api::{ApiServer, ApiStatus, Matcher, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const SECONDS: Duration = Duration::from_secs(10);

fn slice(name: &str, node: &str) -> ResourceSlice {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "1024Mi"}}}],
        },
    }))
    .expect("a slice")
}

fn claim(name: &str) -> ResourceClaim {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}))
        .expect("a claim")
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result.expect_err("refused") {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("not refused by the server: {other}"),
    }
}

fn slices(api: &ApiServer) -> Api<ResourceSlice> {
    Api::all(api.client())
}

#[tokio::test]
async fn a_created_object_is_stored_as_the_real_server_stores_it() {
    let api = ApiServer::new();
    let created = slices(&api).create(&PostParams::default(), &slice("a", "node-1")).await.expect("created");
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.uid().map(|uid| uid.len()), Some(36));
    assert!(created.creation_timestamp().is_some() && created.resource_version().is_some());
    let stored = serde_json::to_value(created.spec.devices).expect("json");
    assert_eq!(stored[0]["capacity"]["memory"]["value"], "1Gi");
}

#[tokio::test]
async fn refusals_carry_code_and_reason() {
    let api = ApiServer::new();
    let slices = slices(&api);
    let post = PostParams::default();
    let first = slices.create(&post, &slice("a", "node-1")).await.expect("created");
    assert_eq!(code(slices.create(&post, &slice("a", "node-1")).await), (409, "AlreadyExists".into()));
    assert_eq!(code(slices.get("b").await), (404, "NotFound".into()));
    assert_eq!(code(slices.replace("b", &post, &slice("b", "node-1")).await), (404, "NotFound".into()));
    let mut bad = slice("c", "node-1");
    bad.spec.driver = "no driver".into();
    assert_eq!(code(slices.create(&post, &bad).await), (422, "Invalid".into()));

    let mut newer = first.clone();
    newer.spec.pool.generation = 2;
    slices.replace("a", &post, &newer).await.expect("current version");
    assert_eq!(code(slices.replace("a", &post, &newer).await), (409, "Conflict".into()));
    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    let delete = DeleteParams { preconditions: Some(other), ..DeleteParams::default() };
    assert_eq!(code(slices.delete("a", &delete).await), (409, "Conflict".into()));
    slices.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(slices.get("a").await), (404, "NotFound".into()));
}

#[tokio::test]
async fn generate_name_makes_different_names() {
    let api = ApiServer::new();
    let mut unnamed = slice("", "node-1");
    unnamed.metadata.name = None;
    unnamed.metadata.generate_name = Some("node-1-gpu-".into());
    let a = slices(&api).create(&PostParams::default(), &unnamed).await.expect("created").name_any();
    let b = slices(&api).create(&PostParams::default(), &unnamed).await.expect("created").name_any();
    assert!(a.starts_with("node-1-gpu-") && a.len() == "node-1-gpu-".len() + 5, "{a}");
    assert_ne!(a, b);
}

#[tokio::test]
async fn an_update_without_a_change_is_no_event_and_no_new_version() {
    let api = ApiServer::new();
    let created = slices(&api).create(&PostParams::default(), &slice("a", "node-1")).await.expect("created");
    let same =
        slices(&api).replace("a", &PostParams::default(), &slice("a", "node-1")).await.expect("updated");
    assert_eq!(same.resource_version(), created.resource_version());
    let mut other = slice("a", "node-1");
    other.spec.pool.generation = 2;
    let changed = slices(&api).replace("a", &PostParams::default(), &other).await.expect("updated");
    assert_ne!(changed.resource_version(), created.resource_version());
    assert_eq!(changed.metadata.generation, Some(2));
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let api = ApiServer::new();
    let claims: Api<ResourceClaim> = Api::namespaced(api.client(), "default");
    let allocated = json!({"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
    ]}}});
    let mut both = claim("c");
    both.status = serde_json::from_value(allocated.clone()).expect("a status");
    let created = claims.create(&PostParams::default(), &both).await.expect("created");
    assert_eq!(created.status, None, "a create does not set the status");

    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}, "status": allocated}));
    let main = claims.patch("c", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(
        (main.status.is_some(), main.labels().len()),
        (false, 1),
        "a patch of the object leaves the status"
    );

    let patch = Patch::Merge(json!({"metadata": {"labels": {"c": "d"}}, "status": allocated}));
    let status = claims.patch_status("c", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(
        (status.status.is_some(), status.labels().len()),
        (true, 1),
        "a patch of the status leaves the rest"
    );
}

#[tokio::test]
async fn apply_creates_merges_and_records_its_manager() {
    let api = ApiServer::new();
    let slices = slices(&api);
    let apply = PatchParams::apply("driver");
    let patch = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": slice("a", "node-1").spec});
    let created = slices.patch("a", &apply, &Patch::Apply(&patch)).await.expect("created");
    assert_eq!(
        created.metadata.managed_fields.as_ref().and_then(|m| m[0].manager.clone()),
        Some("driver".into())
    );
    let again = slices.patch("a", &apply, &Patch::Apply(&patch)).await.expect("the same");
    assert_eq!(again.resource_version(), created.resource_version());

    let mut other = patch.clone();
    other["spec"]["pool"]["generation"] = json!(5);
    let rival = PatchParams::apply("rival");
    assert_eq!(code(slices.patch("a", &rival, &Patch::Apply(&other)).await), (409, "Conflict".into()));
    let forced = slices.patch("a", &rival.force(), &Patch::Apply(&other)).await.expect("forced");
    assert_eq!(forced.spec.pool.generation, 5);
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let api = ApiServer::new();
    for index in 0..5 {
        api.put(&slice(&format!("a-{index}"), "node-1")).expect("stored");
        api.put(&slice(&format!("b-{index}"), "node-2")).expect("stored");
    }
    let slices = slices(&api);
    let mut page = ListParams::default().fields("spec.nodeName=node-2,spec.driver=gpu.example.com").limit(2);
    let mut names = Vec::new();
    loop {
        let list = slices.list(&page).await.expect("listed");
        names.extend(list.items.iter().map(ResourceExt::name_any));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["b-0", "b-1", "b-2", "b-3", "b-4"]);
    let unknown = ListParams::default().fields("spec.allNodes=true");
    assert_eq!(code(slices.list(&unknown).await), (400, "BadRequest".into()));

    slices
        .delete_collection(&DeleteParams::default(), &ListParams::default().fields("spec.nodeName=node-1"))
        .await
        .expect("deleted");
    assert_eq!(api.list::<ResourceSlice>().len(), 5);
}

#[tokio::test]
async fn a_finalizer_holds_a_deleted_object_until_it_is_removed() {
    let api = ApiServer::new();
    let mut held = claim("c");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.put(&held).expect("stored");
    let claims: Api<ResourceClaim> = Api::namespaced(api.client(), "default");
    claims.delete("c", &DeleteParams::default()).await.expect("marked");
    assert!(claims.get("c").await.expect("still there").metadata.deletion_timestamp.is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("c", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(code(claims.get("c").await).0, 404);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let api = ApiServer::new();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    slices(&api).create(&dry, &slice("a", "node-1")).await.expect("would work");
    assert!(api.get::<ResourceSlice>("a").is_none());
}

/// A reflector's store of the slices of node-1, kept up to date in the background.
fn reflect(api: &ApiServer, config: watcher::Config) -> reflector::Store<ResourceSlice> {
    let (store, writer) = reflector::store();
    let stream = watcher(slices(api), config.fields("spec.nodeName=node-1")).default_backoff();
    tokio::spawn(reflector(writer, stream).for_each(|_| async {}));
    store
}

async fn shows(store: &reflector::Store<ResourceSlice>, wanted: &[&str]) {
    let matches = async {
        loop {
            let mut names: Vec<String> = store.state().iter().map(|slice| slice.name_any()).collect();
            names.sort();
            if names == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(SECONDS, matches).await;
    assert!(found.is_ok(), "the reflector shows {:?}, not {wanted:?}", store.state().len());
}

#[tokio::test]
async fn a_reflector_follows_changes_dropped_watches_and_expired_history() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api = ApiServer::new();
        api.put(&slice("a", "node-1")).expect("stored");
        let store = reflect(&api, config);
        store.wait_until_ready().await.expect("ready");
        shows(&store, &["a"]).await;
        api.put(&slice("b", "node-1")).expect("stored");
        api.put(&slice("c", "node-2")).expect("stored");
        shows(&store, &["a", "b"]).await;
        api.drop_watches();
        api.delete::<ResourceSlice>("a").expect("deleted");
        shows(&store, &["b"]).await;
        api.expire_history();
        api.put(&slice("d", "node-1")).expect("stored");
        shows(&store, &["b", "d"]).await;
    }
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_ends_with_error_410() {
    let api = ApiServer::new();
    let version = api.put(&slice("a", "node-1")).expect("stored").resource_version().expect("versioned");
    api.expire_history();
    let parameters = kube::api::WatchParams::default();
    let events: Vec<_> = slices(&api).watch(&parameters, &version).await.expect("opened").collect().await;
    assert!(matches!(&events[..], [Ok(WatchEvent::Error(status))] if status.code == 410), "{events:?}");
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_seen_as_deleted() {
    let api = ApiServer::new();
    let node = |value: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": value}}})).expect("a node")
    };
    api.put(&node("a")).expect("stored");
    let nodes: Api<Node> = Api::all(api.client());
    let parameters = kube::api::WatchParams::default().labels("zone=a");
    let mut events = nodes.watch(&parameters, "0").await.expect("watching").boxed();
    let mut next = async || format!("{:?}", events.try_next().await.expect("readable").expect("an event"));
    assert_eq!(next().await, "Added event");
    api.put(&node("b")).expect("stored");
    assert_eq!(next().await, "Deleted event");
    api.put(&node("a")).expect("stored");
    assert_eq!(next().await, "Added event");
}

#[tokio::test]
async fn faults_meet_the_requests_they_are_meant_for() {
    let api = ApiServer::new();
    let slices = slices(&api);
    let post = PostParams::default();
    api.fail_next(Matcher::any().verb(Verb::Create), ApiStatus::too_many_requests(Duration::from_secs(3)));
    slices.list(&ListParams::default()).await.expect("not meant");
    assert_eq!(code(slices.create(&post, &slice("a", "node-1")).await).0, 429);
    slices.create(&post, &slice("a", "node-1")).await.expect("only once");

    let outage = api.fail_while(Matcher::any().resource("resourceslices"), ApiStatus::unavailable());
    assert_eq!(code(slices.get("a").await).0, 503);
    assert_eq!(code(slices.get("a").await).0, 503);
    drop(outage);
    slices.get("a").await.expect("over");

    api.lose_next_answer(Matcher::any().verb(Verb::Create), ApiStatus::timeout());
    assert_eq!(code(slices.create(&post, &slice("b", "node-1")).await).0, 504);
    assert!(api.get::<ResourceSlice>("b").is_some(), "done although the answer was lost");

    api.cut_next(Matcher::any());
    assert!(!matches!(slices.get("a").await, Err(kube::Error::Api(_)) | Ok(_)), "no answer at all");
    api.set_reachable(false);
    assert!(!matches!(slices.get("a").await, Err(kube::Error::Api(_)) | Ok(_)), "no answer at all");
    api.set_reachable(true);
    slices.get("a").await.expect("back");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_request_is_answered_when_the_hang_ends() {
    let api = ApiServer::new();
    api.put(&slice("a", "node-1")).expect("stored");
    let hang = api.hang(Matcher::any().verb(Verb::Get));
    let slices = slices(&api);
    let mut get = std::pin::pin!(slices.get("a"));
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut get).await.is_err());
    drop(hang);
    get.await.expect("answered");
}

#[tokio::test]
async fn a_hanging_watch_is_silent_and_catches_up() {
    let api = ApiServer::new();
    let parameters = kube::api::WatchParams::default();
    let mut events = slices(&api).watch(&parameters, "0").await.expect("watching").boxed();
    let hang = api.hang(Matcher::any().verb(Verb::Watch));
    api.put(&slice("a", "node-1")).expect("stored");
    let silence = tokio::time::timeout(Duration::from_millis(50), events.try_next()).await;
    assert!(silence.is_err(), "{silence:?}");
    drop(hang);
    let event = events.try_next().await.expect("readable");
    assert!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_time_with_a_bookmark() {
    let api = ApiServer::new();
    let version = api.put(&slice("a", "node-1")).expect("stored").resource_version().expect("versioned");
    let parameters = kube::api::WatchParams::default().timeout(5);
    let events: Vec<_> = slices(&api).watch(&parameters, &version).await.expect("opened").collect().await;
    let seen = match &events[..] {
        [Ok(WatchEvent::Bookmark(bookmark))] => &bookmark.metadata.resource_version,
        other => panic!("not one bookmark: {other:?}"),
    };
    assert_eq!(*seen, version);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_takes_its_time() {
    let api = ApiServer::new();
    api.put(&slice("a", "node-1")).expect("stored");
    let _slow = api.delay(Matcher::any(), Duration::from_secs(5));
    let start = tokio::time::Instant::now();
    slices(&api).get("a").await.expect("answered");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn the_call_log_tells_who_asked_what() {
    let api = ApiServer::new();
    let post = PostParams { field_manager: Some("me".into()), ..PostParams::default() };
    slices(&api).create(&post, &slice("a", "node-1")).await.expect("created");
    let _ = slices(&api).get("b").await;
    let calls = api.take_calls();
    assert_eq!(
        (calls[0].verb, calls[0].name.as_deref(), calls[0].answer),
        (Verb::Create, Some("a"), Some(201))
    );
    assert_eq!(calls[0].field_manager, "me");
    assert_eq!((calls[1].verb, calls[1].name.as_deref(), calls[1].answer), (Verb::Get, Some("b"), Some(404)));
    assert_eq!(api.calls(), []);
}

#[tokio::test]
async fn a_client_of_the_served_port_sees_the_same_objects() {
    let api = ApiServer::new();
    let served = api.serve().await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    served.write_kubeconfig(&path).expect("written");
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).expect("readable");
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .expect("a config");
    let client = kube::Client::try_from(config).expect("a client");
    let remote: Api<ResourceSlice> = Api::all(client.clone());
    remote.create(&PostParams::default(), &slice("a", "node-1")).await.expect("created");
    assert!(api.get::<ResourceSlice>("a").is_some());
    assert_eq!(client.apiserver_version().await.expect("a version").minor, "37");
    let mut events = remote.watch(&kube::api::WatchParams::default(), "0").await.expect("watching").boxed();
    assert!(events.try_next().await.expect("readable").is_some());
    api.set_reachable(false);
    assert!(!matches!(remote.get("a").await, Err(kube::Error::Api(_)) | Ok(_)), "no answer at all");
    api.set_reachable(true);
    remote.get("a").await.expect("back");
}

#[tokio::test]
async fn manifests_are_applied_like_kubectl_does() {
    let api = ApiServer::new();
    let text = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i}]
";
    let keys = api.apply_yaml(text).expect("applied");
    assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["gpu.example.com", "default/p"]);
    api.apply_yaml(text).expect("applied again");

    let refused =
        api.apply_yaml("{apiVersion: v1, kind: Secret, metadata: {name: s}}").expect_err("not served");
    assert!(refused.to_string().contains("Secret"), "{refused}");
    let refused = api.apply_yaml("a: [").expect_err("no YAML");
    assert!(refused.to_string().contains("document 1"), "{refused}");
    let refused =
        api.apply_yaml("{apiVersion: v1, kind: Node, metadata: {name: A_B}}").expect_err("bad name");
    assert!(refused.to_string().contains("metadata.name"), "{refused}");
}

#[tokio::test]
async fn waiting_ends_with_the_change_or_says_what_did_not_come() {
    let api = ApiServer::new();
    let later = api.clone();
    tokio::spawn(async move { later.put(&slice("a", "node-1")) });
    api.wait_until("slice a", SECONDS, |api| api.get::<ResourceSlice>("a")).await.expect("came");
    let missing = api.wait_until("slice b", Duration::from_millis(1), |api| api.get::<ResourceSlice>("b"));
    assert!(missing.await.expect_err("never comes").to_string().contains("slice b"));
}

#[tokio::test]
async fn unserved_paths_and_bodies_are_refused_without_harm() {
    let api = ApiServer::new();
    let client = api.client();
    for (method, path, content_type, body, expected) in [
        ("GET", "/apis/apps/v1/deployments", "", "", 404),
        ("POST", "/api/v1/nodes", "application/json", "{", 400),
        ("POST", "/api/v1/nodes", "application/json", "[]", 400),
        ("POST", "/api/v1/nodes", "application/json", "{\"kind\": \"Pod\"}", 400),
        ("POST", "/api/v1/nodes", "application/vnd.kubernetes.protobuf", "k8s", 415),
        ("PATCH", "/api/v1/nodes/n", "application/json-patch+json", "[]", 415),
        ("PATCH", "/api/v1/nodes/n", "application/apply-patch+yaml", "{}", 400),
        ("POST", "/api/v1/nodes", "application/json", "{\"metadata\": {}}", 422),
        ("POST", "/api/v1/nodes", "application/json", "{\"metadata\": {\"generateName\": \"a.\"}}", 422),
    ] {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(body.as_bytes().to_vec())
            .expect("a request");
        let result: Result<Value, _> = client.request(request).await;
        assert_eq!(code(result).0, expected, "{method} {path} {body}");
    }
}
