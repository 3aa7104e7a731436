//! What happens on a node before the process that dies, and what the kubelet asks of it.

use crate::process::Fault;

/// A story of several processes, the last of which is to die.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// The processes before, of which some died too.
    pub(crate) earlier: Vec<Life>,
    /// What happened while no process was there.
    pub(crate) changes: Vec<Change>,
    pub(crate) life: Life,
    /// Claims that are prepared once all steps are done.
    pub(crate) prepared: &'static [&'static str],
}

/// What one process does.
pub(crate) struct Life {
    pub(crate) boot: &'static str,
    pub(crate) fault: Fault,
    /// A claim that the API server will not speak of before [`Step::Asked`] is done.
    pub(crate) hidden: Option<&'static str>,
    pub(crate) steps: Vec<Step>,
}

/// A step of a process's life.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The kubelet wants a claim prepared.
    Prepare(&'static str),
    /// The kubelet wants a claim unprepared.
    Unprepare(&'static str),
    /// The kubelet wants a claim prepared whose device another claim has.
    Refused(&'static str),
    /// Wait until no record tells of the claim.
    Collected(&'static str),
    /// Wait until the plugin has asked the API server about the claim.
    Asked(&'static str),
    /// Somebody removes the CDI folder.
    LoseCdiFolder,
    /// Somebody removes the folder of the metadata files.
    LoseMetadataFolder,
}

/// What happens while no process is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Delete(&'static str),
    AllocateAnew(&'static str, &'static str),
    LoseCdiFolder,
    /// Another program prepares the claim, and ends.
    PreparedByAnother(&'static str, &'static str),
}

use Step::{Asked, Collected, LoseCdiFolder, LoseMetadataFolder, Prepare, Refused, Unprepare};

pub(crate) const FIRST: &str = "boot-1";

/// All stories.
pub(crate) fn all() -> Vec<Script> {
    [calls(), metadata(), leftovers(), collection(), adoption(), full_disk()].into_iter().flatten().collect()
}

/// Calls of the kubelet, one after the other, on a node where nothing has happened yet.
pub(crate) fn first_calls(steps: &[Step]) -> Script {
    Script::new("first calls on a node", vec![], life(steps), &[])
}

/// The kubelet's calls, each as the only thing that happens.
fn calls() -> Vec<Script> {
    vec![
        Script::new("first prepare on a node", vec![], life(&[Prepare("a")]), &["a"]),
        Script::new("prepare again", vec![life(&[Prepare("a")])], life(&[Prepare("a")]), &["a"]),
        Script::new(
            "prepare again after the CDI folder was emptied",
            vec![life(&[Prepare("a")])],
            life(&[Prepare("a")]),
            &["a"],
        )
        .with(Change::LoseCdiFolder),
        Script::new(
            "prepare again after the CDI folder was removed under the driver",
            vec![life(&[Prepare("a")])],
            life(&[LoseCdiFolder, Prepare("a")]),
            &["a"],
        ),
        Script::new("unprepare", vec![life(&[Prepare("a")])], life(&[Unprepare("a")]), &[]),
        Script::new("unprepare of what nobody knows", vec![], life(&[Unprepare("a")]), &[]),
        Script::new("prepare that the driver fails", vec![], life(&[Prepare("bad")]), &[]),
        Script::new(
            "prepare, again, unprepare, the device for another claim",
            vec![life(&[])],
            life(&[Prepare("a"), Prepare("a"), Unprepare("a"), Prepare("x")]),
            &["x"],
        ),
        Script::new(
            "prepare of a claim with a new allocation",
            vec![life(&[Prepare("a")])],
            life(&[Prepare("a")]),
            &["a"],
        )
        .with(Change::AllocateAnew("a", "gpu-1")),
        Script::new(
            "prepare of a claim with a new allocation after a reboot",
            vec![life(&[Prepare("a")])],
            Life { boot: "boot-2", ..life(&[Prepare("a")]) },
            &["a"],
        )
        .with(Change::AllocateAnew("a", "gpu-1")),
        Script::new(
            "prepare of a claim with a new allocation, whose device another has for a while",
            vec![life(&[Prepare("a"), Prepare("b")])],
            life(&[Refused("a"), Unprepare("b"), Prepare("a")]),
            &["a"],
        )
        .with(Change::AllocateAnew("a", "gpu-1")),
    ]
}

/// A claim whose containers are told something of their devices.
fn metadata() -> Vec<Script> {
    let prepared = || vec![life(&[Prepare("told")])];
    vec![
        Script::new("first prepare with metadata", vec![], life(&[Prepare("told")]), &["told"]),
        Script::new(
            "prepare again after the metadata was removed under the driver",
            prepared(),
            life(&[LoseMetadataFolder, Prepare("told")]),
            &["told"],
        ),
        Script::new("unprepare with metadata", prepared(), life(&[Unprepare("told")]), &[]),
        Script::new(
            "reboot with a prepared claim with metadata",
            prepared(),
            Life { boot: "boot-2", ..life(&[Prepare("told")]) },
            &["told"],
        ),
    ]
}

/// What processes left that died at work.
fn leftovers() -> Vec<Script> {
    let half_way = || life(&[Prepare("a")]).dies_at("hardware.make-ready");
    let not_recorded = || life(&[Prepare("a")]).dies_at("driver.after-prepare");
    let half_out = || vec![life(&[Prepare("a")]), life(&[Unprepare("a")]).dies_at("driver.before-undo")];
    vec![
        Script::new("unprepare of a started claim", vec![not_recorded()], life(&[Unprepare("a")]), &[]),
        Script::new("prepare of a started claim", vec![half_way()], life(&[Prepare("a")]), &["a"]),
        Script::new("unprepare of an unpreparing claim", half_out(), life(&[Unprepare("a")]), &[]),
        Script::new("prepare of an unpreparing claim", half_out(), life(&[Prepare("a")]), &["a"]),
        Script::new(
            "prepare after a write was interrupted",
            vec![life(&[Prepare("a")]).dies_at("store.rename")],
            life(&[Prepare("a")]),
            &["a"],
        ),
        Script::new(
            "reboot with a prepared and a started claim",
            vec![life(&[Prepare("b")]), not_recorded()],
            Life { boot: "boot-2", ..life(&[Prepare("b")]) },
            &["b"],
        ),
    ]
}

/// Claims whose objects are gone, and for which the kubelet never asks.
fn collection() -> Vec<Script> {
    let started = || life(&[Prepare("a")]).dies_at("driver.after-prepare");
    let unpreparing = || vec![life(&[Prepare("b")]), life(&[Unprepare("b")]).dies_at("driver.before-undo")];
    vec![
        Script::new(
            "orphans collected at start",
            unpreparing().into_iter().chain([started()]).collect(),
            // The calls wait until the claims' collection is over.
            life(&[Collected("a"), Collected("b"), Unprepare("a"), Unprepare("b")]),
            &[],
        )
        .with(Change::Delete("a"))
        .with(Change::Delete("b")),
        Script::new(
            "orphan collected for a claim that wants its device",
            vec![started()],
            Life { hidden: Some("a"), ..life(&[Asked("a"), Prepare("x")]) },
            &["x"],
        )
        .with(Change::Delete("a")),
    ]
}

/// Claims of another program, whose books the driver can read.
fn adoption() -> Vec<Script> {
    let adopted = |name, steps: &[Step], prepared| {
        Script::new(name, vec![], life(steps), prepared).with(Change::PreparedByAnother("a", "gpu-0"))
    };
    vec![
        adopted("adoption, and prepare", &[Prepare("a")], &["a"]),
        adopted("adoption, and unprepare", &[Unprepare("a")], &[]),
        adopted(
            "adoption, prepare, unprepare, the device for another claim",
            &[Prepare("a"), Unprepare("a"), Prepare("x")],
            &["x"],
        ),
    ]
}

/// The way back from a step that fails.
fn full_disk() -> Vec<Script> {
    vec![
        Script::new(
            "prepare whose record cannot be written",
            vec![life(&[])],
            life(&[Prepare("a")]).fails_at("store.write"),
            &["a"],
        ),
        Script::new(
            "prepare whose record cannot be made durable",
            vec![life(&[])],
            life(&[Prepare("a")]).fails_at("store.fsync-folder"),
            &["a"],
        ),
        Script::new(
            "prepare that is recorded as done, but not durably",
            vec![life(&[])],
            // After `Started` and the state that the driver saves.
            life(&[Prepare("a")]).fails_at("store.fsync-folder:3"),
            &["a"],
        ),
        Script::new(
            "prepare whose CDI file cannot be written",
            vec![life(&[])],
            life(&[Prepare("a")]).fails_at("cdi.write"),
            &["a"],
        ),
        Script::new(
            "prepare whose CDI file can neither be made durable nor removed",
            vec![life(&[])],
            life(&[Prepare("a")]).fails_at("cdi.fsync-folder"),
            &["a"],
        ),
    ]
}

/// The calls that are to meet a failing step.
pub(crate) fn that_fail() -> Vec<Script> {
    vec![
        Script::new("prepare", vec![life(&[])], life(&[Prepare("a")]), &["a"]),
        Script::new("prepare without folder", vec![life(&[])], life(&[LoseCdiFolder, Prepare("a")]), &["a"]),
        Script::new("unprepare", vec![life(&[Prepare("a")])], life(&[Unprepare("a")]), &[]),
        Script::new("prepare with metadata", vec![life(&[])], life(&[Prepare("told")]), &["told"]),
        Script::new(
            "unprepare with metadata",
            vec![life(&[Prepare("told")])],
            life(&[Unprepare("told")]),
            &[],
        ),
    ]
}

/// In which of them which step is needed: its failure is the claim's error. The others are not met, or are tidying up
/// that a later start repeats. Unprepare needs no step that takes space.
pub(crate) fn failing_steps() -> Vec<(&'static str, &'static str)> {
    // The folder of the records is made at start, or if that fails by the first that is written.
    let prepare = [
        "store.mkdir",
        "store.fsync-parent",
        "cdi.chmod",
        "cdi.create",
        "cdi.fsync-file",
        "cdi.fsync-folder",
        "cdi.rename",
        "cdi.write",
        "store.create",
        "store.fsync-file",
        "store.fsync-folder",
        "store.rename",
        "store.write",
    ];
    let folder = ["cdi.fsync-parent", "cdi.mkdir"];
    let unprepare =
        ["cdi.fsync-folder", "cdi.unlink", "store.fsync-folder", "store.rename-unpreparing", "store.unlink"];
    let metadata = [
        "metadata.chmod",
        "metadata.create",
        "metadata.fsync-file",
        "metadata.fsync-folder",
        "metadata.fsync-parent",
        "metadata.mkdir",
        "metadata.rename",
        "metadata.write",
    ];
    let mut steps = Vec::new();
    steps.extend(prepare.into_iter().chain(metadata).map(|step| ("prepare with metadata", step)));
    steps.extend(
        unprepare.into_iter().chain(["metadata.remove"]).map(|step| ("unprepare with metadata", step)),
    );
    steps.extend(prepare.map(|step| ("prepare", step)));
    steps.extend(prepare.into_iter().chain(folder).map(|step| ("prepare without folder", step)));
    steps.extend(unprepare.map(|step| ("unprepare", step)));
    steps.sort_unstable();
    steps
}

impl Script {
    fn new(name: &'static str, earlier: Vec<Life>, life: Life, prepared: &'static [&'static str]) -> Self {
        Self { name, earlier, changes: Vec::new(), life, prepared }
    }

    fn with(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Claims whose objects are gone.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = &'static str> {
        self.changes.iter().filter_map(|change| match change {
            Change::Delete(claim) => Some(*claim),
            _ => None,
        })
    }

    /// The boot whose prepared claims have all that they need; none if somebody takes files away.
    pub(crate) fn whole(&self) -> Option<&'static str> {
        let lost = self.changes.iter().any(|change| matches!(change, Change::LoseCdiFolder))
            || self.life.steps.iter().any(|step| matches!(step, LoseCdiFolder | LoseMetadataFolder));
        (!lost).then_some(self.life.boot)
    }
}

/// The first boot's, without a fault.
fn life(steps: &[Step]) -> Life {
    Life { boot: FIRST, fault: Fault::default(), hidden: None, steps: steps.to_vec() }
}

impl Life {
    /// The first boot's, without a fault.
    pub(crate) fn of(steps: &[Step]) -> Self {
        life(steps)
    }

    pub(crate) fn dies_at(mut self, point: &str) -> Self {
        self.fault.death = Some(point.to_owned());
        self
    }

    fn fails_at(mut self, point: &str) -> Self {
        self.fault.failure = Some(Fault::full(point));
        self
    }
}
