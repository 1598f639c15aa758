//! The subcommand `gangline run`.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::args::list_size::ListSize;
use crate::args::{InUse, RunArgs};
use crate::error::CliError;
use crate::execute::commands::Commands;
use crate::execute::conclude::{LaneEnd, conclude};
use crate::execute::dry_run::dry_run;
use crate::execute::earlier_jobs::EarlierJobs;
use crate::execute::failure::{internal, of_run};
use crate::execute::gpu_watch::GpuWatch;
use crate::execute::job_runner::{JobRunner, JobWork};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::memory_watch::MemoryWatch;
use crate::execute::retries::DEATHS_OF_ITEM;
use crate::execute::setup::{doubts, ending, hidden, journal_path, lanes, order};
use crate::execute::signals::Attendant;
use crate::execute::threads::Threads;
use crate::execute::warm::Warm;
use crate::exit;
use crate::output::cut_off::remove_cut_off;
use crate::output::outcome::{JobFailed, NextAttempt};
use crate::output::report::{Numbers, number_by_jobs};
use crate::output::verdict::{JobDelivery, JobFacts, advise};
use crate::plan::Plan;
use crate::plan::gated::Gated;
use crate::plan::job::{Job, Needs};
use crate::plan::jobs::Jobs;
use crate::plan::read_ahead::ReadAhead;
use crate::plan::slot::{self, Hidden};
use gangline::error::DeviceError;
use gangline::order::RuntimeOrder;
use gangline::report::GpuLoad;
use gangline::{
    AnyOrderRunner, Builder, CfgNode, Error, Journal, OnError, Progress, RunReport, Verdict,
};

/// The default number of outputs that may wait for an earlier job's. A job that takes hundreds of times as
/// long as the others then keeps no slot idle.
const WINDOW: usize = 1_000;

/// The longest wait before a retry, unless the first is longer.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Runs the command for each input, and returns the exit status.
pub(crate) fn run(args: &RunArgs, supervisor: Option<i32>) -> Result<u8, CliError> {
    if args.output.dry_run {
        return dry_run(args, Plan::all(args)?);
    }
    // First, so that no signal is missed.
    let attendant = Attendant::start(supervisor, args.failure.grace, ending(args).lasts());
    let attendant = attendant.map_err(internal)?;
    let plans = Plan::all(args)?;
    let lanes = lanes(args, &plans)?;
    attendant.attend_to(&lanes);
    warn(args, &lanes, &plans);
    // A warm worker would load its model again.
    let is_watched = args.running.memfree.is_some() && !args.warm.warm;
    let memory = is_watched.then(|| MemoryWatch::start(&lanes)).transpose().map_err(internal)?;
    let ends = run_lanes(args, &lanes, plans);
    drop(memory);
    let concluded = conclude(args, &lanes, ends, attendant.exit());
    // Last, so that a signal can still kill this process if its final messages are not read.
    drop(attendant);
    concluded
}

fn warn(args: &RunArgs, lanes: &Lanes, plans: &[Plan]) {
    let terminal = &lanes.shared.terminal;
    if args.reads_terminal() {
        terminal.tell("reading inputs from the terminal, one per line; end with Ctrl-D");
    }
    doubts(args, plans).iter().for_each(|doubt| terminal.tell(doubt));
}

fn run_lanes(args: &RunArgs, lanes: &Lanes, plans: Vec<Plan>) -> Vec<LaneEnd> {
    let hidden = hidden(&plans);
    let run = &|lane: usize, plan: Plan| {
        let ending = LaneEnding { lanes, lane };
        let end = run_lane(args, lanes, lane, plan, hidden).unwrap_or_else(LaneEnd::failed);
        drop(ending);
        if end.result.is_err() {
            lanes.close();
        }
        end
    };
    let mut plans = plans.into_iter().enumerate();
    let first = plans.next();
    thread::scope(|scope| {
        let start = |(lane, plan)| {
            let thread = thread::Builder::new().name(format!("gangline-lane{lane}"));
            thread.spawn_scoped(scope, move || run(lane, plan)).map_err(|error| {
                // The other lanes would wait for it to begin.
                lanes.close();
                internal(error)
            })
        };
        let others: Vec<_> = plans.map(start).collect();
        let first = first.map(|(lane, plan)| run(lane, plan));
        let others = others.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => LaneEnd::failed(error),
        });
        first.into_iter().chain(others).collect()
    })
}

/// Ends a lane: no output waits for its outputs, and after a panic no thread waits for it.
struct LaneEnding<'a> {
    lanes: &'a Lanes,
    lane: usize,
}

impl Drop for LaneEnding<'_> {
    fn drop(&mut self) {
        if let Some(turns) = &self.lanes.lanes[self.lane].turns {
            turns.end();
        }
        if thread::panicking() {
            self.lanes.give_up();
        }
    }
}

fn run_lane(
    args: &RunArgs,
    lanes: &Lanes,
    lane: usize,
    mut plan: Plan,
    hidden: Hidden,
) -> Result<LaneEnd, CliError> {
    let slots = plan.slots.given(hidden)?;
    let own = lanes.lanes[lane].clone();
    let inputs = plan.warm_inputs();
    let jobs = plan.jobs()?;
    match args.warm.warm {
        true => {
            let threads =
                Threads::new(args.warm.times.threads, args.placement.workers.as_ref(), slots.len());
            let warm = || {
                let (lanes, own) = (lanes.clone(), own.clone());
                Warm::new(lanes, own, slots.clone(), inputs.clone(), &args.warm, threads)
            };
            drive(args, warm, lanes, lane, &plan, jobs)
        }
        false => {
            let program = plan.program();
            let commands = || Commands {
                lanes: lanes.clone(),
                lane: own.clone(),
                slots: slots.clone(),
                program: program.clone(),
            };
            drive(args, commands, lanes, lane, &plan, jobs)
        }
    }
}

/// Runs the lane in the library.
fn drive<W: JobWork + 'static>(
    args: &RunArgs,
    work: impl Fn() -> W,
    lanes: &Lanes,
    lane: usize,
    plan: &Plan,
    jobs: Jobs,
) -> Result<LaneEnd, CliError> {
    let own = &lanes.lanes[lane];
    let (jobs, total) = counted(args, lanes, own, jobs)?;
    let has_gaps = lanes.lanes.len() > 1 || plan.has_gaps();
    let numbers = match has_gaps && !args.record.report.is_empty() {
        true => Numbers::Some(plan.numbers()?.collect()),
        false => Numbers::FromOne,
    };
    let with_lock = |in_use| {
        let runner = JobRunner { lanes: lanes.clone(), lane: own.clone(), work: work() };
        let builder = builder(args, runner, plan, &total)?;
        Ok(match slot::lock(&args.placement, in_use) {
            Some(lock) => builder.lock_gpus(lock),
            None => builder,
        })
    };
    let mut pool = match built(args, lanes, with_lock)? {
        // By a signal, or because another lane failed.
        Err(error) if error.is_cancelled() => return Ok(LaneEnd { result: Ok(()), report: None }),
        built => built.map_err(of_run)?,
    };
    let gated = Gated::new(jobs, Arc::clone(&own.gate));
    let gated = match args.record.journal {
        Some(_) => gated.counting_equals(),
        None => gated,
    };
    let gated = match args.record.resume {
        true => {
            let (lanes, records, held) = (lanes.clone(), own.records.clone(), own.held.clone());
            gated.watched_by(Arc::new(EarlierJobs { lanes, records, held }))
        }
        false => gated,
    };
    let is_reported = !args.record.report.is_empty();
    let watch = if is_reported { watch_gpus(plan)? } else { None };
    let result = pool.try_run(gated);
    let gpus = watch.map_or_else(Vec::new, GpuWatch::end);
    let report = is_reported.then(|| {
        let report = completed(pool.report(), gpus, own, &numbers, facts(args, plan, own));
        lanes.early_end().described(report)
    });
    let closed = pool.close();
    let is_committed = result.as_ref().map_or_else(Error::is_cancelled, |()| true);
    end_held(lanes, own, is_committed);
    let result = match result {
        // A signal or failures asked for it.
        Err(error) if error.is_cancelled() => Ok(()),
        result => result.and(closed).map_err(of_run),
    };
    Ok(LaneEnd { result, report })
}

/// Keeps what has ended and is not printed, since a signal or an error has ended the run.
fn end_held(lanes: &Lanes, own: &Lane, is_committed: bool) {
    let Some(held) = &own.held else { return };
    let before = || lanes.shared.sync_unprinted();
    if let Err(error) = held.end(is_committed, &before) {
        lanes.shared.fail(held.error(error));
    }
}

/// Watches the load of the GPUs of a lane, if it has any.
fn watch_gpus(plan: &Plan) -> Result<Option<GpuWatch>, CliError> {
    let watch = plan.slots.have_gpus().then(|| GpuWatch::start(plan.slots.gpu_ids()));
    watch.transpose().map_err(internal)
}

/// Returns the report of a lane in the terms of jobs, with the load of its GPUs.
fn completed(
    mut report: RunReport,
    gpus: Vec<GpuLoad>,
    lane: &Lane,
    numbers: &Numbers,
    facts: JobFacts,
) -> RunReport {
    report.gpus = gpus;
    number_by_jobs(&mut report, numbers);
    remove_cut_off(&mut report, &lane.retries.take_cut_off());
    advise(&mut report, &facts);
    report
}

fn facts(args: &RunArgs, plan: &Plan, lane: &Lane) -> JobFacts {
    JobFacts {
        delivery: match (args.warm.warm, args.warm.batch) {
            (false, _) => JobDelivery::Process,
            (true, None) => JobDelivery::Line,
            (true, Some(_)) => JobDelivery::List,
        },
        running: running(args, plan),
        lists: lane.lists.described(),
    }
}

/// The jobs that run at once. The library's window includes them.
fn running(args: &RunArgs, plan: &Plan) -> usize {
    plan.slots.len().saturating_mul(args.warm.batch.map_or(1, ListSize::places))
}

type JobPool<W> = AnyOrderRunner<JobRunner<W>>;

/// Builds the pool. If it may wait for a GPU, it first tries without waiting, so that the wait can be
/// announced.
fn built<W: JobWork + 'static>(
    args: &RunArgs,
    lanes: &Lanes,
    with_lock: impl Fn(InUse) -> Result<JobBuilder<W>, CliError>,
) -> Result<Result<JobPool<W>, Error>, CliError> {
    let built = with_lock(InUse::Fail)?.build();
    match (built, args.placement.lock_gpus) {
        (
            Err(Error::Devices { source: in_use @ DeviceError::InUse { .. }, .. }),
            Some(InUse::Wait),
        ) => {
            lanes.shared.terminal.tell(&format!("waiting, since {in_use}"));
            Ok(with_lock(InUse::Wait)?.build())
        }
        (built, _) => Ok(built),
    }
}

type JobBuilder<W> = Builder<JobRunner<W>, RuntimeOrder>;

fn builder<W: JobWork + 'static>(
    args: &RunArgs,
    runner: JobRunner<W>,
    plan: &Plan,
    total: &Arc<OnceLock<u64>>,
) -> Result<JobBuilder<W>, CliError> {
    let token = runner.lane.token.clone();
    let mut builder = AnyOrderRunner::builder(runner)
        .devices(plan.slots.devices.clone())
        .order(order(args))
        .window(args.output.window.unwrap_or(WINDOW).saturating_add(running(args, plan)))
        .cancel_token(token)
        .on_error(OnError::Skip)
        .retries(retries(args))
        .backoff(args.failure.retry_delay, LONGEST_DELAY.max(args.failure.retry_delay))
        .classify(verdict);
    if let Some(size) = args.warm.batch {
        builder = builder.batch(size.within(args.warm.batch_wait));
    }
    // Keys are kept in memory, so they are off unless they are shown.
    if args.record.journal.is_some() || !args.record.report.is_empty() || args.record.bar {
        builder = builder.key(Job::key);
    }
    if let Some(journal) = journal(args, plan.needs) {
        builder = builder.cfg(what_decides_results(args)?).journal(journal);
    }
    if !args.record.report.is_empty() {
        builder = builder.timeline().describe(description(args));
    }
    if args.record.bar {
        builder = builder.observer(progress(total));
    }
    if args.record.eta {
        builder = builder.observer(progress(total).producers(0));
    }
    Ok(builder)
}

/// Failures are not shown, since each has a message of its own.
fn progress(total: &Arc<OnceLock<u64>>) -> Progress {
    let total = Arc::clone(total);
    Progress::new().failures(0).total(move || total.get().copied())
}

/// Counts the jobs of a lane, if their number is shown or decides about the end of the run. If the source does
/// not know it, the jobs are read ahead.
fn counted(
    args: &RunArgs,
    lanes: &Lanes,
    lane: &Lane,
    jobs: Jobs,
) -> Result<(Jobs, Arc<OnceLock<u64>>), CliError> {
    let total = Arc::<OnceLock<u64>>::default();
    if !(args.record.bar || args.record.eta || args.failure.halt.needs_total()) {
        return Ok((jobs, total));
    }
    let known = match jobs.size_hint() {
        (least, Some(most)) if least == most => Some(least as u64),
        _ => None,
    };
    let set = {
        let (lanes, gate, total) = (lanes.clone(), Arc::clone(&lane.gate), Arc::clone(&total));
        move |jobs| {
            // An input that was cut off has no total.
            if gate.is_wanted() {
                total.get_or_init(|| jobs);
                lanes.count(jobs);
            }
        }
    };
    match known {
        Some(jobs_known) => {
            set(jobs_known);
            Ok((jobs, total))
        }
        None => {
            let ahead = ReadAhead::new(jobs, set).map_err(internal)?;
            Ok((Box::new(ahead), total))
        }
    }
}

/// The largest number of attempts after the first that [`JobRetries`](crate::execute::retries::JobRetries) allows.
fn retries(args: &RunArgs) -> u32 {
    let after_deaths = if args.warm.warm { DEATHS_OF_ITEM - 1 } else { 0 };
    args.failure.retries.saturating_add(after_deaths)
}

/// Failed jobs do not end the run; other errors are not from a job.
pub(crate) fn verdict(error: &Error) -> Verdict {
    let source = std::error::Error::source(error);
    match source.and_then(|source| source.downcast_ref::<JobFailed>()).map(|failed| failed.next) {
        Some(NextAttempt::OnItsSlot) => Verdict::RetryHere,
        Some(NextAttempt::OnAnotherSlot) => Verdict::Retry,
        Some(NextAttempt::Nothing) => Verdict::Skip,
        None => Verdict::Stop,
    }
}

/// The journal of a lane: a file has one writer, so jobs without a GPU have their own.
fn journal(args: &RunArgs, needs: Needs) -> Option<Journal> {
    let path = journal_path(args.record.journal.as_deref()?, needs);
    let journal = Journal::at(path).runner("gangline run", "1");
    let journal = match args.record.no_journal_lock {
        true => journal.unlockable(),
        false => journal,
    };
    Some(match (args.record.resume, args.record.resume_failed) {
        (true, _) => journal.resume(),
        (_, true) => journal.rerun_failed(),
        _ => journal,
    })
}

/// The settings that must match for a journal to be resumed.
fn what_decides_results(args: &RunArgs) -> Result<CfgNode, CliError> {
    let words = args.command_words().iter();
    let command: Vec<String> = words.map(|word| crate::plan::template::quoted(word)).collect();
    let mut cfg = CfgNode::new()
        .with("command", command)
        .and_then(|cfg| cfg.with("shell", args.inputs.shell))
        .and_then(|cfg| cfg.with("warm", args.warm.warm));
    for (name, value) in args.inputs.effects_on_commands() {
        cfg = cfg.and_then(|cfg| cfg.with(name, value));
    }
    cfg.map_err(|error| CliError::new(exit::INTERNAL, error))
}

fn description(args: &RunArgs) -> String {
    let words = args.command_words().iter();
    words.map(|word| crate::plan::template::quoted(word)).collect::<Vec<_>>().join(" ")
}
