//! Plays scripts, and judges what comes of them.

use dra_testkit::api::{ApiStatus, Matcher, Verb};

use crate::lab::{DRIVER, Lab};
use crate::node::Node;
use crate::process::{Died, Fault, Plugin, run_command};
use crate::scripts::{Change, FIRST, Life, Script, Step};

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Steps of the last process at which it died.
    pub(crate) points: usize,
    /// Those, and the deaths of earlier processes.
    pub(crate) deaths: usize,
    pub(crate) recoveries: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.points += other.points;
        self.deaths += other.deaths;
        self.recoveries += other.recoveries;
    }
}

/// Lets the script's last process die at its first step, at its second, and so on. After each death the kubelet
/// either repeats what it had asked for, or gives the pods up.
pub(crate) async fn kill_everywhere(script: &Script) -> Tally {
    let (lab, before) = set_the_scene(script).await;
    let mut tally = Tally::default();
    tally.deaths += script.earlier.iter().filter(|life| life.fault.death.is_some()).count();
    loop {
        let at = format!("{}, killed at step {}", script.name, tally.points + 1);
        let node = before.copy();
        let fault = Fault { death: Some(format!("*:{}", tally.points + 1)), ..script.life.fault.clone() };
        let lived = live(&lab, &node, &script.life, &fault, &at).await;
        node.state().check(script.whole(), &at);
        for repeats in [true, false] {
            let at = format!("{at}, kubelet {}", if repeats { "repeats" } else { "gives up" });
            recover(&lab, &node.copy(), script, repeats.then_some(lived.done), &at).await;
            tally.recoveries += 1;
        }
        if !lived.died {
            return tally;
        }
        tally.points += 1;
        tally.deaths += 1;
    }
}

/// Whether the script's last process dies at the point.
pub(crate) async fn dies_at(script: &Script, point: &str) -> bool {
    let (lab, node) = set_the_scene(script).await;
    let fault = Fault { death: Some(point.to_owned()), ..script.life.fault.clone() };
    live(&lab, &node, &script.life, &fault, script.name).await.died
}

/// Whether the step behind the point is one whose failure the kubelet is told. In any case the process goes on, what
/// is there is legal, and the next process, for which nothing fails, gets the claim where it has to be.
pub(crate) async fn fails_at(script: &Script, point: &str) -> bool {
    let at = format!("{}, {point} fails", script.name);
    let (lab, node) = set_the_scene(script).await;
    let fault = Fault { failure: Some(Fault::full(point)), ..Fault::default() };
    let mut plugin = Plugin::start(&lab, &node, script.life.boot, &fault);
    plugin.wait_registered().await.expect("nothing kills it");
    let mut done = 0;
    for step in &script.life.steps {
        match perform(&mut plugin, &lab, &node, *step, &at).await.expect("nothing kills it") {
            Ok(()) => done += 1,
            Err(refusal) => {
                assert!(is_full(&refusal), "{at}: {refusal}");
                break;
            }
        }
    }
    // Somebody else wants the device at once.
    let _ = plugin.prepare(&lab.claim("x")).await.expect("nothing kills it");
    node.state().check(script.whole(), &at);
    drop(plugin);
    // And is gone again.
    let mut plugin = Plugin::start(&lab, &node, script.life.boot, &Fault::default());
    plugin.wait_registered().await.expect("nothing kills it");
    plugin.unprepare(&lab.claim("x")).await.expect("nothing kills it").unwrap();
    drop(plugin);
    recover(&lab, &node, script, Some(done), &at).await;
    done < script.life.steps.len()
}

/// A record is damaged, and its repair dies at its first step, at its second, and so on. Done again it comes to its end.
/// Gives how many steps there are.
pub(crate) async fn kill_repair_everywhere() -> usize {
    let (lab, before) = (Lab::new().await, Node::new());
    for claim in ["a", "b"] {
        live(&lab, &before, &Life::of(&[Step::Prepare(claim)]), &Fault::default(), "before the damage").await;
    }
    before.damage_record(lab.uid("a"));
    let mut points = 0;
    loop {
        let node = before.copy();
        let repair = async |death: Option<&str>| run_command(&node, "repair", FIRST, death).await;
        let died = repair(Some(&format!("*:{}", points + 1))).await.is_err();
        let at = format!("repair killed at step {}", points + 1);
        repair(None).await.unwrap_or_else(|_| panic!("{at}: nothing kills it"));
        let state = node.state();
        let left: Vec<&str> = state.records.iter().map(|record| record.uid.as_str()).collect();
        assert_eq!(left, [lab.uid("b")], "{at}");
        assert_eq!(state.cdi.keys().collect::<Vec<_>>(), [lab.uid("b")], "{at}");
        assert_eq!(node.set_aside().len(), 1, "{at}");
        // Its pods may end, and the record that is whole is as before.
        let again = Life::of(&[Step::Prepare("b"), Step::Unprepare("b")]);
        let lived = live(&lab, &node, &again, &Fault::default(), &at).await;
        assert!(!lived.died, "{at}");
        if !died {
            return points;
        }
        points += 1;
    }
}

/// A driver leaves a node with claims in all states, and its release dies at its first step, at its second, and so on. Done
/// again it comes to its end. Gives how many steps there are.
pub(crate) async fn kill_release_everywhere() -> usize {
    let (lab, before) = (Lab::new().await, Node::new());
    before.prepare_by_another(lab.uid("b"), "gpu-1");
    let prepares = Life::of(&[Step::Prepare("told"), Step::Prepare("a")]).dies_at("driver.after-prepare:2");
    assert!(live(&lab, &before, &prepares, &prepares.fault, "before the release").await.died);
    let mut points = 0;
    loop {
        let node = before.copy();
        let release = async |death: Option<&str>| run_command(&node, "release", FIRST, death).await;
        let died = release(Some(&format!("*:{}", points + 1))).await.is_err();
        let at = format!("release killed at step {}", points + 1);
        node.state().check(Some(FIRST), &at);
        release(None).await.unwrap_or_else(|_| panic!("{at}: nothing kills it"));
        // What the other program has prepared is as it was.
        let state = node.state();
        state.check(Some(FIRST), &at);
        assert!(
            state.records.is_empty() && state.cdi.is_empty() && state.metadata.is_empty(),
            "{at}: {state:#?}"
        );
        assert_eq!(state.hardware.keys().collect::<Vec<_>>(), ["gpu-1"], "{at}");
        assert_eq!((state.foreign_cdi.len(), state.old_books.len()), (1, 1), "{at}");
        // The driver may come back, and the pods end.
        let again = Life::of(&[Step::Unprepare("told"), Step::Unprepare("a"), Step::Unprepare("b")]);
        let lived = live(&lab, &node, &again, &Fault::default(), &at).await;
        assert!(!lived.died, "{at}");
        node.state().check_nothing_left(&at);
        if !died {
            return points;
        }
        points += 1;
    }
}

/// Plays what comes before the script's last process.
async fn set_the_scene(script: &Script) -> (Lab, Node) {
    let (lab, mut node) = (Lab::new().await, Node::new());
    for life in &script.earlier {
        let lived = live(&lab, &node, life, &life.fault, script.name).await;
        assert_eq!(lived.died, life.fault.death.is_some(), "{}", script.name);
        // Without the sockets of the dead.
        node = node.copy();
    }
    for change in &script.changes {
        match *change {
            Change::Delete(claim) => lab.delete(claim),
            Change::AllocateAnew(claim, device) => lab.allocate_anew(claim, &[device]),
            Change::LoseCdiFolder => node.remove_cdi_folder(),
            Change::PreparedByAnother(claim, device) => node.prepare_by_another(lab.uid(claim), device),
        }
    }
    (lab, node)
}

/// What became of a process.
struct Lived {
    /// Steps that had their end.
    done: usize,
    died: bool,
}

/// Plays one process. With a failing step, the kubelet's call must be refused.
async fn live(lab: &Lab, node: &Node, life: &Life, fault: &Fault, at: &str) -> Lived {
    lab.api.clear_calls();
    // Not to be told is no clear answer; 5xx would be asked again by the client.
    let mut hidden = life
        .hidden
        .map(|claim| lab.api.fail_while(Matcher::any().verb(Verb::Get).name(claim), ApiStatus::forbidden()));
    let mut plugin = Plugin::start(lab, node, life.boot, fault);
    if plugin.wait_registered().await.is_err() {
        return Lived { done: 0, died: true };
    }
    for (done, step) in life.steps.iter().enumerate() {
        match (perform(&mut plugin, lab, node, *step, at).await, &fault.failure) {
            (Err(Died), _) => return Lived { done, died: true },
            (Ok(Ok(())), _) => {}
            (Ok(Err(refusal)), Some(_)) => {
                assert!(is_full(&refusal), "{at}: {refusal}");
                return Lived { done, died: false };
            }
            (Ok(Err(refusal)), None) => panic!("{at}: {step:?}: {refusal}"),
        }
        if matches!(step, Step::Asked(_)) {
            hidden = None;
        }
    }
    drop(hidden);
    Lived { done: life.steps.len(), died: false }
}

/// Starts a process that nothing happens to. The kubelet repeats what had no end yet, or gives up; then all claims
/// end, and the devices go to others.
async fn recover(lab: &Lab, node: &Node, script: &Script, repeat_from: Option<usize>, at: &str) {
    const ALIVE: &str = "nothing kills it";
    node.let_time_pass();
    lab.api.clear_calls();
    let boot = script.life.boot;
    let mut plugin = Plugin::start(lab, node, boot, &Fault::default());
    plugin.wait_registered().await.expect(ALIVE);
    if let Some(done) = repeat_from {
        for step in &script.life.steps[done..] {
            let mut performed = perform(&mut plugin, lab, node, *step, at).await.expect(ALIVE);
            // The start is collecting the holder at this moment. The kubelet tries again.
            if performed.as_ref().is_err_and(|refusal| refusal.contains("is held by claim")) {
                for gone in script.deleted() {
                    perform(&mut plugin, lab, node, Step::Collected(gone), at).await.expect(ALIVE).unwrap();
                }
                performed = perform(&mut plugin, lab, node, *step, at).await.expect(ALIVE);
            }
            performed.unwrap_or_else(|error| panic!("{at}: {step:?}: {error}"));
        }
        check_prepared(&mut plugin, lab, node, script.prepared, at).await;
    }
    for claim in lab.claims() {
        let unprepared = plugin.unprepare(&claim).await.expect(ALIVE);
        unprepared.unwrap_or_else(|error| panic!("{at}: unprepare of {claim}: {error}"));
    }
    node.state().check_nothing_left(at);
    for others in ["x", "y"] {
        let prepared = perform(&mut plugin, lab, node, Step::Prepare(others), at).await.expect(ALIVE);
        prepared.unwrap_or_else(|error| panic!("{at}: {others} wants the device: {error}"));
    }
    check_prepared(&mut plugin, lab, node, &["x", "y"], at).await;
    for others in ["x", "y"] {
        let unprepared = perform(&mut plugin, lab, node, Step::Unprepare(others), at).await.expect(ALIVE);
        unprepared.unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    let state = node.state();
    state.check_nothing_left(at);
    assert_eq!(state.boots, [boot], "{at}");
}

/// These claims are prepared and no other, and the kubelet is told the same if it asks again.
async fn check_prepared(plugin: &mut Plugin<'_>, lab: &Lab, node: &Node, names: &[&'static str], at: &str) {
    for again in [false, true] {
        let state = node.state();
        state.check(None, at);
        assert_eq!(state.records.len(), names.len(), "{at}: {state:#?}");
        for name in names {
            let record = state.record(lab.uid(name)).unwrap_or_else(|| panic!("{at}: {name}: {state:#?}"));
            state.check_prepared(record, at);
            assert_eq!(record.devices, lab.devices(name), "{at}");
            if !again {
                let prepared =
                    perform(plugin, lab, node, Step::Prepare(name), at).await.expect("it is alive");
                prepared.unwrap_or_else(|error| panic!("{at}: again: {error}"));
            }
        }
    }
}

/// Does one step, and judges what is said of it. The inner error is a refusal that only a failing step explains.
async fn perform(
    plugin: &mut Plugin<'_>,
    lab: &Lab,
    node: &Node,
    step: Step,
    at: &str,
) -> Result<Result<(), String>, Died> {
    match step {
        Step::Prepare("bad") => {
            let error = plugin.prepare(&lab.claim("bad")).await?.expect_err("the driver fails");
            assert!(error.contains("this device is broken"), "{at}: {error}");
            check_absent(lab, node, "bad", at);
        }
        Step::Refused(name) => {
            let error = plugin.prepare(&lab.claim(name)).await?.expect_err("another has its device");
            assert!(error.contains("is held by claim"), "{at}: {error}");
        }
        Step::Prepare(name) => {
            let devices = match plugin.prepare(&lab.claim(name)).await? {
                Ok(devices) => devices,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let told: Vec<&str> = devices.iter().map(|device| device.device_name.as_str()).collect();
            assert_eq!(told, lab.devices(name), "{at}");
            let can_inject = node.cdi_devices();
            for device in lab.former_devices(name) {
                let id = format!("k8s.{DRIVER}/claim={}-{device}", lab.uid(name));
                assert!(can_inject.contains(&id), "{at}: {id}: {can_inject:?}");
            }
            let state = node.state();
            let record = state.record(lab.uid(name)).unwrap_or_else(|| panic!("{at}: {state:#?}"));
            let apart = if record.foreign_cdi.is_some() { "-adopted" } else { "" };
            for device in &devices {
                let id = format!("k8s.{DRIVER}/claim={}-{}{apart}", lab.uid(name), device.device_name);
                assert_eq!(device.cdi_device_ids, [id.as_str()], "{at}");
                assert!(can_inject.contains(&id), "{at}: {id}: {can_inject:?}");
            }
            state.check_prepared(record, at);
        }
        Step::Unprepare(name) => {
            if let Err(refusal) = plugin.unprepare(&lab.claim(name)).await? {
                return Ok(Err(refusal));
            }
            check_absent(lab, node, name, at);
        }
        Step::Collected(name) => {
            let collected = || node.state().record(lab.uid(name)).is_none();
            plugin.wait_until("the claim is collected", collected).await?;
        }
        Step::Asked(name) => plugin.wait_until_asked(name).await?,
        Step::LoseCdiFolder => node.remove_cdi_folder(),
        Step::LoseMetadataFolder => node.remove_metadata_folder(),
    }
    Ok(Ok(()))
}

/// Nothing of the claim is left.
fn check_absent(lab: &Lab, node: &Node, name: &str, at: &str) {
    let (state, uid) = (node.state(), lab.uid(name));
    let used = state.hardware.values().any(|found| found.owner == uid);
    let absent = state.record(uid).is_none() && !state.cdi.contains_key(uid) && !used;
    assert!(absent, "{at}: {name}: {state:#?}");
}

/// Says what is to be done, too.
fn is_full(text: &str) -> bool {
    text.contains("space")
}
