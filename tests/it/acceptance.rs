//! Acceptance examples: small programs and what comes out of them, to the number.
//!
//! Not here yet: policies that go on with fewer devices (AE13). What AE2, AE8 and AE22 say of the
//! configuration is in `cfg_in_runs`, AE18 to AE21 in `cfg_files`. The neural networks of AE4 and AE5 are examples; here they are plain arithmetic.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use gangline::{
    AnyOrderRunner, CfgNode, ConsumerContext, Error, Hook, Order, OrderedRunner, ProducerContext,
    Result, Runner, UnorderedRunner, map,
};

use crate::hooks::both_orders;
use crate::probe::{Fault, Probe, check_afterwards, check_summary, three};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    ae6_producer_state_lives_on_and_consumer_state_begins_anew,
    ae7_an_empty_input_gives_the_summary_of_the_initial_state,
    ae8_close_and_activate,
    ae10_every_producer_works_whatever_the_window,
    ae11_the_input_fails_after_eight_items,
    ae12_every_failure_is_named_and_ends_the_run,
    ae13_one_init_fails_and_the_building_says_so,
    ae14_a_cancelled_run_leaves_nothing_to_the_next,
    ae15_any_value_is_an_item,
    ae16_two_threads_never_mix_their_runs,
    ae17_each_producer_ends_once_after_its_last_item,
);

struct Sum(fn(u64) -> u64);

impl Runner for Sum {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
        Ok((self.0)(x))
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(0)
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
        *sum += y;
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        Ok(sum)
    }
}

#[test]
fn ae1_sum_of_squares() {
    no_hang(|| {
        let mut runner = UnorderedRunner::new(Sum(|x| x * x), 3).unwrap();
        assert_eq!(runner.run(0..100).unwrap(), 328_350);
    });
}

#[test]
fn ae2_sum_of_powers_leaves_the_configuration_as_it_was() {
    no_hang(|| {
        let cfg = CfgNode::new();
        let mut runner = UnorderedRunner::with_cfg(Sum(|x| x.pow(3)), 3, cfg.clone()).unwrap();
        assert_eq!(runner.run(0..100).unwrap(), 24_502_500);
        assert_eq!(cfg, CfgNode::new());
    });
}

/// The first item is finished when the last of the window was, the others after delays of all sizes.
#[test]
fn ae3_ordered_squares_with_unlike_delays() {
    no_hang(|| {
        let others = Counter::new();
        let squares = map(
            |_| Ok(()),
            move |_, _, x: u64| {
                if x == 0 {
                    others.reach(8);
                } else {
                    (0..x * 7919 % 29).for_each(|_| thread::yield_now());
                    others.add(1);
                }
                Ok(x * x)
            },
        );
        let mut runner = OrderedRunner::new(squares, 3).unwrap();
        assert_eq!(runner.run(0..100).unwrap(), (0..100).map(|x| x * x).collect::<Vec<_>>());
    });
}

type Row = [f64; 3];

/// A linear layer from one number to three, and what is negative made zero.
struct Model {
    weights: Row,
    bias: Row,
}

impl Model {
    /// The same on every device.
    fn load() -> Self {
        Model { weights: [0.5, -0.25, 1.5], bias: [1.0, 3.0, -40.0] }
    }

    fn predict(&self, x: f64) -> Row {
        std::array::from_fn(|i| (self.weights[i] * x + self.bias[i]).max(0.0))
    }
}

#[test]
fn ae4_a_predictor_gives_row_for_row_what_one_model_gives() {
    no_hang(|| {
        let predict = map(
            |_| Ok(Rc::new(Model::load())),
            |_, model: &mut Rc<Model>, x: u32| Ok(model.predict(x.into())),
        );
        let rows = OrderedRunner::new(predict, 4).unwrap().run(0..100).unwrap();
        let expected: Vec<_> = (0..100).map(|x| Model::load().predict(x.into())).collect();
        assert_eq!(rows, expected);
        assert!(rows.iter().flatten().all(|&y| y >= 0.0));
    });
}

#[test]
fn ae5_a_generator_of_batches_is_an_input_like_any_other() {
    for (size, pieces, last) in [(10, 10, 10), (7, 15, 2)] {
        no_hang(move || {
            let predict = map(
                |_| Ok(Model::load()),
                |_, model: &mut Model, batch: Vec<u32>| {
                    Ok(batch.into_iter().map(|x| model.predict(x.into())).collect::<Vec<_>>())
                },
            );
            let all: Vec<u32> = (0..100).collect();
            let mut runner = OrderedRunner::new(predict, 3).unwrap();
            let outputs = runner.run(all.chunks(size).map(<[_]>::to_vec)).unwrap();
            assert_eq!((outputs.len(), outputs.last().unwrap().len()), (pieces, last));
            let expected: Vec<_> = (0..100).map(|x| Model::load().predict(x.into())).collect();
            assert_eq!(outputs.concat(), expected);
        });
    }
}

/// Both producers take part in each pair of items, so the count of each is known.
fn ae6_producer_state_lives_on_and_consumer_state_begins_anew(order: Order) {
    let both = Barrier::new(2);
    let counts = map(
        |_| Ok(0),
        move |_, count: &mut u64, _: char| {
            both.wait();
            *count += 1;
            Ok(*count)
        },
    );
    let mut runner =
        AnyOrderRunner::builder(counts).devices(["cpu", "cpu"]).order(order).build().unwrap();
    assert_eq!(sorted(runner.run(['a', 'b', 'c', 'd']).unwrap()), [1, 1, 2, 2]);
    assert_eq!(sorted(runner.run(['e', 'f']).unwrap()), [3, 3]);
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values
}

fn ae7_an_empty_input_gives_the_summary_of_the_initial_state(order: Order) {
    let sum = Sum(|x| x);
    let mut runner = AnyOrderRunner::builder(sum).devices(2).order(order).build().unwrap();
    assert_eq!(runner.run([]).unwrap(), 0);
    assert_eq!(runner.run([1, 2]).unwrap(), 3);
    assert_eq!(runner.run([]).unwrap(), 0, "and nothing of the run before");
}

fn ae8_close_and_activate(order: Order) {
    let counts = map(
        |_| Ok(0),
        |_, count: &mut u64, (): ()| {
            *count += 1;
            Ok(*count)
        },
    );
    let mut runner = AnyOrderRunner::builder(counts).devices(1).order(order).build().unwrap();
    assert_eq!(runner.run([(); 3]).unwrap(), [1, 2, 3]);
    runner.close().unwrap();
    runner.close().unwrap();
    let error = runner.run([()]).unwrap_err();
    assert!(error.is_closed() && error.to_string().contains("runner is closed"), "{error}");
    runner.set_cfg(CfgNode::new()).unwrap();
    runner.activate().unwrap();
    runner.activate().unwrap();
    assert_eq!(runner.run([(); 3]).unwrap(), [1, 2, 3], "its state is a new one");
}

/// Item 0 stays at work until as much of the input was pulled as the window allows; nothing more is
/// pulled before it is done, and then all the rest.
#[track_caller]
fn check_feeder(devices: usize, window: usize) {
    let limit = window as u64;
    no_hang(move || {
        let probe = Probe::new();
        let tally = probe.tally();
        let worked = Counter::new();
        let probe = probe.on_producer(Hook::ProducerWork, move |cx| {
            if cx.item() > Some(0) {
                worked.add(1);
                return Ok(());
            }
            worked.reach(limit - 1);
            assert_eq!(tally.pulled.get(), limit);
            Ok(())
        });
        let builder = OrderedRunner::builder(probe).devices(devices).window(window);
        let mut runner = builder.build().unwrap();
        let input = runner.runner().tally().input(0..500);
        check_summary(runner.run(input).unwrap(), 0..500, Order::Input);
        check_afterwards(runner);
    });
}

#[test]
fn ae9_a_blocked_head_stops_the_feeder_at_the_window() {
    check_feeder(2, 8);
    check_feeder(4, 14);
    check_feeder(2, 4);
}

/// The first four items are at work at the same time: with fewer producers it would not go on.
fn ae10_every_producer_works_whatever_the_window(order: Order) {
    for window in [None, Some(4), Some(5), Some(64)] {
        let all = Barrier::new(4);
        let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
            if cx.item() < Some(4) {
                all.wait();
            }
            Ok(())
        });
        let tally = probe.tally();
        let builder = AnyOrderRunner::builder(probe).devices(4).order(order);
        let builder = match window {
            Some(window) => builder.window(window),
            None => builder,
        };
        let mut runner = builder.build().unwrap();
        check_summary(runner.run(tally.input(0..24)).unwrap(), 0..24, order);
        runner.close().unwrap();
        tally.check_closed();
    }
}

fn ae11_the_input_fails_after_eight_items(order: Order) {
    let start = || {
        let mut runner = Probe::new().on_three(order);
        let items = runner.runner().tally().input(0..9).enumerate();
        let error = runner
            .try_run(items.map(|(i, item)| if i < 8 { Ok(item) } else { Err("disk full") }))
            .unwrap_err();
        assert_eq!((error.item(), error.is_input()), (Some(8), true), "{error:#}");
        assert!(format!("{error:#}").ends_with("disk full"), "{error:#}");
        runner
    };
    check_afterwards(start());
    let mut runner = start();
    runner.close().unwrap();
    runner.runner().tally().check_closed();
}

fn ae12_every_failure_is_named_and_ends_the_run(order: Order) {
    let rows = [
        (Hook::ProducerWork, Some(5)),
        (Hook::ConsumerInit, None),
        (Hook::ConsumerWork, Some(5)),
        (Hook::ConsumerEnd, None),
    ];
    for fault in Fault::BOTH {
        for (hook, item) in rows {
            let probe =
                Probe::new().failing(hook, fault, move |i| item.is_none_or(|item| i == item));
            let mut runner = probe.on_three(order);
            let input = runner.runner().tally().input(0..50);
            fault.check(&runner.run(input).unwrap_err(), hook, item);
            check_afterwards(runner);
        }
        let probe = Probe::new().failing(Hook::ProducerInit, fault, |_| true);
        let error =
            AnyOrderRunner::builder(probe).devices(three()).order(order).build().unwrap_err();
        fault.check(&error, Hook::ProducerInit, None);
        let mut runner = Probe::new().failing(Hook::ProducerEnd, fault, |_| true).on_three(order);
        fault.check(&runner.close().unwrap_err(), Hook::ProducerEnd, None);
    }
}

fn ae13_one_init_fails_and_the_building_says_so(order: Order) {
    let probe = Probe::new().on_producer(Hook::ProducerInit, |cx| match cx.producer() {
        0 => Fault::Error.strike(),
        _ => Ok(()),
    });
    let tally = probe.tally();
    let error: Error =
        AnyOrderRunner::builder(probe).devices(three()).order(order).build().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "producer_init failed on cuda:0 (producer 0): it broke",
        "hook, device and cause"
    );
    tally.check_closed();
}

fn ae14_a_cancelled_run_leaves_nothing_to_the_next(order: Order) {
    let gate = Arc::new(Gate::new());
    let wait = gate.clone();
    let work = move |_: char| wait.pass();
    let slow = map(|_| Ok(()), move |_, _, x| Ok((work(x), x).1));
    let mut runner = AnyOrderRunner::builder(slow).devices(2).order(order).build().unwrap();
    let token = runner.cancel_token();
    let input = "xyz".chars().cycle().enumerate().map(|(i, x)| {
        if i == 4 {
            token.cancel();
            gate.open();
        }
        x
    });
    assert!(runner.run(input).unwrap_err().is_cancelled());
    assert_eq!(sorted(runner.run(['a', 'b', 'c']).unwrap()), ['a', 'b', 'c']);
}

fn ae15_any_value_is_an_item(order: Order) {
    let same = map(|_| Ok(()), |_, _, x: Option<Option<Vec<()>>>| Ok(x));
    let mut runner =
        AnyOrderRunner::builder(same).devices(["cpu", "cpu"]).order(order).build().unwrap();
    let items = [None, Some(None), Some(Some(vec![])), Some(Some(vec![()])), None];
    let outputs = runner.run(items.clone()).unwrap();
    assert_eq!(sorted(outputs), sorted(items.to_vec()));

    let workers = Arc::new(Mutex::new(BTreeSet::new()));
    let (seen, both) = (workers.clone(), Barrier::new(2));
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        seen.lock().unwrap().insert((cx.producer(), cx.device().to_string()));
        both.wait();
        Ok(())
    });
    let twice: gangline::Devices = "cuda:0,cuda:0".parse().unwrap();
    let mut runner =
        AnyOrderRunner::builder(probe).devices(twice.names_only()).order(order).build().unwrap();
    let input = runner.runner().tally().input(0..2);
    check_summary(runner.run(input).unwrap(), 0..2, order);
    let expected = BTreeSet::from([(0, "cuda:0".into()), (1, "cuda:0".into())]);
    assert_eq!(*workers.lock().unwrap(), expected);
}

fn ae16_two_threads_never_mix_their_runs(order: Order) {
    let same = map(|_| Ok(()), |_, _, x: u64| Ok(x));
    let runner = AnyOrderRunner::builder(same).devices(2).order(order).build().unwrap();
    let (runner, begin) = (Mutex::new(runner), Barrier::new(2));
    thread::scope(|scope| {
        for first in [0, 1000] {
            let (runner, begin) = (&runner, &begin);
            scope.spawn(move || {
                begin.wait();
                let outputs = runner.lock().unwrap().run(first..first + 200).unwrap();
                assert_eq!(sorted(outputs), (first..first + 200).collect::<Vec<_>>());
            });
        }
    });
}

/// Whatever the run came to.
fn ae17_each_producer_ends_once_after_its_last_item(order: Order) {
    for (hook, is_cancelled) in [
        (None, false),
        (None, true),
        (Some(Hook::ProducerWork), false),
        (Some(Hook::ConsumerWork), false),
        (Some(Hook::ConsumerEnd), false),
    ] {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (at_work, at_end) = (ended.clone(), ended.clone());
        let probe = match hook {
            Some(hook) => Probe::new().failing(hook, Fault::Error, |_| true),
            None => Probe::new().on_producer(Hook::ProducerWork, move |cx| {
                assert!(!at_work.lock().unwrap().contains(&cx.producer()));
                Ok(())
            }),
        };
        let probe = probe.on_producer(Hook::ProducerEnd, move |cx| {
            at_end.lock().unwrap().push(cx.producer());
            Ok(())
        });
        let mut runner = probe.on_three(order);
        if is_cancelled {
            runner.cancel_token().cancel();
        }
        let input = runner.runner().tally().input(0..20);
        assert_eq!(runner.run(input).is_ok(), hook.is_none() && !is_cancelled);
        let tally = runner.runner().tally();
        drop(runner);
        assert_eq!(sorted(ended.lock().unwrap().clone()), [0, 1, 2]);
        tally.check_closed();
    }
}
