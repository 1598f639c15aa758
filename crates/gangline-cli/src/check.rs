//! `gangline check`: whether a warm worker gives in lists the answers that it gives alone.

mod equality;
mod findings;
mod json;
mod lists;
mod memory;
mod slot;
mod text;

use crate::args::check::CheckArgs;
use crate::check::findings::Findings;
use crate::check::slot::Checking;
use crate::error::CliError;
use crate::execute::failure::internal;
use crate::execute::setup::{hidden, lanes};
use crate::execute::signals::Attendant;
use crate::exit;
use crate::plan::Plan;
use crate::plan::job::Job;
use crate::plan::job_run::JobRun;
use crate::plan::template::quoted;

/// The output of a check, and the exit status.
pub(crate) struct Checked {
    pub(crate) text: Vec<u8>,
    pub(crate) status: u8,
}

/// Checks the worker on each device in turn.
pub(crate) fn check(args: &CheckArgs, supervisor: Option<i32>) -> Result<Checked, CliError> {
    let typed = args.run().map_err(|error| CliError::new(exit::USAGE, error))?;
    let run = JobRun::new(&typed)?;
    // First, so that no signal is missed.
    let attendant = Attendant::start(supervisor, run.grace, run.rules.ending.lasts());
    let attendant = attendant.map_err(internal)?;
    let mut plans = Plan::all(&typed)?;
    let lanes = lanes(&run, &plans)?;
    attendant.attend_to(&lanes);
    if typed.reads_terminal() {
        let text = "reading samples from the terminal, one per line; end with Ctrl-D";
        lanes.shared.terminal.tell(text);
    }
    // Samples are in no queue, so the gate only says whether the check goes on.
    lanes.begin_one();
    let hidden = hidden(&plans);
    let mut plan = plans.remove(0);
    let samples = samples(&mut plan)?;
    let slots = plan.slots.given(hidden)?;
    let places = plan.slots.devices.places().map(<[_]>::to_vec);
    let mut checked = Vec::new();
    let mut ended = Ok(());
    for (at, (slot, place)) in slots.into_iter().zip(places).enumerate() {
        let checking = Checking { args, run: &run, lanes: &lanes, samples: &samples };
        match checking.slot(at, slot, place, plan.warm_inputs()) {
            Ok(slot) => checked.push(slot),
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    let shared = &lanes.shared;
    if let Some(program) = shared.missing_program.get() {
        // The system reports the same error for both.
        let program = quoted(program);
        shared
            .terminal
            .tell(&format!("{program}, or the interpreter that it names, does not exist"));
    }
    if let Some(signal) = attendant.exit() {
        shared.terminal.tell("ended by a signal");
        return Ok(Checked { text: Vec::new(), status: signal });
    }
    if let Some(error) = shared.take_error() {
        return Err(error);
    }
    ended?;
    let findings = Findings::new(args, &run, samples.len(), checked);
    let text = if args.json { json::of(&findings)? } else { text::of(&findings) };
    let status = match findings.has_held() {
        false => exit::BROKEN,
        true if shared.has_cut_off_end() => exit::OUTPUT,
        true => exit::OK,
    };
    Ok(Checked { text: text.into_bytes(), status })
}

fn samples(plan: &mut Plan) -> Result<Vec<Job>, CliError> {
    let samples: Result<Vec<Job>, _> = plan.jobs()?.collect();
    let samples = samples.map_err(|error| CliError::new(exit::INPUT, error))?;
    match samples.is_empty() {
        true => Err(CliError::new(
            exit::INPUT,
            "there are no samples: write them after :::, or name a file with -a or after ::::",
        )),
        false => Ok(samples),
    }
}
