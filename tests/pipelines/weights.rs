//! One limit for the weights of all stages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{Order, Runner};
use proptest::prelude::*;

use crate::support::{Gate, ORDERS, Pool, builder, no_hang, pass, working};

/// Weights that are in flight, and the most of them at once.
#[derive(Clone, Default)]
struct Scales(Arc<(AtomicU64, AtomicU64)>);

/// A value that weighs something while it is alive.
struct Load {
    weight: u64,
    scales: Scales,
}

impl Scales {
    fn load(&self, weight: u64) -> Load {
        let now = self.0.0.fetch_add(weight, SeqCst) + weight;
        self.0.1.fetch_max(now, SeqCst);
        Load { weight, scales: self.clone() }
    }

    fn most(&self) -> u64 {
        self.0.1.load(SeqCst)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.scales.0.0.fetch_sub(self.weight, SeqCst);
    }
}

fn weighed<R: Runner<Input = Load> + 'static>(
    runner: R,
    order: Order,
    producers: usize,
) -> Pool<R> {
    let builder = builder(runner, order, producers).window(64);
    builder.window_weight(u64::MAX, |load: &Load| load.weight).build().unwrap()
}

/// Each item weighs 1 at first and 10 from then on, which the first stage foresees. While the last stage stands
/// still, the others take as much as fits, and the input waits.
#[test]
fn a_slow_last_stage_holds_the_first_back() {
    no_hang(|| {
        let (scales, gate, made) = (Scales::default(), Gate::default(), Gate::default());
        let (counts, is_made) = (scales.clone(), made.clone());
        let decode = working(move |_, _: Load| {
            is_made.add(1);
            Ok(counts.load(10))
        });
        let decode = builder(decode, Order::Input, 1).window(64);
        let decode = decode.window_weight(u64::MAX, |_: &Load| 10_u64).build().unwrap();
        let mut infer = weighed(pass::<Load>(), Order::Input, 1);
        let opened = gate.clone();
        let write = working(move |_, load: Load| {
            opened.pass();
            Ok(load.weight)
        });
        let mut write = weighed(write, Order::Input, 1);
        let pulled = Arc::new(AtomicU64::new(0));
        let (counted, loads) = (pulled.clone(), scales.clone());
        let input = (0..100).map(move |_| {
            counted.fetch_add(1, SeqCst);
            loads.load(1)
        });
        let opener = std::thread::spawn(move || {
            // What fits under the limit comes through, whatever waits.
            made.reach(3);
            let before = pulled.load(SeqCst);
            gate.open();
            before
        });
        let mut all = decode.then(&mut infer).then(&mut write).window_weight(40);
        assert_eq!(all.run(input).unwrap(), vec![10; 100]);
        assert!(opener.join().unwrap() < 100, "the input was not held back");
        // Beyond the limit: an item that waits for room before each stage, one that each stage takes while it has
        // none, and one in a hook that has made its output.
        let most = scales.most();
        assert!(most <= 40 + 6 * 10 + 3, "{most}");
    });
}

/// The first stage waits for room that only the second can return: its own item ends after the next has begun.
#[test]
fn room_that_a_later_stage_returns_is_used_at_once() {
    no_hang(|| {
        for _ in 0..20 {
            let (pulled, begun) = (Gate::default(), Gate::default());
            let next = begun.clone();
            let first = working(move |_, x: u64| {
                match x {
                    1 => next.pass(),
                    2 => next.open(),
                    _ => {}
                }
                Ok(x)
            });
            let first = builder(first, Order::Input, 2);
            let first = first.window_weight(u64::MAX, |_: &u64| 1_u64).build().unwrap();
            let is_pulled = pulled.clone();
            let second = working(move |_, x: u64| {
                is_pulled.pass();
                Ok(x)
            });
            let second = builder(second, Order::Input, 1);
            let mut second = second.window_weight(u64::MAX, |_: &u64| 1_u64).build().unwrap();
            let input = (0..4).inspect(|&x| {
                if x == 2 {
                    pulled.open();
                }
            });
            let mut both = first.then(&mut second).window_weight(2);
            assert_eq!(both.run(input).unwrap(), [0, 1, 2, 3]);
        }
    });
}

#[test]
fn a_pipeline_without_weights_has_no_limit() {
    let first = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
    let mut second = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
    let mut both = first.then(&mut second).window_weight(1);
    assert_eq!(both.run(0..1000).unwrap(), (0..1000).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "window_weight must be at least 1, got 0")]
fn a_limit_of_nothing_is_refused() {
    let first = builder(pass::<u64>(), Order::Input, 1).build().unwrap();
    let mut second = builder(pass::<u64>(), Order::Input, 1).build().unwrap();
    let _ = first.then(&mut second).window_weight(0);
}

/// The outputs of a pipeline with a limit: all stages wait at one thread then.
#[test]
fn outputs_come_through_under_any_limit() {
    no_hang(|| {
        for most in [1, 7, 25, 1000] {
            let scales = Scales::default();
            let first = weighed(pass::<Load>(), Order::Input, 2);
            let mut second = weighed(pass::<Load>(), Order::Input, 2);
            let mut both = first.then(&mut second).window_weight(most);
            let input = (1..=200).map(|n| scales.load(n % 9 + 1));
            let outputs = both.outputs(input).map(|load| load.unwrap().weight);
            let expected = (1..=200).map(|n| n % 9 + 1);
            assert!(outputs.eq(expected), "limit {most}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Expansions, batches and both orders under any limit: nothing hangs, and nothing is lost.
    #[test]
    fn every_limit_lets_everything_through(
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
            let mut parts = parts.window_weight(u64::MAX, |n: &u64| *n).build().unwrap();
            let runner = gangline::map_batches(
                |_| Ok(()),
                |_, (), loads: &mut Vec<Load>| Ok(loads.drain(..).map(|load| Ok(load.weight)).collect()),
            );
            let work = builder(runner, orders[2], 2).batch(gangline::Batch::of(batch)).window(32);
            let mut work = work.window_weight(u64::MAX, |load: &Load| load.weight).build().unwrap();
            let count = gangline::map(|_| Ok(()), |_, (), (_, n): (Arc<u64>, u64)| Ok(n));
            let mut count = builder(count, Order::Input, 1).build().unwrap();
            let line = first.expand(|n: &Arc<u64>| 0..**n).open_parents(open);
            let line = line.then(&mut parts).then(&mut work);
            let line = line.gather(|_| 0, |count, _, _, _| *count += 1).then(&mut count);
            line.window_weight(most).run(parents).unwrap().into_iter().sum::<u64>()
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
            let mut regions = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
            let mut tiles = builder(pass::<u64>(), Order::Input, 2).build().unwrap();
            let runner = gangline::map_batches(
                |_| Ok(()),
                |_, (), all: &mut Vec<(Arc<u64>, u64)>| {
                    Ok(all.drain(..).map(|(_, sum)| Ok(sum)).collect())
                },
            );
            let of_regions = builder(runner, Order::Input, 2).batch(gangline::Batch::of(batch));
            let of_regions = of_regions.window(8).window_weight(2, |_: &(Arc<u64>, u64)| 1_u64);
            let mut of_regions = of_regions.build().unwrap();
            let last = gangline::map_batches(
                |_| Ok(()),
                |_, (), all: &mut Vec<(Arc<u64>, Vec<u64>)>| {
                    Ok(all.drain(..).map(|(slide, sums)| Ok((*slide, sums))).collect())
                },
            );
            let last = builder(last, Order::Input, 1).batch(gangline::Batch::of(batch)).window(8);
            let mut last = last.window_weight(2, |_: &(Arc<u64>, Vec<u64>)| 1_u64).build().unwrap();
            let line = slides.expand(|n: &Arc<u64>| 0..**n).open_parents(3).then(&mut regions);
            let line = line.expand(|n: &Arc<u64>| 0..=**n).open_parents(3).then(&mut tiles);
            let line = line.gather(|_| 0, |sum, _, _, x| *sum += x).then(&mut of_regions);
            let mut line =
                line.gather(|_| vec![], |sums, _, _, sum| sums.push(sum)).then(&mut last);
            let sums = |n: u64| (0..n).map(|region| (0..=region).sum()).collect::<Vec<u64>>();
            let inputs = [3, 0, 5, 1, 0, 0, 7, 2, 2, 4, 6];
            let expected = inputs.map(|n| (n, sums(n)));
            for _ in 0..50 {
                assert_eq!(line.run(inputs).unwrap(), expected);
            }
        }
    });
}
