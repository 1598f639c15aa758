//! Calls beside a background stream, by hand and in virtual time: what a call waits for, and what the stream gets.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::tests::*;
use super::*;
use crate::ahead::lease_ahead;
use crate::batch::{Batch, Batching};

const US: Duration = Duration::from_micros(1);

fn calls(producers: usize) -> Config {
    Config { input: Input::Calls, order: Order::Completion, ..config(producers) }
}

fn put(scheduler: &mut Scheduler, priority: Priority, index: u64, now: RunTime) {
    scheduler.offer(index, Meta { priority, ..meta(now) }, now);
}

/// Items of a stream from 100 on, and calls from 0 on.
fn mixed(config: Config, calls: u64, stream: u64) -> Scheduler {
    let mut scheduler = scheduler(config);
    (100..100 + stream).for_each(|it| put(&mut scheduler, Priority::Background, it, at(0)));
    (0..calls).for_each(|it| put(&mut scheduler, Priority::Normal, it, at(0)));
    scheduler
}

#[test]
fn calls_go_before_the_stream_and_the_stream_goes_on() {
    let mut scheduler = mixed(calls(1), 2, 2);
    let order = [0; 4].map(|producer| succeed(&mut scheduler, producer, at(0)));
    assert_eq!(order, [0, 1, 100, 101]);
}

#[test]
fn one_item_in_ten_is_of_the_stream_while_calls_wait() {
    let mut scheduler = mixed(calls(1), 100, 100);
    let order: Vec<_> = (0..60).map(|_| succeed(&mut scheduler, 0, at(0))).collect();
    let stream: Vec<_> = (0..).zip(&order).filter(|(_, it)| **it >= 100).map(|(i, _)| i).collect();
    assert_eq!(stream, [9, 19, 29, 39, 49, 59]);
}

#[test]
fn without_a_share_the_stream_waits_for_all_calls() {
    let mut scheduler = mixed(calls(1), 90, 1);
    scheduler.set_share(Share::percent(0));
    assert!((0..90).all(|_| succeed(&mut scheduler, 0, at(0)) < 100));
    assert_eq!(succeed(&mut scheduler, 0, at(0)), 100);
}

#[test]
fn a_retry_keeps_its_class() {
    let mut scheduler = mixed(Config { retries: 1, ..calls(2) }, 0, 2);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 100);
    put(&mut scheduler, Priority::Normal, 102, at(20));
    assert_eq!(succeed(&mut scheduler, 1, at(20)), 102, "a call before the retry of the stream");
    assert_eq!(succeed(&mut scheduler, 1, at(20)), 100, "a retry before the rest of the stream");
    put(&mut scheduler, Priority::Normal, 103, at(20));
    assert_eq!(fail(&mut scheduler, 0, at(20)).0, 103);
    assert_eq!(succeed(&mut scheduler, 1, at(40)), 103, "the retry of a call");
    assert_eq!(succeed(&mut scheduler, 1, at(40)), 101);
}

#[test]
fn a_retry_of_the_stream_has_its_share() {
    let mut scheduler = mixed(Config { retries: 1, ..calls(2) }, 0, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 100);
    (101..200).for_each(|it| put(&mut scheduler, Priority::Normal, it, at(20)));
    let order: Vec<_> = (0..20).map(|_| succeed(&mut scheduler, 1, at(20))).collect();
    assert!(order.contains(&100), "{order:?}");
}

#[test]
fn parts_of_the_stream_wait_for_calls_and_parts_with_a_call_do_not() {
    let batching = batches(Batch::up_to(4));
    let mut scheduler = mixed(Config { batching, ..calls(1) }, 0, 4);
    let batch = lease(&mut scheduler, 0, at(0));
    let together = scheduler.fail_together(batch.id, Inputs::Kept, Memory::Sufficient, at(0));
    assert_eq!(together, Together::Split(vec![100, 101, 102, 103]));
    put(&mut scheduler, Priority::Normal, 104, at(0));
    let mut next = || {
        let lease = lease(&mut scheduler, 0, at(0));
        scheduler.finish(lease.id, &vec![Outcome::Succeeded; lease.items.len()], at(0));
        lease.items
    };
    assert_eq!([next(), next(), next()], [vec![104], vec![100, 101], vec![102, 103]]);
}

#[test]
fn a_call_takes_the_place_of_a_stream_item_whose_producer_is_not_ready() {
    let mut scheduler = mixed(calls(1), 0, 1);
    let Next::Work(early) = scheduler.lease(0, Readiness::NeedsInit, at(0)) else {
        panic!("an item waits")
    };
    put(&mut scheduler, Priority::Normal, 101, at(1));
    assert_eq!(scheduler.begin(early.id, Copies::Missing, at(2)), Begin::Stale);
    scheduler.release(early.id, at(2));
    assert_eq!(succeed(&mut scheduler, 0, at(2)), 101);
    let again = lease(&mut scheduler, 0, at(3));
    assert_eq!((again.items, again.attempt), (vec![100], 1), "it cost no attempt");
}

#[test]
fn what_lies_ahead_of_the_stream_comes_back_for_a_call() {
    let mut scheduler = mixed(calls(2), 0, 8);
    lease(&mut scheduler, 0, at(0));
    let later = lease_ahead(&mut scheduler, 0, 2, at(0));
    assert_eq!(later.iter().map(|it| it.items[0]).collect::<Vec<_>>(), [101, 102]);
    events(&mut scheduler);
    put(&mut scheduler, Priority::Normal, 108, at(1));
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Recall(0)]);
    assert!(lease_ahead(&mut scheduler, 0, 2, at(1)).is_empty(), "both classes wait");
    later.iter().for_each(|it| scheduler.release(it.id, at(1)));
    assert_eq!(succeed(&mut scheduler, 1, at(1)), 108);
    assert_eq!(succeed(&mut scheduler, 1, at(1)), 101);
}

#[test]
fn calls_ahead_of_a_busy_producer_come_back_if_another_would_take_the_stream() {
    let mut scheduler = mixed(calls(2), 4, 0);
    lease(&mut scheduler, 0, at(0));
    let later = lease_ahead(&mut scheduler, 0, 2, at(0));
    assert_eq!(later.len(), 2);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 3);
    put(&mut scheduler, Priority::Background, 100, at(1));
    events(&mut scheduler);
    assert_eq!(lease(&mut scheduler, 1, at(1)).items, [100]);
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Recall(0)]);
}

#[test]
fn a_slow_call_is_copied_before_the_stream_goes_on() {
    let mut scheduler = mixed(Config { copy_after: Some(10 * MS), ..calls(2) }, 1, 3);
    let slow = lease(&mut scheduler, 0, at(0));
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 100);
    assert_eq!(lease(&mut scheduler, 1, at(30)).items, slow.items);
    assert_eq!(lease(&mut scheduler, 0, at(30)).items, [101], "not a copy, while others wait");
}

#[test]
fn what_is_withdrawn_of_the_stream_disturbs_no_call() {
    let batching = batches(Batch::up_to(3));
    let mut scheduler = mixed(Config { batching, ..calls(1) }, 1, 4);
    let batch = lease(&mut scheduler, 0, at(0));
    assert_eq!(batch.items, [0, 100, 101]);
    scheduler.withdraw(&[100, 101, 102, 103], at(0));
    assert!(!scheduler.has_waiting_items());
    let standings = scheduler.finish(batch.id, &[Outcome::Succeeded; 3], at(1));
    assert_eq!(standings, [Standing::Counts, Standing::Stale, Standing::Stale]);
}

/// Calls that come at random, on producers that take a fixed time for a batch and some for each item.
#[derive(Debug, Clone, Copy)]
struct CallLoad {
    producers: usize,
    batch: usize,
    fixed: Duration,
    each: Duration,
    /// The number of calls, and the mean time between two.
    calls: u64,
    gap: Duration,
    /// The number of items of the stream that are open at a time.
    stream: u64,
    /// The time before the first call, in batches of each producer.
    before: u32,
    seed: u64,
}

/// Producers that serve calls beside a stream.
struct Serving {
    load: CallLoad,
    scheduler: Scheduler,
    now: RunTime,
    random: u64,
    /// The number of items put, of calls among them, and of those of the stream that wait.
    put: u64,
    came: u64,
    waiting: u64,
    /// When the next call comes.
    arrival: RunTime,
    /// The calls that are open.
    since: BTreeMap<u64, RunTime>,
    working: Vec<Option<(RunTime, Lease)>>,
    served: Served,
}

/// The figures of a simulation, for callers and for the stream.
#[derive(Debug, Default)]
struct Served {
    /// The times that calls took, in order.
    times: Vec<Duration>,
    /// The items that were leased while the stream waited: of calls, and of the stream.
    leased: (u64, u64),
    /// The time that producers worked until the last call came, and all their time until then.
    busy: Duration,
    all: Duration,
}

impl CallLoad {
    fn batch_time(&self) -> Duration {
        self.fixed + self.each * self.batch as u32
    }

    /// Sets the mean gap so that full batches of calls take this share of the producers' time.
    fn with_use(self, used: f64) -> Self {
        let rate = self.producers as f64 * self.batch as f64 / self.batch_time().as_secs_f64();
        CallLoad { gap: Duration::from_secs_f64(1.0 / (rate * used)), ..self }
    }

    fn serve(self) -> Served {
        let batching = (self.batch > 1).then(|| Batching::new(Batch::up_to(self.batch)));
        let scheduler = scheduler(Config { batching, ..calls(self.producers) });
        let mut serving = Serving {
            load: self,
            scheduler,
            now: RunTime::START,
            random: self.seed | 1,
            put: 0,
            came: 0,
            waiting: 0,
            arrival: RunTime::START.after(self.before * self.batch_time()),
            since: BTreeMap::new(),
            working: vec![None; self.producers],
            served: Served::default(),
        };
        (0..self.stream).for_each(|_| serving.put(Priority::Background));
        while serving.came < self.calls || !serving.since.is_empty() {
            (0..self.producers).for_each(|producer| serving.ask(producer));
            serving.advance();
            (0..self.producers).for_each(|producer| serving.finish(producer));
        }
        let Serving { mut served, arrival, .. } = serving;
        served.all = arrival.since(RunTime::START) * self.producers as u32;
        served.times.sort_unstable();
        served
    }
}

impl Serving {
    fn put(&mut self, priority: Priority) {
        put(&mut self.scheduler, priority, self.put, self.now);
        match priority {
            Priority::Normal => _ = self.since.insert(self.put, self.now),
            Priority::Background => self.waiting += 1,
        }
        self.put += 1;
    }

    /// Returns a random time until the next call, exponentially distributed.
    fn gap(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        self.load.gap.mul_f64(-(1.0 - uniform).ln())
    }

    fn ask(&mut self, producer: ProducerId) {
        if self.working[producer].is_some() {
            return;
        }
        let next = self.scheduler.lease(producer, Readiness::Ready, self.now);
        let Next::Work(lease) = next else { return };
        let of_calls = lease.items.iter().filter(|it| self.since.contains_key(it)).count() as u64;
        let of_stream = lease.items.len() as u64 - of_calls;
        self.waiting -= of_stream;
        if of_stream > 0 || self.waiting > 0 {
            self.served.leased.0 += of_calls;
            self.served.leased.1 += of_stream;
        }
        let took = self.load.fixed + self.load.each * lease.items.len() as u32;
        self.served.busy += if self.came < self.load.calls { took } else { Duration::ZERO };
        self.working[producer] = Some((self.now.after(took), lease));
    }

    /// Goes on to the next call or the next end of a batch.
    fn advance(&mut self) {
        let end = self.working.iter().flatten().map(|(end, _)| *end).min();
        match end {
            Some(end) if self.came == self.load.calls || end < self.arrival => self.now = end,
            _ => {
                self.now = self.arrival;
                self.put(Priority::Normal);
                self.came += 1;
                self.arrival = self.now.after(self.gap());
            }
        }
    }

    fn finish(&mut self, producer: ProducerId) {
        let now = self.now;
        let Some((_, lease)) = self.working[producer].take_if(|(end, _)| *end <= now) else {
            return;
        };
        let outcomes = vec![Outcome::Succeeded; lease.items.len()];
        self.scheduler.finish(lease.id, &outcomes, now);
        for item in lease.items {
            match self.since.remove(&item) {
                Some(since) => self.served.times.push(now.since(since)),
                None => self.put(Priority::Background),
            }
        }
    }
}

impl Served {
    fn p99(&self) -> Duration {
        self.times[self.times.len() * 99 / 100]
    }

    fn busy(&self) -> f64 {
        self.busy.as_secs_f64() / self.all.as_secs_f64()
    }
}

fn loads() -> impl Strategy<Value = CallLoad> {
    (1..5_usize, prop_oneof![Just(1), 2..33_usize], 1..20_u32, 0..200_u32, any::<u64>()).prop_map(
        |(producers, batch, fixed, each, seed)| {
            let (fixed, each) = (fixed * MS, each * US);
            let stream = 4 * (producers * batch) as u64;
            let (calls, gap, before) = (4_000, Duration::ZERO, 0);
            CallLoad { producers, batch, fixed, each, calls, gap, stream, before, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The stream costs a call the batch that is in progress when it comes, and no more.
    #[test]
    fn the_99th_percentile_of_calls_is_at_most_one_batch_above_that_of_calls_alone(
        load in loads(),
        used in 0.02..0.85_f64,
    ) {
        // So that the stream has had more than its share.
        let load = CallLoad { before: 100, ..load }.with_use(used);
        let (alone, beside) = (CallLoad { stream: 0, ..load }.serve(), load.serve());
        prop_assert_eq!(beside.times.len() as u64, load.calls);
        // The call's own batch is filled up too, and so takes longer than one with calls alone.
        let filled = load.each * load.batch as u32;
        let most = alone.p99() + load.batch_time() + filled;
        prop_assert!(beside.p99() <= most, "{:?} above {:?}", beside.p99(), alone.p99());
        prop_assert!(beside.busy() >= 0.97, "{}", beside.busy());
    }

    /// However many calls wait, the stream has its tenth of the items.
    #[test]
    fn the_stream_has_its_share_under_full_load(load in loads(), used in 1.3..3.0_f64) {
        let calls = 1_000 * load.batch as u64;
        let served = CallLoad { calls, ..load }.with_use(used).serve();
        let (calls, stream) = served.leased;
        let (all, stream) = ((calls + stream) as f64, stream as f64);
        // Before the first calls had to wait, it had more.
        let before = 10.0 * load.batch as f64;
        prop_assert!(stream >= all / 10.0 - before, "{} of {}", stream, all);
        prop_assert!(stream <= all / 10.0 + before, "{} of {}", stream, all);
        prop_assert!(served.busy() >= 0.97, "{}", served.busy());
    }
}
