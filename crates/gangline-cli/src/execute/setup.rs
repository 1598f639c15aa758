//! Prepares what a run needs before its jobs start.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::error::CliError;
use crate::execute::brake::Brake;
use crate::execute::failure::{internal, journal_exists, unwritable};
use crate::execute::groups::Groups;
use crate::execute::held::HeldOutputs;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::limits::allow_files;
use crate::execute::records::{DoneJobs, Records};
use crate::execute::retries::JobRetries;
use crate::execute::sequence::Turns;
use crate::execute::shared::SharedRun;
use crate::output::joblog::{Existing, JobLog, LogStart};
use crate::output::report;
use crate::output::results::ResultsTarget;
use crate::output::table::Errors;
use crate::output::terminal::{ProgressLines, Terminal};
use crate::plan::Plan;
use crate::plan::job_run::{EarlierRun, JobRun, ProgressShown};
use crate::plan::rules::Output;
use crate::plan::slot::Hidden;
use gangline::{CancelToken, Order};

/// The variables that are hidden from slots without a GPU.
pub(crate) fn hidden(plans: &[Plan]) -> Hidden {
    if plans.iter().any(|plan| plan.slots.have_gpus()) { Hidden::Others } else { Hidden::Nothing }
}

/// The lanes of a run, and what they share.
pub(crate) fn lanes(run: &JobRun, plans: &[Plan]) -> Result<Lanes, CliError> {
    let workers = plans.iter().map(|plan| plan.slots.len()).sum();
    allow_files(workers)?;
    run.reports.iter().try_for_each(|path| report::check_place(path))?;
    let results = results(run, plans)?;
    let shared = shared(run, workers, results)?;
    let mut first_worker = 0;
    let mut lanes = Vec::with_capacity(plans.len());
    for (plan, turns) in plans.iter().zip(turns(run, plans)?) {
        let gate = Arc::clone(&plan.gate);
        let (token, joining) = (CancelToken::new(), CancelToken::new());
        let texts = Arc::new(plan.texts.clone());
        if run.rules.showing == Output::LinesInOrder {
            gate.keep_heads();
        }
        let held = held(run, plan)?;
        let retries = Arc::new(JobRetries::new(run.retries));
        // With `--resume-failed`, a job that is not run again may not be done.
        let done = match run.earlier {
            EarlierRun::Resumed => DoneJobs::Shown,
            _ => DoneJobs::None,
        };
        let records = run
            .records
            .map(|fields| Records::new(fields, plan.warm_inputs().shape, run.order, done));
        let lists = Arc::default();
        lanes.push(Lane {
            gate,
            token,
            joining,
            first_worker,
            turns,
            texts,
            retries,
            held,
            records,
            lists,
        });
        first_worker += plan.slots.len();
    }
    Ok(Lanes::new(shared, lanes))
}

fn held(run: &JobRun, plan: &Plan) -> Result<Option<Arc<HeldOutputs>>, CliError> {
    let Some(journal) = &run.journal else { return Ok(None) };
    let path = journal.path(plan.needs);
    if run.existing() == Existing::Replace {
        check_is_new(&path)?;
    }
    Ok(Some(Arc::new(HeldOutputs::new(&path, run.existing(), plan.slots.len()))))
}

fn results(run: &JobRun, plans: &[Plan]) -> Result<Option<ResultsTarget>, CliError> {
    let Some(path) = run.results.as_deref() else { return Ok(None) };
    let errors = if run.warm.is_some() { Errors::Column } else { Errors::None };
    // All lanes have the same text.
    let results = match plans.iter().find_map(|plan| plan.texts.results.as_ref()) {
        Some(text) => ResultsTarget::named(&text.beginning()),
        None => ResultsTarget::new(path, run.existing(), errors),
    };
    results.map(Some).map_err(|error| unwritable(&path.display(), error))
}

fn shared(
    run: &JobRun,
    workers: usize,
    results: Option<ResultsTarget>,
) -> Result<SharedRun, CliError> {
    let lines = match run.progress {
        ProgressShown::None => ProgressLines::None,
        ProgressShown::Line | ProgressShown::Bar => ProgressLines::Shown,
    };
    let start = if run.journal.is_some() { LogStart::MayBeRefused } else { LogStart::Sure };
    let joblog = run.joblog.as_deref().map(|path| {
        JobLog::open(path, run.existing(), start)
            .map_err(|error| unwritable(&path.display(), error))
    });
    let groups = Groups::new(workers).map_err(internal)?;
    let terminal = Terminal::new(run.on_terminal, lines, run.failures);
    let brake = Brake::new(run.limits.clone());
    Ok(SharedRun::new(groups, terminal, joblog.transpose()?, results, run.rules.clone(), brake))
}

/// One lane needs no turns: its outputs are already ordered.
fn turns(run: &JobRun, plans: &[Plan]) -> Result<Vec<Option<Turns>>, CliError> {
    if plans.len() == 1 || run.order == Order::Completion {
        return Ok(plans.iter().map(|_| None).collect());
    }
    let numbers: Result<Vec<_>, CliError> = plans.iter().map(Plan::numbers).collect();
    Ok(Turns::new(numbers?).into_iter().map(Some).collect())
}

/// Refuses a new journal in the place of another, as the library does later: by then, warm workers are
/// loaded.
fn check_is_new(path: &Path) -> Result<(), CliError> {
    match fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
        true => Err(journal_exists(path)),
        false => Ok(()),
    }
}
