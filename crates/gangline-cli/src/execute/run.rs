//! The subcommand `gangline run`.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::args::InUse;
use crate::args::list_size::ListSize;
use crate::args::warm::WarmWorkers;
use crate::error::CliError;
use crate::execute::commands::Commands;
use crate::execute::conclude::{LaneEnd, conclude};
use crate::execute::earlier_jobs::EarlierJobs;
use crate::execute::failure::{internal, of_run};
use crate::execute::gpu_watch::GpuWatch;
use crate::execute::job_runner::{JobRunner, JobWork};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::memory_watch::MemoryWatch;
#[cfg(feature = "nats")]
use crate::execute::remote::{Remote, RemoteWorkers};
use crate::execute::retries::DEATHS_OF_ITEM;
use crate::execute::setup::{hidden, lanes};
use crate::execute::signals::Attendant;
use crate::execute::warm::Warm;
use crate::output::cut_off::remove_cut_off;
use crate::output::outcome::{JobFailed, NextAttempt};
use crate::output::report::{Numbers, number_by_jobs};
use crate::output::verdict::{JobDelivery, JobFacts, advise};
use crate::plan::gated::Gated;
use crate::plan::job::Job;
#[cfg(feature = "nats")]
use crate::plan::job_run::ClusterRun;
use crate::plan::job_run::{EarlierRun, JobRun, ProgressShown};
use crate::plan::jobs::Jobs;
use crate::plan::read_ahead::ReadAhead;
use crate::plan::slot::Hidden;
use crate::plan::{Plan, Planned};
use gangline::error::DeviceError;
use gangline::order::RuntimeOrder;
use gangline::report::GpuLoad;
use gangline::{AnyOrderRunner, Builder, Error, OnError, Progress, RunReport, Verdict};

/// The longest wait before a retry, unless the first is longer.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Runs the command for each input, and returns the exit status. `planned` makes the lanes.
pub(crate) fn run(
    run: &JobRun,
    planned: impl FnOnce() -> Result<Planned, CliError>,
    supervisor: Option<i32>,
) -> Result<u8, CliError> {
    // First, so that no signal is missed.
    let attendant = Attendant::start(supervisor, run.grace, run.rules.ending.lasts());
    let attendant = attendant.map_err(internal)?;
    let Planned { lanes: plans, notes } = planned()?;
    let lanes = lanes(run, &plans)?;
    attendant.attend_to(&lanes);
    notes.iter().for_each(|note| lanes.shared.terminal.tell(note));
    // A warm worker would load its model again.
    let is_watched = lanes.shared.brake.watches_memory() && run.warm.is_none();
    let memory = is_watched.then(|| MemoryWatch::start(&lanes)).transpose().map_err(internal)?;
    let ends = run_lanes(run, &lanes, plans);
    drop(memory);
    let concluded = conclude(run, &lanes, ends, attendant.exit());
    // Last, so that a signal can still kill this process if its final messages are not read.
    drop(attendant);
    concluded
}

fn run_lanes(run: &JobRun, lanes: &Lanes, plans: Vec<Plan>) -> Vec<LaneEnd> {
    let hidden = hidden(&plans);
    let one = &|lane: usize, plan: Plan| {
        let ending = LaneEnding { lanes, lane };
        let end = run_lane(run, lanes, lane, plan, hidden).unwrap_or_else(LaneEnd::failed);
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
            thread.spawn_scoped(scope, move || one(lane, plan)).map_err(|error| {
                // The other lanes would wait for it to begin.
                lanes.close();
                internal(error)
            })
        };
        let others: Vec<_> = plans.map(start).collect();
        let first = first.map(|(lane, plan)| one(lane, plan));
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
    run: &JobRun,
    lanes: &Lanes,
    lane: usize,
    mut plan: Plan,
    hidden: Hidden,
) -> Result<LaneEnd, CliError> {
    let slots = plan.slots.given(hidden)?;
    let own = lanes.lanes[lane].clone();
    let inputs = plan.warm_inputs();
    let jobs = plan.jobs()?;
    #[cfg(feature = "nats")]
    if let Some(cluster) = &run.cluster {
        let Some(workers) = remote_workers(cluster, lanes, &own)? else {
            return Ok(LaneEnd { result: Ok(()), report: None });
        };
        let work = || {
            Remote::new(
                (cluster, !run.reports.is_empty()),
                lanes.clone(),
                own.clone(),
                Arc::clone(&workers),
            )
        };
        let mut end = drive(run, work, lanes, lane, &plan, jobs)?;
        if let Err(error) = workers.close() {
            lanes.shared.terminal.tell(&format!("the workers were not left in order: {error:#}"));
        }
        end.report.iter_mut().for_each(|report| workers.describe(report));
        return Ok(end);
    }
    match &run.warm {
        Some(warm) => {
            let (slots, inputs) = (&slots, &inputs);
            let work =
                || Warm::new(lanes.clone(), own.clone(), slots.clone(), inputs.clone(), warm);
            drive(run, work, lanes, lane, &plan, jobs)
        }
        None => {
            let program = plan.program();
            let commands = || Commands {
                lanes: lanes.clone(),
                lane: own.clone(),
                slots: slots.clone(),
                program: program.clone(),
            };
            drive(run, commands, lanes, lane, &plan, jobs)
        }
    }
}

/// Waits for workers, and lets as many jobs start as they can run. An end of the run ends the wait.
#[cfg(feature = "nats")]
fn remote_workers(
    cluster: &ClusterRun,
    lanes: &Lanes,
    own: &Lane,
) -> Result<Option<Arc<RemoteWorkers>>, CliError> {
    let Some(workers) = RemoteWorkers::join(cluster, lanes, own)?.map(Arc::new) else {
        return Ok(None);
    };
    let there = Arc::clone(&workers);
    lanes.shared.brake.follow(Box::new(move || there.capacity()));
    Ok(Some(workers))
}

/// Runs the lane in the library.
fn drive<W: JobWork + 'static>(
    run: &JobRun,
    work: impl Fn() -> W,
    lanes: &Lanes,
    lane: usize,
    plan: &Plan,
    jobs: Jobs,
) -> Result<LaneEnd, CliError> {
    let own = &lanes.lanes[lane];
    let (jobs, total) = counted(run, lanes, own, jobs)?;
    let has_gaps = lanes.lanes.len() > 1 || plan.has_gaps();
    let numbers = match has_gaps && !run.reports.is_empty() {
        true => Numbers::Some(plan.numbers()?.collect()),
        false => Numbers::FromOne,
    };
    let with_lock = |in_use| {
        let runner = JobRunner { lanes: lanes.clone(), lane: own.clone(), work: work() };
        let builder = builder(run, runner, plan, &total);
        match run.locks.lock(in_use) {
            Some(lock) => builder.lock_gpus(lock),
            None => builder,
        }
    };
    let mut pool = match built(run, lanes, with_lock) {
        // By a signal, or because another lane failed.
        Err(error) if error.is_cancelled() => return Ok(LaneEnd { result: Ok(()), report: None }),
        built => built.map_err(of_run)?,
    };
    let gated = Gated::new(jobs, Arc::clone(&own.gate));
    let gated = match run.journal {
        Some(_) => gated.counting_equals(),
        None => gated,
    };
    let gated = match run.earlier {
        EarlierRun::Resumed => {
            let (lanes, records, held) = (lanes.clone(), own.records.clone(), own.held.clone());
            gated.watched_by(Arc::new(EarlierJobs { lanes, records, held }))
        }
        _ => gated,
    };
    let is_reported = !run.reports.is_empty();
    let watch = if is_reported { watch_gpus(plan)? } else { None };
    let result = pool.try_run(gated);
    let gpus = watch.map_or_else(Vec::new, GpuWatch::end);
    let report = is_reported.then(|| {
        let report = completed(pool.report(), gpus, own, &numbers, facts(run, plan, own));
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

fn facts(run: &JobRun, plan: &Plan, lane: &Lane) -> JobFacts {
    JobFacts {
        delivery: match &run.warm {
            None => JobDelivery::Process,
            Some(warm) if warm.batch.is_none() => JobDelivery::Line,
            Some(_) => JobDelivery::List,
        },
        running: running(run, plan),
        lists: lane.lists.described(),
    }
}

/// The jobs that run at once. The library's window includes them.
fn running(run: &JobRun, plan: &Plan) -> usize {
    plan.slots.len().saturating_mul(run.batch().map_or(1, ListSize::places))
}

type JobPool<W> = AnyOrderRunner<JobRunner<W>>;

/// Builds the pool. If it may wait for a GPU, it first tries without waiting, so that the wait can be
/// announced.
fn built<W: JobWork + 'static>(
    run: &JobRun,
    lanes: &Lanes,
    with_lock: impl Fn(InUse) -> JobBuilder<W>,
) -> Result<JobPool<W>, Error> {
    match (with_lock(InUse::Fail).build(), run.locks.lock_gpus) {
        (
            Err(Error::Devices { source: in_use @ DeviceError::InUse { .. }, .. }),
            Some(InUse::Wait),
        ) => {
            lanes.shared.terminal.tell(&format!("waiting, since {in_use}"));
            with_lock(InUse::Wait).build()
        }
        (built, _) => built,
    }
}

type JobBuilder<W> = Builder<JobRunner<W>, RuntimeOrder>;

fn builder<W: JobWork + 'static>(
    run: &JobRun,
    runner: JobRunner<W>,
    plan: &Plan,
    total: &Arc<OnceLock<u64>>,
) -> JobBuilder<W> {
    let token = runner.lane.token.clone();
    let delay = run.rules.retry_delay;
    // The largest number that the retry book allows.
    let may_lose_worker = run.warm.is_some() || run.cluster.is_some();
    let after_deaths = if may_lose_worker { DEATHS_OF_ITEM - 1 } else { 0 };
    let mut builder = AnyOrderRunner::builder(runner)
        .devices(plan.slots.devices.clone())
        .order(run.order)
        .window(run.window.saturating_add(running(run, plan)))
        .cancel_token(token)
        .on_error(OnError::Skip)
        .retries(run.retries.saturating_add(after_deaths))
        .backoff(delay, LONGEST_DELAY.max(delay))
        .classify(verdict);
    if let Some(WarmWorkers { batch: Some(size), batch_wait, .. }) = &run.warm {
        builder = builder.batch(size.within(*batch_wait));
    }
    let is_reported = !run.reports.is_empty();
    // Keys are kept in memory, so they are off unless they are shown.
    if run.journal.is_some() || is_reported || run.progress == ProgressShown::Bar {
        builder = builder.key(Job::key);
    }
    if let Some(journal) = &run.journal {
        let file = journal.of_lane(plan.needs, run.earlier);
        builder = builder.cfg(journal.decides.clone()).journal(file);
    }
    if is_reported {
        builder = builder.timeline().describe(run.command.join(" "));
    }
    match run.progress {
        ProgressShown::Bar => builder.observer(progress(total)),
        ProgressShown::Line => builder.observer(progress(total).producers(0)),
        ProgressShown::None => builder,
    }
}

/// Failures are not shown, since each has a message of its own.
fn progress(total: &Arc<OnceLock<u64>>) -> Progress {
    let total = Arc::clone(total);
    Progress::new().failures(0).total(move || total.get().copied())
}

/// Counts the jobs of a lane, if their number is shown or decides about the end of the run. If the source does
/// not know it, the jobs are read ahead.
fn counted(
    run: &JobRun,
    lanes: &Lanes,
    lane: &Lane,
    jobs: Jobs,
) -> Result<(Jobs, Arc<OnceLock<u64>>), CliError> {
    let total = Arc::<OnceLock<u64>>::default();
    if !run.needs_total() {
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
