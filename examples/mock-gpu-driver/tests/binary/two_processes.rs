//! Two processes of the driver with different pods, as in a rolling update, and more claims than devices.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use dra_testkit::kubelet::ClaimRef;
use futures::future::{join, join_all};

use crate::calls::{Call, calls, users};
use crate::instance::{Instance, Node};

const DEVICES: usize = 8;
const CLAIMS: usize = 200;
const PREPARE_TAKES: Duration = Duration::from_millis(20);

/// A node with claims that fight for its devices, and two processes, of which one may end.
struct Two {
    node: Node,
    claims: Vec<Claim>,
    processes: Vec<Instance>,
    dice: Dice,
}

/// A claim, and the device that it has been allocated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    claim: ClaimRef,
    gpu: String,
}

#[derive(Clone, Copy)]
enum What {
    Prepare,
    Unprepare,
}

/// Calls that are made at once, or nearly so.
#[derive(Default)]
struct Wave {
    calls: Vec<(What, Claim)>,
    /// Each call waits at random for up to so many milliseconds.
    spread: usize,
    /// Which process is killed, and at how many calls of the driver in all.
    kill: Option<(usize, usize)>,
}

/// What came of a wave.
#[derive(Default)]
struct Outcome {
    /// The claims that have been prepared.
    won: Vec<Claim>,
    /// Claims that were refused, and who was said to hold their device.
    refused: Vec<(Claim, String)>,
    /// How many calls had no answer, as the process was killed.
    lost: usize,
}

impl Two {
    async fn new(claims: usize) -> Self {
        let node = Node::new().await;
        let claim = |i: usize| {
            let gpu = format!("gpu-{}", i % DEVICES);
            Claim { claim: node.claim(&format!("claim-{i}"), &gpu), gpu }
        };
        let claims = (0..claims).map(claim).collect();
        let mut two = Self { node, claims, processes: Vec::new(), dice: Dice(1) };
        two.start_both().await;
        two
    }

    async fn start_both(&mut self) {
        for pod in ["pod-old", "pod-new"] {
            self.processes.push(self.node.start(pod, PREPARE_TAKES).await);
        }
    }

    fn calls(&self) -> Vec<Call> {
        calls(&self.node.log())
    }

    /// The claims whose devices the driver has in use.
    fn users(&self) -> BTreeSet<String> {
        users(&self.calls()).unwrap().into_values().collect()
    }

    /// Half of the calls go through each process.
    async fn run(&mut self, wave: Wave) -> Outcome {
        let through_old = self.dice.half_of(wave.calls.len());
        let dice = &mut self.dice;
        let asked: Vec<_> = (wave.calls.iter().zip(through_old))
            .map(|((what, Claim { claim, .. }), old)| {
                let process = if old { self.processes.first() } else { self.processes.last() };
                let process = process.expect("one of them runs");
                let pause = Duration::from_millis(dice.below(wave.spread + 1).try_into().unwrap());
                async move {
                    tokio::time::sleep(pause).await;
                    match what {
                        What::Prepare => process.prepare(claim).await,
                        What::Unprepare => {
                            process.unprepare(claim).await.map(|done| done.map(|()| Vec::new()))
                        }
                    }
                }
            })
            .collect();
        let death = async {
            let Some((victim, at)) = wave.kill else { return };
            while self.calls().len() < at {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.processes[victim].kill();
        };
        let (answers, ()) = join(join_all(asked), death).await;
        let mut outcome = Outcome::default();
        for ((what, claim), answer) in wave.calls.into_iter().zip(answers) {
            match (what, answer) {
                (_, None) => outcome.lost += 1,
                (What::Prepare, Some(Ok(devices))) => {
                    let names: Vec<_> = devices.iter().map(|device| &device.device_name).collect();
                    assert_eq!(names, [&claim.gpu], "of {}", claim.claim);
                    outcome.won.push(claim);
                }
                (What::Prepare, Some(Err(error))) => {
                    let holder = holder(&error, &claim.gpu);
                    outcome.refused.push((claim, holder));
                }
                (What::Unprepare, Some(done)) => {
                    done.unwrap_or_else(|error| panic!("{}: {error}", claim.claim));
                }
            }
        }
        outcome
    }

    /// Prepares all claims at once while nothing is given back: each device has one winner.
    async fn prepare_all(&mut self) -> Outcome {
        let calls = self.claims.iter().map(|claim| (What::Prepare, claim.clone()));
        let outcome = self.run(Wave { calls: calls.collect(), ..Wave::default() }).await;
        let gpus: BTreeSet<_> = outcome.won.iter().map(|claim| &claim.gpu).collect();
        let counts = (outcome.won.len(), gpus.len(), outcome.refused.len(), outcome.lost);
        assert_eq!(counts, (DEVICES, DEVICES, self.claims.len() - DEVICES, 0));
        assert_eq!(self.users(), names(&outcome.won), "the driver has prepared the winners");
        outcome
    }

    /// Gives some devices back while everybody else asks for them.
    async fn change_hands(
        &mut self,
        holders: &[Claim],
        go: &[Claim],
        kill: Option<(usize, usize)>,
    ) -> Outcome {
        let waiting = self.claims.iter().filter(|claim| !holders.contains(claim));
        let prepares = waiting.map(|claim| (What::Prepare, claim.clone()));
        let unprepares = go.iter().map(|claim| (What::Unprepare, claim.clone()));
        let calls = prepares.chain(unprepares).collect();
        self.run(Wave { calls, spread: 500, kill }).await
    }

    /// Unprepares all claims, those too that were never prepared.
    async fn end_all(&mut self) {
        let calls = self.claims.iter().map(|claim| (What::Unprepare, claim.clone()));
        let outcome = self.run(Wave { calls: calls.collect(), ..Wave::default() }).await;
        assert_eq!(outcome.lost, 0);
        assert_eq!(self.users(), BTreeSet::new(), "the driver has undone all");
    }
}

/// Numbers that look random and are the same each time; what the machine makes of them is not.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// Half of `count` places, at random.
    fn half_of(&mut self, count: usize) -> Vec<bool> {
        let mut chosen: Vec<bool> = (0..count).map(|i| i % 2 == 0).collect();
        for i in (1..count).rev() {
            chosen.swap(i, self.below(i + 1));
        }
        chosen
    }
}

fn names(claims: &[Claim]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.claim.to_string()).collect()
}

/// Whom a refusal of this device names.
fn holder(error: &str, gpu: &str) -> String {
    let rest = error.strip_prefix(&format!("device node-1/{gpu} is held by claim "));
    let holder = rest.and_then(|rest| rest.strip_suffix(", which has not been unprepared yet"));
    holder.unwrap_or_else(|| panic!("no refusal of {gpu} that names its holder: {error}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_claims_through_two_processes_each_gpu_goes_to_one_at_a_time() {
    let mut two = Two::new(CLAIMS).await;
    let first = two.prepare_all().await;
    assert_eq!(two.calls().len(), DEVICES, "no loser got as far as the driver");
    let mut holders = first.won;
    for (claim, holder) in first.refused {
        assert!(names(&holders).contains(&holder), "{} was told of {holder}", claim.claim);
    }
    let mut changed_hands = 0;
    for wave in 0..6 {
        let leaves = two.dice.half_of(holders.len());
        let go: Vec<Claim> = holders
            .iter()
            .zip(leaves)
            .filter(|(_, leaves)| *leaves)
            .map(|(claim, _)| claim.clone())
            .collect();
        let outcome = two.change_hands(&holders, &go, None).await;
        assert_eq!(outcome.lost, 0, "wave {wave}");
        holders.retain(|claim| !go.contains(claim));
        changed_hands += outcome.won.len();
        holders.extend(outcome.won);
        assert_eq!(two.users(), names(&holders), "wave {wave}: the driver has prepared those who won");
        assert_eq!(two.node.books().len(), 2 * holders.len(), "wave {wave}: a record and a CDI file each");
    }
    assert!(changed_hands > 0, "no device went from one claim to another");
    println!("{changed_hands} devices changed hands in {} calls of the driver", two.calls().len());
    two.end_all().await;
    assert_eq!(two.node.books(), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_claims_through_two_processes_at_once_are_one_driver_call_each() {
    let two = Two::new(DEVICES).await;
    let through_both =
        || two.processes.iter().flat_map(|process| two.claims.iter().map(move |claim| (process, claim)));
    for _ in 0..5 {
        let before = two.calls().len();
        let asked = through_both().map(|(process, claim)| process.prepare(&claim.claim));
        let answers: Vec<_> =
            join_all(asked).await.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
        assert_eq!(answers[..DEVICES], answers[DEVICES..], "both answer the same");
        let asked = through_both().map(|(process, claim)| process.unprepare(&claim.claim));
        for done in join_all(asked).await {
            done.unwrap().unwrap();
        }
        let mut calls = two.calls().split_off(before);
        calls.sort();
        let once = ["prepare", "unprepare"].iter().flat_map(|name| {
            two.claims.iter().map(|Claim { claim, gpu }| Call {
                name: (*name).to_owned(),
                claim: claim.to_string(),
                device: gpu.clone(),
            })
        });
        assert_eq!(calls, once.collect::<Vec<_>>());
    }
    assert_eq!(two.users(), BTreeSet::new());
    assert_eq!(two.node.books(), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_one_of_two_processes_is_killed_the_other_goes_on_and_the_books_end_clean() {
    let mut two = Two::new(CLAIMS).await;
    let mut lost = 0;
    // Four devices are given back in any case.
    for (round, after) in (1..=4).enumerate() {
        let holders = two.prepare_all().await.won;
        let go: Vec<Claim> = holders.iter().step_by(2).cloned().collect();
        let victim = round % 2;
        let outcome = two.change_hands(&holders, &go, Some((victim, two.calls().len() + after))).await;
        lost += outcome.lost;
        two.processes.remove(victim);

        two.prepare_all().await;
        two.end_all().await;
        let books = two.node.books();
        assert!(
            books.iter().all(|path| path.extension().is_some_and(|end| end == "tmp")),
            "round {round}: {books:?}"
        );
        two.node.let_time_pass();
        // Beside the other one: in rolling updates no instance is ever alone.
        let successor = two.node.start(&format!("pod-{round}"), PREPARE_TAKES).await;
        two.processes.insert(victim, successor);
        assert_eq!(
            two.node.books(),
            Vec::<PathBuf>::new(),
            "round {round}: a start sweeps what a dead one was writing"
        );
    }
    assert!(lost > 0, "no process was killed before it had answered all calls");
    println!("{lost} calls went without an answer");
}
