//! Simulated runs without threads: producers follow a script in virtual time, and properties check the
//! results.

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
    /// The number of producers that may replace lost ones.
    spares: usize,
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
    /// It builds its first state, in the place of another.
    Starts(RunTime),
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
    /// The calls of replaced producers that have not returned.
    replaced: Vec<(Lease, RunTime)>,
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
            spares: self.spares,
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
            replaced: vec![],
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
        for (Lease { id, items, .. }, _) in self.replaced.extract_if(.., |(_, until)| *until <= now)
        {
            let standings = self.scheduler.finish(id, &vec![Outcome::Succeeded; items.len()], now);
            assert!(!standings.contains(&Standing::Counts), "its producer was replaced");
        }
        let mut able: Vec<Option<ProducerId>> = (0..self.producers.len())
            .filter(|&producer| match &self.producers[producer] {
                Doing::Asks => true,
                Doing::Waits(until) => until.is_some_and(|until| until <= now),
                Doing::Prepares(_, until)
                | Doing::Works(_, until)
                | Doing::WorksUntracked(_, until)
                | Doing::Starts(until) => *until <= now,
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
            Doing::WorksUntracked(_, until) | Doing::Starts(until) => Some(*until),
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
            Doing::Starts(_) => self.started(producer),
            Doing::Stuck | Doing::Left => unreachable!("it does nothing"),
        }
        self.act();
    }

    fn flaw(&self, producer: ProducerId) -> Flaw {
        self.script.flaws[producer]
    }

    /// Starts the producer that replaces this one, if any does.
    fn replace(&mut self, lost: ProducerId) {
        if self.scheduler.take_replacement(lost).is_some() {
            let starts = Doing::Starts(self.now.after(3 * MS));
            if let Doing::Works(lease, until) = std::mem::replace(&mut self.producers[lost], starts)
            {
                self.replaced.push((lease, until));
            }
            self.has_state[lost] = true;
        }
    }

    fn started(&mut self, producer: ProducerId) {
        if self.flaw(producer) == Flaw::NoSecondInit {
            self.has_state[producer] = false;
            if self.scheduler.producer_lost(producer, self.now).is_err() {
                self.end();
            }
            return;
        }
        if !self.scheduler.producer_joined(producer) {
            self.producers[producer] = Doing::Left;
        }
    }

    fn ask(&mut self, producer: ProducerId) {
        let readiness = match self.has_state[producer] {
            true => Readiness::Ready,
            false => Readiness::NeedsInit,
        };
        let bound = self.scheduler.workload.bound;
        self.untracked.retain(|&index| index < bound);
        let is_careful = self.is_over
            || self.scheduler.health().is_suspect(producer)
            || !self.scheduler.health().may_take_new(producer)
            || self.scheduler.has_waiting_items()
            || self.untracked.is_empty();
        if is_careful {
            match self.scheduler.lease(producer, readiness, self.now) {
                Next::Work(lease) => return self.take(producer, lease, readiness),
                Next::Leave => {
                    self.producers[producer] = Doing::Left;
                    return self.replace(producer);
                }
                Next::Wait => self.producers[producer] = Doing::Waits(None),
                Next::WaitUntil(time) => self.producers[producer] = Doing::Waits(Some(time)),
            }
        }
        if self.untracked.is_empty() || !self.scheduler.health().may_take_new(producer) {
            return;
        }
        let index = self.untracked.pop_front().expect("there is one");
        if self.scheduler.health().is_suspect(producer) || readiness == Readiness::NeedsInit {
            let lease = self.scheduler.track(index, producer, readiness, self.now);
            return self.take(producer, lease, readiness);
        }
        self.scheduler.stop_waiting(producer, self.now);
        match self.call(&[index]) {
            Some(time) => self.producers[producer] = Doing::WorksUntracked(index, time),
            None => self.producers[producer] = Doing::Stuck,
        }
    }

    fn take(&mut self, producer: ProducerId, lease: Lease, readiness: Readiness) {
        for index in &lease.items {
            let retried = self.retried.get(index).copied().unwrap_or(0);
            assert_eq!(lease.attempt, retried + 1, "only retries are attempts, at {index}");
            assert!(self.scheduler.workload.bound > *index, "{index} was given up");
        }
        if readiness == Readiness::NeedsInit {
            self.producers[producer] = Doing::Prepares(lease, self.now.after(MS));
        } else {
            self.work(producer, lease);
        }
    }

    fn prepared(&mut self, producer: ProducerId, lease: Lease) {
        if self.flaw(producer) == Flaw::NoSecondInit {
            self.scheduler.release(lease.id, self.now);
            if self.scheduler.producer_lost(producer, self.now).is_err() {
                self.end();
            }
            self.producers[producer] = Doing::Asks;
            return;
        }
        self.has_state[producer] = true;
        self.work(producer, lease);
    }

    fn work(&mut self, producer: ProducerId, lease: Lease) {
        if self.scheduler.begin(lease.id, Copies::Kept, self.now) == Begin::Stale {
            return self.scheduler.release(lease.id, self.now);
        }
        self.producers[producer] = match self.call(&lease.items) {
            Some(time) => Doing::Works(lease, time),
            None => Doing::Stuck,
        };
    }

    /// The time at which a call that begins now returns; `None` if it never does.
    fn call(&mut self, items: &[u64]) -> Option<RunTime> {
        let mut time = MS + self.random(3) as u32 * MS / 2;
        let (may_be_stuck, mut is_stuck) = (self.may_be_stuck(), false);
        for &index in items {
            let number = self.calls.entry(index).or_default();
            *number += 1;
            let is_first = *number == 1;
            match self.script.items[index as usize] {
                Fault::Slow(times) if is_first => time += times * MS,
                Fault::Stuck => is_stuck |= is_first && may_be_stuck,
                _ => {}
            }
        }
        (!is_stuck).then(|| self.now.after(time))
    }

    /// Whether a hook may be stuck: only if a timeout, or a copy that succeeds, gets the run past it.
    fn may_be_stuck(&self) -> bool {
        let is_here = |it: &&Doing| !matches!(it, Doing::Stuck | Doing::Left);
        let others = self.producers.iter().filter(is_here);
        let copies_succeed = self.script.flaws.iter().all(|flaw| *flaw == Flaw::None)
            && !self.script.items.iter().any(|it| matches!(it, Fault::Fails(_) | Fault::Panics(_)));
        let is_passed =
            self.script.item_timeout.is_some() || self.script.speculates && copies_succeed;
        let is_replaced =
            self.script.item_timeout.is_some() && self.scheduler.health().can_replace();
        is_passed && (others.count() > 1 || is_replaced)
    }

    fn outcome(&self, producer: ProducerId, index: u64, attempt: u32) -> Outcome {
        let fails = match self.script.items[index as usize] {
            Fault::Fails(attempts) | Fault::Panics(attempts) => attempt <= attempts,
            _ => false,
        };
        match fails || self.flaw(producer) == Flaw::Broken {
            true => Outcome::Failed,
            false => Outcome::Succeeded,
        }
    }

    fn panics(&self, index: u64, attempt: u32) -> bool {
        matches!(self.script.items[index as usize], Fault::Panics(most) if attempt <= most)
    }

    fn worked(&mut self, producer: ProducerId, Lease { id, items, attempt, .. }: Lease) {
        if items.iter().any(|&index| self.panics(index, attempt)) {
            self.has_state[producer] = false;
        }
        let outcomes: Vec<_> =
            items.iter().map(|&index| self.outcome(producer, index, attempt)).collect();
        let is_short = matches!(self.flaw(producer), Flaw::Memory(most) if items.len() > most);
        let fails = is_short || outcomes.contains(&Outcome::Failed);
        if self.script.batch.is_some() && items.len() > 1 && fails {
            let is_kept = self.script.keeps_inputs || is_short;
            let inputs = if is_kept { Inputs::Kept } else { self.inputs() };
            let memory = if is_short { Memory::Short } else { Memory::Sufficient };
            match self.scheduler.fail_together(id, inputs, memory, self.now) {
                Together::Split(_) => {}
                Together::Failed(items) => self.failed(producer, &items),
            }
            return;
        }
        let standings = self.scheduler.finish(id, &outcomes, self.now);
        for ((index, outcome), standing) in items.into_iter().zip(outcomes).zip(standings) {
            match (outcome, standing) {
                (Outcome::Succeeded, Standing::Counts) => self.succeed(producer, index),
                (Outcome::Failed, Standing::Counts) => self.failed(producer, &[index]),
                _ => {}
            }
        }
    }

    fn worked_untracked(&mut self, producer: ProducerId, index: u64) {
        self.has_state[producer] = !self.panics(index, 1);
        match self.outcome(producer, index, 1) {
            Outcome::Succeeded if self.scheduler.workload.bound > index => {
                self.succeed(producer, index);
            }
            Outcome::Succeeded => {}
            Outcome::Failed => {
                self.scheduler.adopt(index, producer);
                self.failed(producer, &[index]);
            }
        }
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
        let verdict = if self.script.keeps_items { Verdict::RetryHere } else { Verdict::Retry };
        let failure = Failure { verdict, inputs: self.inputs() };
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
        let mut expired_producers = vec![];
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                Event::Wake(producer) => {
                    self.wakes += 1;
                    if let Doing::Waits(_) = self.producers[producer] {
                        self.producers[producer] = Doing::Asks;
                    }
                }
                Event::Expired(expired) => {
                    self.failed(expired.producer, &expired.items);
                    expired_producers.push(expired.producer);
                }
                Event::Quarantined(producer, _) => {
                    let succeeded = |index: &u64| self.succeeded.contains_key(index);
                    let mut failed = self.failed_on.iter().filter(|(_, it)| *it == producer);
                    // The success that is the evidence may be the one being settled.
                    let is_shown = failed.any(|(index, _)| succeeded(index) || self.is_at(*index));
                    assert!(is_shown, "{producer} is quarantined without evidence");
                    self.quarantined.push(producer);
                }
                Event::TooFewProducers { .. } | Event::RunTimedOut => {
                    if !self.is_over {
                        self.end();
                    }
                }
                // No producer here leases ahead.
                Event::Revoke { .. } | Event::Abandon(_) | Event::Recall(_) => {}
            }
        }
        expired_producers.into_iter().for_each(|producer| self.replace(producer));
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

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        10 => Just(Fault::None),
        3 => (1..4_u32).prop_map(Fault::Fails),
        1 => (1..4_u32).prop_map(Fault::Panics),
        2 => (1..100_u32).prop_map(Fault::Slow),
        1 => Just(Fault::Stuck),
    ]
}

fn flaws() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        6 => Just(Flaw::None),
        1 => Just(Flaw::Broken),
        1 => (1..5_usize).prop_map(Flaw::Memory),
        1 => Just(Flaw::NoSecondInit),
    ]
}

fn batches() -> impl Strategy<Value = Batch> {
    (1..6_usize, 0..6).prop_map(|(most, kind)| match kind {
        0 => Batch::of(most),
        1 => Batch::up_to(most),
        2 => Batch::of(most).within(2 * MS),
        3 => Batch::auto(),
        4 => Batch::auto().within(2 * MS),
        _ => Batch::up_to(most).latency(5 * MS),
    })
}

prop_compose! {
    fn scripts()(
        items in proptest::collection::vec(faults(), 0..50),
        flaws in proptest::collection::vec(flaws(), 1..5),
        spares in prop_oneof![2 => Just(0), 1 => 1..4_usize],
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        window in 6..30_usize,
        batch in proptest::option::of(batches()),
        retries in 0..3_u32,
        quarantine_after in proptest::option::of(1..4_usize),
        speculates in any::<bool>(),
        item_timeout in proptest::option::of((30..60_u32).prop_map(|ms| ms * MS)),
        on_error in prop_oneof![2 => Just(OnError::Skip), 1 => Just(OnError::Stop)],
        keeps_inputs in any::<bool>(),
        keeps_items in proptest::bool::weighted(0.3),
        background_in in 0..4_u64,
        seed in any::<u64>(),
    ) -> Script {
        Script {
            items, flaws, spares, order, window, batch, retries, quarantine_after, speculates,
            item_timeout, on_error, keeps_inputs, keeps_items, background_in, seed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// In every script, nothing waits for ever, each item has one outcome, and only retries count as
    /// attempts.
    #[test]
    fn every_item_has_one_verdict(script in scripts()) {
        let simulation = Simulation::new(script.clone()).play();
        let first_failed =
            simulation.verdicts.iter().find(|(_, verdict)| **verdict == End::Failed);
        let was_cut_short = simulation.scheduler.health().live() == 0
            || script.flaws.contains(&Flaw::NoSecondInit);
        match first_failed {
            None if !was_cut_short => {
                prop_assert_eq!(simulation.verdicts.len(), script.items.len());
            }
            Some((&first, _)) if !was_cut_short && script.order == Order::Input => {
                let before = simulation.verdicts.range(..first);
                prop_assert_eq!(before.count() as u64, first, "those before it have their ends");
                prop_assert_eq!(script.on_error, OnError::Stop);
            }
            _ => {}
        }
        prop_assert!(script.on_error == OnError::Stop || first_failed.is_none());
    }

    /// Batches that run out of memory are split, and no item is blamed.
    #[test]
    fn out_of_memory_costs_no_item(
        script in scripts(),
        memory in proptest::collection::vec(1..6_usize, 1..4),
    ) {
        let items = vec![Fault::None; script.items.len()];
        let flaws = memory.into_iter().map(Flaw::Memory).collect();
        let script = Script { items, flaws, item_timeout: None, ..script };
        let simulation = Simulation::new(script.clone()).play();
        prop_assert_eq!(simulation.succeeded.len(), script.items.len());
        prop_assert!(simulation.quarantined.is_empty());
    }

    /// Good items succeed despite broken producers, as long as there are good producers.
    #[test]
    fn a_broken_producer_costs_no_item(script in scripts(), broken in 0..4_usize) {
        let items = vec![Fault::None; script.items.len()];
        let mut flaws = vec![Flaw::None; script.flaws.len() + 1];
        let broken = broken % flaws.len();
        flaws[broken] = Flaw::Broken;
        let quarantine_after = script.quarantine_after.or(Some(2));
        let (keeps_inputs, keeps_items) = (false, false);
        let script = Script {
            items, flaws, quarantine_after, keeps_inputs, keeps_items, ..script
        };
        let simulation = Simulation::new(script.clone()).play();
        prop_assert_eq!(simulation.succeeded.len(), script.items.len());
        prop_assert!(simulation.quarantined.iter().all(|&it| it == broken));
    }

    /// A timeout costs the run no producer as long as others can be started.
    #[test]
    fn hooks_that_are_stuck_use_up_no_producers_that_can_be_replaced(
        script in scripts(),
        stuck in proptest::collection::btree_set(0..40_usize, 0..6),
    ) {
        let mut items = vec![Fault::None; 40];
        stuck.iter().for_each(|&index| items[index] = Fault::Stuck);
        let flaws = vec![Flaw::None; script.flaws.len()];
        let (item_timeout, spares) = (Some(20 * MS), 6);
        let (batch, speculates, on_error) = (None, false, OnError::Skip);
        let script = Script {
            items, flaws, item_timeout, spares, batch, speculates, on_error, ..script
        };
        let has_retries = script.retries > 0;
        let simulation = Simulation::new(script).play();
        prop_assert_eq!(simulation.verdicts.len(), 40);
        let skipped = simulation.verdicts.values().filter(|it| **it == End::Skipped).count();
        // Without a copy, an item that timed out has failed.
        let may_skip = if has_retries { 0 } else { stuck.len() };
        prop_assert!(skipped <= may_skip, "{} of {}", skipped, stuck.len());
    }

    /// An item is tried again after each failure, up to the permitted number of retries.
    #[test]
    fn attempts_are_those_that_were_asked_for(script in scripts()) {
        let items: Vec<_> = script.items.iter().map(|fault| match fault {
            Fault::Fails(attempts) => Fault::Fails(*attempts),
            _ => Fault::None,
        }).collect();
        let flaws = vec![Flaw::None; script.flaws.len()];
        let (batch, item_timeout, speculates) = (None, None, false);
        let on_error = OnError::Skip;
        let quarantine_after = None;
        let script = Script {
            items, flaws, batch, item_timeout, speculates, on_error, quarantine_after, ..script
        };
        let simulation = Simulation::new(script.clone()).play();
        for (index, fault) in (0..).zip(&script.items) {
            let Fault::Fails(attempts) = *fault else { continue };
            let is_ok = simulation.verdicts[&index] == End::Ok;
            prop_assert_eq!(is_ok, attempts <= script.retries);
            prop_assert_eq!(simulation.calls[&index], attempts.min(script.retries) + 1);
            if script.keeps_items {
                let failed_on = simulation.failed_on.range((index, 0)..=(index, usize::MAX));
                let all = failed_on.map(|(_, it)| it).chain(simulation.succeeded.get(&index));
                prop_assert_eq!(all.collect::<BTreeSet<_>>().len(), 1, "{} was kept", index);
            }
        }
    }
}
