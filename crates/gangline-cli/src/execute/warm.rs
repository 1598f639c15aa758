//! Jobs for warm workers: one process per slot, which receives one input or list after the other.

mod asked;
mod attempt;
mod conversing;
mod end;
mod reload;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Pid;

use crate::args::list_size::ListSize;
use crate::args::warm::{WarmWorkers, WorkerTimes};
use crate::execute::commands;
use crate::execute::job_runner::{JobWork, Tried, Worked};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::protocol::MessageForm;
use crate::execute::start_history::{StartHistory, StartVerdict};
use crate::execute::threads::Threads;
use crate::execute::worker_slots::{SlotWorker, WorkerSlots};
use crate::output::capture::Captured;
use crate::output::outcome::JobResult;
use crate::plan::WarmInputs;
use crate::plan::job::Job;
use crate::plan::slot::{Given, JobSlot};
use crate::plan::template::{Template, Values};
use crate::plan::texts::OnSlot;

/// The warm workers on the slots of one lane.
pub(crate) struct Warm {
    lanes: Lanes,
    lane: Lane,
    slots: Vec<JobSlot>,
    inputs: WarmInputs,
    /// The command of each slot's worker, quoted for a shell.
    typed: Vec<String>,
    start: FirstStart,
    /// If fewer slots than this are left, the run ends.
    least: usize,
    /// The largest list that is sent.
    batch: usize,
    start_timeout: Duration,
    max_restarts: u32,
    workers: WorkerSlots,
    threads: Threads,
    end_timeout: Duration,
    reported: Reported,
    history: StartHistory,
}

/// What has been reported, which is the same for all workers.
#[derive(Debug, Default)]
struct Reported {
    slow_start: AtomicBool,
    slow_end: AtomicBool,
    /// A worker takes no lists.
    no_lists: AtomicBool,
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkerFacts {
    /// What the worker takes, as its last ready line said.
    pub(crate) takes: MessageForm,
    /// Its process, which leads a group of its own. `None` if it has ended.
    pub(crate) pid: Option<Pid>,
}

/// How much of what a worker said is compared, in bytes.
const COMPARED: usize = 64 << 10;

/// When the worker of a slot is started for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstStart {
    /// For its first job.
    Late,
    /// Before there are jobs, in this number of slots. If that fails, the first job tries again.
    Early(usize),
    /// Before requests are accepted, again and again until it is ready or the slot is given up.
    Surely,
}

/// Whether the worker of a slot has been started for the first time, successfully or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    NotBegun,
    Tried,
}

impl Warm {
    pub(crate) fn new(
        lanes: Lanes,
        lane: Lane,
        slots: Vec<JobSlot>,
        inputs: WarmInputs,
        run: &WarmWorkers,
    ) -> Warm {
        let &WarmWorkers { max_restarts, preload, batch, .. } = run;
        let WorkerTimes { start_timeout, end_timeout, threads } = run.times;
        // With a file for the number of jobs there are more slots than workers, since the number may grow.
        let at_once = lanes.shared.brake.jobs_in_file().unwrap_or(lanes.groups().len());
        let threads = Threads::new(threads, at_once);
        // There may be fewer lists than slots. Those whose size is chosen begin with one input.
        let least = match batch {
            Some(ListSize::AtMost(size)) => size,
            Some(ListSize::Auto(_)) | None => 1,
        };
        let most = inputs.most.map_or(usize::MAX, |most| most.div_ceil(least));
        let batch = batch.map_or(1, ListSize::most);
        let start = if preload { FirstStart::Early(most) } else { FirstStart::Late };
        let workers = WorkerSlots::new(slots.len());
        let typed = slots.iter().zip(lane.first_worker..).map(|(slot, worker)| {
            let gpus = &slot.given(&inputs.command).ids;
            let values = Values { fields: &[], number: 0, gpus, worker, attempt: 1 };
            inputs.command.fill(&values).quoted()
        });
        let typed = typed.collect();
        Warm {
            lanes,
            lane,
            slots,
            inputs,
            typed,
            start,
            least: 1,
            batch,
            start_timeout,
            max_restarts,
            workers,
            threads,
            end_timeout,
            reported: Reported::default(),
            history: StartHistory::default(),
        }
    }

    /// The number of slots that are not given up.
    pub(crate) fn left(&self) -> usize {
        self.workers.left()
    }

    /// Changes the workers for a server: it begins once they are ready, and ends if fewer than `least` are left.
    pub(crate) fn for_requests(self, least: usize) -> Warm {
        Warm { start: FirstStart::Surely, least, ..self }
    }
}

impl JobWork for Warm {
    /// Workers are stored by slot, since other threads may borrow them.
    type State = Loading;

    fn begin(&self, slot: usize) -> Loading {
        commands::be_nice(self.lanes.shared.rules.nice);
        match self.start {
            FirstStart::Early(slots) if slot < slots => self.load(slot),
            FirstStart::Early(_) | FirstStart::Late => Loading::NotBegun,
            FirstStart::Surely => self.load_surely(slot),
        }
    }

    fn work(&self, slot: usize, loading: &mut Loading, list: &[Tried<'_>]) -> Vec<Worked> {
        if *loading == Loading::NotBegun {
            *loading = self.load(slot);
        }
        self.try_workers(slot, list)
    }

    fn end(&self, slot: usize, _: Loading) {
        if let Some(worker) = self.workers.leave(slot) {
            self.dismiss(slot, worker);
        }
    }
}

impl Warm {
    /// What is known of the worker of a slot that is not at work.
    pub(crate) fn facts(&self, slot: usize) -> WorkerFacts {
        let facts = |worker: &SlotWorker| WorkerFacts {
            takes: worker.takes,
            pid: worker.conversation.as_ref().and_then(|conversation| conversation.pid()),
        };
        self.workers.look(slot, facts).unwrap_or_default()
    }

    /// Starts the worker of a slot before its first job. If that fails, the first job tries again.
    fn load(&self, slot: usize) -> Loading {
        let Some((index, mut worker)) = self.workers.take(slot, None) else {
            return Loading::Tried;
        };
        let mut said = Captured::default();
        let started = self.start(index, &mut worker, &self.inputs.command, &mut said);
        let Err(result) = started else {
            self.show_said(&said);
            self.workers.give_back(index, worker);
            return Loading::Tried;
        };
        let verdict = worker.verdict;
        if !verdict.is_told {
            self.show_said(&said);
        }
        if verdict.is_final {
            self.give_up_slot(index, verdict, &result, &format!("its start {result}"));
            return Loading::Tried;
        }
        // The first job tries again. A program that is not there fails it.
        if result.blames_worker() {
            self.tell_of_start(index, verdict, &result, &said);
        }
        self.workers.give_back(index, worker);
        Loading::Tried
    }

    /// Starts the worker of a slot until it is ready, or the slot is given up.
    fn load_surely(&self, slot: usize) -> Loading {
        while let Some((index, mut worker)) = self.workers.take(slot, None) {
            let mut said = Captured::default();
            let started = self.start(index, &mut worker, &self.inputs.command, &mut said);
            let Err(result) = started else {
                self.show_said(&said);
                self.workers.give_back(index, worker);
                break;
            };
            let verdict = worker.verdict;
            if !verdict.is_told {
                self.show_said(&said);
            }
            if !result.blames_worker() {
                // The program does not exist, or the server is ending.
                self.workers.give_back(index, worker);
                self.fail_to_start(result);
                break;
            }
            if self.is_to_be_given_up(&worker) {
                self.give_up_slot(index, verdict, &result, &format!("its start {result}"));
                break;
            }
            self.tell_of_start(index, verdict, &result, &said);
            self.workers.give_back(index, worker);
            if !self.lane.gate.pause(self.lanes.shared.rules.retry_delay) {
                break;
            }
        }
        Loading::Tried
    }

    /// Reports a start that is made again, unless what the worker said has been shown and says it.
    fn tell_of_start(
        &self,
        index: usize,
        verdict: StartVerdict,
        result: &JobResult,
        said: &Captured,
    ) {
        if said.is_empty() && !verdict.is_told && self.lane.gate.is_wanted() {
            let number = self.number(index);
            self.lanes.shared.terminal.tell(&format!("the start of slot {number} {result}"));
        }
    }

    fn tell_once(&self, was_reported: &AtomicBool, text: &str) {
        if !was_reported.swap(true, Ordering::Relaxed) {
            self.lanes.shared.terminal.tell(text);
        }
    }

    /// Returns the name of a job in messages. For a value of a request it is a number: its content is the caller's.
    fn key(&self, job: &Job) -> String {
        match self.start {
            FirstStart::Surely => format!("value {} of a request", job.number),
            FirstStart::Early(_) | FirstStart::Late => job.key(),
        }
    }

    fn given(&self, command: &Template, slot: usize) -> &Given {
        self.slots[slot].given(command)
    }

    fn on_slot<'a>(&'a self, slot: usize, job: &Job, attempt: u32) -> OnSlot<'a> {
        let gpus = &self.given(&job.command, slot).ids;
        OnSlot { gpus, worker: self.number(slot), attempt }
    }

    /// A job as logs and messages show it.
    fn typed(&self, slot: usize, key: &str) -> String {
        format!("{} < {key}", self.typed[slot])
    }

    /// The number of a slot among those of all lanes.
    fn number(&self, slot: usize) -> usize {
        self.lane.first_worker + slot
    }
}
