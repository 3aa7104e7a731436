//! One call, and what goes wrong with it.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_SUCCESS;

use super::super::code::{Code, complain};
use super::{FOLDER, machine, session};
use crate::{Faults, Machine, Moment};

/// How often a call that is held looks whether it still is.
const HELD: Duration = Duration::from_millis(10);

/// A call of a function.
pub(crate) struct Call {
    name: &'static str,
    /// A fault said that the process ends when the call is done.
    ends_process: Cell<bool>,
}

impl Call {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ends_process: Cell::new(false) }
    }

    pub(super) fn run(self, body: impl FnOnce(&Self) -> Result<(), Code>) -> Result<(), Code> {
        let result = self.attempt(body);
        self.log(result);
        if self.ends_process.get() {
            end_process();
        }
        result
    }

    fn attempt(&self, body: impl FnOnce(&Self) -> Result<(), Code>) -> Result<(), Code> {
        self.suffer(|machine| Some(&machine.faults))?;
        if !self.name.starts_with("nvmlInit") && session().users == 0 {
            return Err(Code::UNINITIALIZED);
        }
        body(self)
    }

    /// Waits, fails or ends the process as the faults say.
    pub(super) fn suffer(&self, faults: impl Fn(&Machine) -> Option<&Faults>) -> Result<(), Code> {
        let machine = loop {
            let machine = machine()?;
            match faults(&machine) {
                Some(faults) if faults.hold.contains(self.name) => thread::sleep(HELD),
                Some(_) => break machine,
                None => return Ok(()),
            }
        };
        let Some(faults) = faults(&machine) else {
            return Ok(());
        };
        if let Some(milliseconds) = faults.slow_ms.get(self.name) {
            thread::sleep(Duration::from_millis(*milliseconds));
        }
        match faults.crash.get(self.name) {
            Some(Moment::Before) => end_process(),
            Some(Moment::After) => self.ends_process.set(true),
            None => {}
        }
        faults.fail.get(self.name).map_or(Ok(()), |code| Err(Code(*code)))
    }

    fn log(&self, result: Result<(), Code>) {
        let (Some(folder), Ok(machine)) = (FOLDER.as_ref(), machine()) else {
            return;
        };
        if !machine.log_calls {
            return;
        }
        let code = result.map_or_else(|code| code.0, |()| nvmlReturn_enum_NVML_SUCCESS);
        let line = format!("{} {} {code}\n", std::process::id(), self.name);
        let file = OpenOptions::new().append(true).create(true).open(folder.calls_path());
        // One write for each line: those of several processes do not mix.
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            complain(&error);
        }
    }
}

/// Nothing of the process runs after this, as with `kill -9`.
fn end_process() {
    if raise(Signal::SIGKILL).is_err() {
        std::process::abort();
    }
}
