//! Runs with a stream as input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use futures_lite::{StreamExt, stream};
use gangline::{Account, AnyOrderRunner, Batch, CancelToken, Error, Journal, OnError, Order};

use crate::hooks::{Gauge, Hooks, both_orders, sorted};
use crate::runtimes::{block_on, pausing, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    nothing_happens_before_the_first_poll,
    items_in_flight_never_exceed_the_window,
    a_stream_is_not_polled_behind_its_end,
    a_failed_item_is_the_error,
    a_failed_input_is_the_error,
    a_stream_that_panics_is_the_error,
    a_consumer_that_cannot_begin_is_the_error,
    a_consumer_that_stops_ends_the_run,
    a_cancel_wakes_the_task,
    a_drain_ends_a_pending_stream,
    a_state_that_was_lost_is_rebuilt,
    a_dropped_run_waits_for_nothing,
    a_leaked_run_is_ended_by_the_next,
    the_next_run_waits_without_blocking,
    a_run_waits_for_leaked_outputs_of_a_pipeline,
    batches_form_in_a_narrow_window,
    everything_is_accounted_for,
    an_item_that_comes_as_the_run_is_drained_is_not_lost,
    the_account_of_a_dropped_run_counts_what_was_consumed,
    an_item_that_comes_as_the_run_is_cancelled_is_accounted_for,
    a_run_timeout_abandons_the_consumer,
);

fn nothing_happens_before_the_first_poll(order: Order) {
    let begun = Arc::new(AtomicBool::new(false));
    let begins = begun.clone();
    let hooks = Hooks::new().consumer_init(move |_| {
        begins.store(true, Ordering::Relaxed);
        Ok(())
    });
    let mut pool = hooks.pool(order, 1);
    drop(pool.run_stream(stream::iter(0..9)));
    pool.close().unwrap();
    assert!(!begun.load(Ordering::Relaxed));
    assert!(block_on(pool.run_stream(stream::iter(0..9))).unwrap_err().is_closed());
}

fn items_in_flight_never_exceed_the_window(order: Order) {
    let gauge = Gauge::default();
    let (reading, consumed) = (gauge.clone(), gauge.clone());
    let hooks = Hooks::new().consume(move |_, _| {
        consumed.down();
        Ok(())
    });
    let mut pool = hooks.windowed(order, 2, 5);
    let items = stream::iter((0..500).inspect(|_| reading.up()));
    assert_eq!(block_on(pool.run_stream(items)).unwrap().len(), 500);
    assert!(gauge.most() <= 5, "{}", gauge.most());
}

fn a_stream_is_not_polled_behind_its_end(order: Order) {
    let (mut pool, mut polls) = (Hooks::new().windowed(order, 1, 3), 0);
    let items = stream::poll_fn(|_| {
        polls += 1;
        Poll::Ready((polls <= 10).then_some(polls))
    });
    assert_eq!(block_on(pool.run_stream(items)).unwrap().len(), 10);
    assert_eq!(polls, 11);
}

fn failing(order: Order) -> AnyOrderRunner<Hooks> {
    let hooks = Hooks::new().work(|_, x| if x == 4 { Err("four".into()) } else { Ok(x) });
    hooks.pool(order, 2)
}

fn a_failed_item_is_the_error(order: Order) {
    let mut pool = failing(order);
    let error = block_on(pool.run_stream(stream::iter(0..))).unwrap_err();
    assert_eq!(error.item(), Some(4));
    assert_eq!(pool.account().failed, 1);
    assert_eq!(block_on(pool.run_stream(stream::iter(0..4))).unwrap().len(), 4);
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut pool = builder.on_error(OnError::Skip).build().unwrap();
    let items = ["1", "x", "3"].map(str::parse::<u64>);
    assert_eq!(sorted(block_on(pool.try_run_stream(stream::iter(items))).unwrap()), [1, 3]);
    assert_eq!((pool.failures().len(), pool.account().failed), (1, 1));
}

fn a_failed_input_is_the_error(order: Order) {
    let mut pool = Hooks::new().pool(order, 1);
    let items = ["1", "x", "3"].map(str::parse::<u64>);
    assert!(block_on(pool.try_run_stream(stream::iter(items))).unwrap_err().is_input());
}

fn a_stream_that_panics_is_the_error(order: Order) {
    let mut pool = Hooks::new().pool(order, 1);
    let items = (0..9_u64).inspect(|&x| assert!(x < 3, "the stream breaks"));
    let error = block_on(pool.run_stream(stream::iter(items))).unwrap_err();
    assert!(matches!(error, Error::InputPanicked { item: 3, .. }), "{error:?}");
}

fn a_consumer_that_cannot_begin_is_the_error(order: Order) {
    let mut pool = Hooks::new().consumer_init(|_| Err("no".into())).pool(order, 1);
    let polls = AtomicU64::new(0);
    let items = stream::iter((0..9).inspect(|_| _ = polls.fetch_add(1, Ordering::Relaxed)));
    assert!(block_on(pool.run_stream(items)).is_err());
    assert_eq!(polls.load(Ordering::Relaxed), 0);
}

fn a_consumer_that_stops_ends_the_run(order: Order) {
    let hooks = Hooks::new().consume(|cx, _| {
        cx.stop();
        Ok(())
    });
    let mut pool = hooks.pool(order, 1);
    // The stream is pending when the consumer stops.
    let mut items = Some(7);
    let items =
        stream::poll_fn(move |_| items.take().map_or(Poll::Pending, |x| Poll::Ready(Some(x))));
    assert_eq!(block_on(pool.run_stream(items)).unwrap(), [7]);
}

fn a_cancel_wakes_the_task(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut pool = builder.cancel_token(token.clone()).build().unwrap();
    let mut run = pool.run_stream(stream::pending());
    let waiting = std::thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        block_on(&mut run)
    });
    assert!(waiting.unwrap_err().is_cancelled());
}

fn a_drain_ends_a_pending_stream(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut pool = builder.cancel_token(token.clone()).build().unwrap();
    let mut items = Some(7);
    let items = stream::poll_fn(move |_| match items.take() {
        Some(x) => Poll::Ready(Some(x)),
        None => {
            let token = token.clone();
            std::thread::spawn(move || token.drain());
            Poll::Pending
        }
    });
    assert_eq!(block_on(pool.run_stream(items)).unwrap(), [7]);
}

fn a_state_that_was_lost_is_rebuilt(order: Order) {
    let inits = Arc::new(AtomicU64::new(0));
    let begins = inits.clone();
    let hooks = Hooks::new()
        .init(move |_| {
            begins.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .work(|_, x| if x == 9 { panic!("nine") } else { Ok(x) });
    let mut pool = hooks.pool(order, 1);
    assert!(block_on(pool.run_stream(stream::iter([9]))).unwrap_err().is_panic());
    assert_eq!(block_on(pool.run_stream(stream::iter([1, 2]))).unwrap(), [1, 2]);
    assert_eq!(inits.load(Ordering::Relaxed), 2);
}

/// A pool with hooks that wait for a gate at item 0; the gate; and the number of hooks that have begun.
fn stuck(order: Order) -> (AnyOrderRunner<Hooks>, Arc<Gate>, Arc<Counter>) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passed, begins) = (gate.clone(), begun.clone());
    let hooks = Hooks::new().work(move |_, x| {
        begins.add(1);
        if x == 0 {
            passed.pass();
        }
        Ok(x)
    });
    (hooks.windowed(order, 1, 4), gate, begun)
}

/// Polls until the hook of item 0 has begun.
fn begin(run: &mut (impl Future + Unpin), begun: &Counter) {
    while begun.get() == 0 {
        assert!(poll_once(&mut *run).is_pending());
    }
}

fn a_dropped_run_waits_for_nothing(order: Order) {
    let (mut pool, gate, begun) = stuck(order);
    let mut run = pool.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    drop(run);
    assert!(pool.account().cancelled <= 4);
    gate.open();
    assert_eq!(pool.run(1..4).unwrap(), [1, 2, 3]);
    assert_eq!(begun.get(), 4, "items of the dropped run that no hook had are dropped");
}

fn a_leaked_run_is_ended_by_the_next(order: Order) {
    let (mut pool, gate, begun) = stuck(order);
    let mut run = pool.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    std::mem::forget(run);
    gate.open();
    assert_eq!(pool.run(1..4).unwrap(), [1, 2, 3]);
    pool.close().unwrap();
}

fn the_next_run_waits_without_blocking(order: Order) {
    let (mut pool, gate, begun) = stuck(order);
    let mut run = pool.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    drop(run);
    let mut next = pool.run_stream(stream::iter(5..8));
    assert!(poll_once(&mut next).is_pending(), "the hook of the earlier run is running");
    gate.open();
    assert_eq!(block_on(next).unwrap(), [5, 6, 7]);
}

fn a_run_waits_for_leaked_outputs_of_a_pipeline(order: Order) {
    let (mut first, mut second) = (Hooks::new().pool(order, 2), Hooks::new().pool(order, 1));
    let mut pipeline = first.then(&mut second);
    let mut outputs = pipeline.outputs(0..100);
    outputs.next().unwrap().unwrap();
    std::mem::forget(outputs);
    drop(pipeline);
    assert_eq!(sorted(block_on(first.run_stream(stream::iter(5..8))).unwrap()), [5, 6, 7]);
    assert_eq!(second.run([1]).unwrap(), [1]);
}

fn batches_form_in_a_narrow_window(order: Order) {
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
    let mut pool = builder.batch(Batch::of(8)).window(8).build().unwrap();
    assert_eq!(
        sorted(block_on(pool.run_stream(pausing(50))).unwrap()),
        (0..50).collect::<Vec<_>>()
    );
}

fn everything_is_accounted_for(order: Order) {
    let mut pool = failing(order);
    assert!(block_on(pool.run_stream(stream::iter(0..100))).is_err());
    let account = pool.account();
    let pulled = account.ok + account.failed + account.cancelled;
    assert_eq!(pulled + account.unread.unwrap(), 100);
    assert_eq!(pool.report().account, account);
}

fn a_run_timeout_abandons_the_consumer(order: Order) {
    let gate = Arc::new(Gate::new());
    let passed = gate.clone();
    let hooks = Hooks::new().consume(move |_, _| {
        passed.pass();
        Ok(())
    });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1);
    let mut pool = builder.run_timeout(std::time::Duration::from_millis(50)).build().unwrap();
    let error = block_on(pool.run_stream(stream::iter(0..9))).unwrap_err();
    assert!(matches!(error, Error::RunTimedOut { .. }), "{error:?}");
    gate.open();
}

#[test]
fn a_journal_resumes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let run = |items: u64| {
        let builder = AnyOrderRunner::builder(Hooks::new()).devices(1);
        let mut pool = builder
            .journal(if items == 5 { Journal::at(&path) } else { Journal::at(&path).resume() })
            .build()
            .unwrap();
        let result = block_on(pool.run_stream(stream::iter(0..items))).map_err(|e| e.to_string());
        (result, pool.account().already_done)
    };
    assert_eq!(run(5), (Ok(vec![0, 1, 2, 3, 4]), 0));
    assert_eq!(run(7), (Ok(vec![5, 6]), 5));
}

/// Items from 0 on. At the third, `act` is called before the stream returns it.
fn acting(act: impl Fn()) -> impl stream::Stream<Item = u64> {
    stream::iter((0..).inspect(move |&x| {
        if x == 2 {
            act();
        }
    }))
}

fn with_token(order: Order) -> (AnyOrderRunner<Hooks>, CancelToken) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    (builder.cancel_token(token.clone()).build().unwrap(), token)
}

fn an_item_that_comes_as_the_run_is_drained_is_not_lost(order: Order) {
    let (mut pool, token) = with_token(order);
    let mut second = Hooks::new().pool(order, 1);
    let items = || acting(|| token.drain());
    assert_eq!(sorted(block_on(pool.run_stream(items())).unwrap()), [0, 1, 2]);
    let outputs = pool.outputs_stream(items()).map(Result::unwrap);
    assert_eq!(sorted(block_on(outputs.collect())), [0, 1, 2]);
    assert_eq!(pool.account().ok, 3);
    let mut both = pool.then(&mut second);
    assert_eq!(sorted(block_on(both.run_stream(items())).unwrap()), [0, 1, 2]);
    let outputs = both.outputs_stream(items()).map(Result::unwrap);
    assert_eq!(sorted(block_on(outputs.collect())), [0, 1, 2]);
    assert_eq!(both.account().ok, 3);
}

fn pulled(Account { ok, failed, already_done, cancelled, .. }: Account) -> u64 {
    ok + failed + already_done + cancelled
}

fn an_item_that_comes_as_the_run_is_cancelled_is_accounted_for(order: Order) {
    let (mut pool, token) = with_token(order);
    let mut second = Hooks::new().pool(order, 1);
    let items = || acting(|| token.cancel());
    assert!(block_on(pool.run_stream(items())).unwrap_err().is_cancelled());
    assert_eq!(pulled(pool.account()), 3);
    let results: Vec<_> = block_on(pool.outputs_stream(items()).collect());
    assert!(results.last().unwrap().as_ref().unwrap_err().is_cancelled());
    assert_eq!(pulled(pool.account()), 3);
    let mut both = pool.then(&mut second);
    assert!(block_on(both.run_stream(items())).unwrap_err().is_cancelled());
    assert_eq!(pulled(both.account()), 3);
}

fn the_account_of_a_dropped_run_counts_what_was_consumed(order: Order) {
    let consumed = Arc::new(Counter::new());
    let counts = consumed.clone();
    let hooks = || {
        let counts = counts.clone();
        Hooks::new().consume(move |_, x| {
            if x == 9 {
                counts.add(1);
            }
            Ok(())
        })
    };
    // Behind its ten items the stream is pending, and the consumer is done with nine at least.
    let items = || stream::iter(0..10).chain(stream::pending());
    let mut pool = hooks().pool(order, 1);
    let mut run = pool.run_stream(items());
    assert!(poll_once(&mut run).is_pending());
    while consumed.get() < 1 {
        assert!(poll_once(&mut run).is_pending());
    }
    drop(run);
    assert!((9..=10).contains(&pool.account().ok), "{:?}", pool.account());
    assert_eq!(pulled(pool.account()), 10);
    let mut second = hooks().pool(order, 1);
    let mut both = pool.then(&mut second);
    let mut run = both.run_stream(items());
    while consumed.get() < 2 {
        assert!(poll_once(&mut run).is_pending());
    }
    drop(run);
    assert!((9..=10).contains(&both.account().ok), "{:?}", both.account());
    assert_eq!(pulled(both.account()), 10);
}
