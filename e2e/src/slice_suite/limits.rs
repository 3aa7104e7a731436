//! Every limit of the API server on slices: at the limit both it and our own check accept, one beyond it both refuse. So our
//! check is neither too lax, which would cost a whole pool, nor too strict, which would cost a good device.

mod devices;
mod local;
mod policies;
mod slices;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use dra_resourceslice::Feature;
use futures::StreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::{Server, Suite};

/// How many rows are sent at once.
const AT_ONCE: usize = 8;

/// One limit: contents (`spec` of a slice) that just keep it, and such that just break it.
struct Row {
    name: &'static str,
    needs: Vec<&'static str>,
    /// The first version whose API server has it: the 37 of 1.37.
    since: u32,
    fits: Vec<Value>,
    breaks: Vec<Value>,
    /// The gates that have to be off.
    lacks: Vec<&'static str>,
    /// Contents that the API server refuses and we do not: the publisher leaves them out after that.
    servers_alone: Vec<Value>,
    /// Contents that the API server takes and we do not, with a reason in the row's name.
    ours_alone: Vec<Value>,
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            needs: Vec::new(),
            since: 0,
            fits: Vec::new(),
            breaks: Vec::new(),
            ours_alone: Vec::new(),
            lacks: Vec::new(),
            servers_alone: Vec::new(),
        }
    }

    /// The API server looks at it only with the feature's gate on.
    fn needs(self, feature: Feature) -> Self {
        self.needs_gate(feature.gate())
    }

    fn needs_gate(mut self, gate: &'static str) -> Self {
        self.needs.push(gate);
        self
    }

    /// The API server looks at it so only with the gate off.
    fn without_gate(mut self, gate: &'static str) -> Self {
        self.lacks.push(gate);
        self
    }

    fn servers_alone(mut self, spec: Value) -> Self {
        self.servers_alone.push(spec);
        self
    }

    fn since(self, minor: u32) -> Self {
        Self { since: minor, ..self }
    }

    fn fits(mut self, spec: Value) -> Self {
        self.fits.push(spec);
        self
    }

    fn breaks(mut self, spec: Value) -> Self {
        self.breaks.push(spec);
        self
    }

    fn ours_alone(mut self, spec: Value) -> Self {
        self.ours_alone.push(spec);
        self
    }
}

/// How many contents were judged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// By the API server and by us.
    pub(crate) by_both: usize,
    /// By us alone, because the API server does not know the fields, or their gates are off.
    pub(crate) locally: usize,
    /// The rows that those are in.
    pub(crate) rows_locally: BTreeSet<&'static str>,
}

/// Has every row judged.
///
/// # Errors
/// Names every row on which our check and the API server disagree with the table.
pub(crate) async fn run(suite: &Suite) -> Result<Judged> {
    let rows: Vec<Row> = [slices::rows(), devices::rows(), policies::rows()].into_iter().flatten().collect();
    let (mut judged, mut failures) = (Judged::default(), Vec::new());
    for row in &rows {
        let contents = row.fits.len() + row.breaks.len() + row.ours_alone.len() + row.servers_alone.len();
        ensure!(contents > 0, "{}: has no contents", row.name);
        if knows(&suite.server, row) {
            judged.by_both += contents;
        } else {
            judged.locally += contents;
            judged.rows_locally.insert(row.name);
        }
        failures.extend(judge_locally(row));
    }
    let asked = rows.iter().filter(|row| knows(&suite.server, row)).map(|row| judge(&suite.admin, row));
    let outcomes: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for outcome in outcomes {
        failures.extend(outcome?);
    }
    ensure!(failures.is_empty(), "{} disagreements:\n{}", failures.len(), failures.join("\n"));
    Ok(judged)
}

fn knows(server: &Server, row: &Row) -> bool {
    server.minor >= row.since
        && row.needs.iter().all(|gate| server.has_gate(gate))
        && !row.lacks.iter().any(|gate| server.has_gate(gate))
}

fn judge_locally(row: &Row) -> Vec<String> {
    let accepted = row.fits.iter().chain(&row.servers_alone).map(|spec| (spec, true));
    let refused = row.breaks.iter().chain(&row.ours_alone).map(|spec| (spec, false));
    let judge = |(spec, wanted): (&Value, bool)| {
        let verdict = local::check(spec);
        (verdict.is_ok() != wanted).then(|| format!("{}: we say {verdict:?} of {}", row.name, short(spec)))
    };
    accepted.chain(refused).filter_map(judge).collect()
}

async fn judge(client: &Client, row: &Row) -> Result<Vec<String>> {
    let accepted = row.fits.iter().chain(&row.ours_alone).map(|spec| (spec, true));
    let refused = row.breaks.iter().chain(&row.servers_alone).map(|spec| (spec, false));
    let mut failures = Vec::new();
    for (spec, wanted) in accepted.chain(refused) {
        let verdict = ask(client, spec).await.with_context(|| format!("asking about {}", row.name))?;
        if verdict.is_ok() != wanted {
            failures.push(format!("{}: the API server says {verdict:?} of {}", row.name, short(spec)));
        }
    }
    Ok(failures)
}

/// What the API server says of a new slice, which it does not store.
async fn ask(client: &Client, spec: &Value) -> Result<Result<(), String>> {
    let slices: Api<Raw> = Api::all_with(client.clone(), &kind());
    let object = object(spec)?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match slices.create(&params, &object).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Err(status.message.clone())),
        Err(error) => bail!(error),
    }
}

/// The raw object, so that what our types cannot say can be sent too.
type Raw = kube::api::DynamicObject;

fn kind() -> kube::api::ApiResource {
    kube::api::ApiResource::erase::<ResourceSlice>(&())
}

fn object(spec: &Value) -> Result<Raw> {
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"generateName": "limit-"}, "spec": spec,
    });
    serde_json::from_value(object).context("making a slice")
}

/// Enough of a content to find it.
fn short(spec: &Value) -> String {
    const LENGTH: usize = 300;
    let text = spec.to_string();
    let cut: String = text.chars().take(LENGTH).collect();
    if cut.len() < text.len() { format!("{cut}… ({} bytes)", text.len()) } else { cut }
}

/// A sound slice of one device.
fn slice() -> Value {
    json!({
        "driver": "limits.example.com", "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d"}],
    })
}

/// The sound slice with some fields set; null takes one away.
fn slice_with(fields: &Value) -> Value {
    let mut spec = slice();
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    if let Value::Object(map) = &mut spec {
        map.retain(|_, value| !value.is_null());
    }
    spec
}

/// The sound slice with fields added to its device.
fn device_with(fields: &Value) -> Value {
    let mut device = json!({"name": "d"});
    for (field, value) in fields.as_object().into_iter().flatten() {
        device[field] = value.clone();
    }
    slice_with(&json!({"devices": [device]}))
}

/// A map of that many entries `prefix0`, `prefix1` and so on.
fn entries(prefix: &str, count: usize, value: &Value) -> Value {
    (0..count)
        .map(|index| (format!("{prefix}{index}"), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A list of that many items made of their index.
fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn letters(count: usize) -> String {
    "a".repeat(count)
}
