//! `--dry-run`: commands are printed, and none is started.

use std::io::{self, Write};

use crate::error::CliError;
use crate::execute::failure::unwritable;
use crate::execute::setup::hidden;
use crate::exit;
use crate::output::stdio;
use crate::plan::Planned;
use crate::plan::input_error::InputError;
use crate::plan::job::Job;
use crate::plan::job_run::JobRun;
use crate::plan::slot::JobSlot;

/// Prints the words of every command, quoted for a shell, in the order of the jobs. Warm workers' commands
/// differ only by slot, and are printed once for each.
pub(crate) fn dry_run(
    run: &JobRun,
    Planned { lanes: plans, notes }: Planned,
) -> Result<u8, CliError> {
    for note in notes {
        // If standard error is gone, no other way to report remains.
        let _ = writeln!(stdio::stderr(), "gangline: {note}");
    }
    let hidden = hidden(&plans);
    let mut lanes = Vec::with_capacity(plans.len());
    let mut first_worker = 0;
    for mut plan in plans {
        let slots = plan.slots.given(hidden)?;
        let first = first_worker;
        first_worker += slots.len();
        let most = if run.warm.is_some() { slots.len() } else { usize::MAX };
        let jobs = plan.jobs()?.take(most).enumerate();
        let lines = jobs.map(move |(turn, job)| {
            Ok::<_, CliError>(line(job.map_err(of_input)?, &slots, first, turn))
        });
        lanes.push(lines.peekable());
    }
    let mut stdout = stdio::stdout();
    let number =
        |line: &Result<(u64, String), CliError>| line.as_ref().map_or(0, |(number, _)| *number);
    loop {
        let heads = lanes.iter_mut().filter_map(|lane| Some((lane.peek().map(number)?, lane)));
        let Some((_, lane)) = heads.min_by_key(|(number, _)| *number) else { break };
        let Some(line) = lane.next() else { break };
        match writeln!(stdout, "{}", line?.1) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(exit::BROKEN_PIPE);
            }
            written => written.map_err(|error| unwritable(&"standard output", error))?,
        }
    }
    Ok(exit::OK)
}

fn line(job: Job, slots: &[JobSlot], first_worker: usize, turn: usize) -> (u64, String) {
    let slot = turn % slots.len();
    let given = slots[slot].given(&job.command);
    let mut words = job.words(&given.ids, first_worker + slot, 1);
    words.set_first(&given.variables);
    (job.number, words.quoted())
}

fn of_input(error: InputError) -> CliError {
    CliError::new(exit::INPUT, error)
}
