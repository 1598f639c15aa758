//! The subcommand `gangline run`.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;

use crate::args::halt::Tally;
use crate::args::{InUse, Run};
use crate::error::CliError;
use crate::execute::commands::Commands;
use crate::execute::failure::{internal, of_run, unwritable};
use crate::execute::groups::Groups;
use crate::execute::job_runner::{JobRunner, Work};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::limits::allow_files;
use crate::execute::sequence::Turns;
use crate::execute::shared::{Output, Rules, Shared};
use crate::execute::signals::Attendant;
use crate::execute::warm::Warm;
use crate::exit;
use crate::output::joblog::{Existing, JobLog, Start};
use crate::output::outcome::JobFailed;
use crate::output::report;
use crate::output::results::Results;
use crate::output::terminal::{OnTerminal, ProgressLines, Terminal};
use crate::plan::gated::Gated;
use crate::plan::input_error::InputError;
use crate::plan::job::{Job, Needs};
use crate::plan::jobs::Jobs;
use crate::plan::slot::{self, Hidden, Slot};
use crate::plan::{self, Plan};
use gangline::CancelToken;
use gangline::CfgNode;
use gangline::Error;
use gangline::Journal;
use gangline::Order;
use gangline::Progress;
use gangline::RunReport;
use gangline::error::DeviceError;
use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Builder};
use gangline::{OnError, Verdict};

/// The default number of outputs that may wait for an earlier job's. A job that takes hundreds of times as
/// long as the others then keeps no slot idle.
const WINDOW: usize = 1_000;

/// Runs the command for each input, and returns the exit status.
pub(crate) fn run(args: &Run, supervisor: Option<i32>) -> Result<u8, CliError> {
    if args.output.dry_run {
        return dry_run(args, Plan::all(args)?);
    }
    // First, so that no signal is missed.
    let attendant = Attendant::start(supervisor, &args.failure).map_err(internal)?;
    let plans = Plan::all(args)?;
    let lanes = lanes(args, &plans)?;
    attendant.attend_to(&lanes);
    warn(args, &lanes, &plans);
    let ends = run_lanes(args, &lanes, plans);
    let concluded = conclude(args, &lanes, ends, attendant.exit());
    // Last, so that a signal can still kill this process if its final messages are not read.
    drop(attendant);
    concluded
}

/// The end of one lane.
struct End {
    result: Result<(), CliError>,
    report: Option<RunReport>,
}

fn lanes(args: &Run, plans: &[Plan]) -> Result<Lanes, CliError> {
    let workers = plans.iter().map(|plan| plan.slots.len()).sum();
    allow_files(workers)?;
    let shared = shared(args, workers)?;
    let mut first_worker = 0;
    let mut lanes = Vec::with_capacity(plans.len());
    for (plan, turns) in plans.iter().zip(turns(args, plans)?) {
        let (gate, token) = (Arc::clone(&plan.gate), CancelToken::new());
        lanes.push(Lane { gate, token, first_worker, turns });
        first_worker += plan.slots.len();
    }
    Ok(Lanes::new(shared, lanes))
}

fn shared(args: &Run, workers: usize) -> Result<Shared, CliError> {
    let Run { output, failure, record, .. } = args;
    let on_terminal = match output.raw {
        true => OnTerminal::Raw,
        false => OnTerminal::Escape,
    };
    let lines = match record.bar || record.eta {
        true => ProgressLines::Shown,
        false => ProgressLines::None,
    };
    let existing = match record.resume || record.resume_failed {
        true => Existing::GoOn,
        false => Existing::Replace,
    };
    let start = match record.journal {
        Some(_) => Start::MayBeRefused,
        None => Start::Sure,
    };
    let joblog = record.joblog.as_deref().map(|path| {
        JobLog::open(path, existing, start).map_err(|error| unwritable(&path.display(), error))
    });
    let results = output.results.as_deref().map(|path| {
        Results::new(path, existing).map_err(|error| unwritable(&path.display(), error))
    });
    let showing = match output.line_buffer {
        true => Output::Lines,
        false => Output::Whole,
    };
    let rules = Rules {
        retries: failure.retries,
        retry_delay: failure.retry_delay,
        timeout: failure.timeout,
        kill_after: failure.kill_after,
        max_output: output.max_output,
        halt: failure.halt,
        showing,
    };
    let groups = Groups::new(workers).map_err(internal)?;
    let terminal = Terminal::new(on_terminal, lines);
    Ok(Shared::new(groups, terminal, joblog.transpose()?, results.transpose()?, rules))
}

/// One lane needs no turns: its outputs are already ordered.
fn turns(args: &Run, plans: &[Plan]) -> Result<Vec<Option<Turns>>, CliError> {
    if plans.len() == 1 || order(args) == Order::Completion {
        return Ok(plans.iter().map(|_| None).collect());
    }
    let numbers: Result<Vec<_>, CliError> = plans.iter().map(Plan::numbers).collect();
    Ok(Turns::new(numbers?).into_iter().map(Some).collect())
}

fn warn(args: &Run, lanes: &Lanes, plans: &[Plan]) {
    let terminal = &lanes.shared.terminal;
    if args.reads_terminal() {
        terminal.tell("reading inputs from the terminal, one per line; end with Ctrl-D");
    }
    doubts(args, plans).iter().for_each(|doubt| terminal.tell(doubt));
}

/// What the command probably does not mean.
fn doubts(args: &Run, plans: &[Plan]) -> Vec<String> {
    let is_the_same = !plans.iter().all(Plan::differs_by_job);
    let all_the_same = "every job runs the same command: it has no mark, such as {}, for the input";
    let unexpanded = plan::unexpanded(args);
    is_the_same.then(|| all_the_same.to_owned()).into_iter().chain(unexpanded).collect()
}

fn run_lanes(args: &Run, lanes: &Lanes, plans: Vec<Plan>) -> Vec<End> {
    let hidden = hidden(&plans);
    let run = &|lane: usize, plan: Plan| {
        let ending = Ending { lanes, lane };
        let end = run_lane(args, lanes, lane, plan, hidden).unwrap_or_else(End::failed);
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
            Err(error) => End::failed(error),
        });
        first.into_iter().chain(others).collect()
    })
}

/// Ends a lane: no output waits for its outputs, and after a panic no thread waits for it.
struct Ending<'a> {
    lanes: &'a Lanes,
    lane: usize,
}

impl Drop for Ending<'_> {
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
    args: &Run,
    lanes: &Lanes,
    lane: usize,
    mut plan: Plan,
    hidden: Hidden,
) -> Result<End, CliError> {
    let slots = plan.slots.given(hidden)?;
    let own = lanes.lanes[lane].clone();
    let names = plan.names();
    let jobs = plan.jobs()?;
    match args.warm.warm {
        true => {
            let warm = || {
                let (own, slots, names) = (own.clone(), slots.clone(), names.clone());
                Warm::new(lanes.clone(), own, slots, names, &args.warm)
            };
            drive(args, warm, lanes, lane, &plan, jobs)
        }
        false => {
            let commands =
                || Commands { lanes: lanes.clone(), lane: own.clone(), slots: slots.clone() };
            drive(args, commands, lanes, lane, &plan, jobs)
        }
    }
}

/// Runs the lane in the library.
fn drive<W: Work + 'static>(
    args: &Run,
    work: impl Fn() -> W,
    lanes: &Lanes,
    lane: usize,
    plan: &Plan,
    jobs: Jobs,
) -> Result<End, CliError> {
    let own = &lanes.lanes[lane];
    let with_lock = |in_use| {
        let runner = JobRunner { lanes: lanes.clone(), lane: own.clone(), work: work() };
        Ok(match slot::lock(&args.placement, in_use) {
            Some(lock) => builder(args, runner, plan)?.lock_gpus(lock),
            None => builder(args, runner, plan)?,
        })
    };
    let mut pool = match built(args, lanes, with_lock)? {
        // By a signal, or because another lane failed.
        Err(error) if error.is_cancelled() => return Ok(End { result: Ok(()), report: None }),
        built => built.map_err(of_run)?,
    };
    let result = pool.try_run(Gated::new(jobs, Arc::clone(&own.gate)));
    let report = (!args.record.report.is_empty()).then(|| pool.report());
    let closed = pool.close();
    let result = match result {
        // A signal or failures asked for it.
        Err(error) if error.is_cancelled() => Ok(()),
        result => result.and(closed).map_err(of_run),
    };
    Ok(End { result, report })
}

type JobPool<W> = AnyOrderRunner<JobRunner<W>>;

/// Builds the pool. If it may wait for a GPU, it first tries without waiting, so that the wait can be
/// announced.
fn built<W: Work + 'static>(
    args: &Run,
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

fn builder<W: Work + 'static>(
    args: &Run,
    runner: JobRunner<W>,
    plan: &Plan,
) -> Result<JobBuilder<W>, CliError> {
    let slots = plan.slots.len();
    let token = runner.lane.token.clone();
    let mut builder = AnyOrderRunner::builder(runner)
        .devices(plan.slots.devices.clone())
        .order(order(args))
        // The library's window includes running jobs.
        .window(args.output.window.unwrap_or(WINDOW).saturating_add(slots))
        .cancel_token(token)
        .on_error(OnError::Skip)
        .classify(verdict);
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
        builder = builder.observer(Progress::new().failures(0));
    }
    if args.record.eta {
        builder = builder.observer(Progress::new().failures(0).producers(0));
    }
    Ok(builder)
}

/// Failed jobs do not end the run; other errors are not from a job.
fn verdict(error: &Error) -> Verdict {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.is::<JobFailed>()) {
        true => Verdict::Skip,
        false => Verdict::Stop,
    }
}

fn order(args: &Run) -> Order {
    match args.output.no_keep_order || args.output.line_buffer {
        true => Order::Completion,
        false => Order::Input,
    }
}

/// The journal of a lane: a file has one writer, so jobs without a GPU have their own.
fn journal(args: &Run, needs: Needs) -> Option<Journal> {
    let mut path = args.record.journal.clone()?.into_os_string();
    if needs == Needs::NoGpu {
        path.push(".no-gpu");
    }
    let journal = Journal::at(path).runner("gangline run", "1");
    Some(match (args.record.resume, args.record.resume_failed) {
        (true, _) => journal.resume(),
        (_, true) => journal.rerun_failed(),
        _ => journal,
    })
}

/// The settings that must match for a journal to be resumed.
fn what_decides_results(args: &Run) -> Result<CfgNode, CliError> {
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

fn description(args: &Run) -> String {
    let words = args.command_words().iter();
    words.map(|word| crate::plan::template::quoted(word)).collect::<Vec<_>>().join(" ")
}

fn conclude(
    args: &Run,
    lanes: &Lanes,
    ends: Vec<End>,
    signalled: Option<u8>,
) -> Result<u8, CliError> {
    let mut result = Ok(());
    let mut reports = Vec::new();
    for End { result: ended, report } in ends {
        result = result.and(ended);
        reports.extend(report);
    }
    let written = report::write_all(&args.record.report, &mut reports);
    let tally = lanes.shared.tally();
    tell(args, lanes, tally, signalled);
    if let Some(error) = lanes.shared.take_error() {
        return Err(error);
    }
    result?;
    written?;
    Ok(signalled.unwrap_or(exit::of_failures(tally.failed)))
}

/// Prints the messages that a user must not miss.
fn tell(args: &Run, lanes: &Lanes, tally: Tally, signalled: Option<u8>) {
    let Tally { ok, failed } = tally;
    let ended = ok + failed;
    if failed > 0 {
        lanes.shared.terminal.tell(&format!("{failed} of {ended} jobs failed"));
    }
    if lanes.shared.is_halted() {
        lanes.shared.terminal.tell(&format!("--halt ended the run after {ended} jobs"));
    }
    if signalled.is_some() {
        let rest = match args.record.journal {
            Some(_) => "; continue with --resume",
            None => "",
        };
        let jobs = if ok == 1 { "job" } else { "jobs" };
        lanes.shared.terminal.tell(&format!("ended by a signal, with {ok} {jobs} done{rest}"));
    }
}

/// Prints the words of every command, quoted for a shell, in the order of the jobs. Warm workers' commands
/// differ only by slot, and are printed once for each.
fn dry_run(args: &Run, plans: Vec<Plan>) -> Result<u8, CliError> {
    for doubt in doubts(args, &plans) {
        // If standard error is gone, no other way to report remains.
        let _ = writeln!(io::stderr(), "gangline: {doubt}");
    }
    let hidden = hidden(&plans);
    let mut lanes = Vec::with_capacity(plans.len());
    let mut first_worker = 0;
    for mut plan in plans {
        let slots = plan.slots.given(hidden)?;
        let first = first_worker;
        first_worker += slots.len();
        let most = if args.warm.warm { slots.len() } else { usize::MAX };
        let jobs = plan.jobs()?.take(most).enumerate();
        let lines = jobs.map(move |(turn, job)| {
            Ok::<_, CliError>(line(job.map_err(of_input)?, &slots, first, turn))
        });
        lanes.push(lines.peekable());
    }
    let mut stdout = io::stdout().lock();
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

fn line(job: Job, slots: &[Slot], first_worker: usize, turn: usize) -> (u64, String) {
    let slot = turn % slots.len();
    let given = slots[slot].given(&job.command);
    let mut words = job.words(&given.ids, first_worker + slot, 1);
    words.set_first(&given.variables);
    (job.number, words.quoted())
}

/// The variables that are hidden from slots without a GPU.
fn hidden(plans: &[Plan]) -> Hidden {
    match plans.iter().any(|plan| plan.slots.have_gpus()) {
        true => Hidden::Others,
        false => Hidden::Nothing,
    }
}

fn of_input(error: InputError) -> CliError {
    CliError::new(exit::INPUT, error)
}

impl End {
    fn failed(error: CliError) -> End {
        End { result: Err(error), report: None }
    }
}
