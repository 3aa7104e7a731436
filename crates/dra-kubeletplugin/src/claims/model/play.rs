//! One run: random steps, a look at everything whenever it is quiet, and at the end nothing may be left.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    ON_THE_SPOT,
    api::Mood,
    books::Kind,
    process::{Caller, Process},
    world::{CLAIMS, World},
};
use crate::claim::ClaimRef;

/// How long a stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What an instance may take, in its own time, until it is quiet.
const PATIENCE: Duration = Duration::from_secs(3600);

struct Run {
    world: Arc<World>,
    processes: [Option<Process>; 2],
    /// Instances that were told to stop, each with the time at which it ends, whatever it does.
    stopping: Vec<(Process, Instant)>,
    /// How many instances may live at once.
    limit: usize,
    started: u64,
    operations: u64,
}

/// Plays the run of a seed; gives how many operations it had, or what went wrong and how it came to that.
pub(super) fn run(seed: u64) -> Result<u64, String> {
    let world = World::new(seed);
    let limit = if seed.is_multiple_of(2) { 2 } else { 1 };
    // Real threads now and then, as only they really do two things at once; such a run may go another way next time.
    let threads = world.dice.one_in(5);
    ON_THE_SPOT.set(!threads);
    world.note(format!("instances: {limit}, file work on threads: {threads}"));
    let mut run =
        Run { world, processes: [None, None], stopping: Vec::new(), limit, started: 0, operations: 0 };
    run.start(0);
    for _ in 0..10 + run.world.dice.below(21) {
        run.operation();
        for _ in 0..run.world.dice.below(4) {
            run.slice();
        }
        run.world.verdict()?;
    }
    run.quiet()?;
    run.finish()?;
    Ok(run.operations)
}

impl Run {
    fn operation(&mut self) {
        self.operations += 1;
        let dice = Arc::clone(&self.world);
        let dice = &dice.dice;
        let slot = dice.index(self.limit);
        let index = dice.index(CLAIMS);
        match dice.below(100) {
            0..32 => self.call(slot, Kind::Prepare, self.some_claim(index)),
            32..50 => self.call(slot, Kind::Unprepare, self.some_claim(index)),
            // A kubelet that starts asks for all its pods anew.
            50..54 => self.call_all(slot, Kind::Prepare),
            54..56 => self.call_all(slot, Kind::Unprepare),
            56..62 => {
                self.reallocate(index);
                if dice.one_in(2) {
                    let claim = self.world.state().api.current(index);
                    self.call(slot, Kind::Prepare, claim);
                }
            }
            62..66 => self.delete(index),
            66..69 => self.replace(index),
            69..73 => self.change_mood(),
            73..79 => self.sweep(slot),
            79..82 => self.crash(slot),
            82..85 => self.stop(slot),
            85..92 => self.start(slot),
            92..95 => self.reboot(),
            95..97 => self.pass(),
            97 => self.kubelet(slot),
            _ => {
                // What comes of it is seen by the verdict after the step.
                let _ = self.quiet();
            }
        }
        if self.processes.iter().all(Option::is_none) && !dice.one_in(3) {
            self.start(slot);
        }
    }

    fn some_claim(&self, index: usize) -> ClaimRef {
        let state = self.world.state();
        if self.world.dice.one_in(6) {
            return self.world.dice.pick(&state.api.all()).clone();
        }
        state.api.current(index)
    }

    fn call(&mut self, slot: usize, kind: Kind, claim: ClaimRef) {
        let caller = self.caller();
        if let Some(process) = &mut self.processes[slot] {
            process.call(kind, claim, caller);
        }
    }

    fn call_all(&mut self, slot: usize, kind: Kind) {
        for index in 0..CLAIMS {
            let claim = self.world.state().api.current(index);
            self.call(slot, kind, claim);
        }
    }

    fn caller(&self) -> Caller {
        let dice = &self.world.dice;
        let short = |limit| i64::try_from(dice.below(limit)).unwrap();
        let deadline_ms = match dice.below(10) {
            0 => -short(1000),
            1 => short(200),
            2 => short(10_000),
            _ => 45_000,
        };
        let polls = dice.one_in(6).then(|| dice.below(12));
        Caller { deadline_ms, polls, leaves: dice.one_in(2) }
    }

    fn reallocate(&self, index: usize) {
        let mut state = self.world.state();
        let claim = state.api.current(index);
        // A claim that was in use before the first instance started keeps what it has: the scheduler leaves it alone.
        if !state.checkpoint.has(&claim.uid) && state.api.reallocate(&self.world.dice, index) {
            state.books.reallocated(&claim.uid);
            let allocation = state.api.allocation(&claim);
            state.log.push(format!("{claim} is allocated anew: {allocation:?}"));
            drop(state);
            self.tell_gone(&claim);
        }
    }

    fn delete(&self, index: usize) {
        let claim = self.world.state().api.current(index);
        self.world.note(format!("{claim} is deleted"));
        self.world.state().api.delete(index);
        self.tell_gone(&claim);
    }

    fn replace(&self, index: usize) {
        let claim = self.world.state().api.current(index);
        self.world.state().api.replace(&self.world.dice, index);
        self.world.note(format!("{claim} is replaced"));
        self.tell_gone(&claim);
    }

    fn tell_gone(&self, claim: &ClaimRef) {
        for process in self.processes.iter().flatten() {
            let now = process.now();
            self.world.state().books.gone(&claim.uid, process.id, now);
        }
    }

    fn change_mood(&self) {
        let mood = *self.world.dice.pick(&[
            Mood::Well,
            Mood::Well,
            Mood::Status(500),
            Mood::Status(429),
            Mood::Status(403),
            Mood::Broken,
            Mood::Silent,
            Mood::Empty,
        ]);
        let mut state = self.world.state();
        // Restoring it takes a while; nobody asks before and after in one breath.
        if state.api.mood != Mood::Empty {
            state.log.push(format!("API server: {mood:?}"));
            state.api.mood = mood;
        }
    }

    fn sweep(&mut self, slot: usize) {
        if self.world.dice.one_in(4) {
            self.kubelet(slot);
        }
        if let Some(process) = &mut self.processes[slot] {
            process.sweep();
        }
    }

    /// The kubelet goes away or comes back.
    fn kubelet(&mut self, slot: usize) {
        let registered = self.world.dice.one_in(2);
        if let Some(process) = &mut self.processes[slot] {
            process.kubelet(registered);
        }
    }

    /// An instance is told to stop. It begins nothing new; the next one may be started at once.
    fn stop(&mut self, slot: usize) {
        if let Some(mut process) = self.processes[slot].take() {
            self.world.note(format!("process {} is told to stop", process.id));
            process.stop();
            let end = process.now() + STOP_WITHIN;
            self.stopping.push((process, end));
        }
    }

    /// Ends the instances that have stopped, whose time for that is over, or that could not start.
    fn reap(&mut self) {
        for slot in 0..self.limit {
            if self.processes[slot].as_ref().is_some_and(Process::has_failed) {
                self.crash(slot);
            }
        }
        for (mut process, end) in std::mem::take(&mut self.stopping) {
            let id = process.id;
            if process.is_quiet() {
                self.world.note(format!("process {id} has stopped"));
                drop(process);
                self.world.state().books.ended(id);
            } else if process.now() >= end {
                self.world.note(format!("process {id} ends with work under way"));
                drop(process);
                self.world.state().books.died(id);
            } else {
                self.stopping.push((process, end));
            }
        }
    }

    /// Lets time go on for all instances.
    fn run_for(&mut self, time: Duration) {
        let stopping = self.stopping.iter().map(|(process, _)| process);
        for process in self.processes.iter().flatten().chain(stopping) {
            process.run_for(time);
        }
        self.reap();
    }

    fn sweep_all(&mut self) {
        for slot in 0..self.limit {
            self.sweep(slot);
        }
    }

    fn crash(&mut self, slot: usize) {
        if let Some(process) = self.processes[slot].take() {
            let id = process.id;
            self.world.note(format!("process {id} dies"));
            drop(process);
            self.world.state().books.died(id);
        }
    }

    fn start(&mut self, slot: usize) {
        if self.processes[slot].is_some() {
            return;
        }
        self.started += 1;
        let id = self.started;
        self.world.note(format!("process {id} starts"));
        let process = Process::start(&self.world, id, self.limit > 1);
        let now = process.now();
        let mut state = self.world.state();
        for claim in state.api.all() {
            if !state.api.has(&claim) || state.books.was_reallocated(&claim.uid) {
                state.books.gone(&claim.uid, id, now);
            }
        }
        drop(state);
        self.processes[slot] = Some(process);
    }

    fn reboot(&mut self) {
        for slot in 0..self.limit {
            self.crash(slot);
        }
        for (process, _) in std::mem::take(&mut self.stopping) {
            let id = process.id;
            drop(process);
            self.world.state().books.died(id);
        }
        self.world.reboot();
        self.start(0);
        if self.limit > 1 && self.world.dice.one_in(2) {
            self.start(1);
        }
    }

    /// A long time passes, with looks for orphans at its beginning and end.
    fn pass(&mut self) {
        self.sweep_all();
        self.world.note("eleven minutes pass");
        for _ in 0..66 {
            self.run_for(Duration::from_secs(10));
        }
        self.sweep_all();
    }

    /// Each instance gets a little further, in either order.
    fn slice(&mut self) {
        let dice = &self.world.dice;
        let first = dice.index(2);
        let living = [first, 1 - first].map(|slot| self.processes[slot].as_ref());
        let stopping = self.stopping.iter().map(|(process, _)| process);
        for process in living.into_iter().flatten().chain(stopping) {
            match dice.below(4) {
                0 => process.run_for(Duration::from_millis(1 + dice.below(40))),
                _ => process.step(Duration::from_millis(dice.below(4))),
            }
        }
        self.reap();
    }

    /// Waits until nothing is going on, then looks at everything.
    fn quiet(&mut self) -> Result<(), String> {
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(1));
        while !self.processes.iter_mut().flatten().all(Process::is_quiet) || !self.stopping.is_empty() {
            self.world.verdict()?;
            if waited > PATIENCE {
                self.world.problem("something never ends");
            }
            self.run_for(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        self.world.note("quiet");
        if self.world.state().api.mood == Mood::Empty {
            self.world.state().api.mood = Mood::Well;
        }
        let claims = self.processes.iter().flatten().filter_map(Process::claims);
        self.world.audit(claims.map(|claims| &**claims));
        self.world.verdict()
    }

    /// All faults over, every claim can be unprepared, and then there is nothing.
    fn finish(&mut self) -> Result<(), String> {
        self.world.note("all is well from now on");
        {
            let mut state = self.world.state();
            state.calm = true;
            state.api.mood = Mood::Well;
        }
        self.quiet()?;
        if self.processes.iter().all(Option::is_none) {
            self.start(0);
        }
        self.quiet()?;
        let claims = self.world.state().api.all();
        for claim in claims {
            let living: Vec<usize> = (0..self.limit).filter(|slot| self.processes[*slot].is_some()).collect();
            let slot = *self.world.dice.pick(&living);
            self.operations += 1;
            if let Some(process) = &mut self.processes[slot] {
                process.call(
                    Kind::Unprepare,
                    claim,
                    Caller { deadline_ms: 45_000, polls: None, leaves: false },
                );
            }
        }
        self.quiet()?;
        self.sweep_all();
        self.quiet()?;
        self.world.check_empty();
        for claims in self.processes.iter().flatten().filter_map(Process::claims) {
            self.world.check_clocks(claims);
        }
        self.world.verdict()
    }
}
