//! Items that are tried again: how often, when, and on which producer.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::order::RuntimeOrder;
use gangline::testing::{Script, Simulated};
use gangline::{
    AnyOrderRunner, Batch, Builder, Hook, OnError, Order, ProducerContext, Runner, Verdict,
};
use proptest::prelude::*;

use crate::echo::together;
use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, no_hang};

both_orders! {
    so_many_attempts_and_no_more,
    a_device_that_fails_now_and_then_costs_no_item,
    a_panic_is_tried_again,
    what_was_tried_again_goes_before_new_items,
    an_item_that_waits_keeps_no_producer,
    another_producer_tries_again,
    the_same_producer_tries_again_if_the_rule_says_so,
    a_batch_that_failed_together_is_tried_again_one_by_one,
    an_item_of_a_batch_is_tried_again_alone,
    a_cancel_ends_a_run_whose_item_waits,
    a_finish_lets_what_waits_be_tried_again,
    a_drain_ends_the_wait_for_another_attempt,
    a_stream_tries_again,
    an_item_that_panics_when_cloned_has_one_attempt,
}

const SOON: Duration = Duration::from_micros(1);
const NEVER: Duration = Duration::from_secs(1_000_000);

fn builder<R: Runner + 'static>(runner: R, order: Order, retries: u32) -> Builder<R, RuntimeOrder>
where
    R::Input: Clone,
{
    AnyOrderRunner::builder(runner).order(order).devices(2).retries(retries).backoff(SOON, SOON)
}

/// The attempts that there were at each item.
type Attempts = Arc<Mutex<Vec<(u64, u32, usize)>>>;

/// Fails at an item as long as `fails` says so of it and the attempt.
fn failing(fails: impl Fn(u64, u32) -> bool + Send + Sync + 'static) -> (Hooks, Attempts) {
    let attempts = Attempts::default();
    let noted = attempts.clone();
    let hooks = Hooks::new().work(move |cx, x| {
        noted.lock().unwrap().push((x, cx.attempt(), cx.producer()));
        if fails(x, cx.attempt()) { Err("not yet".into()) } else { Ok(x) }
    });
    (hooks, attempts)
}

fn range(count: u64) -> Vec<u64> {
    (0..count).collect()
}

fn so_many_attempts_and_no_more(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x == 5 && attempt <= 2);
    let mut pool = builder(hooks, order, 2).build().unwrap();
    assert_eq!(sorted(pool.run(0..9).unwrap()), range(9));
    assert_eq!((pool.account().ok, pool.account().failed), (9, 0));
    let of_five = |attempts: &Attempts| {
        let attempts = attempts.lock().unwrap();
        attempts
            .iter()
            .filter(|(x, ..)| *x == 5)
            .map(|(_, attempt, _)| *attempt)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_five(&attempts), [1, 2, 3]);

    let (hooks, attempts) = failing(|x, _| x == 5);
    let mut pool = builder(hooks, order, 2).build().unwrap();
    let error = pool.run(0..9).unwrap_err();
    assert_eq!((error.item(), error.attempt()), (Some(5), Some(3)));
    assert!(error.to_string().ends_with("attempt 3)"), "{error}");
    assert_eq!(pool.account().failed, 1);
    assert_eq!(of_five(&attempts), [1, 2, 3]);

    let (hooks, _) = failing(|x, _| x == 5);
    let mut pool = builder(hooks, order, 2).on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run(0..9).unwrap().len(), 8);
    assert_eq!(pool.failures()[0].attempt(), Some(3));
    assert_eq!((pool.account().ok, pool.account().failed), (8, 1));
}

fn a_device_that_fails_now_and_then_costs_no_item(order: Order) {
    let script = (1..40).fold(Script::new(), |script, i| script.fails_at(7 * i));
    for batch in [None, Some(Batch::of(4))] {
        let flaky = Simulated::new(Hooks::new()).everywhere(script.clone());
        // One item may meet several of the calls that fail, each time on the other device.
        let mut builder = builder(flaky, order, 9);
        if let Some(batch) = batch {
            builder = builder.batch(batch);
        }
        let mut pool = builder.build().unwrap();
        assert_eq!(sorted(pool.run(0..400).unwrap()), range(400));
    }
}

fn a_panic_is_tried_again(order: Order) {
    let inits = Arc::new(AtomicU64::new(0));
    let counted = inits.clone();
    let hooks = Hooks::new()
        .init(move |_| {
            counted.fetch_add(1, SeqCst);
            Ok(())
        })
        .work(|cx, x| {
            assert!(x != 5 || cx.attempt() > 1, "bad");
            Ok(x)
        });
    let mut pool = builder(hooks, order, 1).build().unwrap();
    assert_eq!(sorted(pool.run(0..9).unwrap()), range(9));
    assert_eq!(sorted(pool.run(6..9).unwrap()), [6, 7, 8], "with a state on every producer");
    assert_eq!(inits.load(SeqCst), 3);
}

/// One producer, which tries again what it failed itself.
fn what_was_tried_again_goes_before_new_items(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x == 3 && attempt == 1);
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).retries(1);
    let mut pool = builder.backoff(Duration::ZERO, Duration::ZERO).build().unwrap();
    assert_eq!(sorted(pool.run(0..100).unwrap()), range(100));
    let attempts = attempts.lock().unwrap();
    let first = attempts.iter().position(|&(x, attempt, _)| (x, attempt) == (3, 1)).unwrap();
    assert_eq!(attempts[first + 1], (3, 2, 0), "at once, and before the others");
}

/// The only producer goes on with other items while one waits for longer than the test may take.
fn an_item_that_waits_keeps_no_producer(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x == 0 && attempt == 1);
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).retries(1).window(200);
    let mut pool = builder.backoff(NEVER, NEVER).build().unwrap();
    let token = pool.cancel_token();
    let worked = attempts.clone();
    let source = (0..100u64).chain(std::iter::once_with(move || {
        while worked.lock().unwrap().len() < 100 {
            std::thread::yield_now();
        }
        token.cancel();
        100
    }));
    assert!(pool.run(source).unwrap_err().is_cancelled());
    let attempts = attempts.lock().unwrap();
    assert!(attempts.len() >= 100, "all but one were worked on");
    assert!(attempts.iter().all(|&(_, attempt, _)| attempt == 1));
}

fn another_producer_tries_again(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x % 5 == 0 && attempt == 1);
    let mut pool = builder(hooks, order, 1).build().unwrap();
    assert_eq!(sorted(pool.run(0..100).unwrap()), range(100));
    let mut tried = BTreeMap::<u64, Vec<usize>>::new();
    for &(x, _, worker) in attempts.lock().unwrap().iter() {
        tried.entry(x).or_default().push(worker);
    }
    let twice: Vec<_> = tried.values().filter(|workers| workers.len() == 2).collect();
    assert_eq!(twice.len(), 20);
    assert!(twice.iter().all(|workers| workers[0] != workers[1]), "{twice:?}");
}

fn the_same_producer_tries_again_if_the_rule_says_so(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x % 5 == 0 && attempt <= 2);
    let builder = builder(hooks, order, 2).classify(|_| Verdict::RetryHere);
    let mut pool = builder.build().unwrap();
    assert_eq!(sorted(pool.run(0..100).unwrap()), range(100));
    let mut tried = BTreeMap::<u64, Vec<usize>>::new();
    for &(x, _, worker) in attempts.lock().unwrap().iter() {
        tried.entry(x).or_default().push(worker);
    }
    let again: Vec<_> = tried.values().filter(|workers| workers.len() > 1).collect();
    assert_eq!(again.len(), 20);
    assert!(again.iter().all(|workers| **workers == [workers[0]; 3]), "{again:?}");
}

fn a_batch_that_failed_together_is_tried_again_one_by_one(order: Order) {
    let together = together();
    let batches = together.calls();
    let mut pool = builder(together, order, 1).batch(Batch::of(4)).build().unwrap();
    assert_eq!(sorted(pool.run(0..12).unwrap()), range(12));
    let batches = batches.lock().unwrap();
    assert!(batches.contains(&vec![4, 5, 6, 7]), "{batches:?}");
    assert!((4..8).all(|x| batches.contains(&vec![x])), "{batches:?}");
}

fn an_item_of_a_batch_is_tried_again_alone(order: Order) {
    let (hooks, attempts) = failing(|x, attempt| x == 5 && attempt == 1);
    let mut pool = builder(hooks, order, 1).batch(Batch::of(4)).build().unwrap();
    assert_eq!(sorted(pool.run(0..12).unwrap()), range(12));
    let attempts = attempts.lock().unwrap();
    let again: Vec<_> = attempts.iter().filter(|(_, attempt, _)| *attempt == 2).collect();
    assert!(matches!(again[..], [(5, 2, _)]), "{again:?}");
}

fn a_cancel_ends_a_run_whose_item_waits(order: Order) {
    let failed = Arc::new(Counter::new());
    let counted = failed.clone();
    let hooks = Hooks::new().work(move |_, x| {
        counted.add(1);
        if x == 2 { Err("bad".into()) } else { Ok(x) }
    });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).retries(1);
    let mut pool = builder.backoff(NEVER, NEVER).build().unwrap();
    let token = pool.cancel_token();
    let canceller = std::thread::spawn(move || {
        failed.reach(3);
        token.cancel();
    });
    assert!(pool.run(0..3).unwrap_err().is_cancelled());
    canceller.join().unwrap();
    let account = pool.account();
    assert_eq!((account.ok + account.cancelled, account.failed), (3, 0), "{account:?}");
    assert_eq!(pool.run([7]).unwrap(), [7], "nothing of it reaches the next run");
}

fn a_finish_lets_what_waits_be_tried_again(order: Order) {
    let gate = Arc::new(Gate::new());
    let passing = gate.clone();
    let hooks = Hooks::new().work(move |cx, x| match (x, cx.attempt()) {
        (2, 1) => {
            passing.pass();
            Err("bad".into())
        }
        _ => Ok(x),
    });
    let mut pool = builder(hooks, order, 1).build().unwrap();
    let token = pool.cancel_token();
    let source = (0..3u64).chain(std::iter::once_with(move || {
        token.drain();
        gate.open();
        3
    }));
    assert_eq!(sorted(pool.run(source).unwrap()), [0, 1, 2, 3]);
}

/// The item that waits is tried at once, and so is an item that fails after the drain.
fn a_drain_ends_the_wait_for_another_attempt(order: Order) {
    let failed = Arc::new(Counter::new());
    let counted = failed.clone();
    let hooks = Hooks::new().work(move |cx, x| match (x, cx.attempt()) {
        (1, 1) | (3, 1..=2) => {
            counted.add(1);
            Err("bad".into())
        }
        _ => Ok(x),
    });
    let mut pool = builder(hooks, order, 2).backoff(NEVER, NEVER).build().unwrap();
    let token = pool.cancel_token();
    let source = (0..2u64).chain(std::iter::once_with(move || {
        failed.reach(1);
        token.drain();
        3
    }));
    assert_eq!(no_hang(move || sorted(pool.run(source).unwrap())), [0, 1, 3]);
}

fn a_stream_tries_again(order: Order) {
    let (hooks, _) = failing(|x, attempt| x % 4 == 0 && attempt <= 2);
    let mut pool = builder(hooks, order, 2).build().unwrap();
    let outputs = pool.outputs(0..100).collect::<std::result::Result<Vec<_>, _>>().unwrap();
    assert_eq!(sorted(outputs), range(100));
}

/// Panics when it is cloned.
struct Rigid;

impl Clone for Rigid {
    fn clone(&self) -> Self {
        panic!("one of a kind")
    }
}

fn an_item_that_panics_when_cloned_has_one_attempt(order: Order) {
    let work = gangline::map(
        |_| Ok(()),
        |_: &ProducerContext<'_>, (): &mut (), _: Rigid| Err::<(), _>("bad".into()),
    );
    let mut pool = builder(work, order, 3).build().unwrap();
    let error = pool.run([Rigid]).unwrap_err();
    assert_eq!((error.hook(), error.attempt()), (Some(Hook::ProducerWork), Some(1)));
    assert_eq!(error.source().unwrap().to_string(), "bad");
}

#[test]
fn a_rule_says_what_is_worth_another_attempt() {
    let hooks = Hooks::new().work(|cx, x| match (x, cx.attempt()) {
        (3, 1) => Err("busy".into()),
        (6, _) => Err("broken".into()),
        (x, _) => Ok(x),
    });
    let builder = builder(hooks, Order::Input, 5).classify(|error| {
        match error.source().unwrap().to_string().as_str() {
            "busy" => Verdict::Retry,
            _ => Verdict::Skip,
        }
    });
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(0..9).unwrap(), [0, 1, 2, 3, 4, 5, 7, 8]);
    assert_eq!((pool.failures()[0].item(), pool.failures()[0].attempt()), (Some(6), Some(1)));
}

#[test]
fn each_stage_tries_again_by_its_own_rule() {
    let (first, _) = failing(|x, attempt| x % 3 == 0 && attempt == 1);
    let (second, _) = failing(|x, attempt| x % 5 == 0 && attempt <= 2);
    let first = builder(first, Order::Input, 1).build().unwrap();
    let mut second = builder(second, Order::Input, 2).build().unwrap();
    let outputs = no_hang(move || first.then(&mut second).run(0..60).unwrap());
    assert_eq!(outputs, range(60));
}

#[test]
fn a_drain_ends_the_wait_for_another_attempt_in_every_stage() {
    let failed = Arc::new(Counter::new());
    let counted = failed.clone();
    let flaky = Hooks::new().work(move |cx, x| match (x, cx.attempt()) {
        (1, 1) => {
            counted.add(1);
            Err("bad".into())
        }
        _ => Ok(x),
    });
    let first = builder(Hooks::new(), Order::Input, 1).build().unwrap();
    let second = builder(flaky, Order::Input, 1).backoff(NEVER, NEVER);
    let mut second = second.build().unwrap();
    let token = first.cancel_token();
    let source = (0..2u64).chain(std::iter::once_with(move || {
        failed.reach(1);
        token.drain();
        2
    }));
    let outputs = no_hang(move || first.then(&mut second).run(source).unwrap());
    assert_eq!(outputs, range(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// An item that fails less often than it is tried succeeds; any other is skipped.
    #[test]
    fn outputs_are_those_of_the_last_attempts(
        fails in proptest::collection::vec(0u32..4, 0..120),
        panics in any::<bool>(),
        retries in 0u32..4,
        devices in 1usize..4,
        window in proptest::option::of(8usize..40),
        batch in proptest::option::of((1usize..8, any::<bool>())),
        padded in any::<bool>(),
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
    ) {
        let count = fails.len() as u64;
        let of = fails.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            let bad = cx.attempt() <= of[x as usize];
            assert!(!(bad && panics), "bad");
            if bad { Err("bad".into()) } else { Ok(x) }
        });
        let builder = AnyOrderRunner::builder(hooks).order(order).devices(devices).on_error(OnError::Skip);
        let mut builder = builder.retries(retries).backoff(SOON, SOON);
        if let Some(window) = window {
            builder = builder.window(window);
        }
        if let Some((most, fixed)) = batch {
            builder = builder.batch(if fixed { Batch::of(most) } else { Batch::up_to(most) });
            if padded {
                builder = builder.max_padded_size(1_000u64, |&x| 1 + x % 50);
            }
        }
        let mut pool = builder.build().unwrap();
        let (outputs, account) = no_hang(move || (pool.run(0..count).unwrap(), pool.account()));
        let good: Vec<_> = (0..count).filter(|&x| fails[x as usize] <= retries).collect();
        prop_assert!(order == Order::Completion || outputs.is_sorted());
        prop_assert_eq!(sorted(outputs), good.clone());
        prop_assert_eq!((account.ok, account.failed), (good.len() as u64, count - good.len() as u64));
    }
}
