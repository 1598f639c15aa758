//! Devices in virtual time: the rate that chosen sizes reach, beside a sweep of fixed sizes.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use crate::batch::{Batch, BatchTime, Batching, ChosenSize, DeviceBatches, SizeBound};
use crate::tests::{config, meta};
use crate::window::{Window, largest_batch};
use crate::{
    Activity, Begin, Config, Copies, Input, Inputs, Lease, Memory, Next, Order, Outcome, Readiness,
    RunTime, Scheduler, SchedulerEvent, Together,
};

/// How long a batch of a number of items takes, in milliseconds. The second number counts the calls.
type BatchMillis = Rc<dyn Fn(f64, u64) -> f64>;

#[derive(Clone)]
struct Device {
    time: BatchMillis,
    memory: usize,
    /// The standard deviation of the logarithm of its times.
    noise: f64,
}

fn device(time: impl Fn(f64, u64) -> f64 + 'static) -> Device {
    Device { time: Rc::new(time), memory: usize::MAX, noise: 0.0 }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number of the standard normal distribution.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// The state of a simulated run.
struct Simulated<'a> {
    devices: &'a [Device],
    scheduler: Scheduler,
    batching: Batching,
    window: Window,
    now: RunTime,
    works: Vec<Option<(Lease, RunTime)>>,
    calls: Vec<u64>,
    random: Random,
    done: BTreeSet<u64>,
    /// The number of items that were consumed in order.
    head: u64,
    consumed_at: Vec<RunTime>,
    arrived_at: Vec<RunTime>,
    sizes: Vec<Vec<usize>>,
    /// When each device ended its last batch.
    ended: Vec<RunTime>,
}

impl<'a> Simulated<'a> {
    fn new(devices: &'a [Device], rule: Batch, input: Input, learned: Vec<DeviceBatches>) -> Self {
        let batching = Batching::new(rule);
        let window = Window::new(None, devices.len(), Some(batching));
        let order = if input == Input::Calls { Order::Completion } else { Order::Input };
        let batching = Some(batching);
        let config =
            Config { batching, input, order, window: window.size(), ..config(devices.len()) };
        Simulated {
            devices,
            scheduler: Scheduler::new(config, learned, RunTime::START),
            batching: Batching::new(rule),
            window,
            now: RunTime::START,
            works: devices.iter().map(|_| None).collect(),
            calls: vec![0; devices.len()],
            random: Random(7),
            done: BTreeSet::new(),
            head: 0,
            consumed_at: vec![],
            arrived_at: vec![],
            sizes: vec![vec![]; devices.len()],
            ended: vec![RunTime::START; devices.len()],
        }
    }

    fn offer(&mut self) {
        let index = self.arrived_at.len() as u64;
        self.arrived_at.push(self.now);
        self.scheduler.offer(index, meta(self.now), self.now);
    }

    /// Lets each free device take a batch.
    fn lease(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            assert!(matches!(event, SchedulerEvent::Wake(_)), "{event:?}");
        }
        for device in 0..self.devices.len() {
            if self.works[device].is_some() {
                continue;
            }
            let Next::Work(lease) = self.scheduler.lease(device, Readiness::Ready, self.now) else {
                continue;
            };
            assert_eq!(self.scheduler.begin(lease.id, Copies::Kept, self.now), Begin::Work);
            let Device { time, noise, .. } = &self.devices[device];
            let millis = time(lease.items.len() as f64, self.calls[device]);
            let millis = millis * (self.random.normal() * noise).exp();
            self.calls[device] += 1;
            self.sizes[device].push(lease.items.len());
            let until = self.now.after(Duration::from_secs_f64(millis / 1e3));
            self.works[device] = Some((lease, until));
        }
    }

    /// Ends what ends next, up to this time. Returns whether anything did.
    fn end_next(&mut self, until: Option<RunTime>) -> bool {
        let ends = self.works.iter().enumerate();
        let ends = ends.filter_map(|(it, work)| Some((work.as_ref()?.1, it)));
        let Some((end, device)) = ends.min() else { return false };
        if until.is_some_and(|until| until < end) {
            return false;
        }
        (self.now, self.ended[device]) = (end, end);
        let (lease, _) = self.works[device].take().expect("it works");
        if lease.items.len() > self.devices[device].memory {
            let (inputs, memory) = (Inputs::Kept, Memory::Short);
            let together = self.scheduler.fail_together(lease.id, inputs, memory, self.now);
            assert!(matches!(together, Together::Split(_)), "an item alone fits");
            return true;
        }
        let outcomes = vec![Outcome::Succeeded; lease.items.len()];
        self.scheduler.finish(lease.id, &outcomes, self.now);
        self.consumed_at.resize(self.arrived_at.len(), RunTime::START);
        for index in lease.items {
            self.consumed_at[index as usize] = self.now;
            self.done.insert(index);
        }
        while self.done.remove(&self.head) {
            self.consumed_at[self.head as usize] = self.now;
            self.head += 1;
        }
        true
    }

    fn chosen(&self) -> Vec<ChosenSize> {
        let learned = self.scheduler.learned().iter();
        learned.map(|device| self.batching.chosen(device).expect("sizes are chosen")).collect()
    }

    /// A run in order. Returns the items in a millisecond behind the first 5 %.
    fn run(&mut self, items: u64) -> f64 {
        loop {
            if self.batching.rule.is_chosen() {
                let batch = largest_batch(&self.scheduler);
                self.window.follow(batch, self.devices.len(), || true);
            }
            let pulled = self.arrived_at.len() as u64;
            let room = (self.window.size() as u64).saturating_sub(pulled - self.head);
            for _ in 0..room.min(items - pulled) {
                self.offer();
            }
            if self.arrived_at.len() as u64 == items {
                self.scheduler.input_ended(self.now);
            } else {
                self.scheduler.feeder(Activity::Waiting, self.now);
            }
            self.lease();
            if !self.end_next(None) {
                break;
            }
        }
        assert_eq!(self.head, items);
        // A batch that contains the last of the first 5 % counts as one of these.
        let start = self.consumed_at[items as usize / 20 - 1];
        let rest = self.consumed_at.iter().filter(|&&at| at > start).count();
        rest as f64 / (self.now.since(start).as_secs_f64() * 1e3)
    }

    /// A service with calls at random. Returns the 99th percentile of their times, in milliseconds.
    fn serve(&mut self, calls: u64, per_milli: f64) -> f64 {
        let mut arrives = RunTime::START;
        for _ in 0..calls {
            let gap = -self.random.next().max(1e-12).ln() / per_milli;
            arrives = arrives.after(Duration::from_secs_f64(gap / 1e3));
            while self.end_next(Some(arrives)) {
                self.lease();
            }
            self.now = arrives;
            self.offer();
            self.lease();
        }
        while self.end_next(None) {
            self.lease();
        }
        let each = self.consumed_at.iter().zip(&self.arrived_at);
        let mut times: Vec<_> = each.map(|(end, start)| end.since(*start)).collect();
        times.sort_unstable();
        times[times.len() * 99 / 100].as_secs_f64() * 1e3
    }
}

fn learned(devices: &[Device]) -> Vec<DeviceBatches> {
    vec![DeviceBatches::default(); devices.len()]
}

fn rate_of(devices: &[Device], rule: Batch, items: u64) -> f64 {
    Simulated::new(devices, rule, Input::MayCome, learned(devices)).run(items)
}

/// The rate of chosen sizes, and what was chosen for each device.
fn chosen(devices: &[Device], items: u64) -> (f64, Vec<ChosenSize>) {
    let mut run = Simulated::new(devices, Batch::auto(), Input::MayCome, learned(devices));
    (run.run(items), run.chosen())
}

fn linear(items: f64, _: u64) -> f64 {
    3.1 + 0.11 * items
}

/// Chosen sizes come within 5 % of the best fixed size, after 5 % of the items.
#[test]
fn chosen_sizes_are_as_fast_as_the_best_of_a_sweep() {
    let pools: [(&str, Vec<Device>); 12] = [
        ("linear", vec![device(linear)]),
        ("a small fixed time", vec![device(|items, _| 0.3 + 0.2 * items)]),
        ("no fixed time", vec![device(|items, _| 0.5 * items)]),
        ("steps of 8", vec![device(|items, _| 1.0 + 0.8 * (items / 8.0).ceil())]),
        ("steps of 12", vec![device(|items, _| 0.3 + 1.2 * (items / 12.0).ceil())]),
        (
            "slow above 100",
            vec![device(|items, _| linear(items, 0) * if items > 100.0 { 3.0 } else { 1.0 })],
        ),
        ("no memory above 100", vec![Device { memory: 100, ..device(linear) }]),
        (
            "warms up in 20 calls",
            vec![device(|items, call| linear(items, 0) * if call < 20 { 10.0 } else { 1.0 })],
        ),
        (
            "compiles first",
            vec![device(|items, call| linear(items, 0) + if call == 0 { 2e3 } else { 0.0 })],
        ),
        ("noise", vec![Device { noise: 0.1, ..device(linear) }]),
        ("two unequal", vec![device(linear), device(|items, _| 10.0 + 0.5 * items)]),
        ("one with less memory", vec![device(linear), Device { memory: 41, ..device(linear) }]),
    ];
    for (name, devices) in pools {
        let items = 20_000;
        let fixed = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768];
        let fixed = fixed.map(|size| (rate_of(&devices, Batch::of(size), items), size));
        let best = fixed.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
        let (rate, sizes) = chosen(&devices, items);
        assert!(rate >= 0.95 * best.0, "{name}: {rate} of {best:?} with {sizes:?}");
    }
}

/// The mean of several runs, since noise makes single runs differ by as much as 5 %.
#[test]
fn noise_does_not_keep_sizes_small() {
    let devices = vec![Device { noise: 0.3, ..device(linear) }; 2];
    let fixed = fixed_share_of(&devices, 10);
    assert!(fixed.iter().all(|share| *share < 0.1), "{fixed:?}");
    let mean = fixed.iter().sum::<f64>() / fixed.len() as f64;
    assert!(mean < 0.065, "{mean}");
}

/// For each run, the share of the fixed time in all time of linear devices.
fn fixed_share_of(devices: &[Device], runs: u64) -> Vec<f64> {
    let run = |seed| {
        let mut run = Simulated::new(devices, Batch::auto(), Input::MayCome, learned(devices));
        run.random = Random(seed);
        run.run(100_000);
        let sizes = || run.sizes.iter().flatten().map(|&size| size as f64);
        let fixed = sizes().count() as f64 * 3.1;
        fixed / sizes().map(|size| linear(size, 0)).sum::<f64>()
    };
    (1..=runs).map(run).collect()
}

#[test]
fn what_keeps_a_size_from_growing_is_known() {
    let (_, sizes) = chosen(&[device(linear), Device { memory: 41, ..device(linear) }], 20_000);
    assert_eq!(
        sizes.iter().map(|it| it.bound).collect::<Vec<_>>(),
        [SizeBound::Rate, SizeBound::Memory]
    );
    let micros = Duration::from_micros;
    assert_eq!(sizes[0].time, Some(BatchTime { fixed: micros(3_100), each: micros(110) }));
    assert!((36..=41).contains(&sizes[1].size), "{sizes:?}");
    let (_, sizes) = chosen(&[device(|_, _| 5.0)], 100_000);
    assert_eq!((sizes[0].size, sizes[0].bound), (4_096, SizeBound::Limit));
}

/// Memory is tried a few times while its limit is unknown, and then once in many batches.
#[test]
fn a_known_limit_of_memory_is_kept() {
    let devices = [Device { memory: 41, ..device(linear) }];
    let mut run = Simulated::new(&devices, Batch::auto(), Input::MayCome, learned(&devices));
    run.run(20_000);
    let short: Vec<_> = run.sizes[0].iter().filter(|size| **size > 41).collect();
    assert!(short.len() <= 8, "{short:?}");
    // The next run of the pool knows.
    let known = run.scheduler.learned().to_vec();
    let mut next = Simulated::new(&devices, Batch::auto(), Input::MayCome, known);
    next.run(2_000);
    assert!(next.sizes[0].iter().all(|size| *size <= 41), "{:?}", next.sizes);
    assert!(next.sizes[0][0] >= 36, "it begins with what was learned");
}

#[test]
fn sizes_follow_a_device_that_changes() {
    let changes = |items: f64, call| if call < 60 { 1.0 + 0.1 * items } else { 20.0 + 0.1 * items };
    let devices = [device(changes)];
    let mut run = Simulated::new(&devices, Batch::auto(), Input::MayCome, learned(&devices));
    run.run(200_000);
    let before = run.sizes[0][59];
    let after = run.chosen()[0].size;
    assert!((190..=319).contains(&before), "{before}: 24 ms for a fixed time of 1 ms");
    assert!(after >= 2_048, "{after}: {:?}", &run.sizes[0][50..]);
}

/// No device ends long after the others.
#[test]
fn the_last_items_are_divided_among_the_devices() {
    let devices = [device(linear), device(|items, _| 10.0 + 0.5 * items)];
    for items in [5_000, 20_000] {
        let mut run = Simulated::new(&devices, Batch::auto(), Input::MayCome, learned(&devices));
        run.run(items);
        let early = run.now.since(*run.ended.iter().min().unwrap());
        let took = run.now.since(RunTime::START);
        assert!(early < took / 20, "{early:?} of {took:?}");
    }
}

/// Otherwise the fixed time would be most of the last batches.
#[test]
fn the_last_items_are_not_divided_down_to_single_ones() {
    let devices = vec![device(linear); 8];
    let mut run = Simulated::new(&devices, Batch::auto(), Input::MayCome, learned(&devices));
    run.run(100_000);
    let last = |sizes: &Vec<usize>| sizes[sizes.len() - 4..].to_vec();
    let last: Vec<_> = run.sizes.iter().flat_map(last).collect();
    // The largest batch has 768 items.
    let small = last.iter().filter(|size| **size < 768 / 8 / 2).count();
    assert!(small <= 1, "{last:?}");
}

/// The 99th percentile of calls stays within the latency, if it can.
#[test]
fn services_keep_the_latency() {
    let pools: [(&str, Vec<Device>); 6] = [
        ("linear", vec![device(|items, _| 2.0 + 0.1 * items)]),
        ("a large fixed time", vec![device(|items, _| 4.0 + 0.1 * items)]),
        ("slow", vec![device(|items, _| 1.0 + items)]),
        ("noise", vec![Device { noise: 0.1, ..device(linear) }]),
        ("two", vec![device(linear); 2]),
        (
            "two unequal",
            vec![device(|items, _| 2.0 + 0.1 * items), device(|items, _| 4.0 + 0.3 * items)],
        ),
    ];
    for (name, devices) in pools {
        // Of the calls that the devices do in batches of half of the latency.
        let rate = |device: &Device| {
            let fast = (1..1_000).filter(|&size| (device.time)(f64::from(size), 99) <= 10.0);
            fast.map(|size| f64::from(size) / (device.time)(f64::from(size), 99))
                .fold(0.0, f64::max)
        };
        let most: f64 = devices.iter().map(rate).sum();
        for load in [0.3, 0.7] {
            let rule = Batch::auto().latency(Duration::from_millis(20));
            let mut calls = Simulated::new(&devices, rule, Input::Calls, learned(&devices));
            let p99 = calls.serve(10_000, load * most);
            assert!(p99 <= 20.0, "{name} at {load}: {p99} ms with {:?}", calls.chosen());
        }
    }
}

/// If calls come faster than batches of that time end, batches become larger.
#[test]
fn a_latency_that_cannot_be_kept_costs_no_calls() {
    let devices = [device(|items, _| 5.0 + 0.3 * items)];
    let rule = Batch::auto().latency(Duration::from_millis(20));
    let mut calls = Simulated::new(&devices, rule, Input::Calls, learned(&devices));
    let p99 = calls.serve(10_000, 0.7 / 0.3);
    assert!(p99 < 60.0, "{p99} ms; with batches of 10 ms, calls would pile up to 2 s");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the device, the rate is near the best of the sizes before one that is slower.
    #[test]
    fn no_device_is_slow(
        fixed in 0.0..10.0_f64,
        each in 0.05..1.0_f64,
        step in (0..6_u32).prop_map(|digits| 1 << digits),
        slow_above in prop_oneof![Just(f64::INFINITY), 8.0..300.0_f64],
        memory in prop_oneof![Just(usize::MAX), 8..300_usize],
    ) {
        // Within the first steps the best size may be at the end of a step of which all sizes that are tried are slower
        // than the step before: 31 of 32, where 24 is slower than 16.
        let (slow_above, memory) = (slow_above.max(4.0 * f64::from(step)), memory.max(4 * step as usize));
        let time = move |items: f64, _| {
            let time = fixed + each * f64::from(step) * (items / f64::from(step)).ceil();
            time * if items > slow_above { 3.0 } else { 1.0 }
        };
        let devices = [Device { memory, ..device(time) }];
        let most = memory.min(1_000).min(slow_above as usize);
        let best = (1..=most).map(|size| size as f64 / time(size as f64, 0));
        let best = best.fold(0.0, f64::max);
        let mut run = Simulated::new(&devices, Batch::auto(), Input::MayCome, learned(&devices));
        let rate = run.run(50_000);
        prop_assert!(rate > 0.9 * best, "{rate} of {best}: {:?}, {:?}", run.chosen(), &run.sizes[0][..99]);
    }
}

/// Of images of a megabyte, the first batch says that one is a batch: the window follows.
#[test]
fn items_that_are_large_from_the_first_are_few_in_flight() {
    for extent in [100, 1_000, 1_000_000, u64::MAX] {
        let bounds =
            super::Bounds { most: 64 << 20, within: None, start: super::FirstGrowth::Slow };
        let mut device = DeviceBatches::default();
        device.took(extent, 1, Duration::from_millis(5), bounds);
        assert!(device.most_items(bounds) <= 2, "{extent}: {}", device.most_items(bounds));
    }
}

/// A large item that fits alone says nothing about as much of small ones.
#[test]
fn a_large_item_does_not_lift_the_size_above_the_memory() {
    let bounds = super::Bounds { most: 100_000, within: None, start: super::FirstGrowth::Slow };
    let mut device = DeviceBatches::default();
    device.took(8_000, 8, Duration::from_millis(5), bounds);
    device.took(8_000, 1, Duration::from_millis(5), bounds);
    device.fell_short(16_000, bounds);
    device.took(40_000, 1, Duration::from_millis(5), bounds);
    assert!(device.next(bounds, Duration::ZERO) < 16_000, "{device:?}");
}
