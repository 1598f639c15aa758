//! Random pipelines against a program that works on one item after the other.

use std::sync::Arc;
use std::time::Duration;

use gangline::{Batch, BoxError, Error, OnError, Order, Pipeline, Runner, map_batches};
use proptest::prelude::*;

use crate::support::{Gathered, Pool, builder, no_hang, sorted, working};

/// Parents, and what their parts add up to.
type Sums = Vec<(u64, u64)>;

/// One stage of the pipeline.
#[derive(Debug, Clone, Copy)]
struct Stage {
    is_ordered: bool,
    producers: usize,
    window: usize,
    /// 0: items are worked on one by one.
    batch: usize,
    /// Items whose hash is below this fail, of 256.
    failing: u64,
    /// Which items fail, and how many parts they have.
    seed: u64,
    is_tracked: bool,
}

#[derive(Debug, Clone)]
struct Plan {
    stages: Vec<Stage>,
    parents: u64,
    most_parts: u64,
    open: usize,
    gathers_failures: bool,
}

fn hash(seed: u64, x: u64) -> u64 {
    let mut x = (x ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

impl Stage {
    fn work(self, x: u64) -> Option<u64> {
        (hash(self.seed, x) % 256 >= self.failing).then(|| x.wrapping_mul(3) + 1)
    }

    fn work_slowly(self, x: u64) -> Result<u64, BoxError> {
        (0..hash(self.seed, x) % 200).for_each(|_| std::hint::spin_loop());
        self.work(x).ok_or_else(|| "unlucky".into())
    }

    fn parts(self, x: u64, most: u64) -> Vec<u64> {
        (0..hash(self.seed + 1, x) % (most + 1)).map(|i| hash(x, i) % 100_000).collect()
    }

    fn order(self) -> Order {
        if self.is_ordered { Order::Input } else { Order::Completion }
    }

    fn build<R: Runner + 'static>(self, runner: R) -> Pool<R> {
        let builder = builder(runner, self.order(), self.producers)
            .window(self.window)
            .on_error(OnError::Skip);
        let builder = match self.is_tracked {
            true => builder.item_timeout(Duration::from_secs(50)),
            false => builder,
        };
        builder.build().unwrap()
    }

    fn pool(self) -> Pool<impl Runner<Input = u64, Output = u64>> {
        let stage = self;
        let single = self.batch == 0;
        let runner = map_batches(
            |_| Ok(()),
            move |_, (): &mut (), xs: &mut Vec<u64>| {
                assert!(!single || xs.len() == 1);
                Ok(xs.drain(..).map(|x| stage.work_slowly(x)).collect())
            },
        );
        let builder = builder(runner, self.order(), self.producers).on_error(OnError::Skip);
        let builder = match self.batch {
            0 => builder.batch(Batch::up_to(1)).window(self.window),
            batch => builder.batch(Batch::of(batch)).window(self.window.max(batch)),
        };
        builder.build().unwrap()
    }

    fn single(self) -> Pool<impl Runner<Input = u64, Output = u64>> {
        self.build(working(move |_, x| self.work_slowly(x)))
    }

    fn last(self) -> Pool<impl Runner<Input = Gathered<u64>, Summary = Sums>> {
        self.build(working(move |_, (n, sum): Gathered<u64>| Ok((*n, sum))))
    }
}

/// A part that failed counts for this.
const HOLE: u64 = 1_000_003;

/// Adds parts in a way that does not depend on their order, but on their indices.
fn add(sum: &mut u64, part: u64, result: Result<u64, Error>) {
    *sum = sum.wrapping_add(hash(part, result.unwrap_or(HOLE)));
}

/// Folds the results for parts, as the pipeline does.
fn fold(results: impl Iterator<Item = Option<u64>>, gathers_failures: bool) -> Option<u64> {
    let mut sum = 0;
    for (result, part) in results.zip(0..) {
        match result {
            None if !gathers_failures => return None,
            result => add(&mut sum, part, Ok(result.unwrap_or(HOLE))),
        }
    }
    Some(sum)
}

impl Plan {
    fn is_ordered(&self) -> bool {
        self.stages.iter().all(|stage| stage.is_ordered)
    }

    fn check(&self, seen: Vec<(u64, u64)>, expected: Vec<(u64, u64)>) {
        match self.is_ordered() {
            true => assert_eq!(seen, expected),
            false => assert_eq!(sorted(seen), sorted(expected)),
        }
    }

    /// open, one or two stages of parts, gather.
    fn run_flat(&self) {
        let [first, second, third, last] = [0, 1, 2, 3].map(|i| self.stages[i]);
        let (most, holes) = (self.most_parts, self.gathers_failures);
        let parts = move |x: &Arc<u64>| first.parts(**x, most);
        let (mut open, mut decode, mut infer, mut write) =
            (first.single(), second.single(), third.pool(), last.last());
        let opened = Pipeline::new(&mut open)
            .expand(parts)
            .open_parents(self.open)
            .then(&mut decode)
            .then(&mut infer);
        let seen = match holes {
            true => opened
                .gather_results(|_| 0, |sum, _, part, x| add(sum, part, x))
                .then(&mut write)
                .run(0..self.parents),
            false => opened
                .gather(|_| 0, |sum, _, part, x| add(sum, part, Ok(x)))
                .then(&mut write)
                .run(0..self.parents),
        };
        let expected = (0..self.parents).filter_map(|n| {
            let parent = first.work(n)?;
            let results = first.parts(parent, most).into_iter();
            let results = results.map(|x| second.work(x).and_then(|y| third.work(y)));
            Some((parent, fold(results, holes)?))
        });
        self.check(seen.unwrap(), expected.collect());
        for account in [open.account(), decode.account(), infer.account(), write.account()] {
            assert_eq!(account.unread, Some(0));
            assert_eq!(account.already_done, 0);
        }
        assert_eq!(open.account().ok + open.account().failed, self.parents);
        if holes {
            let decoded = decode.account();
            assert_eq!(decoded.cancelled + infer.account().cancelled, 0);
            assert_eq!(infer.account().ok + infer.account().failed, decoded.ok);
        }
    }

    /// open, parts, gathered and open again, parts, gathered.
    fn run_twice(&self) {
        let [first, second, third, fourth, last] = [0, 1, 2, 3, 4].map(|i| self.stages[i]);
        let (most, holes) = (self.most_parts, self.gathers_failures);
        let parts = move |x: &Arc<u64>| first.parts(**x, most);
        let again = move |x: &Arc<u64>| third.parts(**x, most);
        let (open, mut work, mut infer, mut write) =
            (first.single(), second.single(), fourth.pool(), last.last());
        let mut join = third.build(working(move |_, (_, x): Gathered<u64>| third.work_slowly(x)));
        let opened = open.expand(parts).open_parents(self.open).then(&mut work);
        let seen = match holes {
            true => opened
                .gather_results(|_| 0, |sum, _, part, x| add(sum, part, x))
                .then(&mut join)
                .expand(again)
                .open_parents(self.open)
                .then(&mut infer)
                .gather_results(|_| 0, |sum, _, part, x| add(sum, part, x))
                .then(&mut write)
                .run(0..self.parents),
            false => opened
                .gather(|_| 0, |sum, _, part, x| add(sum, part, Ok(x)))
                .then(&mut join)
                .expand(again)
                .open_parents(self.open)
                .then(&mut infer)
                .gather(|_| 0, |sum, _, part, x| add(sum, part, Ok(x)))
                .then(&mut write)
                .run(0..self.parents),
        };
        let expected = (0..self.parents).filter_map(|n| {
            let parent = first.work(n)?;
            let results = first.parts(parent, most).into_iter().map(|x| second.work(x));
            let joined = third.work(fold(results, holes)?)?;
            let results = third.parts(joined, most).into_iter().map(|x| fourth.work(x));
            Some((joined, fold(results, holes)?))
        });
        self.check(seen.unwrap(), expected.collect());
    }
}

fn stage() -> impl Strategy<Value = Stage> {
    let failing = prop_oneof![Just(0), 0u64..40];
    let batch = prop_oneof![Just(0usize), 2usize..9];
    let shape = (proptest::bool::weighted(0.7), 1usize..4, 1usize..20, batch);
    let fate = (failing, any::<u32>(), proptest::bool::weighted(0.2));
    (shape, fate).prop_map(
        |((is_ordered, producers, window, batch), (failing, seed, is_tracked))| {
            let window = window.max(batch);
            Stage { is_ordered, producers, window, batch, failing, seed: seed.into(), is_tracked }
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let stages = proptest::collection::vec(stage(), 5);
    (stages, 0u64..30, 0u64..12, 1usize..6, any::<bool>()).prop_map(
        |(stages, parents, most_parts, open, gathers_failures)| Plan {
            stages,
            parents,
            most_parts,
            open,
            gathers_failures,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn a_pipeline_does_what_a_loop_does(plan in plan()) {
        no_hang(move || plan.run_flat());
    }

    #[test]
    fn a_pipeline_that_expands_twice_does_what_loops_do(plan in plan()) {
        no_hang(move || plan.run_twice());
    }
}
