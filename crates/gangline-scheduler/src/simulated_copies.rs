//! Copies of slow items in virtual time: what a run takes if some attempts are slow, and how many attempts are added.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::tests::*;
use super::*;

const ITEM: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_secs(1);

/// What makes an attempt slow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SlowCause {
    None,
    /// One attempt in this number, whatever the item.
    Attempt(u64),
    /// Each attempt of this number.
    Each(u64),
    /// One item in this number, at each attempt.
    Item(u64),
}

/// How long attempts take that are not slow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Spread {
    Equal,
    Exponential,
}

/// A run of items that take 20 ms, with hooks that give up at once when they have lost.
#[derive(Debug, Clone, Copy)]
struct CopyRun {
    producers: usize,
    items: u64,
    window: usize,
    order: Order,
    cause: SlowCause,
    spread: Spread,
    speculates: bool,
    seed: u64,
}

/// The time of a run, and its number of attempts with copies.
#[derive(Debug, Clone, Copy)]
struct CopyFigures {
    took: Duration,
    attempts: u64,
}

/// A run in progress.
struct Copying {
    run: CopyRun,
    scheduler: Scheduler,
    now: RunTime,
    random: u64,
    pulled: u64,
    attempts: u64,
    /// The hooks that run, with their ends, and the producers that ask again by themselves.
    working: Vec<Option<(RunTime, Lease)>>,
    looks: Vec<Option<RunTime>>,
    done: BTreeSet<u64>,
    consumed: u64,
    /// How often each item was begun.
    begun: BTreeMap<u64, u64>,
}

impl CopyRun {
    /// The run of the promise: eight producers, 1,000 items.
    fn of(window: usize) -> Self {
        CopyRun {
            producers: 8,
            items: 1_000,
            window,
            order: Order::Input,
            cause: SlowCause::Attempt(100),
            spread: Spread::Equal,
            speculates: true,
            seed: 1,
        }
    }

    fn play(self) -> CopyFigures {
        let CopyRun { producers, window, order, speculates, .. } = self;
        let copy_after = speculates.then_some(LEAST_COPY_AFTER);
        let config = Config { window, order, copy_after, ..config(producers) };
        let mut copying = Copying {
            run: self,
            scheduler: scheduler(config),
            now: RunTime::START,
            random: self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            pulled: 0,
            attempts: 0,
            working: vec![None; producers],
            looks: vec![Some(RunTime::START); producers],
            done: BTreeSet::new(),
            consumed: 0,
            begun: BTreeMap::new(),
        };
        copying.scheduler.consumer(Activity::Waiting, RunTime::START);
        while copying.consumed < self.items {
            copying.feed();
            copying.lease();
            if copying.consumed < self.items {
                copying.advance();
            }
        }
        CopyFigures { took: copying.now.since(RunTime::START), attempts: copying.attempts }
    }

    /// The time of this run over that of the same run without slow attempts, and its attempts over its items.
    fn costs(self) -> (f64, f64) {
        let figures = self.play();
        let plain = CopyRun { cause: SlowCause::None, speculates: false, ..self }.play();
        let took = figures.took.as_secs_f64() / plain.took.as_secs_f64();
        (took, figures.attempts as f64 / self.items as f64)
    }

    /// The means of the costs over many seeds.
    fn mean_costs(self, seeds: u64) -> (f64, f64) {
        let each = (1..=seeds).map(|seed| CopyRun { seed, ..self }.costs());
        let (took, attempts) = each.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        (took / seeds as f64, attempts / seeds as f64)
    }
}

impl Copying {
    fn feed(&mut self) {
        while self.pulled < self.run.items && self.pulled - self.consumed < self.run.window as u64 {
            offer(&mut self.scheduler, self.pulled, self.now);
            self.pulled += 1;
        }
        if self.pulled == self.run.items {
            self.scheduler.input_ended(self.now);
        }
        self.scheduler.feeder(Activity::Waiting, self.now);
    }

    /// Has all producers ask that are woken or due, until none is.
    fn lease(&mut self) {
        loop {
            while let Some(event) = self.scheduler.poll_event() {
                match event {
                    SchedulerEvent::Wake(producer) => self.looks[producer] = Some(self.now),
                    SchedulerEvent::Revoke { lease, producer } => self.give_up(lease, producer),
                    other => panic!("{other:?}"),
                }
            }
            let is_due = |look: &Option<RunTime>| look.is_some_and(|look| look <= self.now);
            let Some(producer) = self.looks.iter().position(is_due) else { return };
            self.looks[producer] = None;
            match self.scheduler.lease(producer, Readiness::Ready, self.now) {
                Next::Work(lease) => self.begin(producer, lease),
                Next::WaitUntil(time) => self.looks[producer] = Some(time),
                Next::Wait => {}
                Next::Leave => panic!("the run is not over"),
            }
        }
    }

    fn begin(&mut self, producer: ProducerId, lease: Lease) {
        assert_eq!(self.scheduler.begin(lease.id, Copies::Kept, self.now), Begin::Work);
        let begun = self.begun.entry(lease.items[0]).or_default();
        *begun += 1;
        assert!(*begun <= 3, "two copies at most");
        self.attempts += 1;
        let is_slow = match self.run.cause {
            SlowCause::None => false,
            SlowCause::Attempt(each) => self.uniform() < 1.0 / each as f64,
            SlowCause::Each(each) => (self.attempts + self.run.seed * 37).is_multiple_of(each),
            SlowCause::Item(each) => lease.items[0] % each == each / 2,
        };
        let took = match (is_slow, self.run.spread) {
            (true, _) => SLOW,
            (false, Spread::Equal) => ITEM,
            (false, Spread::Exponential) => ITEM.mul_f64(-(1.0 - self.uniform()).ln()),
        };
        self.working[producer] = Some((self.now.after(took), lease));
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Ends a hook that has lost.
    fn give_up(&mut self, lease: LeaseId, producer: ProducerId) {
        let (_, held) = self.working[producer].take().expect("it is in a hook");
        assert_eq!(held.id, lease);
        self.end(producer, lease);
    }

    fn end(&mut self, producer: ProducerId, lease: LeaseId) -> Standing {
        let standing = self.scheduler.finish(lease, &[Outcome::Succeeded], self.now)[0];
        self.looks[producer] = Some(self.now);
        standing
    }

    /// Goes on to the next end of a hook, or look of a producer.
    fn advance(&mut self) {
        let ends = self.working.iter().flatten().map(|(end, _)| *end);
        self.now = ends.chain(self.looks.iter().flatten().copied()).min().expect("it goes on");
        for producer in 0..self.run.producers {
            let now = self.now;
            let Some((_, lease)) = self.working[producer].take_if(|(end, _)| *end <= now) else {
                continue;
            };
            if self.end(producer, lease.id) == Standing::Counts {
                assert!(self.done.insert(lease.items[0]), "each item counts once");
            }
        }
        self.consumed = match self.run.order {
            Order::Completion => self.done.len() as u64,
            Order::Input => (self.consumed..).find(|it| !self.done.contains(it)).unwrap_or(0),
        };
    }
}

const WINDOWS: [usize; 11] = [1, 4, 8, 9, 12, 16, 24, 32, 64, 512, 1_000];

fn runs() -> impl Iterator<Item = CopyRun> {
    let orders = [Order::Input, Order::Completion];
    orders.into_iter().flat_map(|order| WINDOWS.map(|it| CopyRun { order, ..CopyRun::of(it) }))
}

#[test]
fn slow_attempts_cost_a_tenth_at_any_window() {
    for run in runs() {
        for seed in 1..=2 {
            let (took, attempts) = CopyRun { cause: SlowCause::Each(100), seed, ..run }.costs();
            assert!(took <= 1.10 && attempts <= 1.02, "{run:?}: {took:.3}, {attempts:.4}");
        }
    }
    // At random, some runs have twice as many.
    for window in [8, 24, 512] {
        let run = CopyRun { cause: SlowCause::Attempt(100), ..CopyRun::of(window) };
        let (took, attempts) = run.mean_costs(10);
        assert!(took <= 1.10 && attempts <= 1.02, "{run:?}: {took:.3}, {attempts:.4}");
    }
}

#[test]
fn copies_are_a_fiftieth_of_the_attempts() {
    for run in runs() {
        for cause in [SlowCause::None, SlowCause::Attempt(100), SlowCause::Item(100)] {
            let (_, attempts) = CopyRun { cause, spread: Spread::Exponential, ..run }.costs();
            assert!(attempts <= 1.025, "{run:?}: {attempts:.4}");
        }
    }
}

#[test]
fn useless_copies_of_slow_items_are_few() {
    for run in runs() {
        let run = CopyRun { cause: SlowCause::Item(100), ..run };
        let (without, _) = CopyRun { speculates: false, ..run }.costs();
        let (took, _) = run.costs();
        assert!(took <= 1.06 * without, "{run:?}: {took:.3}, not {without:.3}");
    }
}

/// A run that has finished enough items of 20 ms to know which is overdue. It has begun `items` more.
fn with_known_times(config: Config, items: u64) -> (Scheduler, Vec<Lease>) {
    let mut scheduler = scheduler(config);
    for index in 0..20 {
        offer(&mut scheduler, index, at(0));
        let lease = lease(&mut scheduler, 0, at(0));
        scheduler.finish(lease.id, &[Outcome::Succeeded], at(20));
    }
    let begun = (20..20 + items).zip(0..).map(|(index, producer)| {
        offer(&mut scheduler, index, at(1_000));
        lease(&mut scheduler, producer, at(1_000))
    });
    let begun = begun.collect();
    events(&mut scheduler);
    (scheduler, begun)
}

fn speculating(producers: usize) -> Config {
    Config { copy_after: Some(LEAST_COPY_AFTER), ..config(producers) }
}

#[test]
fn a_busy_producer_copies_the_overdue_head_before_new_items() {
    let (mut scheduler, begun) = with_known_times(speculating(3), 2);
    (100..110).for_each(|index| offer(&mut scheduler, index, at(1_000)));
    let new = lease(&mut scheduler, 1, at(1_059));
    assert_eq!(new.items, [100], "not yet");
    scheduler.finish(new.id, &[Outcome::Succeeded], at(1_064));
    assert_eq!(lease(&mut scheduler, 1, at(1_064)).items, begun[0].items);
    assert_eq!(lease(&mut scheduler, 1, at(1_064)).items, [101], "21 is no head");
}

#[test]
fn an_idle_producer_copies_the_overdue_head_while_the_source_is_slow() {
    let (mut scheduler, begun) = with_known_times(speculating(2), 1);
    let Next::WaitUntil(due) = ask(&mut scheduler, 1, at(1_000)) else {
        panic!("it looks in time")
    };
    assert!((at(1_060)..at(1_063)).contains(&due), "{due:?}");
    assert_eq!(lease(&mut scheduler, 1, due).items, begun[0].items);
}

#[test]
fn an_idle_producer_is_woken_to_look_after_what_begins() {
    let (mut scheduler, _) = with_known_times(speculating(3), 0);
    for producer in [1, 2] {
        assert_eq!(ask(&mut scheduler, producer, at(1_000)), Next::Wait, "nothing is in a hook");
    }
    offer(&mut scheduler, 50, at(1_000));
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(lease(&mut scheduler, 1, at(1_000)).items, [50]);
    assert_eq!(wakes(&mut scheduler), [2]);
    assert!(matches!(ask(&mut scheduler, 2, at(1_000)), Next::WaitUntil(_)));
}

#[test]
fn a_suspended_producer_copies_no_overdue_item() {
    let config = Config { quarantine_after: Some(1), ..speculating(3) };
    let (mut scheduler, begun) = with_known_times(config, 1);
    offer(&mut scheduler, 50, at(1_000));
    assert_eq!(fail(&mut scheduler, 1, at(1_000)).0, 50);
    assert_eq!(ask(&mut scheduler, 1, at(1_100)), Next::Wait);
    assert_eq!(lease(&mut scheduler, 2, at(1_100)).items, begun[0].items);
}

#[test]
fn each_overdue_call_of_a_service_is_copied_while_others_wait() {
    let config = Config { input: Input::Calls, ..speculating(4) };
    let (mut scheduler, begun) = with_known_times(config, 2);
    (100..110).for_each(|index| offer(&mut scheduler, index, at(1_000)));
    let copied = [2, 3].map(|producer| lease(&mut scheduler, producer, at(1_064)).items);
    assert_eq!(copied, [begun[0].items.clone(), begun[1].items.clone()]);
    assert_eq!(lease(&mut scheduler, 2, at(1_065)).items, [100]);
}

#[test]
fn nothing_is_leased_ahead_of_a_copy() {
    let (mut scheduler, _) = with_known_times(speculating(2), 2);
    (100..110).for_each(|index| offer(&mut scheduler, index, at(1_000)));
    let ahead = |scheduler: &mut Scheduler, now| crate::ahead::lease_ahead(scheduler, 1, 2, now);
    assert_eq!(ahead(&mut scheduler, at(1_064)), []);
    assert_eq!(ahead(&mut scheduler, at(1_059)).len(), 2);
}

/// The first call of each item never returns.
#[test]
fn hooks_that_never_return_do_not_stop_a_run() {
    let mut scheduler = scheduler(speculating(2));
    for index in 0..40 {
        let now = at(1_000 * index);
        offer(&mut scheduler, index, now);
        let stuck = lease(&mut scheduler, 0, now);
        scheduler.feeder(Activity::Waiting, now);
        scheduler.consumer(Activity::Waiting, now);
        let copy = lease(&mut scheduler, 1, at(1_000 * index + 100));
        assert_eq!(copy.items, stuck.items, "beyond the copies that a run has");
        let now = at(1_000 * index + 101);
        scheduler.finish(copy.id, &[Outcome::Succeeded], now);
        assert_eq!(scheduler.finish(stuck.id, &[Outcome::Succeeded], now), [Standing::Stale]);
        scheduler.feeder(Activity::Working, now);
    }
}
