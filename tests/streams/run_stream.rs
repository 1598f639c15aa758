//! Runs with a stream as input.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_lite::{StreamExt, stream};
use gangline::{Account, AnyOrderRunner, Error, Journal, Order, Pipeline};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::runtimes::{block_on, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    a_stream_is_not_polled_behind_its_end,
    a_consumer_that_cannot_begin_is_the_error,
    a_consumer_that_stops_ends_the_run,
    a_dropped_run_waits_for_nothing,
    a_run_waits_for_leaked_outputs_of_a_pipeline,
    the_account_of_a_dropped_run_counts_what_was_consumed,
    a_run_timeout_abandons_the_consumer,
);

fn a_stream_is_not_polled_behind_its_end(order: Order) {
    let (mut pool, mut polls) = (Hooks::new().windowed(order, 1, 3), 0);
    let items = stream::poll_fn(|_| {
        polls += 1;
        Poll::Ready((polls <= 10).then_some(polls))
    });
    assert_eq!(block_on(pool.run_stream(items)).unwrap().len(), 10);
    assert_eq!(polls, 11);
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

fn a_run_waits_for_leaked_outputs_of_a_pipeline(order: Order) {
    let (mut first, mut second) = (Hooks::new().pool(order, 2), Hooks::new().pool(order, 1));
    let mut pipeline = Pipeline::new(&mut first).then(&mut second);
    let mut outputs = pipeline.outputs(0..100);
    outputs.next().unwrap().unwrap();
    std::mem::forget(outputs);
    drop(pipeline);
    assert_eq!(sorted(block_on(first.run_stream(stream::iter(5..8))).unwrap()), [5, 6, 7]);
    assert_eq!(second.run([1]).unwrap(), [1]);
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

fn pulled(Account { ok, failed, already_done, cancelled, .. }: Account) -> u64 {
    ok + failed + already_done + cancelled
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
