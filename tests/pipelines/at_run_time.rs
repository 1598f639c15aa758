//! Pipelines that are put together at run time: `gather_into` gives the stage behind a gathering the type of the others.

use std::sync::Arc;

use futures_lite::{StreamExt, future, stream};
use gangline::closures::BoxRunner;
use gangline::expansion::OpenPipeline;
use gangline::{Error, OnError, Order, Pipeline};

use crate::support::{ORDERS, Pool, builder, no_hang, pool, sorted, working};

type Stage = BoxRunner<Vec<u64>, Vec<u64>, Vec<Vec<u64>>>;

/// A pipeline of any stages, with or without an open expansion.
enum Built {
    Whole(Pipeline<'static, Stage, Stage>),
    Parts(OpenPipeline<'static, Stage, Stage, Vec<u64>>),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A stage that adds this number to each element.
    Add(u64),
    /// An expansion into one part for each element, and its first stage.
    Expand(u64),
    /// A gathering of the elements of all parts behind those of the parent, and the stage behind it.
    Gather(u64),
}

fn adding(number: u64) -> Stage {
    Stage::new(working(move |_, xs: Vec<u64>| Ok(xs.into_iter().map(|x| x + number).collect())))
}

impl Built {
    fn then(self, step: Step, order: Order) -> Built {
        match (self, step) {
            (Built::Whole(whole), Step::Add(n)) => {
                Built::Whole(whole.then(pool(adding(n), order, 2)))
            }
            (Built::Parts(parts), Step::Add(n)) => {
                Built::Parts(parts.then(pool(adding(n), order, 2)))
            }
            (Built::Whole(whole), Step::Expand(n)) => {
                let each = |xs: &Arc<Vec<u64>>| xs.iter().map(|x| vec![*x]).collect::<Vec<_>>();
                Built::Parts(whole.expand(each).then(pool(adding(n), order, 2)))
            }
            (Built::Parts(parts), Step::Gather(n)) => {
                let add = |sums: &mut Vec<_>, _: &Vec<u64>, part, xs| sums.push((part, xs));
                let finish = |parent: Arc<Vec<u64>>, sums: Vec<(u64, Vec<u64>)>| {
                    let sums = sorted(sums).into_iter().flat_map(|(_, xs)| xs);
                    parent.iter().copied().chain(sums).collect()
                };
                let gathered = parts.gather_into(|_| vec![], add, finish);
                Built::Whole(gathered.then(pool(adding(n), order, 2)))
            }
            (Built::Whole(_), Step::Gather(_)) | (Built::Parts(_), Step::Expand(_)) => {
                panic!("one expansion is open at a time")
            }
        }
    }

    fn pipeline(steps: &[Step], order: Order) -> Pipeline<'static, Stage, Stage> {
        let first = Built::Whole(Pipeline::new(pool(adding(0), order, 2)));
        match steps.iter().fold(first, |built, step| built.then(*step, order)) {
            Built::Whole(whole) => whole,
            Built::Parts(_) => panic!("the expansion is gathered"),
        }
    }
}

/// What the steps make of one input.
fn expected(steps: &[Step], input: &[u64]) -> Vec<u64> {
    let mut xs = input.to_vec();
    let mut parent = vec![];
    for step in steps {
        let (Step::Add(n) | Step::Expand(n) | Step::Gather(n)) = *step;
        match step {
            Step::Add(_) => {}
            Step::Expand(_) => parent = xs.clone(),
            Step::Gather(_) => xs.splice(0..0, parent.drain(..)).for_each(drop),
        }
        xs.iter_mut().for_each(|x| *x += n);
    }
    xs
}

const STEPS: [&[Step]; 4] = [
    &[],
    &[Step::Add(1), Step::Add(2)],
    &[Step::Expand(1), Step::Gather(10)],
    &[
        Step::Add(1),
        Step::Expand(2),
        Step::Add(3),
        Step::Gather(4),
        Step::Expand(5),
        Step::Gather(6),
        Step::Add(7),
    ],
];

fn inputs() -> Vec<Vec<u64>> {
    (0..40).map(|n| (0..n % 4).map(|x| 100 * n + x).collect()).collect()
}

type Driver = fn(Pipeline<'static, Stage, Stage>) -> Result<Vec<Vec<u64>>, Error>;

/// Ways to drive a run.
const DRIVERS: &[Driver] = &[
    |mut whole| whole.run(inputs()),
    |mut whole| whole.try_run(inputs().into_iter().map(Ok::<_, Error>)),
    |mut whole| whole.outputs(inputs()).collect(),
    |whole| whole.into_outputs(inputs()).collect(),
    |mut whole| future::block_on(whole.run_stream(stream::iter(inputs()))),
    |mut whole| future::block_on(whole.outputs_stream(stream::iter(inputs())).try_collect()),
    |mut whole| whole.run(inputs()).and_then(|_| whole.run(inputs())),
];

#[test]
fn any_stages_are_put_together_and_driven_in_any_way() {
    no_hang(|| {
        for (steps, order) in STEPS.iter().flat_map(|steps| ORDERS.map(|order| (*steps, order))) {
            let expected: Vec<_> = inputs().iter().map(|input| expected(steps, input)).collect();
            for (driver, drive) in DRIVERS.iter().enumerate() {
                let seen = drive(Built::pipeline(steps, order)).unwrap();
                match order {
                    Order::Input => assert_eq!(seen, expected, "driver {driver} of {steps:?}"),
                    Order::Completion => {
                        assert_eq!(
                            sorted(seen),
                            sorted(expected.clone()),
                            "driver {driver} of {steps:?}"
                        );
                    }
                }
            }
        }
    });
}

/// A pool that fails at each list with this number.
fn failing_at(bad: u64) -> Pool<Stage> {
    let work = move |_: &gangline::ProducerContext<'_>, xs: Vec<u64>| {
        if xs.contains(&bad) { Err("bad".into()) } else { Ok(xs) }
    };
    let stage = Stage::new(working(work));
    builder(stage, Order::Completion, 2).on_error(OnError::Skip).build().unwrap()
}

#[test]
fn a_finish_that_panics_fails_its_parent_in_the_next_stage() {
    no_hang(|| {
        for on_error in [OnError::Stop, OnError::Skip] {
            let mut write = builder(adding(0), Order::Input, 1).on_error(on_error).build().unwrap();
            let mut pipeline = Pipeline::new(pool(adding(0), Order::Input, 2))
                .expand(|xs| vec![(**xs).clone()])
                .then(pool(adding(0), Order::Input, 2))
                .gather_into(
                    |_| vec![],
                    |all, _, _, xs: Vec<u64>| all.extend(xs),
                    |parent, all: Vec<u64>| {
                        assert!(*parent != [3], "no frame");
                        all
                    },
                )
                .unordered()
                .then(&mut write);
            let result = pipeline.run((0..6).map(|n| vec![n]));
            drop(pipeline);
            let error = match &result {
                Err(error) => error,
                Ok(seen) => {
                    assert_eq!(*seen, [[0], [1], [2], [4], [5]]);
                    &write.failures()[0]
                }
            };
            assert_eq!(result.is_err(), on_error == OnError::Stop);
            assert!(error.is_panic() && !error.is_input());
            assert_eq!((error.item(), error.part()), (Some(3), None));
            assert!(format!("{error:#}").ends_with("no frame"), "{error:#}");
            assert_eq!(write.account().failed, 1);
        }
    });
}

/// A skipped item, as the last consumer sees it: its index in the input, and the stage where it failed.
type Skipped = (Option<u64>, Option<usize>);

/// Passes lists on, and notes what was skipped.
struct Noting;

impl gangline::Runner for Noting {
    type Input = Vec<u64>;
    type Output = Vec<u64>;
    type ProducerState = ();
    type ConsumerState = (Vec<Skipped>, Vec<(Option<u64>, u64)>);
    type Summary = Self::ConsumerState;

    fn producer_init(&self, _: &gangline::ProducerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }

    fn producer_work(
        &self,
        _: &gangline::ProducerContext<'_>,
        (): &mut (),
        xs: Vec<u64>,
    ) -> gangline::Result<Vec<u64>> {
        if xs.contains(&400) { Err("bad".into()) } else { Ok(xs) }
    }

    fn consumer_init(&self, cx: &gangline::ConsumerContext<'_>) -> gangline::Result<Self::Summary> {
        assert_eq!((cx.input_item(), cx.failed_stage()), (None, None));
        Ok(Default::default())
    }

    fn consumer_work(
        &self,
        cx: &gangline::ConsumerContext<'_>,
        (_, done): &mut Self::ConsumerState,
        xs: Vec<u64>,
    ) -> gangline::Result<()> {
        assert_eq!(cx.failed_stage(), None);
        done.push((cx.input_item(), xs[0] / 100));
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &gangline::ConsumerContext<'_>,
        (skipped, _): &mut Self::ConsumerState,
        _: &Error,
    ) -> gangline::Result<()> {
        skipped.push((cx.input_item(), cx.failed_stage()));
        Ok(())
    }

    fn consumer_end(
        &self,
        _: &gangline::ConsumerContext<'_>,
        state: Self::ConsumerState,
    ) -> gangline::Result<Self::Summary> {
        Ok(state)
    }
}

/// Behind stages in completion order, too, whose results come as they are done.
#[test]
fn the_last_consumer_knows_the_place_in_the_input_and_the_stage_of_a_failure() {
    no_hang(|| {
        for (order, has_keys) in
            [(Order::Input, false), (Order::Input, true), (Order::Completion, true)]
        {
            let first = builder(adding(0), order, 2).on_error(OnError::Skip);
            let first = match has_keys {
                true => first.key(|xs: &Vec<u64>| format!("{xs:?}")),
                false => first,
            };
            let last = builder(Noting, order, 2).on_error(OnError::Skip).build().unwrap();
            let (skipped, done) = Pipeline::new(first.build().unwrap())
                .then(failing_at(200))
                .expand(|xs| xs.iter().map(|x| vec![*x]).collect::<Vec<_>>())
                .then(failing_at(301))
                .gather_into(|_| (), |(), _, _, _| (), |parent, ()| (*parent).clone())
                .then(last)
                .run((0..8).map(|n| vec![100 * n, 100 * n + 1]))
                .unwrap();
            let stages = [(2, 2), (3, 3), (4, 4)].map(|(item, stage)| (Some(item), Some(stage)));
            match order {
                // Its second stage is not: so the indices behind it are not known without keys.
                Order::Input if !has_keys => {
                    assert_eq!(
                        sorted(skipped.iter().map(|it| it.1).collect()),
                        [Some(2), Some(3), Some(4)]
                    );
                    assert!(done.iter().all(|(item, _)| item.is_none()));
                }
                _ => {
                    assert_eq!(sorted(skipped), stages);
                    assert_eq!(sorted(done), [0, 1, 5, 6, 7].map(|item| (Some(item), item)));
                }
            }
        }
    });
}

#[test]
fn without_keys_the_place_is_known_as_long_as_stages_keep_their_order() {
    no_hang(|| {
        let last = builder(Noting, Order::Completion, 3).on_error(OnError::Skip).build().unwrap();
        let (skipped, done) = Pipeline::new(pool(adding(0), Order::Input, 2))
            .then(last)
            .run((0..8).map(|n| vec![100 * n]))
            .unwrap();
        assert_eq!(skipped, [(Some(4), Some(2))]);
        assert_eq!(sorted(done), [0, 1, 2, 3, 5, 6, 7].map(|item| (Some(item), item)));
    });
}
