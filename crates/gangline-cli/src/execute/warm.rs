//! Jobs for warm workers: one process per slot, which receives one input or list after the other.

mod asked;
mod attempt;
mod conversing;
mod end;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::args::{Run, WarmArgs};
use crate::execute::commands;
use crate::execute::job_runner::{Tried, Work, Worked};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::protocol::Takes;
use crate::execute::threads::Threads;
use crate::execute::worker_slots::{Worker, WorkerSlots};
use crate::output::capture::Captured;
use crate::plan::WarmInputs;
use crate::plan::job::Job;
use crate::plan::slot::{Given, Slot};
use crate::plan::template::{Template, Values};
use crate::plan::texts::OnSlot;

/// The warm workers on the slots of one lane.
pub(crate) struct Warm {
    lanes: Lanes,
    lane: Lane,
    slots: Vec<Slot>,
    inputs: WarmInputs,
    /// The command of each slot's worker, quoted for a shell.
    typed: Vec<String>,
    /// The number of workers that are started before there are jobs.
    preloaded: usize,
    /// The largest list that is sent.
    batch: usize,
    start_timeout: Duration,
    max_restarts: u32,
    workers: WorkerSlots,
    threads: Threads,
    end_timeout: Duration,
    reported: Reported,
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
    /// What it has said that it takes, the last time.
    pub(crate) takes: Takes,
    /// Its process, which leads a group of its own. `None` if it has ended.
    pub(crate) pid: Option<Pid>,
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
        slots: Vec<Slot>,
        inputs: WarmInputs,
        args: &Run,
    ) -> Warm {
        let &WarmArgs { start_timeout, end_timeout, max_restarts, preload, batch, .. } = &args.warm;
        let batch = batch.unwrap_or(1);
        // There may be fewer lists than slots.
        let most = inputs.most.map_or(usize::MAX, |most| most.div_ceil(batch));
        let preloaded = if preload { most } else { 0 };
        // A check has the workers of its slots one after the other, with the threads that they have together.
        let threads = Threads::new(args, lanes.groups().len());
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
            preloaded,
            batch,
            start_timeout,
            max_restarts,
            workers,
            threads,
            end_timeout,
            reported: Reported::default(),
        }
    }
}

impl Work for Warm {
    /// Workers are stored by slot, since other threads may borrow them.
    type State = Loading;

    fn begin(&self, slot: usize) -> Loading {
        commands::be_nice(self.lanes.shared.rules.nice);
        match slot < self.preloaded {
            true => self.load(slot),
            false => Loading::NotBegun,
        }
    }

    fn work(&self, slot: usize, loading: &mut Loading, list: &[Tried<'_>]) -> Vec<Worked> {
        if *loading == Loading::NotBegun {
            let clock = Instant::now();
            *loading = self.load(slot);
            self.lane.starts.waited(list.iter().map(|tried| tried.job.number), clock.elapsed());
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
        let facts = |worker: &Worker| WorkerFacts {
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
        self.show_said(&said);
        // A program that is not there fails the first job.
        if let Err(result) = started
            && result.blames_worker()
            && self.lane.gate.is_wanted()
        {
            let number = self.number(slot);
            self.lanes.shared.terminal.tell(&format!("the start of slot {number} {result}"));
        }
        self.workers.give_back(index, worker);
        Loading::Tried
    }

    fn tell_once(&self, was_reported: &AtomicBool, text: &str) {
        if !was_reported.swap(true, Ordering::Relaxed) {
            self.lanes.shared.terminal.tell(text);
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
