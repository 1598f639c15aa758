//! The check of one slot.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::Value;

use crate::args::check::CheckArgs;
use crate::check::equality::difference;
use crate::check::lists::{ListLog, ListRunner, Replied, Seen};
use crate::check::memory::{self, MemoryOf};
use crate::error::CliError;
use crate::execute::failure::of_run;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::list_failure::ListFailure;
use crate::execute::protocol::MessageForm;
use crate::execute::warm::Warm;
use crate::exit;
use crate::plan::WarmInputs;
use crate::plan::job::Job;
use crate::plan::job_run::JobRun;
use crate::plan::slot::JobSlot;
use gangline::closures::Collect;
use gangline::testing::{AnsweredList, BatchCheck, BatchReport, ListEnd};
use gangline::{Batch, BoxError, Device, Devices, Error, OrderedRunner, Result, Work};

/// What a check needs on each slot.
#[derive(Clone, Copy)]
pub(super) struct Checking<'a> {
    pub(super) args: &'a CheckArgs,
    pub(super) run: &'a JobRun,
    pub(super) lanes: &'a Lanes,
    pub(super) samples: &'a [Job],
}

/// What was found on one slot.
pub(super) struct CheckedSlot {
    /// Its devices, as in a list of devices.
    pub(super) name: String,
    /// The time until the worker was ready.
    pub(super) ready: Duration,
    pub(super) takes: MessageForm,
    pub(super) report: BatchReport,
    pub(super) deaths: Vec<WorkerDeath>,
    pub(super) memory: BTreeMap<usize, u64>,
    pub(super) memory_of: MemoryOf,
    /// The answers to the samples alone, the first time.
    pub(super) answers: Vec<Result<Value, String>>,
}

/// The end of a worker that had samples in hand.
pub(super) struct WorkerDeath {
    /// The first of these samples, from 0.
    pub(super) sample: usize,
    /// The number of these samples.
    pub(super) size: usize,
    pub(super) why: String,
}

/// The longest time for which the first sample of a list waits for the others. The library reads them in microseconds.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Checking<'_> {
    /// Starts a worker on the slot, checks it, and ends it.
    pub(super) fn slot(
        self,
        at: usize,
        slot: JobSlot,
        place: Vec<Device>,
        inputs: WarmInputs,
    ) -> Result<CheckedSlot, CliError> {
        let name = place.iter().map(Device::to_string).collect::<Vec<_>>().join("+");
        let gpus = Arc::clone(&slot.gpus);
        let log = Arc::<ListLog>::default();
        let begin = Instant::now();
        let pool = self.pool(at, slot, place, inputs, &log)?;
        let mut asking = AskedWorker {
            pool,
            log,
            samples: self.samples,
            // Each time that a sample is asked, it is a new job.
            next: 1,
            asked: HashMap::new(),
            gpus,
            progress: CheckProgress::new(self.lanes, &name),
            process: None,
            seen: Observed { ready: begin.elapsed(), ..Observed::default() },
        };
        let judged = self.judge(&mut asking);
        let AskedWorker { mut pool, seen, gpus, .. } = asking;
        let closed = pool.close();
        let report = judged?;
        closed.map_err(of_run)?;
        let Observed { ready, takes, deaths, memory, answers } = seen;
        let memory_of = if gpus.is_empty() { MemoryOf::Worker } else { MemoryOf::Gpus };
        Ok(CheckedSlot { name, ready, takes, report, deaths, memory, memory_of, answers })
    }

    fn pool(
        self,
        at: usize,
        slot: JobSlot,
        place: Vec<Device>,
        inputs: WarmInputs,
        log: &Arc<ListLog>,
    ) -> Result<OrderedRunner<Collect<ListRunner>>, CliError> {
        // The number of samples must not limit the number of workers that are started.
        let inputs = WarmInputs { most: None, ..inputs };
        let lane = Lane { first_worker: at, ..self.lanes.lanes[0].clone() };
        let token = lane.token.clone();
        // The workers run one after the other. Each has as many threads as if all ran at once, as they do in a run.
        let run = self.run.warm.as_ref().expect("the workers of a check are warm");
        let warm = Warm::new(self.lanes.clone(), lane, vec![slot], inputs, run);
        // The first sample is asked once more, before all others.
        let last_shown = 1 + self.samples.len() as u64;
        let (lanes, log) = (self.lanes.clone(), Arc::clone(log));
        let runner = ListRunner { warm, lanes, log, last_shown };
        let devices = Devices::from_places([place]).map_err(|error| of_run(error.into()))?;
        let most = self.args.most();
        let built = OrderedRunner::builder(runner.collect())
            .devices(devices.names_only())
            .batch(Batch::of(most).within(LONGEST_WAIT))
            // Room for the end of the input behind the largest list.
            .window(most + 1)
            .cancel_token(token)
            .build();
        built.map_err(of_run)
    }

    fn judge(self, asking: &mut AskedWorker<'_>) -> Result<BatchReport, CliError> {
        // The worker says what it takes when it is ready, so it gets a sample first. That also keeps its first answer,
        // which is slower than later ones, out of the times.
        asking.ask(&[0]).map_err(ended)?;
        let most = match asking.seen.takes {
            MessageForm::Lists => self.args.most(),
            MessageForm::Items => 1,
        };
        asking.seen.deaths.clear();
        let tolerance = self.args.tolerance;
        let check = BatchCheck::differing(move |first: &Value, then: &Value| {
            difference(first, then, tolerance)
        });
        let asking = RefCell::new(asking);
        let judged = check.up_to(most).ask(self.samples.len(), |list| {
            let mut asking = asking.borrow_mut();
            asking.ask(list)
        });
        judged.map_err(ended)
    }
}

/// The worker of a slot, and what was observed of it.
struct AskedWorker<'a> {
    pool: OrderedRunner<Collect<ListRunner>>,
    log: Arc<ListLog>,
    samples: &'a [Job],
    /// The number of the next job.
    next: u64,
    /// The samples of the jobs in hand, by number.
    asked: HashMap<u64, usize>,
    gpus: Arc<[usize]>,
    progress: CheckProgress,
    /// The process of the worker after the last list; `None` if it has ended.
    process: Option<Pid>,
    seen: Observed,
}

#[derive(Default)]
struct Observed {
    ready: Duration,
    takes: MessageForm,
    deaths: Vec<WorkerDeath>,
    memory: BTreeMap<usize, u64>,
    answers: Vec<Result<Value, String>>,
}

impl AskedWorker<'_> {
    fn ask(&mut self, list: &[usize]) -> Result<AnsweredList<Value>> {
        self.progress.lists_of(list.len());
        let first = self.next;
        self.next += list.len() as u64;
        self.asked = (first..).zip(list.iter().copied()).collect();
        let jobs = list.iter().zip(first..).map(|(sample, number)| {
            let job = self.samples[*sample].clone();
            Job { number, ..job }
        });
        let replied: Result<Vec<Replied>, Error> = self.pool.outputs(jobs).collect();
        let seen = self.log.take();
        let replied = replied?;
        let took = replied.iter().map(|replied| replied.took).max().unwrap_or_default();
        let end = end_of(&seen, list.len(), took);
        self.observe(seen, list, &end);
        let answers: Vec<_> = replied.into_iter().map(|replied| replied.answer).collect();
        if let ([sample], [answer]) = (list, &*answers)
            && *sample == self.seen.answers.len()
        {
            self.seen.answers.push(answer.clone());
        }
        Ok(AnsweredList { answers, end })
    }

    fn observe(&mut self, seen: Seen, list: &[usize], end: &ListEnd) {
        self.seen.takes = seen.worker.takes;
        let sample = |number| self.asked.get(&number).copied().unwrap_or(list[0]);
        let deaths = seen.deaths.into_iter().map(|(number, size, why)| {
            let sample = sample(number);
            WorkerDeath { sample, size, why }
        });
        let deaths: Vec<WorkerDeath> = deaths.collect();
        // The worker ended between two lists and was started again for this one, so no list reports the death.
        let is_another = self.process.is_some() && seen.worker.pid != self.process;
        if deaths.is_empty() && is_another {
            let why = "came when the worker had ended after its last answer".to_owned();
            self.seen.deaths.push(WorkerDeath { sample: list[0], size: list.len(), why });
        }
        self.process = seen.worker.pid;
        self.seen.deaths.extend(deaths);
        let is_new = !self.seen.memory.contains_key(&list.len());
        // A list with a sample that fails says nothing about its size.
        if matches!(end, ListEnd::Whole(_))
            && is_new
            && let Some(bytes) = memory::in_use(&self.gpus, seen.worker.pid)
        {
            self.seen.memory.insert(list.len(), bytes);
        }
    }
}

/// Says on a terminal how far the check is: a model may take minutes.
struct CheckProgress {
    lanes: Lanes,
    slot: String,
    is_on: bool,
    last: usize,
}

impl CheckProgress {
    fn new(lanes: &Lanes, slot: &str) -> CheckProgress {
        let is_on = io::stderr().is_terminal();
        CheckProgress { lanes: lanes.clone(), slot: slot.to_owned(), is_on, last: 0 }
    }

    fn lists_of(&mut self, size: usize) {
        if self.is_on && size != self.last {
            let text = match size {
                1 => format!("{}: samples alone", self.slot),
                size => format!("{}: lists of {size}", self.slot),
            };
            self.lanes.shared.terminal.tell(&text);
        }
        self.last = size;
    }
}

/// Judges a list as a whole. The library may have sent it in parts.
fn end_of(seen: &Seen, size: usize, took: Duration) -> ListEnd {
    let failed = seen.lists.iter().find_map(|list| list.failed.as_ref());
    match failed {
        Some((ListFailure::OutOfMemory, _)) => ListEnd::OutOfMemory,
        Some((ListFailure::Died | ListFailure::Rejected, why)) => ListEnd::Failed(why.clone()),
        // The device had no memory for a list of this size before, so the library has sent a smaller one.
        None if seen.lists.first().is_some_and(|first| first.size < size) => ListEnd::OutOfMemory,
        None => ListEnd::Whole(took),
    }
}

/// Converts the error of a check that could not go on.
fn ended(error: BoxError) -> CliError {
    match error.downcast::<Error>() {
        Ok(error) if error.is_cancelled() => CliError::new(exit::DEVICES, error),
        Ok(error) => of_run(*error),
        Err(error) => CliError::new(exit::INTERNAL, error),
    }
}
