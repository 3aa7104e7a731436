//! The API server: claim objects, their allocations, and its moods.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::{
    dice::Dice,
    world::{CLAIMS, DEVICES, World, claim_ref},
};
use crate::{
    claim::{AllocatedClaim, Allocation, ClaimRef},
    held::HeldDevice,
};

pub(super) const DRIVER: &str = "gpu.example.com";
pub(super) const NODE: &str = "node-1";

pub(super) struct Api {
    objects: [Object; CLAIMS],
    pub(super) mood: Mood,
}

/// A claim object under its name.
struct Object {
    generation: u64,
    /// None while it is deleted.
    status: Option<Value>,
    /// What the status gives the claim of this driver.
    allocation: Option<Allocation>,
}

/// How the API server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// An error status.
    Status(u16),
    /// The connection breaks.
    Broken,
    /// No answer at all.
    Silent,
    /// Restored from an empty store: it knows neither claims nor nodes.
    Empty,
}

impl Api {
    pub(super) fn new(dice: &Dice) -> Self {
        Self { objects: std::array::from_fn(|index| Object::random(dice, index, 0)), mood: Mood::Well }
    }

    /// The claim that has the name now, or had it last.
    pub(super) fn current(&self, index: usize) -> ClaimRef {
        claim_ref(index, self.objects[index].generation)
    }

    /// Every claim that there ever was.
    pub(super) fn all(&self) -> Vec<ClaimRef> {
        let of = |index: usize| (0..=self.objects[index].generation).map(move |g| claim_ref(index, g));
        (0..CLAIMS).flat_map(of).collect()
    }

    /// Other devices, other shares or another configuration under the same UID.
    pub(super) fn reallocate(&mut self, dice: &Dice, index: usize) -> bool {
        let object = &mut self.objects[index];
        let exists = object.status.is_some();
        if exists {
            *object = Object::random(dice, index, object.generation);
        }
        exists
    }

    pub(super) fn delete(&mut self, index: usize) {
        self.objects[index].status = None;
        self.objects[index].allocation = None;
    }

    /// Makes a claim with the same name and another UID.
    pub(super) fn replace(&mut self, dice: &Dice, index: usize) {
        self.objects[index] = Object::random(dice, index, self.objects[index].generation + 1);
    }

    /// Whether the object with this UID exists.
    pub(super) fn has(&self, claim: &ClaimRef) -> bool {
        self.object(claim).is_some_and(|object| object.status.is_some())
    }

    /// Whether the object with this UID exists and has one of the devices.
    pub(super) fn has_any_of(&self, claim: &ClaimRef, devices: &[HeldDevice]) -> bool {
        let results = self.allocation(claim).map(|allocation| allocation.results).unwrap_or_default();
        results.iter().any(|result| devices.iter().any(|held| held.device_ref() == result.device_ref()))
    }

    /// What the claim is given of this driver; none if it does not exist or is not allocated.
    pub(super) fn allocation(&self, claim: &ClaimRef) -> Option<Allocation> {
        self.object(claim)?.allocation.clone()
    }

    fn object(&self, claim: &ClaimRef) -> Option<&Object> {
        (0..CLAIMS).find(|index| self.current(*index) == *claim).map(|index| &self.objects[index])
    }

    /// Status code and object for a path.
    fn answer(&self, path: &str) -> (u16, Value) {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let found = match (self.mood, folder) {
            (Mood::Status(code), _) => return (code, error(code)),
            (Mood::Empty, _) => None,
            (_, "/api/v1/nodes") => Some(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name},
            })),
            _ => (0..CLAIMS).find(|index| self.current(*index).name == name).and_then(|index| {
                Some(claim_object(&self.current(index), self.objects[index].status.as_ref()?))
            }),
        };
        found.map_or_else(|| (404, error(404)), |object| (200, object))
    }
}

impl Object {
    fn random(dice: &Dice, index: usize, generation: u64) -> Self {
        let (claim, status) = (claim_ref(index, generation), random_status(dice, index, generation));
        let object = serde_json::from_value(claim_object(&claim, &status)).unwrap();
        let parsed = AllocatedClaim::parse(&DRIVER.parse().unwrap(), &claim, object);
        let allocation = parsed.ok().map(|claim| claim.allocation().clone());
        Self { generation, status: Some(status), allocation }
    }
}

fn claim_object(claim: &ClaimRef, status: &Value) -> Value {
    let metadata = json!({"namespace": claim.namespace, "name": claim.name, "uid": claim.uid.as_str()});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": metadata, "spec": {}, "status": status,
    })
}

/// A client of the API server for use in the runtime that it is made in.
pub(super) fn client(world: &Arc<World>) -> kube::Client {
    let world = Arc::clone(world);
    let service = tower::service_fn(move |request: Request<Body>| {
        let world = Arc::clone(&world);
        async move { world.serve(request.uri().path()).await }
    });
    kube::Client::new(service, "default")
}

impl World {
    async fn serve(&self, path: &str) -> Result<Response<Body>, std::io::Error> {
        let delay = match self.dice.below(32) {
            0 => 2500,
            1..6 => 1 + self.dice.below(20),
            _ => 0,
        };
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let mood = self.state().api.mood;
        if mood == Mood::Silent {
            return std::future::pending().await;
        }
        if mood == Mood::Broken {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        }
        let (code, object) = self.state().api.answer(path);
        let response = Response::builder().status(code).header("content-type", "application/json");
        Ok(response.body(Body::from(object.to_string().into_bytes())).unwrap())
    }
}

fn error(code: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": "as the dice fell", "reason": "Unknown", "code": code,
    })
}

/// One or two devices, mostly alone, some in shares or for an administrator; sometimes none of ours or nothing yet.
fn random_status(dice: &Dice, index: usize, generation: u64) -> Value {
    let (first, second) = (dice.index(DEVICES), dice.index(DEVICES));
    let devices = match dice.below(20) {
        0 => return json!({}),
        1 => Vec::new(),
        2..7 if first != second => vec![first, second],
        _ => vec![first],
    };
    let mut results =
        vec![json!({"request": "net", "driver": "other.example.com", "pool": NODE, "device": "n"})];
    results.extend(devices.into_iter().map(|device| {
        let mut result =
            json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": format!("gpu-{device}")});
        match dice.below(8) {
            0 => result["adminAccess"] = json!(true),
            1..5 => result["shareID"] = json!(format!("share-{index}-{generation}-{}", dice.below(2))),
            _ => {}
        }
        result
    }));
    let parameters = json!({"sharing": dice.below(3)});
    let config = json!([{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}]);
    json!({"allocation": {"devices": {"results": results, "config": config}}})
}
