//! Random allocations, to hold `dra-allocator` against the scheduler's own allocators.
//!
//! A seed and a number give a world: a node, classes, slices, claims that hold devices, and claims of a pod. The oracle, a
//! process of Go, and the crate allocate in it; the oracle does not learn what the crate says. A world in which they differ
//! is made as small as it can be while they do. Worlds that were found so are kept in `fuzz/kept.json`, with what Go said.

mod compare;
mod draw;
mod kept;
mod oracle;
mod shrink;
mod world;

use std::{fmt::Write as _, mem::discriminant, path::Path};

use anyhow::{Result, ensure};

use self::{
    compare::{Outcome, ours},
    kept::Kept,
    oracle::Oracle,
    world::World,
};

/// Differences that are shrunk before the run ends.
const MOST_DIFFERENCES: usize = 5;

/// How many worlds, and with which dice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) cases: u64,
    pub(crate) seed: u64,
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    asked: usize,
    allocated: usize,
    refused: usize,
    failed: usize,
    unsupported: usize,
}

/// Asks the oracle about the kept worlds and about random ones. Gives a summary. Blocks.
pub(crate) fn run(program: &Path, settings: Settings) -> Result<String> {
    let mut oracle = Oracle::start(program)?;
    let kept = kept::all()?;
    for case in &kept {
        let theirs = oracle.ask(&case.world, case.allocator())?;
        ensure!(
            theirs.is_same(&case.outcome, case.allocator()),
            "{:?}: Go says {theirs:#?} now, not {:#?}",
            case.name,
            case.outcome
        );
    }
    let mut counts = Counts::default();
    let mut differences = Vec::new();
    for number in 0..settings.cases {
        let world = draw::world(settings.seed, number);
        for allocator in world.allocators() {
            let theirs = oracle.ask(&world, allocator)?;
            let ours = ours(&world);
            counts.add(&theirs, &ours);
            if !theirs.is_same(&ours, allocator) {
                differences.push(difference(&mut oracle, &world, allocator, number)?);
                break;
            }
        }
        if differences.len() == MOST_DIFFERENCES {
            break;
        }
    }
    ensure!(differences.is_empty(), "seed {}:\n{}", settings.seed, differences.join("\n"));
    let Settings { cases, seed } = settings;
    let Counts { asked, allocated, refused, failed, unsupported } = counts;
    ensure!(unsupported * 100 <= asked, "{unsupported} of {asked} questions are not supported");
    Ok(format!(
        "    {} kept and {cases} random worlds, seed {seed}: {asked} answers, all equal: {allocated} allocations, \
         {refused} refusals of the node, {failed} errors; {unsupported} are not supported\n",
        kept.len()
    ))
}

/// The smallest world that shows the difference.
fn difference(oracle: &mut Oracle, world: &World, allocator: &str, number: u64) -> Result<String> {
    // Another difference may come up on the way.
    let kind = |theirs: &Outcome, ours: &Outcome| (discriminant(theirs), discriminant(ours));
    let found = kind(&oracle.ask(world, allocator)?, &ours(world));
    let smallest = shrink::smallest(world, |world| {
        let (theirs, ours) = (oracle.ask(world, allocator)?, ours(world));
        Ok(!theirs.is_same(&ours, allocator) && kind(&theirs, &ours) == found)
    })?;
    let (theirs, ours) = (oracle.ask(&smallest, allocator)?, ours(&smallest));
    let mut text = format!("case {number}, {allocator}: Go says {theirs:#?}, we {ours:#?}\nto be kept:\n");
    let kept = Kept { name: "say what it is".to_owned(), world: smallest, outcome: theirs };
    let _ = writeln!(text, "{}", serde_json::to_string(&kept)?);
    Ok(text)
}

impl Counts {
    fn add(&mut self, theirs: &Outcome, ours: &Outcome) {
        self.asked += 1;
        match (theirs, ours) {
            (_, Outcome::Unsupported) | (Outcome::Unsupported, _) => self.unsupported += 1,
            (Outcome::Allocated(_), _) => self.allocated += 1,
            (Outcome::NotHere, _) => self.refused += 1,
            (Outcome::Failed(_), _) => self.failed += 1,
        }
    }
}
