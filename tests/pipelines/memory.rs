//! One bound for the memory of all stages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{Order, Runner};
use proptest::prelude::*;

use crate::support::{Gate, ORDERS, Pool, builder, no_hang, pass, working};

/// The sizes of all loads that are alive, and the most of them at once.
#[derive(Clone, Default)]
struct Scales(Arc<(AtomicU64, AtomicU64)>);

/// A value that takes something while it is alive.
struct Load {
    size: u64,
    scales: Scales,
}

impl Scales {
    fn load(&self, size: u64) -> Load {
        let now = self.0.0.fetch_add(size, SeqCst) + size;
        self.0.1.fetch_max(now, SeqCst);
        Load { size, scales: self.clone() }
    }

    fn most(&self) -> u64 {
        self.0.1.load(SeqCst)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.scales.0.0.fetch_sub(self.size, SeqCst);
    }
}

/// A stage that passes loads on, with this bound.
fn bounded<R: Runner<Input = Load> + 'static>(
    runner: R,
    order: Order,
    producers: usize,
    (most, output): (u64, fn(&R::Output) -> u64),
) -> Pool<R> {
    let builder = builder(runner, order, producers).window(64);
    builder.window_memory(most, |load: &Load| load.size, output).build().unwrap()
}

fn size(load: &Load) -> u64 {
    load.size
}

/// Each item takes 1 at first and 10 from then on. While the last stage stands still, the others take as much as fits, and
/// the input waits.
#[test]
fn a_slow_last_stage_holds_the_first_back() {
    no_hang(|| {
        let (scales, gate, made) = (Scales::default(), Gate::default(), Gate::default());
        let (counts, is_made) = (scales.clone(), made.clone());
        let decode = working(move |_, load: Load| {
            // What a hook has beside its output does not count.
            drop(load);
            is_made.add(1);
            Ok(counts.load(10))
        });
        let decode = bounded(decode, Order::Input, 1, (100, size));
        let mut infer = bounded(pass::<Load>(), Order::Input, 1, (60, size));
        let opened = gate.clone();
        let write = working(move |_, load: Load| {
            opened.pass();
            Ok(load.size)
        });
        let mut write = bounded(write, Order::Input, 1, (1000, |_| 0));
        let pulled = Arc::new(AtomicU64::new(0));
        let (counted, loads) = (pulled.clone(), scales.clone());
        let input = (0..100).map(move |_| {
            counted.fetch_add(1, SeqCst);
            loads.load(1)
        });
        let opener = std::thread::spawn(move || {
            // What fits under the bound comes through, whatever waits.
            made.reach(3);
            let before = pulled.load(SeqCst);
            gate.open();
            before
        });
        let mut all = decode.then(&mut infer).then(&mut write);
        assert_eq!(all.run(input).unwrap(), vec![10; 100]);
        assert!(opener.join().unwrap() < 100, "the input was not held back");
        let most = scales.most();
        assert!((30..=60).contains(&most), "{most}");
    });
}

/// An output is a hundred times as large as its input. Nothing says so before the first is there.
#[test]
fn outputs_that_are_larger_than_inputs_keep_within_the_bound() {
    for order in ORDERS {
        no_hang(move || {
            for producers in [1, 4] {
                let scales = Scales::default();
                let counts = scales.clone();
                let grow = working(move |_, load: Load| {
                    drop(load);
                    Ok(counts.load(100))
                });
                let mut pool = bounded(grow, order, producers, (500, size));
                let loads = scales.clone();
                let outputs = pool.outputs((0..200).map(move |_| loads.load(1)));
                assert_eq!(outputs.map(|load| load.unwrap().size).sum::<u64>(), 20_000);
                let most = scales.most();
                assert!((100..=500).contains(&most), "{most} with {producers} producers");
            }
        });
    }
}

/// The first stage waits for room that only the second can return: its own item ends after the next has begun.
#[test]
fn room_that_a_later_stage_returns_is_used_at_once() {
    no_hang(|| {
        for _ in 0..20 {
            let (both_in, begun) = (Gate::default(), Gate::default());
            let (next, are_in) = (begun.clone(), both_in.clone());
            let first = working(move |_, x: u64| {
                match x {
                    2 => {
                        are_in.open();
                        next.pass();
                    }
                    3 => next.open(),
                    _ => {}
                }
                Ok(x)
            });
            let first = builder(first, Order::Input, 2);
            let first = first.window_memory(3_u64, |_: &u64| 1, |_| 1).build().unwrap();
            let second = working(move |_, x: u64| {
                both_in.pass();
                Ok(x)
            });
            let second = builder(second, Order::Input, 1);
            let mut second = second.window_memory(3_u64, |_: &u64| 1, |_| 1).build().unwrap();
            let mut both = first.then(&mut second);
            assert_eq!(both.run(0..6).unwrap(), [0, 1, 2, 3, 4, 5]);
        }
    });
}

/// Only one stage has a bound: that of the others counts nothing.
#[test]
fn a_stage_without_a_bound_counts_nothing() {
    let first = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
    let second = builder(pass::<u64>(), Order::Input, 2).window_memory(1_u64, |_| 1, |_| 1);
    let mut second = second.build().unwrap();
    let mut both = first.then(&mut second);
    assert_eq!(both.run(0..1000).unwrap(), (0..1000).collect::<Vec<_>>());
}

/// The outputs of a pipeline with a bound: all stages wait at one thread then.
#[test]
fn outputs_come_through_under_any_bound() {
    no_hang(|| {
        for most in [1, 7, 25, 1000] {
            let scales = Scales::default();
            let first = bounded(pass::<Load>(), Order::Input, 2, (most, size));
            let mut second = bounded(pass::<Load>(), Order::Input, 2, (1000, size));
            let mut both = first.then(&mut second);
            let input = (1..=200).map(|n| scales.load(n % 9 + 1));
            let outputs = both.outputs(input).map(|load| load.unwrap().size);
            let expected = (1..=200).map(|n| n % 9 + 1);
            assert!(outputs.eq(expected), "bound {most}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Expansions, batches and both orders under any bound: nothing hangs, and nothing is lost.
    #[test]
    fn every_bound_lets_everything_through(
        most in 1_u64..200,
        orders in prop::array::uniform3(prop::sample::select(ORDERS.to_vec())),
        parents in prop::collection::vec(0_u64..12, 0..20),
        batch in 1_usize..9,
        open in 1_usize..6,
    ) {
        let expected = parents.iter().sum::<u64>();
        let total = no_hang(move || {
            let scales = Scales::default();
            let first = builder(pass::<u64>(), orders[0], 2).window(4).build().unwrap();
            let counts = scales.clone();
            let loaded = working(move |_, n: u64| Ok(counts.load(n + 1)));
            let parts = builder(loaded, orders[1], 2).window(16);
            let mut parts = parts.window_memory(most, |n: &u64| *n, size).build().unwrap();
            let runner = gangline::map_batches(
                |_| Ok(()),
                |_, (), loads: &mut Vec<Load>| Ok(loads.drain(..).map(|load| Ok(load.size)).collect()),
            );
            let work = builder(runner, orders[2], 2).batch(gangline::Batch::of(batch)).window(32);
            let mut work = work.window_memory(most, size, |_| 0).build().unwrap();
            let count = gangline::map(|_| Ok(()), |_, (), (_, n): (Arc<u64>, u64)| Ok(n));
            let mut count = builder(count, Order::Input, 1).build().unwrap();
            let line = first.expand(|n: &Arc<u64>| 0..**n).open_parents(open);
            let line = line.then(&mut parts).then(&mut work);
            let line = line.gather(|_| 0, |count, _, _, _| *count += 1).then(&mut count);
            let mut line = line;
            line.run(parents).unwrap().into_iter().sum::<u64>()
        });
        prop_assert_eq!(total, expected);
    }
}

/// The gathering link holds a parent that waits for room. What comes behind it keeps its index, and the batch that is
/// waited for goes.
#[test]
fn a_gathered_parent_that_waits_for_room_keeps_its_place() {
    no_hang(|| {
        for batch in [1, 4] {
            let slides = builder(pass::<u64>(), Order::Input, 1).build().unwrap();
            let mut parts = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
            let mut again = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
            let runner = gangline::map_batches(
                |_| Ok(()),
                |_, (), all: &mut Vec<(Arc<u64>, u64)>| {
                    Ok(all.drain(..).map(|(_, sum)| Ok(sum)).collect())
                },
            );
            let sums = builder(runner, Order::Input, 2).batch(gangline::Batch::of(batch));
            let sums = sums.window(8).window_memory(2, |_: &(Arc<u64>, u64)| 1_u64, |_| 1);
            let mut sums = sums.build().unwrap();
            let last = gangline::map_batches(
                |_| Ok(()),
                |_, (), all: &mut Vec<(Arc<u64>, Vec<u64>)>| {
                    Ok(all.drain(..).map(|(slide, sums)| Ok((*slide, sums))).collect())
                },
            );
            let last = builder(last, Order::Input, 1).batch(gangline::Batch::of(batch)).window(8);
            let mut last =
                last.window_memory(2, |_: &(Arc<u64>, Vec<u64>)| 1_u64, |_| 1).build().unwrap();
            let line = slides.expand(|n: &Arc<u64>| 0..**n).open_parents(3).then(&mut parts);
            let line = line.gather(|_| 0, |sum, _, _, x| *sum += x).then(&mut sums);
            let line = line.expand(|n: &Arc<u64>| 0..=**n).open_parents(3).then(&mut again);
            let mut line = line.gather(|_| vec![], |all, _, _, x| all.push(x)).then(&mut last);
            let inputs = [3, 0, 5, 1, 0, 0, 7, 2, 2, 4, 6];
            let expected =
                inputs.map(|n| (0..n).sum::<u64>()).map(|sum| (sum, (0..=sum).collect()));
            for _ in 0..50 {
                assert_eq!(line.run(inputs).unwrap(), expected);
            }
        }
    });
}
