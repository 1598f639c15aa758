//! Batches of items of many sizes: limits on what they cost and are padded to, and windows that go by
//! weight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::bounded;
use gangline::error::BuildError;
use gangline::error::Measure;
use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Batch, Builder, Error, Hook, Order, Runner};
use proptest::prelude::*;

use crate::echo::{echo, echo_panicking_at};
use crate::hooks::{Hooks, both_orders};
use crate::support::{Counter, Gate, no_hang};

both_orders! {
    batches_keep_below_a_cost,
    batches_keep_below_a_padded_size,
    a_batch_of_like_sizes_goes_when_the_next_would_cost_too_much,
    a_fixed_batch_of_many_sizes_and_a_full_window_do_not_wait_for_each_other,
    an_item_above_the_limit_fails_before_any_hook,
    a_measure_that_panics_fails_its_item,
    batches_that_a_full_window_completes_are_worked_on_at_the_same_time,
    items_that_are_out_keep_below_their_bound,
    an_item_that_is_larger_than_the_window_goes_alone,
    a_stream_keeps_below_its_bound,
    a_finish_gives_out_what_waits_for_room,
    a_cancel_ends_a_run_that_waits_for_room,
    a_failure_while_an_item_waits_for_room_is_accounted,
    what_comes_before_a_panic_is_still_worked_on,
    what_comes_before_a_panic_is_left_to_producers_that_have_a_state,
}

fn builder<R: Runner + 'static>(runner: R, order: Order) -> Builder<R, RuntimeOrder> {
    AnyOrderRunner::builder(runner).order(order).devices(2)
}

/// Sizes from 1 to 100, in no order.
fn sizes(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|i| 1 + i * 37 % 100)
}

fn padded(batch: &[u64]) -> u64 {
    batch.len() as u64 * batch.iter().max().unwrap()
}

#[track_caller]
fn is_input(order: Order, mut outputs: Vec<u64>, count: u64) {
    let mut expected: Vec<_> = sizes(count).collect();
    if order == Order::Completion {
        outputs.sort_unstable();
        expected.sort_unstable();
    }
    assert_eq!(outputs, expected);
}

fn batches_keep_below_a_cost(order: Order) {
    for batch in [Batch::of(8), Batch::up_to(8), Batch::of(8).within(Duration::from_micros(50))] {
        let echo = echo();
        let calls = echo.calls();
        let mut pool =
            builder(echo, order).batch(batch).max_batch_cost(150, |&x| x).build().unwrap();
        is_input(order, pool.run(sizes(500)).unwrap(), 500);
        let calls = calls.lock().unwrap();
        assert!(calls.iter().all(|call| call.len() <= 8 && call.iter().sum::<u64>() <= 150));
    }
}

#[test]
fn a_fixed_batch_takes_as_much_as_the_cost_allows() {
    let echo = echo();
    let calls = echo.calls();
    let builder = AnyOrderRunner::builder(echo).devices(1).batch(Batch::of(4));
    let mut pool = builder.max_batch_cost(10usize, |&x| x as usize).build().unwrap();
    pool.run([3, 4, 3, 9, 1, 1, 1, 1, 2]).unwrap();
    assert_eq!(*calls.lock().unwrap(), [vec![3, 4, 3], vec![9, 1], vec![1, 1, 1, 2]]);
}

fn batches_keep_below_a_padded_size(order: Order) {
    for batch in [Batch::of(8), Batch::up_to(8), Batch::of(8).within(Duration::from_micros(50))] {
        let echo = echo();
        let calls = echo.calls();
        let mut pool =
            builder(echo, order).batch(batch).max_padded_size(300, |&x| x).build().unwrap();
        is_input(order, pool.run(sizes(500)).unwrap(), 500);
        let calls = calls.lock().unwrap();
        assert!(calls.iter().all(|call| call.len() <= 8 && padded(call) <= 300));
        let unlike = calls.iter().find(|call| {
            let (least, most) = (call.iter().min().unwrap(), call.iter().max().unwrap());
            *most > 2 * *least
        });
        assert_eq!(unlike, None);
    }
}

/// In a source that pauses until they were worked on.
fn a_batch_of_like_sizes_goes_when_the_next_would_cost_too_much(order: Order) {
    let worked = Arc::new(Counter::new());
    let working = worked.clone();
    let hooks = Hooks::new().work(move |_, x| {
        working.add(1);
        Ok(x)
    });
    let builder = builder(hooks, order).batch(Batch::of(8)).window(100);
    let mut pool =
        builder.max_batch_cost(10, |_| 3u64).max_padded_size(1_000, |_| 1u64).build().unwrap();
    let source = (0..5).inspect(|&x| {
        if x == 4 {
            worked.reach(3);
        }
    });
    assert_eq!(crate::hooks::sorted(pool.run(source).unwrap()), [0, 1, 2, 3, 4]);
}

#[test]
fn like_sizes_save_padding() {
    let echo = echo();
    let calls = echo.calls();
    let builder = AnyOrderRunner::builder(echo).devices(1).batch(Batch::of(16));
    let mut pool = builder.max_padded_size(1_000_000, |&x| x).build().unwrap();
    is_input(Order::Input, pool.run(sizes(2_000)).unwrap(), 2_000);
    let calls = calls.lock().unwrap();
    let real: u64 = calls.iter().flatten().sum();
    let with_padding: u64 = calls.iter().map(|call| padded(call)).sum();
    assert!(10 * real >= 8 * with_padding, "{real} of {with_padding} are no padding");
}

fn a_fixed_batch_of_many_sizes_and_a_full_window_do_not_wait_for_each_other(order: Order) {
    let echo = echo();
    let builder = builder(echo, order).batch(Batch::of(8)).window(8);
    let mut pool = builder.max_padded_size(1_000, |&x| x).build().unwrap();
    is_input(order, pool.run(sizes(300)).unwrap(), 300);
}

fn batches_that_a_full_window_completes_are_worked_on_at_the_same_time(order: Order) {
    const PRODUCERS: u64 = 6;
    let working = Arc::new(Counter::new());
    let entering = working.clone();
    // Each waits for as many as there are kinds of sizes: for those of its round.
    let hooks = Hooks::new().work(move |_, x| {
        let before = entering.add(1) - 1;
        entering.reach((before / PRODUCERS + 1) * PRODUCERS);
        Ok(x)
    });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(PRODUCERS as usize);
    let builder = builder.batch(Batch::of(PRODUCERS as usize)).window(PRODUCERS as usize);
    let mut pool =
        builder.max_padded_size(1_000_000, |&x| 10_u64.pow(x as u32 % 6)).build().unwrap();
    let input: Vec<_> = (0..50 * PRODUCERS).collect();
    assert_eq!(crate::hooks::sorted(pool.run(input.clone()).unwrap()), input);
}

fn an_item_above_the_limit_fails_before_any_hook(order: Order) {
    for measure in [Measure::Cost, Measure::Padded] {
        let echo = echo();
        let calls = echo.calls();
        let builder = builder(echo, order).batch(Batch::of(4));
        let mut pool = match measure {
            Measure::Cost => builder.max_batch_cost(50, |&x| x),
            _ => builder.max_padded_size(50, |&x| x),
        }
        .build()
        .unwrap();
        let error = pool.run([1, 2, 3, 51, 4]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("item 3 has a {measure} of 51; a batch may have 50 at most")
        );
        assert_eq!((error.item(), error.hook()), (Some(3), None));
        assert!(!calls.lock().unwrap().iter().flatten().any(|&x| x == 51));
        let account = pool.account();
        assert_eq!((account.failed, account.unread), (1, Some(1)));
        assert_eq!(account.ok + account.cancelled, 3);
        assert!(order == Order::Completion || account.ok == 3);
        assert_eq!(pool.run([5]).unwrap(), [5], "and the next run is not concerned");
    }
}

fn a_measure_that_panics_fails_its_item(order: Order) {
    let measure = |&x: &u64| match x {
        2 => panic!("no scales"),
        x => x,
    };
    for which in [Measure::Cost, Measure::Padded, Measure::Memory] {
        let echo = echo();
        let builder = builder(echo, order).batch(Batch::up_to(4));
        let mut pool = match which {
            Measure::Cost => builder.max_batch_cost(50, measure),
            Measure::Padded => builder.max_padded_size(50, measure),
            _ => builder.window_memory(50, measure, |_| 0),
        }
        .build()
        .unwrap();
        let error = pool.run([0, 1, 2, 3]).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            format!("measuring the {which} of item 2 panicked: no scales")
        );
        assert!(error.is_panic() && !error.is_input());
        assert_eq!((error.item(), pool.account().failed), (Some(2), 1));
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let builder = || AnyOrderRunner::builder(echo()).devices(1);
    let error = builder().max_batch_cost(5u64, |&x| x).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "max_batch_cost needs a rule for batches; call `batch` too, such as `batch(Batch::up_to(32))`"
    );
    assert!(matches!(error, Error::Build(BuildError::NoBatch { measure: Measure::Cost, .. })));
    let error = builder().batch(Batch::of(4)).max_padded_size(0u32, |_| 1).build().unwrap_err();
    assert_eq!(error.to_string(), "max_padded_size must be at least 1, got 0");
    let error = builder().window_memory(0u64, |&x| x, |_| 0).build().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::Limit { measure: Measure::Memory, .. })));
}

/// Numbers that weigh what they are, in a window of `most`, with a consumer that starts when as many were
/// worked on as fit. What was pulled and not consumed is noted whenever the source is asked for more.
struct Weighed {
    pulled: AtomicU64,
    consumed: AtomicU64,
    /// The most that was out when an item more was asked for.
    most_out: AtomicU64,
    worked: Counter,
}

impl Weighed {
    fn hooks(self: &Arc<Self>, fit: u64) -> Hooks {
        let (working, consuming) = (self.clone(), self.clone());
        let hooks = Hooks::new().work(move |_, x| {
            working.worked.add(1);
            Ok(x)
        });
        hooks.consume(move |_, x| {
            consuming.worked.reach(fit);
            consuming.consumed.fetch_add(x, SeqCst);
            Ok(())
        })
    }

    fn source(self: &Arc<Self>, items: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        items.inspect(|&x| {
            let out = self.pulled.load(SeqCst) - self.consumed.load(SeqCst);
            self.most_out.fetch_max(out, SeqCst);
            self.pulled.fetch_add(x, SeqCst);
        })
    }

    fn new() -> Arc<Self> {
        Arc::new(Weighed {
            pulled: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            most_out: AtomicU64::new(0),
            worked: Counter::new(),
        })
    }
}

fn items_that_are_out_keep_below_their_bound(order: Order) {
    let weighed = Weighed::new();
    // 1 + 38 + 75 + 12 = 126 are out when the fifth is pulled, which is 49, and the next is 86.
    let builder = builder(weighed.hooks(5), order).window(1_000);
    let mut pool = builder.window_memory(250u64, |&x| x, |&x| x).build().unwrap();
    is_input(order, pool.run(weighed.source(sizes(2_000))).unwrap(), 2_000);
    let most = weighed.most_out.load(SeqCst);
    assert!((126..=250).contains(&most), "{most}");
}

fn an_item_that_is_larger_than_the_window_goes_alone(order: Order) {
    let weighed = Weighed::new();
    let builder = builder(weighed.hooks(1), order).window(1_000);
    let mut pool = builder.window_memory(100u64, |&x| x, |&x| x).build().unwrap();
    let input = [30, 500, 40, 600, 700, 0, 0, 1];
    let outputs = pool.run(weighed.source(input.into_iter())).unwrap();
    assert_eq!(outputs, input, "each heavy one is alone, so even completion is in order");
    let most = weighed.most_out.load(SeqCst);
    assert!(
        most <= 700,
        "never two, and the last may be consumed before more is asked for: {most}"
    );
}

fn a_stream_keeps_below_its_bound(order: Order) {
    let weighed = Weighed::new();
    let builder = builder(Hooks::new(), order).window(1_000);
    let mut pool = builder.window_memory(250u64, |&x| x, |&x| x).build().unwrap();
    let mut outputs = Vec::new();
    for output in pool.outputs(weighed.source(sizes(500)).chain([900, 7])) {
        let output = output.unwrap();
        // It is in flight until the next is asked for, so nothing is pulled while it is consumed.
        weighed.consumed.fetch_add(output, SeqCst);
        outputs.push(output);
    }
    assert_eq!(outputs.iter().sum::<u64>(), sizes(500).sum::<u64>() + 907);
    assert!(weighed.most_out.load(SeqCst) <= 250);
    assert_eq!(pool.account().ok, 502);
}

/// A pool with room for 100 and a consumer that waits for the gate. The source signals when it has yielded
/// `[30, 20, 60]`: the last item has to wait for room.
fn full_window(
    order: Order,
) -> (AnyOrderRunner<Hooks>, Arc<Gate>, impl Iterator<Item = u64>, Arc<Counter>) {
    let (gate, weighing) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passing, weighed) = (gate.clone(), weighing.clone());
    let hooks = Hooks::new().consume(move |_, _| {
        passing.pass();
        Ok(())
    });
    let weigh = move |&x: &u64| {
        weighed.add(1);
        x
    };
    let pool = builder(hooks, order).window_memory(100, weigh, |&x| x).build().unwrap();
    (pool, gate, [30, 20, 60, 1].into_iter(), weighing)
}

fn a_finish_gives_out_what_waits_for_room(order: Order) {
    let (mut pool, gate, source, weighing) = full_window(order);
    let token = pool.cancel_token();
    let finisher = std::thread::spawn(move || {
        weighing.reach(3);
        token.drain();
        gate.open();
    });
    assert_eq!(crate::hooks::sorted(pool.run(source).unwrap()), [20, 30, 60], "what was pulled");
    finisher.join().unwrap();
    assert_eq!((pool.account().ok, pool.account().unread), (3, Some(1)));
}

fn a_cancel_ends_a_run_that_waits_for_room(order: Order) {
    let (mut pool, gate, source, weighing) = full_window(order);
    let token = pool.cancel_token();
    let canceller = std::thread::spawn(move || {
        weighing.reach(3);
        token.cancel();
        gate.open();
    });
    assert!(pool.run(source).unwrap_err().is_cancelled());
    canceller.join().unwrap();
    let account = pool.account();
    assert_eq!(account.ok + account.cancelled, 3, "{account:?}");
    assert_eq!(account.unread, Some(1));
}

fn a_failure_while_an_item_waits_for_room_is_accounted(order: Order) {
    let (weighed, failing) = (Arc::new(Counter::new()), Arc::new(AtomicUsize::new(0)));
    let (weighing, failed) = (weighed.clone(), failing.clone());
    let hooks = Hooks::new().consume(move |_, _| {
        weighing.reach(3);
        failed.fetch_add(1, SeqCst);
        Err("full up".into())
    });
    let weigh = move |&x: &u64| {
        weighed.add(1);
        x
    };
    let mut pool = builder(hooks, order).window_memory(100, weigh, |&x| x).build().unwrap();
    let error = pool.run([30, 20, 60, 1]).unwrap_err();
    assert_eq!(error.source_text(), "full up");
    let account = pool.account();
    assert_eq!((account.ok, account.failed, account.cancelled), (0, 1, 2), "{account:?}");
    assert_eq!((account.unread, failing.load(SeqCst)), (Some(1), 1));
}

trait SourceText {
    fn source_text(&self) -> String;
}
impl SourceText for Error {
    fn source_text(&self) -> String {
        std::error::Error::source(self).unwrap().to_string()
    }
}

/// Like sizes go together, so a batch may reach over items that still wait when it fails; its producer,
/// the only one, has lost its state, and they are wanted.
fn what_comes_before_a_panic_is_still_worked_on(order: Order) {
    let echo = echo_panicking_at(1_001);
    let calls = echo.calls();
    let (sender, receiver) = bounded(8);
    [1_000, 10, 1_001, 11].into_iter().for_each(|x| sender.send(x).unwrap());
    let builder = AnyOrderRunner::builder(echo).order(order).devices(1).window(4);
    let mut pool = builder.batch(Batch::of(2)).max_padded_size(10_000, |&x| x).build().unwrap();
    drop(sender);
    let left = receiver.clone();
    let error = pool.run(receiver).unwrap_err();
    assert_eq!(error.item(), Some(2), "{error:#}");
    let account = pool.account();
    assert!(
        order == Order::Completion || account.ok == 2,
        "{account:?} {:?}",
        calls.lock().unwrap()
    );
    let pulled = account.ok + account.failed + account.cancelled;
    assert_eq!(pulled + left.len() as u64, 4, "the last may come too late to be pulled");
    assert_eq!(pool.run([1, 2]).unwrap(), [1, 2]);
}

/// One of two producers loses its state, and fails to rebuild it.
fn what_comes_before_a_panic_is_left_to_producers_that_have_a_state(order: Order) {
    let inits = Arc::new(Counter::new());
    let making = inits.clone();
    let hooks = Hooks::new().init(move |_| match making.add(1) {
        1 | 2 => Ok(()),
        _ => Err("no more".into()),
    });
    let hooks = hooks.work(|_, x| match x {
        11 => panic!("bad"),
        x => Ok(x),
    });
    let builder = builder(hooks, order).batch(Batch::of(2)).window(8);
    let mut pool = builder.max_padded_size(10_000, |&x| x).build().unwrap();
    // The first is of another size than the others, which make a batch.
    let source = [1_000, 10, 11, 12].into_iter().inspect(|&x| {
        if x == 12 {
            inits.reach(3);
        }
    });
    let error = pool.run(source).unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerWorkBatch), "{error:#}");
    assert_eq!(error.items(), [1, 2]);
    assert!(order == Order::Completion || pool.account().ok == 1, "{:?}", pool.account());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn outputs_equal_the_sequential_ones_whatever_the_limits(
        input in proptest::collection::vec(1u64..120, 0..150),
        most in 1usize..12,
        rule in 0..3,
        cost in proptest::option::of(60u64..300),
        size in proptest::option::of(60u64..300),
        weight in proptest::option::of(1u64..400),
        devices in 1usize..4,
        window in proptest::option::of(0usize..40),
        bad in proptest::option::of(0usize..150),
        panics in any::<bool>(),
    ) {
        let batch = match rule {
            0 => Batch::of(most),
            1 => Batch::up_to(most),
            _ => Batch::of(most).within(Duration::from_micros(30)),
        };
        let bad = bad.filter(|&bad| bad < input.len());
        let bad_value = bad.map(|bad| 1_000_000 + bad as u64);
        // Too large for a batch is another way to fail.
        let is_small = |&x: &u64| cost.is_none_or(|most| x <= most) && size.is_none_or(|most| x <= most);
        let first_large = input.iter().position(|x| !is_small(x));
        let mut values = input.clone();
        if let (Some(bad), Some(value)) = (bad, bad_value) {
            values[bad] = value;
        }
        let of = move |x: u64| if x >= 1_000_000 { 50 } else { x };
        let first_large = first_large.filter(|&large| Some(large) != bad);
        let hooks = Hooks::new().work(move |_, x| match Some(x) == bad_value {
            true if panics => panic!("bad"),
            true => Err("bad".into()),
            false => Ok(x),
        });
        let mut builder = AnyOrderRunner::builder(hooks).devices(devices).batch(batch);
        if let Some(cost) = cost {
            builder = builder.max_batch_cost(cost, move |&x| of(x));
        }
        if let Some(size) = size {
            builder = builder.max_padded_size(size, move |&x| of(x));
        }
        if let Some(weight) = weight {
            builder = builder.window_memory(weight, move |&x| of(x), |_| 0);
        }
        if let Some(extra) = window {
            builder = builder.window(most + extra);
        }
        let mut pool = builder.build().unwrap();
        let given = values.clone();
        let (result, account) = no_hang(move || (pool.run(given), pool.account()));
        let fails_at = [bad, first_large].into_iter().flatten().min();
        match fails_at {
            None => {
                prop_assert_eq!(result.unwrap(), values);
                prop_assert_eq!(account.ok, input.len() as u64);
            }
            Some(at) => {
                let error = result.unwrap_err();
                prop_assert_eq!(error.item(), Some(at as u64), "{:#}", error);
                prop_assert_eq!((account.ok, account.failed), (at as u64, 1));
            }
        }
        if let Some(unread) = account.unread {
            let all = account.ok + account.failed + account.already_done + account.cancelled + unread;
            prop_assert_eq!(all, input.len() as u64);
        }
    }
}
