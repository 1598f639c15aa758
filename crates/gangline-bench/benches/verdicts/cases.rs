//! The runs, each with one built-in cause.

use std::time::Duration;

use gangline::report::Bottleneck;
use gangline::{Batch, Order, RunReport};

use crate::setup::{Faults, MS, PLAIN, Place, Pools, Setup, Times};

pub(crate) const CAUSES: [&str; 9] = [
    "source",
    "consumer",
    "window",
    "head",
    "devices",
    "memory",
    "retries",
    "too few items",
    "start-up",
];

pub(crate) struct Case {
    pub(crate) cause: &'static str,
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    /// The number of devices.
    pub(crate) most_producers: usize,
    pub(crate) is_named: fn(&RunReport) -> bool,
}

impl Case {
    /// The settings that the best is chosen from. Those that only do harm have their best value in all of them.
    pub(crate) fn sweep(&self) -> Vec<Setup> {
        let best = Setup {
            producers: self.most_producers,
            window: Some(4_096),
            window_memory: None,
            order: Order::Completion,
            backoff: self.setup.backoff.min(MS),
            recycle_after: None,
            faults: match self.setup.faults {
                Faults::Mendable => Faults::Mended,
                Faults::LastOften => Faults::LastOften,
                _ => Faults::Lasting,
            },
            pools: Pools::One,
            consumer_init: (self.setup.consumer_init.0, Place::Producers),
            ..self.setup.clone()
        };
        let mut all = vec![best.clone()];
        if best.read.1 == Place::Own {
            all.push(Setup { read: (best.read.0, Place::Producers), ..best.clone() });
        }
        if best.write.1 == Place::Own {
            all.push(Setup { write: (best.write.0, Place::Producers), ..best.clone() });
        }
        if best.batch.is_some() {
            let of = |size: usize| Setup {
                batch: Some(Batch::up_to(size.min(self.setup.memory))),
                ..best.clone()
            };
            all.extend([2, 8, 32].map(of));
        }
        if !matches!(best.times, Times::Equal | Times::Short | Times::Long) {
            all.push(Setup { longest_first: true, ..best });
        }
        all
    }
}

fn is(report: &RunReport, bottleneck: Bottleneck) -> bool {
    report.bottleneck == bottleneck
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |of: fn() -> Vec<Case>| cases.extend(of());
    [source, consumer, window, head, devices, memory, retries, too_few, start_up]
        .into_iter()
        .for_each(&mut add);
    cases
}

/// Runs to which the rules of conclusions were not fitted.
pub(crate) fn others() -> Vec<Case> {
    let mut all = other_paces();
    all.extend(other_losses());
    all
}

/// The cause of the first case with it, and how it is named.
fn named(cause: &str) -> (&'static str, fn(&RunReport) -> bool) {
    let first = cases().into_iter().find(|it| it.cause == cause).expect("each cause has cases");
    (first.cause, first.is_named)
}

/// As [`named`], of the last case.
fn last_named(cause: &str) -> (&'static str, fn(&RunReport) -> bool) {
    let last = cases().into_iter().rfind(|it| it.cause == cause).expect("each cause has cases");
    (last.cause, last.is_named)
}

const SIX: Setup = Setup { producers: 6, items: 180, ..PLAIN };
const SIX_UNEVEN: Setup = Setup { times: Times::Uneven, items: 300, ..SIX };

fn own(ms: u32) -> (Duration, Place) {
    (ms * MS, Place::Own)
}

fn batches_of(size: usize, fixed: u32) -> Setup {
    Setup { batch: Some(Batch::of(size)), fixed: fixed * MS, ..BATCHES }
}

fn other_paces() -> Vec<Case> {
    let (source, window) = (named("source"), named("window"));
    let (head, devices) = (named("head"), named("devices"));
    vec![
        case(source, "8 ms, 6 producers", Setup { read: own(8), ..SIX }),
        case(source, "7 ms, uneven", Setup { read: own(7), items: 150, ..SIX_UNEVEN }),
        case(source, "5 ms and a consumer of 2 ms", Setup { read: own(5), write: own(2), ..SIX }),
        case(window, "4 items, 6 producers", Setup { window: Some(4), ..SIX }),
        case(window, "7 items, 8 producers", Setup { window: Some(7), items: 400, ..EIGHT }),
        case(
            window,
            "5 items, any order, uneven",
            Setup { window: Some(5), order: Order::Completion, ..SIX_UNEVEN },
        ),
        case(head, "uneven, `window(8)`, 6 producers", Setup { window: Some(8), ..SIX_UNEVEN }),
        case(
            head,
            "1 in 40, `window(12)`, 6 producers",
            Setup { window: Some(12), times: Times::OneIn40, ..SIX },
        ),
        case(
            head,
            "1 in 40, `window(64)`, 8 producers",
            Setup { window: Some(64), items: 480, times: Times::OneIn40, ..EIGHT },
        ),
        Case {
            most_producers: 12,
            ..case(devices, "3 of 12, uneven", Setup { producers: 3, ..SIX_UNEVEN })
        },
        Case {
            most_producers: 8,
            ..case(
                devices,
                "2 of 8, consumer of 3 ms",
                Setup { producers: 2, write: (3 * MS, Place::OwnAlways), ..PLAIN },
            )
        },
        Case {
            most_producers: 6,
            ..case(devices, "2 of 6, batches of 4", Setup { producers: 2, ..batches_of(4, 10) })
        },
    ]
}

fn other_losses() -> Vec<Case> {
    let (memory, memory_of_device) = (named("memory"), last_named("memory"));
    let (backoff, failing) = (named("retries"), last_named("retries"));
    let (few, start) = (named("too few items"), named("start-up"));
    let retried = |every, ms: u32, setup| Setup {
        fails_every: every,
        backoff: ms * MS,
        faults: Faults::Lasting,
        ..setup
    };
    vec![
        case(memory, "of 4 items, 6 producers", Setup { window_memory: Some(400), ..SIX }),
        case(
            memory,
            "of 6 items, 6 producers, uneven",
            Setup { window_memory: Some(600), ..SIX_UNEVEN },
        ),
        Case {
            most_producers: 6,
            ..case(
                memory_of_device,
                "of a device, batches of 64",
                Setup { producers: 3, memory: 9, ..batches_of(64, 20) },
            )
        },
        case(
            backoff,
            "1 in 3, 300 ms, `window(12)`, 6 producers",
            retried(3, 300, Setup { window: Some(12), ..SIX }),
        ),
        case(
            backoff,
            "1 in 6, 600 ms, any order",
            retried(6, 600, Setup { order: Order::Completion, ..PLAIN }),
        ),
        case(failing, "each of uneven items fails once", Setup { fails_every: 1, ..SIX_UNEVEN }),
        case(few, "5, 6 producers", Setup { items: 5, times: Times::Long, ..SIX }),
        case(few, "7, 6 producers", Setup { items: 7, times: Times::Long, ..SIX }),
        case(
            few,
            "24 in batches of 12, 6 producers",
            Setup { items: 24, times: Times::Long, batch: Some(Batch::of(12)), ..SIX },
        ),
        case(
            start,
            "500 ms, a pool for each run",
            Setup { producer_init: 500 * MS, pools: Pools::Each, runs: 4, items: 60, ..SIX },
        ),
        case(start, "consumer, 500 ms, 3 runs", Setup { consumer_init: own(500), runs: 3, ..SIX }),
        case(
            start,
            "25 ms, recycled after 3 items",
            Setup { recycle_after: Some(3), producer_init: 25 * MS, ..SIX },
        ),
    ]
}

fn case(
    (cause, is_named): (&'static str, fn(&RunReport) -> bool),
    name: &'static str,
    setup: Setup,
) -> Case {
    Case { cause, name, most_producers: setup.producers, is_named, setup }
}

const EIGHT: Setup = Setup { producers: 8, items: 240, ..PLAIN };
const BATCHES: Setup =
    Setup { times: Times::Short, fixed: Duration::from_millis(20), items: 320, ..PLAIN };

fn source() -> Vec<Case> {
    let of = ("source", (|it| is(it, Bottleneck::Source)) as fn(&RunReport) -> bool);
    let read = |ms: u32, setup| Setup { read: (ms * MS, Place::Own), ..setup };
    vec![
        case(of, "5 ms an item", read(5, PLAIN)),
        case(of, "10 ms, 8 producers", read(10, Setup { items: 120, ..EIGHT })),
        case(of, "4 ms, batches of 8", read(4, Setup { batch: Some(Batch::of(8)), ..BATCHES })),
        case(of, "5 ms, cannot be moved", Setup { read: (5 * MS, Place::OwnAlways), ..PLAIN }),
        case(
            of,
            "6 ms, 2 producers, any order",
            read(6, Setup { producers: 2, items: 100, order: Order::Completion, ..PLAIN }),
        ),
    ]
}

fn consumer() -> Vec<Case> {
    let of = ("consumer", (|it| is(it, Bottleneck::Consumer)) as fn(&RunReport) -> bool);
    let write = |ms: u32, setup| Setup { write: (ms * MS, Place::Own), ..setup };
    vec![
        case(of, "5 ms an item", write(5, PLAIN)),
        case(of, "10 ms, 8 producers", write(10, Setup { items: 120, ..EIGHT })),
        case(of, "4 ms, batches of 8", write(4, Setup { batch: Some(Batch::of(8)), ..BATCHES })),
        case(of, "5 ms, cannot be moved", Setup { write: (5 * MS, Place::OwnAlways), ..PLAIN }),
        case(of, "6 ms, `window(4)`", write(6, Setup { window: Some(4), items: 120, ..PLAIN })),
    ]
}

fn window() -> Vec<Case> {
    let of = ("window", (|it| is(it, Bottleneck::Window)) as fn(&RunReport) -> bool);
    let batches = Setup { batch: Some(Batch::of(8)), fixed: MS, times: Times::Short, ..PLAIN };
    let batches = Setup { items: 960, ..batches };
    let any_order = Setup { order: Order::Completion, ..PLAIN };
    vec![
        case(of, "2 items, 8 producers", Setup { window: Some(2), items: 160, ..EIGHT }),
        case(of, "6 items, 8 producers", Setup { window: Some(6), ..EIGHT }),
        case(of, "3 items, 4 producers", Setup { window: Some(3), ..any_order }),
        case(of, "8 items, batches of 8", Setup { window: Some(8), items: 480, ..batches }),
        case(of, "16 items, batches of 8", Setup { window: Some(16), ..batches }),
    ]
}

fn head() -> Vec<Case> {
    let of = ("head", (|it| is(it, Bottleneck::Head)) as fn(&RunReport) -> bool);
    let late = |window, setup| Setup { window: Some(window), ..setup };
    let rare = Setup { times: Times::OneIn40, ..PLAIN };
    let batches = Setup { batch: Some(Batch::up_to(2)), items: 240, ..rare };
    vec![
        case(of, "1 in 40 takes 40 times, `window(16)`", late(16, rare.clone())),
        case(of, "the same, 8 producers", late(16, Setup { times: Times::OneIn40, ..EIGHT })),
        case(
            of,
            "uneven, `window(5)`",
            late(5, Setup { times: Times::Uneven, items: 240, ..PLAIN }),
        ),
        case(of, "1 in 40, batches of 2, `window(16)`", late(16, batches)),
        case(
            of,
            "first takes 1 s, `window(32)`",
            late(32, Setup { times: Times::FirstSlow, ..EIGHT }),
        ),
    ]
}

fn devices() -> Vec<Case> {
    let of = ("devices", (|it| is(it, Bottleneck::Producers)) as fn(&RunReport) -> bool);
    let on = |producers, setup| Setup { producers, ..setup };
    let with = |most_producers, case| Case { most_producers, ..case };
    let batches =
        |size| Setup { batch: Some(Batch::of(size)), items: 960, fixed: 10 * MS, ..BATCHES };
    vec![
        with(8, case(of, "1 of 8", on(1, Setup { items: 80, ..PLAIN }))),
        with(16, case(of, "2 of 16", on(2, PLAIN))),
        with(4, case(of, "3 of 4, any order", on(3, Setup { order: Order::Completion, ..PLAIN }))),
        with(8, case(of, "batches of 2", on(4, batches(2)))),
        with(
            16,
            case(
                of,
                "2 of 16, source of 2 ms",
                on(2, Setup { read: (2 * MS, Place::OwnAlways), ..PLAIN }),
            ),
        ),
    ]
}

fn memory() -> Vec<Case> {
    let names =
        |it: &RunReport| is(it, Bottleneck::Window) && it.conclusion.contains("window_memory");
    let of = ("memory", names as fn(&RunReport) -> bool);
    let full =
        |it: &RunReport| is(it, Bottleneck::Producers) && it.conclusion.contains("their memory");
    let of_device = ("memory", full as fn(&RunReport) -> bool);
    let bound = |bytes, setup| Setup { window_memory: Some(bytes), ..setup };
    let batches = |batch| Setup { batch: Some(batch), memory: 6, ..BATCHES };
    vec![
        case(of, "of 3 items, 8 producers", bound(300, EIGHT)),
        case(of, "of 6 items, 8 producers", bound(600, EIGHT)),
        Case {
            most_producers: 8,
            ..case(
                of_device,
                "of a device, batches of 16",
                Setup { producers: 2, ..batches(Batch::of(16)) },
            )
        },
        Case {
            most_producers: 8,
            ..case(
                of_device,
                "of a device, chosen batches",
                Setup { producers: 2, ..batches(Batch::auto()) },
            )
        },
    ]
}

fn retries() -> Vec<Case> {
    let of = ("retries", (|it| is(it, Bottleneck::Backoff)) as fn(&RunReport) -> bool);
    let names = |it: &RunReport| it.conclusion.contains("attempts failed");
    let failing = ("retries", names as fn(&RunReport) -> bool);
    let fails = |every, setup| Setup { fails_every: every, ..setup };
    let lasting = |every, backoff: u32, setup| Setup {
        backoff: backoff * MS,
        faults: Faults::Lasting,
        ..fails(every, setup)
    };
    vec![
        case(
            of,
            "1 in 2, 200 ms, `window(8)`",
            lasting(2, 200, Setup { window: Some(8), ..PLAIN }),
        ),
        case(of, "1 in 4, 400 ms", lasting(4, 400, PLAIN)),
        case(of, "1 in 8, 1 s", lasting(8, 1_000, PLAIN)),
        case(
            of,
            "the last fails 3 times, 200 ms",
            Setup { faults: Faults::LastOften, backoff: 200 * MS, ..fails(1, PLAIN) },
        ),
        case(failing, "each fails once", fails(1, PLAIN)),
        case(failing, "1 in 2 fails once, 8 producers", fails(2, EIGHT)),
    ]
}

fn too_few() -> Vec<Case> {
    let names = |it: &RunReport| is(it, Bottleneck::TooFew);
    let of = ("too few items", names as fn(&RunReport) -> bool);
    let items = |items, setup| Setup { items, times: Times::Long, ..setup };
    vec![
        case(of, "3, 8 producers", items(3, EIGHT)),
        case(of, "9, 8 producers", items(9, EIGHT)),
        case(
            of,
            "16 in batches of 8, 8 producers",
            Setup { batch: Some(Batch::of(8)), items: 16, times: Times::Long, ..EIGHT },
        ),
        case(
            of,
            "12, the last takes 4 times",
            Setup { items: 12, times: Times::LastSlow, ..EIGHT },
        ),
    ]
}

fn start_up() -> Vec<Case> {
    let names = |it: &RunReport| is(it, Bottleneck::StartUp) || is(it, Bottleneck::Rebuilding);
    let of = ("start-up", names as fn(&RunReport) -> bool);
    let each = Setup { pools: Pools::Each, runs: 5, items: 32, ..PLAIN };
    let consumer_init = (300 * MS, Place::Own);
    vec![
        case(of, "300 ms, a pool for each run", Setup { producer_init: 300 * MS, ..each }),
        case(of, "consumer, 300 ms, 5 runs", Setup { consumer_init, runs: 5, items: 40, ..PLAIN }),
        case(
            of,
            "40 ms, recycled after 2 items",
            Setup { recycle_after: Some(2), producer_init: 40 * MS, ..PLAIN },
        ),
        case(
            of,
            "80 ms, 1 in 8 panics",
            Setup { producer_init: 80 * MS, fails_every: 8, faults: Faults::Panic, ..PLAIN },
        ),
    ]
}
