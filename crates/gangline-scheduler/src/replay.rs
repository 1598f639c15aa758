//! A run in virtual time: this scheduler and its window decide, and hooks take the times that they are given.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::Scheduler;
use super::answers::{Begin, Memory, Next, Together};
use super::batch::{DeviceBatches, Size};
use super::config::{Config, Meta, Order};
use super::events::SchedulerEvent;
use super::flow::Activity;
use super::items::{Outcome, Standing};
use super::lease::{Copies, Lease, ProducerId, Readiness};
use super::priority::Priority;
use super::reorder::Reorder;
use super::retry::{Decision, FailureFacts, FailureVerdict, Inputs};
use super::time::RunTime;
use super::window::{Shortage, Window};

/// How long each part of a run takes, and how attempts end.
pub trait RunModel {
    /// The time in which the source gives its next item.
    fn pull(&mut self, index: u64) -> Duration;

    /// The time that a producer takes for these items, and how their hook ends.
    fn work(&mut self, producer: ProducerId, items: &[u64], attempt: u32) -> (Duration, Outcome);

    /// The time that the consumer takes for a result.
    fn consume(&mut self, index: u64) -> Duration;
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// From its start to the end of its consumer.
    pub lasted: Duration,
    /// The time that producers worked, all together.
    pub worked: Duration,
    /// The number of leases that were worked on.
    pub leases: u64,
    /// The number of items that were consumed, or failed and were skipped.
    pub items: u64,
}

/// Runs `items` items. `window` is how many may be in flight, and whether that grows.
///
/// Permits come back as in a real run: in quarters of the window, or when the consumer has nothing to do.
pub fn replay(config: Config, window: Window, items: u64, model: &mut impl RunModel) -> Replayed {
    let learned = vec![DeviceBatches::default(); config.producers];
    let producers = vec![ProducerPhase::Asks; config.producers];
    let order = config.order;
    let scheduler = Scheduler::new(config, learned, RunTime::START);
    let run = VirtualRun {
        scheduler,
        window,
        items,
        now: RunTime::START,
        producers,
        feeder: SourcePhase::Free,
        pulled: 0,
        in_flight: 0,
        consumer: None,
        results: ReadyResults::new(order),
        owed: 0,
        measured: (0, RunTime::START),
        is_over: false,
        done: Replayed { lasted: Duration::ZERO, worked: Duration::ZERO, leases: 0, items: 0 },
        model,
    };
    run.play()
}

/// What a producer does.
#[derive(Debug, Clone, PartialEq)]
enum ProducerPhase {
    Asks,
    Waits(Option<RunTime>),
    Works { lease: Lease, until: RunTime, outcome: Outcome },
    Left,
}

/// What the feeder does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SourcePhase {
    Free,
    Pulls(RunTime),
    /// It waits for permits.
    Waits,
    Ended,
}

/// The results that the consumer has not taken.
enum ReadyResults {
    InOrder(Reorder<()>),
    AsTheyCome(VecDeque<u64>),
}

struct VirtualRun<'a, M> {
    scheduler: Scheduler,
    window: Window,
    items: u64,
    now: RunTime,
    producers: Vec<ProducerPhase>,
    feeder: SourcePhase,
    pulled: u64,
    in_flight: usize,
    /// The time until which the consumer has a result.
    consumer: Option<RunTime>,
    results: ReadyResults,
    /// Permits of consumed items that have not come back.
    owed: usize,
    /// The number of consumed items, and the time, when the window last grew at the pace of items.
    measured: (u64, RunTime),
    is_over: bool,
    done: Replayed,
    model: &'a mut M,
}

impl<M: RunModel> VirtualRun<'_, M> {
    fn play(mut self) -> Replayed {
        loop {
            while self.step() {}
            if self.is_over {
                self.done.lasted = self.now.since(RunTime::START);
                return self.done;
            }
            let Some(next) = self.next() else {
                // Nothing can happen any more: the items that are left have no producer.
                self.is_over = true;
                continue;
            };
            self.now = self.now.max(next);
            if self.scheduler.poll_timeout().is_some_and(|time| time <= self.now) {
                self.scheduler.handle_timeout(self.now);
            }
        }
    }

    /// Does what can be done now. Returns whether anything was.
    fn step(&mut self) -> bool {
        let mut has_moved = self.feed();
        for producer in 0..self.producers.len() {
            has_moved |= self.turn(producer);
        }
        has_moved |= self.consume();
        self.hear();
        if self.feeder == SourcePhase::Ended && self.done.items == self.pulled {
            self.is_over = true;
            return false;
        }
        has_moved
    }

    /// The next moment at which anything happens.
    fn next(&self) -> Option<RunTime> {
        let producers = self.producers.iter().filter_map(|doing| match doing {
            ProducerPhase::Waits(until) => *until,
            ProducerPhase::Works { until, .. } => Some(*until),
            ProducerPhase::Asks | ProducerPhase::Left => None,
        });
        let feeder = match self.feeder {
            SourcePhase::Pulls(until) => Some(until),
            _ => None,
        };
        producers.chain(feeder).chain(self.consumer).chain(self.scheduler.poll_timeout()).min()
    }

    fn feed(&mut self) -> bool {
        match self.feeder {
            SourcePhase::Pulls(until) if until <= self.now => self.pull(),
            SourcePhase::Free if self.pulled == self.items => {
                self.feeder = SourcePhase::Ended;
                self.scheduler.input_ended(self.now);
            }
            SourcePhase::Free if self.in_flight < self.window.size() => {
                let until = self.now.after(self.model.pull(self.pulled));
                self.feeder = SourcePhase::Pulls(until);
            }
            SourcePhase::Free => {
                self.feeder = SourcePhase::Waits;
                self.scheduler.feeder(Activity::Waiting, self.now);
            }
            SourcePhase::Waits if self.in_flight < self.window.size() => {
                self.feeder = SourcePhase::Free;
                self.scheduler.feeder(Activity::Working, self.now);
            }
            _ => return false,
        }
        true
    }

    fn pull(&mut self) {
        let index = self.pulled;
        let meta = Meta { size: Size::ONE, since: self.now, priority: Priority::Normal };
        self.pulled += 1;
        self.in_flight += 1;
        self.feeder = SourcePhase::Free;
        self.scheduler.offer(index, meta, self.now);
    }

    fn turn(&mut self, producer: ProducerId) -> bool {
        match &self.producers[producer] {
            ProducerPhase::Asks => self.ask(producer),
            ProducerPhase::Waits(Some(until)) if *until <= self.now => self.ask(producer),
            ProducerPhase::Works { until, .. } if *until <= self.now => {
                let ProducerPhase::Works { lease, outcome, .. } =
                    std::mem::replace(&mut self.producers[producer], ProducerPhase::Asks)
                else {
                    unreachable!("it was matched");
                };
                self.end(lease, outcome);
            }
            _ => return false,
        }
        true
    }

    fn ask(&mut self, producer: ProducerId) {
        self.producers[producer] = match self.scheduler.lease(producer, Readiness::Ready, self.now)
        {
            Next::Work(lease) => self.begin(producer, lease),
            Next::WaitUntil(until) => ProducerPhase::Waits(Some(until)),
            Next::Wait => ProducerPhase::Waits(None),
            Next::Leave => ProducerPhase::Left,
        };
    }

    fn begin(&mut self, producer: ProducerId, lease: Lease) -> ProducerPhase {
        if self.scheduler.begin(lease.id, Copies::Kept, self.now) == Begin::Stale {
            self.scheduler.release(lease.id, self.now);
            return ProducerPhase::Asks;
        }
        let (took, outcome) = self.model.work(producer, &lease.items, lease.attempt);
        self.done.leases += 1;
        self.done.worked += took;
        ProducerPhase::Works { lease, until: self.now.after(took), outcome }
    }

    fn end(&mut self, Lease { id, items, .. }: Lease, outcome: Outcome) {
        if outcome == Outcome::Failed && items.len() > 1 {
            let kept = (Inputs::Kept, Memory::Sufficient);
            if let Together::Failed(items) =
                self.scheduler.fail_together(id, kept.0, kept.1, self.now)
            {
                self.failed(&items);
            }
            return;
        }
        let outcomes = vec![outcome; items.len()];
        let standings = self.scheduler.finish(id, &outcomes, self.now);
        let counting = items.iter().zip(standings).filter(|(_, it)| *it == Standing::Counts);
        let counting: Vec<u64> = counting.map(|(&index, _)| index).collect();
        match outcome {
            Outcome::Succeeded => counting.into_iter().for_each(|index| self.results.add(index)),
            Outcome::Failed => self.failed(&counting),
        }
    }

    fn failed(&mut self, items: &[u64]) {
        if items.is_empty() {
            return;
        }
        let failure = FailureFacts { verdict: FailureVerdict::Retry, inputs: Inputs::Copied };
        match self.scheduler.decide(items, failure, self.now) {
            Decision::Retry(_) | Decision::Discard => {}
            Decision::Skip => items.iter().for_each(|&index| self.results.add(index)),
            Decision::Fail => self.is_over = true,
        }
    }

    fn consume(&mut self) -> bool {
        if let Some(until) = self.consumer {
            if until > self.now {
                return false;
            }
            self.consumer = None;
            self.owed += 1;
            self.done.items += 1;
            if self.owed >= self.window.quarter() {
                self.give_back();
            }
        }
        let Some(index) = self.results.take() else { return self.settle() };
        self.consumer = Some(self.now.after(self.model.consume(index)));
        true
    }

    fn give_back(&mut self) {
        self.in_flight -= std::mem::take(&mut self.owed);
    }

    /// Returns all permits, and lets the window grow, as the collector of a real run does when it has nothing to do.
    fn settle(&mut self) -> bool {
        let has_returned = self.owed > 0;
        self.give_back();
        let is_full = self.feeder == SourcePhase::Waits && self.in_flight >= self.window.size();
        let starves = self.producers.iter().any(|doing| matches!(doing, ProducerPhase::Waits(_)));
        let shortage = Shortage { ran_dry: is_full && starves, was_full: is_full };
        let (measured, done, now) = (&mut self.measured, self.done.items, self.now);
        let pace = || {
            let (items, since) = std::mem::replace(measured, (done, now));
            (done - items, now.since(since))
        };
        let more = self.window.settle(shortage, self.results.held(), pace, || true);
        has_returned || more > 0
    }

    fn hear(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                SchedulerEvent::Wake(producer) => {
                    if let ProducerPhase::Waits(_) = self.producers[producer] {
                        self.producers[producer] = ProducerPhase::Asks;
                    }
                }
                SchedulerEvent::TooFewProducers { .. } | SchedulerEvent::RunTimedOut => {
                    self.is_over = true;
                }
                SchedulerEvent::Expired(_)
                | SchedulerEvent::Quarantined(_)
                | SchedulerEvent::Revoke { .. }
                | SchedulerEvent::Abandon(_)
                | SchedulerEvent::Recall(_)
                | SchedulerEvent::Ahead(_) => {}
            }
        }
    }
}

impl ReadyResults {
    fn new(order: Order) -> Self {
        match order {
            Order::Input => ReadyResults::InOrder(Reorder::default()),
            Order::Completion => ReadyResults::AsTheyCome(VecDeque::new()),
        }
    }

    fn add(&mut self, index: u64) {
        match self {
            ReadyResults::InOrder(results) => results.insert(index, ()),
            ReadyResults::AsTheyCome(results) => results.push_back(index),
        }
    }

    fn take(&mut self) -> Option<u64> {
        match self {
            ReadyResults::InOrder(results) => results.pop().map(|(index, ())| index),
            ReadyResults::AsTheyCome(results) => results.pop_front(),
        }
    }

    fn held(&self) -> usize {
        match self {
            ReadyResults::InOrder(results) => results.held(),
            ReadyResults::AsTheyCome(results) => results.len(),
        }
    }
}
