//! The end of a run: reports, the last messages, and the exit status.

use crate::args::halt::{Condition, CountedOutcomes, Tally};
use crate::error::CliError;
use crate::execute::lane::Lanes;
use crate::exit;
use crate::output::report;
use crate::plan::job_run::{EarlierRun, JobRun};
use crate::plan::template::quoted;
use gangline::RunReport;

/// The end of one lane.
pub(super) struct LaneEnd {
    pub(super) result: Result<(), CliError>,
    pub(super) report: Option<RunReport>,
}

impl LaneEnd {
    pub(super) fn failed(error: CliError) -> LaneEnd {
        LaneEnd { result: Err(error), report: None }
    }
}

pub(super) fn conclude(
    run: &JobRun,
    lanes: &Lanes,
    ends: Vec<LaneEnd>,
    signalled: Option<u8>,
) -> Result<u8, CliError> {
    let mut result = Ok(());
    let mut reports = Vec::new();
    for LaneEnd { result: ended, report } in ends {
        result = result.and(ended);
        reports.extend(report);
    }
    for report in &mut reports {
        report::as_typed(report);
        report.provenance.retry = retry(run, report);
    }
    let written = report::write_all(&run.reports, &reports);
    let tally = lanes.shared.tally();
    tell(run, lanes, tally, signalled);
    if let Some(error) = lanes.shared.take_error() {
        return Err(error);
    }
    result?;
    written?;
    let status = signalled.unwrap_or(match run.rules.halt.condition() {
        // What was asked for has been reached.
        Some(Condition { counted: CountedOutcomes::Succeeded, .. }) if lanes.shared.is_halted() => {
            exit::OK
        }
        _ => exit::of_failures(tally.failed),
    });
    Ok(match status {
        exit::OK if lanes.shared.has_cut_off_end() => exit::OUTPUT,
        status => status,
    })
}

/// The command that runs the failed jobs again. Empty if no journal or log has them.
fn retry(run: &JobRun, report: &RunReport) -> Vec<String> {
    let command = &report.provenance.command;
    // A report shortens long arguments and long commands, with `...` at the end.
    let is_whole = !command.iter().any(|word| word.ends_with("..."));
    let [program, name, options @ ..] = &command[..] else { return Vec::new() };
    if report.account.failed == 0 || !is_whole || name != "run" {
        return Vec::new();
    }
    let begins = [program.clone(), name.clone()].into_iter();
    match (&run.journal, &run.joblog) {
        (Some(_), _) if run.earlier != EarlierRun::None => command.clone(),
        (Some(_), _) => {
            begins.chain(["--resume-failed".to_owned()]).chain(options.iter().cloned()).collect()
        }
        // The log records neither the inputs of warm workers nor which GPUs were free.
        (None, Some(log))
            if run.warm.is_none() && report.producers.iter().all(|slot| slot.place == "cpu") =>
        {
            let log = log.display().to_string();
            begins.chain(["--joblog".to_owned(), log, "--retry-failed".to_owned()]).collect()
        }
        (None, _) => Vec::new(),
    }
}

/// Prints the messages that a user must not miss.
fn tell(run: &JobRun, lanes: &Lanes, tally: Tally, signalled: Option<u8>) {
    let Tally { ok, failed } = tally;
    let ended = ok + failed;
    let replayed: u64 =
        lanes.lanes.iter().filter_map(|lane| lane.held.as_ref()).map(|held| held.replayed()).sum();
    if replayed > 0 {
        let jobs = if replayed == 1 { "job" } else { "jobs" };
        lanes.shared.terminal.tell(&format!(
            "{replayed} {jobs} had ended when the last run was cut off, and did not run again"
        ));
    }
    let early_end = lanes.early_end();
    let cut_off = match early_end.ended.len() {
        0 => String::new(),
        1 => ", and 1 was ended with the run".to_owned(),
        more => format!(", and {more} were ended with the run"),
    };
    if failed > 0 {
        lanes.shared.terminal.tell_failure(&format!("{failed} of {ended} jobs failed{cut_off}"));
    }
    if let Some((halt, job)) = &early_end.halt {
        let left = match lanes.have_left_jobs() {
            true => "; jobs that had not started were not run",
            false => "",
        };
        let cut_off = if failed > 0 { "" } else { &*cut_off };
        let text = format!("ended by --halt {halt} after job {job}{cut_off}{left}");
        lanes.shared.terminal.tell(&text);
    }
    if let Some(program) = lanes.shared.missing_program.get() {
        // The system has one error for both.
        let text = format!(
            "{}, or the interpreter that it names, does not exist, so jobs that had not started were not run",
            quoted(program)
        );
        lanes.shared.terminal.tell(&text);
    }
    if signalled.is_some() {
        let rest = if run.journal.is_some() { "; continue with --resume" } else { "" };
        let jobs = if ok == 1 { "job" } else { "jobs" };
        lanes.shared.terminal.tell(&format!("ended by a signal, with {ok} {jobs} done{rest}"));
    }
}
