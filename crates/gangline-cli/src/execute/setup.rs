//! Prepares what a run needs before its jobs start.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::args::running::{Running, TermSequence};
use crate::args::workers::Workers;
use crate::args::{RecordArgs, RunArgs};
use crate::error::CliError;
use crate::execute::brake::{self, Brake};
use crate::execute::failure::{internal, journal_exists, unwritable};
use crate::execute::groups::Groups;
use crate::execute::held::HeldOutputs;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::limits::allow_files;
use crate::execute::records::{DoneJobs, Records};
use crate::execute::retries::JobRetries;
use crate::execute::sequence::Turns;
use crate::execute::shared::{Announced, Files, Output, Rules, SharedRun};
use crate::output::joblog::{Existing, JobLog, LogStart};
use crate::output::report;
use crate::output::results::ResultsTarget;
use crate::output::stdio;
use crate::output::table::Errors;
use crate::output::terminal::{FailureMessages, OnTerminal, ProgressLines, Terminal};
use crate::plan::job::Needs;
use crate::plan::slot::Hidden;
use crate::plan::{self, Plan};
use gangline::{CancelToken, Order};

/// What the command probably does not mean.
pub(super) fn doubts(args: &RunArgs, plans: &[Plan]) -> Vec<String> {
    let is_the_same = !plans.iter().all(Plan::differs_by_job);
    let all_the_same = "every job runs the same command: it has no mark, such as {}, for the input";
    let same = is_the_same.then(|| all_the_same.to_owned());
    let others = [plan::unexpanded(args), plan::empty_source(args)];
    same.into_iter().chain(others.into_iter().flatten()).collect()
}

/// The variables that are hidden from slots without a GPU.
pub(crate) fn hidden(plans: &[Plan]) -> Hidden {
    match plans.iter().any(|plan| plan.slots.have_gpus()) {
        true => Hidden::Others,
        false => Hidden::Nothing,
    }
}

/// The lanes of a run, and what they share.
pub(crate) fn lanes(args: &RunArgs, plans: &[Plan]) -> Result<Lanes, CliError> {
    let workers = plans.iter().map(|plan| plan.slots.len()).sum();
    allow_files(workers)?;
    args.record.report.iter().try_for_each(|path| report::check_place(path))?;
    let results = results(args, plans)?;
    let shared = shared(args, workers, results)?;
    let mut first_worker = 0;
    let mut lanes = Vec::with_capacity(plans.len());
    for (plan, turns) in plans.iter().zip(turns(args, plans)?) {
        let (gate, token) = (Arc::clone(&plan.gate), CancelToken::new());
        let texts = Arc::new(plan.texts.clone());
        if shared.rules.showing == Output::LinesInOrder {
            gate.keep_heads();
        }
        let held = held(args, plan)?;
        let retries = Arc::new(JobRetries::new(args.failure.retries));
        let records = args.printing.records.map(|fields| {
            Records::new(fields, plan.warm_inputs().shape, order(args), done_jobs(args))
        });
        let lists = Arc::default();
        lanes.push(Lane { gate, token, first_worker, turns, texts, retries, held, records, lists });
        first_worker += plan.slots.len();
    }
    Ok(Lanes::new(shared, lanes))
}

/// Whether jobs of an earlier run get records. With `--resume-failed` they do not: a job that is not run again may not
/// be done.
fn done_jobs(args: &RunArgs) -> DoneJobs {
    match args.record.resume {
        true => DoneJobs::Shown,
        false => DoneJobs::None,
    }
}

fn held(args: &RunArgs, plan: &Plan) -> Result<Option<Arc<HeldOutputs>>, CliError> {
    let Some(journal) = &args.record.journal else { return Ok(None) };
    let path = journal_path(journal, plan.needs);
    if existing(args) == Existing::Replace {
        check_is_new(&path)?;
    }
    Ok(Some(Arc::new(HeldOutputs::new(&path, existing(args), plan.slots.len()))))
}

/// How a job is ended.
pub(crate) fn ending(args: &RunArgs) -> TermSequence {
    let pause = || TermSequence::with_pause(args.failure.kill_after);
    args.running.termseq.clone().unwrap_or_else(pause)
}

/// Whether records of an earlier run are continued.
fn existing(args: &RunArgs) -> Existing {
    let RecordArgs { resume, resume_failed, retry_failed, .. } = args.record;
    match resume || resume_failed || retry_failed {
        true => Existing::GoOn,
        false => Existing::Replace,
    }
}

fn results(args: &RunArgs, plans: &[Plan]) -> Result<Option<ResultsTarget>, CliError> {
    let Some(path) = args.output.results.as_deref() else { return Ok(None) };
    let errors = if args.warm.warm { Errors::Column } else { Errors::None };
    // All lanes have the same text.
    let results = match plans.iter().find_map(|plan| plan.texts.results.as_ref()) {
        Some(text) => ResultsTarget::named(&text.beginning()),
        None => ResultsTarget::new(path, existing(args), errors),
    };
    results.map(Some).map_err(|error| unwritable(&path.display(), error))
}

fn showing(args: &RunArgs) -> Output {
    match (args.printing.ungroup, args.output.line_buffer, args.output.keep_order) {
        (true, ..) if stdio::are_blocking() => Output::Direct,
        (true, ..) => Output::Relayed,
        (_, true, true) => Output::LinesInOrder,
        (_, true, false) => Output::Lines,
        (_, false, _) => Output::Whole,
    }
}

fn brake(args: &RunArgs) -> Brake {
    let jobs = match &args.placement.workers {
        Some(Workers::File(path)) => Some(path.clone()),
        Some(Workers::Number(_)) | None => None,
    };
    let Running { delay, load, memfree, .. } = args.running;
    let meminfo = args.running.meminfo.clone();
    Brake::new(brake::StartLimits { delay, load, memfree, meminfo, jobs })
}

fn shared(
    args: &RunArgs,
    workers: usize,
    results: Option<ResultsTarget>,
) -> Result<SharedRun, CliError> {
    let RunArgs { output, failure, record, printing, .. } = args;
    // A job that printed itself would print these characters too.
    let on_terminal = match output.raw || showing(args) == Output::Relayed {
        true => OnTerminal::Raw,
        false => OnTerminal::Escape,
    };
    let lines = match record.bar || record.eta {
        true => ProgressLines::Shown,
        false => ProgressLines::None,
    };
    let start = match record.journal {
        Some(_) => LogStart::MayBeRefused,
        None => LogStart::Sure,
    };
    let joblog = record.joblog.as_deref().map(|path| {
        JobLog::open(path, existing(args), start)
            .map_err(|error| unwritable(&path.display(), error))
    });
    let rules = Rules {
        retry_delay: failure.retry_delay,
        timeout: failure.timeout,
        ending: ending(args),
        nice: args.running.nice,
        max_output: output.max_output,
        halt: failure.halt,
        showing: showing(args),
        commands: if printing.verbose { Announced::Yes } else { Announced::No },
        files: if printing.files { Files::Named } else { Files::None },
    };
    let groups = Groups::new(workers).map_err(internal)?;
    let failures = if printing.quiet { FailureMessages::Quiet } else { FailureMessages::Shown };
    let terminal = Terminal::new(on_terminal, lines, failures);
    Ok(SharedRun::new(groups, terminal, joblog.transpose()?, results, rules, brake(args)))
}

/// One lane needs no turns: its outputs are already ordered.
fn turns(args: &RunArgs, plans: &[Plan]) -> Result<Vec<Option<Turns>>, CliError> {
    if plans.len() == 1 || order(args) == Order::Completion {
        return Ok(plans.iter().map(|_| None).collect());
    }
    let numbers: Result<Vec<_>, CliError> = plans.iter().map(Plan::numbers).collect();
    Ok(Turns::new(numbers?).into_iter().map(Some).collect())
}

pub(super) fn order(args: &RunArgs) -> Order {
    match showing(args) {
        Output::LinesInOrder => Order::Input,
        Output::Whole if !args.output.no_keep_order => Order::Input,
        _ => Order::Completion,
    }
}

pub(super) fn journal_path(path: &Path, needs: Needs) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    if needs == Needs::NoGpu {
        path.push(".no-gpu");
    }
    path.into()
}

/// Refuses a new journal in the place of another, as the library does later: by then, warm workers are
/// loaded.
fn check_is_new(path: &Path) -> Result<(), CliError> {
    match fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
        true => Err(journal_exists(path)),
        false => Ok(()),
    }
}
