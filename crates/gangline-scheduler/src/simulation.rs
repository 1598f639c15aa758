//! Simulated runs without threads: producers follow a script in virtual time, and properties check the
//! results.

mod producing;
mod properties;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::tests::meta;
use super::*;
use crate::batch::{Batch, Batching, DeviceBatches};

const MS: Duration = Duration::from_millis(1);

/// The fault of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// This number of attempts fail.
    Fails(u32),
    /// This number of attempts fail, and cost the producer its state.
    Panics(u32),
    /// The first call takes this many times as long as others.
    Slow(u32),
    /// The first call never returns.
    Stuck,
}

/// The fault of a producer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// It fails every item.
    Broken,
    /// Its device has memory for this number of items.
    Memory(usize),
    /// It cannot rebuild its state.
    NoSecondInit,
}

/// Which items are tracked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tracking {
    Full,
    /// Items are untracked until they fail.
    OnFailure,
}

#[derive(Debug, Clone)]
struct Script {
    items: Vec<Fault>,
    flaws: Vec<Flaw>,
    order: Order,
    window: usize,
    batch: Option<Batch>,
    retries: u32,
    quarantine_after: Option<usize>,
    speculates: bool,
    item_timeout: Option<Duration>,
    on_error: OnError,
    keeps_inputs: bool,
    /// Whether producers keep the items that they fail.
    keeps_items: bool,
    /// One item in this number is of the background; 0: none.
    background_in: u64,
    /// Seeds the choice of the next thread.
    seed: u64,
}

/// The state of a producer.
#[derive(Debug, Clone, PartialEq)]
enum Doing {
    /// It is about to ask for a lease.
    Asks,
    Waits(Option<RunTime>),
    Prepares(Lease, RunTime),
    Works(Lease, RunTime),
    /// Works on an untracked item.
    WorksUntracked(u64, RunTime),
    /// It never returns.
    Stuck,
    Left,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Ok,
    Skipped,
    Failed,
}

#[derive(Debug)]
struct Simulation {
    script: Script,
    scheduler: Scheduler,
    tracking: Tracking,
    now: RunTime,
    turns: u64,
    producers: Vec<Doing>,
    has_state: Vec<bool>,
    untracked: VecDeque<u64>,
    /// The number of items pulled. `consumed` has those that were consumed.
    pulled: u64,
    consumed: BTreeSet<u64>,
    head: u64,
    verdicts: BTreeMap<u64, End>,
    /// For each item, the number of attempts that a retry followed.
    retried: BTreeMap<u64, u32>,
    /// The producers that failed each item.
    failed_on: BTreeSet<(u64, ProducerId)>,
    succeeded: BTreeMap<u64, ProducerId>,
    calls: BTreeMap<u64, u32>,
    quarantined: Vec<ProducerId>,
    is_over: bool,
    feeder: Activity,
    consumer: Activity,
    has_ended: bool,
    wakes: usize,
}

impl Script {
    fn config(&self) -> Config {
        Config {
            producers: self.flaws.len(),
            places: None,
            order: self.order,
            window: self.window,
            batching: self.batch.map(Batching::new),
            on_error: self.on_error,
            retries: self.retries,
            backoff: Backoff { first: MS, most: 4 * MS },
            quarantine_after: self.quarantine_after,
            copy_after: self.speculates.then_some(10 * MS),
            timeouts: Timeouts { item: self.item_timeout, step: MS, ..Timeouts::default() },
            min_producers: 1,
            bypass: Bypass::Never,
            input: Input::MayCome,
        }
    }

    fn has_copies(&self) -> bool {
        self.retries > 0 || self.quarantine_after.is_some() || self.speculates
    }
}

impl Simulation {
    fn new(script: Script) -> Self {
        let producers = script.flaws.len();
        let needs_all =
            script.batch.is_some() || script.speculates || script.item_timeout.is_some();
        let tracking = if needs_all { Tracking::Full } else { Tracking::OnFailure };
        let learned = vec![DeviceBatches::default(); producers];
        Simulation {
            scheduler: Scheduler::new(script.config(), learned, RunTime::START),
            tracking,
            now: RunTime::START,
            turns: script.seed,
            producers: vec![Doing::Asks; producers],
            has_state: vec![true; producers],
            untracked: VecDeque::new(),
            pulled: 0,
            consumed: BTreeSet::new(),
            head: 0,
            verdicts: BTreeMap::new(),
            retried: BTreeMap::new(),
            failed_on: BTreeSet::new(),
            succeeded: BTreeMap::new(),
            calls: BTreeMap::new(),
            quarantined: vec![],
            is_over: false,
            feeder: Activity::Working,
            consumer: Activity::Working,
            has_ended: false,
            wakes: 0,
            script,
        }
    }

    /// Runs the script to its end.
    fn play(mut self) -> Self {
        for step in 0.. {
            assert!(step < 20_000, "it goes on without end: {self:#?}");
            self.consume();
            if self.is_complete() {
                self.end();
            }
            self.check();
            if self.is_over && self.has_everyone_left() {
                return self;
            }
            if !self.take_a_turn() {
                self.wait();
            }
        }
        unreachable!("it returns or panics")
    }

    fn random(&mut self, below: usize) -> usize {
        self.turns = self.turns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.turns >> 33) as usize % below
    }

    /// Lets one thread that is ready take its turn. Returns whether there was one.
    fn take_a_turn(&mut self) -> bool {
        let now = self.now;
        let mut able: Vec<Option<ProducerId>> = (0..self.producers.len())
            .filter(|&producer| match &self.producers[producer] {
                Doing::Asks => true,
                Doing::Waits(until) => until.is_some_and(|until| until <= now),
                Doing::Prepares(_, until)
                | Doing::Works(_, until)
                | Doing::WorksUntracked(_, until) => *until <= now,
                Doing::Stuck | Doing::Left => false,
            })
            .map(Some)
            .collect();
        if self.can_feed() {
            able.push(None);
        }
        if able.is_empty() {
            return false;
        }
        match able[self.random(able.len())] {
            None => self.feed(),
            Some(producer) => self.step(producer),
        }
        true
    }

    /// Advances the time to the next moment at which anything happens.
    fn wait(&mut self) {
        let ends = self.producers.iter().filter_map(|doing| match doing {
            Doing::Waits(until) => *until,
            Doing::Prepares(_, until) | Doing::Works(_, until) => Some(*until),
            Doing::WorksUntracked(_, until) => Some(*until),
            Doing::Asks | Doing::Stuck | Doing::Left => None,
        });
        let next = ends.chain(self.scheduler.poll_timeout()).min();
        let Some(next) = next else { panic!("it waits for ever: {self:#?}") };
        self.now = self.now.max(next);
        if self.scheduler.poll_timeout().is_some_and(|time| time <= self.now) {
            self.scheduler.handle_timeout(self.now);
            self.act();
        }
    }

    fn can_feed(&self) -> bool {
        let out = self.pulled - self.consumed.len() as u64;
        !self.has_ended && !self.is_over && out < self.script.window as u64
    }

    fn feed(&mut self) {
        if self.feeder == Activity::Waiting {
            self.feeder = Activity::Working;
            self.scheduler.feeder(self.feeder, self.now);
        }
        if self.pulled == self.script.items.len() as u64 || self.has_failed() {
            self.has_ended = true;
            self.scheduler.input_ended(self.now);
        } else {
            let index = self.pulled;
            let is_background = index.checked_rem(self.script.background_in) == Some(0);
            let priority = if is_background { Priority::Background } else { Priority::Normal };
            let meta = Meta { priority, ..meta(self.now) };
            self.pulled += 1;
            match self.tracking {
                Tracking::Full => self.scheduler.offer(index, meta, self.now),
                Tracking::OnFailure => {
                    self.untracked.push_back(index);
                    let sleeper = (0..self.producers.len())
                        .find(|&it| matches!(self.producers[it], Doing::Waits(_)));
                    sleeper.into_iter().for_each(|it| self.producers[it] = Doing::Asks);
                }
            }
        }
        self.act();
        if !self.has_ended && !self.can_feed() {
            self.feeder = Activity::Waiting;
            self.scheduler.feeder(self.feeder, self.now);
            self.act();
        }
    }

    fn has_failed(&self) -> bool {
        self.verdicts.values().any(|verdict| *verdict == End::Failed)
    }

    fn consume(&mut self) {
        let before = self.consumed.len();
        match self.script.order {
            Order::Completion => self.consumed.extend(self.verdicts.keys()),
            Order::Input => {
                while self.verdicts.contains_key(&self.head) {
                    self.consumed.insert(self.head);
                    self.head += 1;
                }
            }
        }
        let activity = match self.consumed.len() > before {
            true => Activity::Working,
            false => Activity::Waiting,
        };
        if activity != self.consumer {
            self.consumer = activity;
            self.scheduler.consumer(activity, self.now);
            self.act();
        }
    }

    /// Whether every wanted item has its outcome.
    fn is_complete(&self) -> bool {
        let first_failed = self.verdicts.iter().find(|(_, it)| **it == End::Failed);
        match (self.script.order, first_failed) {
            (Order::Completion, Some(_)) => true,
            (Order::Input, Some((&first, _))) => {
                (0..first).all(|index| self.verdicts.contains_key(&index))
            }
            (_, None) => self.has_ended && self.verdicts.len() as u64 == self.pulled,
        }
    }

    fn end(&mut self) {
        self.is_over = true;
        self.scheduler.abort();
        self.act();
    }

    fn has_everyone_left(&self) -> bool {
        let has_left = |doing| matches!(doing, &Doing::Left | &Doing::Stuck);
        self.producers.iter().all(has_left)
    }

    fn step(&mut self, producer: ProducerId) {
        match std::mem::replace(&mut self.producers[producer], Doing::Asks) {
            Doing::Asks | Doing::Waits(_) => self.ask(producer),
            Doing::Prepares(lease, _) => self.prepared(producer, lease),
            Doing::Works(lease, _) => self.worked(producer, lease),
            Doing::WorksUntracked(index, _) => self.worked_untracked(producer, index),
            Doing::Stuck | Doing::Left => unreachable!("it does nothing"),
        }
        self.act();
    }

    fn flaw(&self, producer: ProducerId) -> Flaw {
        self.script.flaws[producer]
    }

    fn inputs(&self) -> Inputs {
        if self.script.has_copies() { Inputs::Copied } else { Inputs::Gone }
    }

    fn succeed(&mut self, producer: ProducerId, index: u64) {
        self.succeeded.insert(index, producer);
        self.settle(index, End::Ok);
    }

    fn settle(&mut self, index: u64, verdict: End) {
        let before = self.verdicts.insert(index, verdict);
        assert_eq!(before, None, "item {index} has one end: {self:#?}");
    }

    fn failed(&mut self, producer: ProducerId, items: &[u64]) {
        if items.is_empty() {
            return;
        }
        self.failed_on.extend(items.iter().map(|&index| (index, producer)));
        for index in items {
            assert!(!self.verdicts.contains_key(index), "{index} has its end already");
        }
        let verdict =
            if self.script.keeps_items { FailureVerdict::RetryHere } else { FailureVerdict::Retry };
        let failure = FailureFacts { verdict, inputs: self.inputs() };
        match self.scheduler.decide(items, failure, self.now) {
            Decision::Retry(_) => {
                items.iter().for_each(|&index| *self.retried.entry(index).or_default() += 1);
            }
            Decision::Skip => {
                items.iter().for_each(|&index| self.settle(index, End::Skipped));
            }
            Decision::Fail => self.settle(items[0], End::Failed),
            Decision::Discard => {}
        }
    }

    /// Handles the scheduler's events.
    fn act(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                SchedulerEvent::Wake(producer) => {
                    self.wakes += 1;
                    if let Doing::Waits(_) = self.producers[producer] {
                        self.producers[producer] = Doing::Asks;
                    }
                }
                SchedulerEvent::Expired(expired) => self.failed(expired.producer, &expired.items),
                SchedulerEvent::Quarantined(producer) => {
                    let succeeded = |index: &u64| self.succeeded.contains_key(index);
                    let mut failed = self.failed_on.iter().filter(|(_, it)| *it == producer);
                    // The success that is the evidence may be the one being settled.
                    let is_shown = failed.any(|(index, _)| succeeded(index) || self.is_at(*index));
                    assert!(is_shown, "{producer} is quarantined without evidence");
                    self.quarantined.push(producer);
                }
                SchedulerEvent::TooFewProducers { .. } | SchedulerEvent::RunTimedOut => {
                    if !self.is_over {
                        self.end();
                    }
                }
                // No producer here leases ahead.
                SchedulerEvent::Revoke { .. }
                | SchedulerEvent::Abandon(_)
                | SchedulerEvent::Recall(_)
                | SchedulerEvent::Ahead(_) => {}
            }
        }
    }

    /// Whether a lease on the item has just ended.
    fn is_at(&self, index: u64) -> bool {
        self.scheduler.items().get(index).is_none()
    }

    fn check(&self) {
        let health = self.scheduler.health();
        let producers = 0..self.producers.len();
        let available: Vec<_> = producers.filter(|&it| health.is_available(it)).collect();
        assert!(health.live() > 0 || self.is_over, "the last producer is lost");
        if let [last] = available[..] {
            assert!(health.may_take_new(last), "the last producer is suspended");
        }
    }
}
