//! Outputs as a stream.

use std::sync::Arc;
use std::task::Poll;

use futures_lite::{StreamExt, stream};
use gangline::{AnyOrderRunner, Batch, CancelToken, Error, OnError, Order};

use crate::hooks::{Gauge, Hooks, both_orders, sorted};
use crate::runtimes::{block_on, pausing, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    items_in_flight_never_exceed_the_window,
    a_pending_input_delays_no_result,
    the_window_is_filled_before_a_result,
    a_failed_item_is_the_last_error,
    a_skipped_item_is_an_error_among_others,
    a_stream_that_panics_is_the_last_error,
    a_cancel_wakes_the_task,
    a_drain_ends_a_pending_stream,
    a_dropped_stream_waits_for_nothing,
    batches_form_in_a_narrow_window,
    a_closed_pool_is_the_only_error,
);

fn items_in_flight_never_exceed_the_window(order: Order) {
    let gauge = Gauge::default();
    let reading = gauge.clone();
    let mut pool = Hooks::new().windowed(order, 2, 5);
    let mut outputs = pool.outputs_stream(stream::iter((0..500).inspect(|_| reading.up())));
    block_on(async {
        while outputs.next().await.transpose().unwrap().is_some() {
            gauge.down();
        }
    });
    assert!(gauge.most() <= 5, "{}", gauge.most());
}

fn a_pending_input_delays_no_result(order: Order) {
    let (sender, items) = std::sync::mpsc::channel();
    let mut pool = Hooks::new().pool(order, 1);
    let items =
        stream::poll_fn(move |_| items.try_recv().map_or(Poll::Pending, |x| Poll::Ready(Some(x))));
    let mut outputs = pool.outputs_stream(items);
    for x in 0..10 {
        sender.send(x).unwrap();
        assert_eq!(block_on(outputs.next()).unwrap().unwrap(), x);
    }
}

fn the_window_is_filled_before_a_result(order: Order) {
    let (gate, pulled) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passed, opens, pulls) = (gate.clone(), gate, pulled.clone());
    let hooks = Hooks::new().work(move |_, x| {
        passed.pass();
        Ok(x)
    });
    let mut pool = hooks.windowed(order, 1, 4);
    let items = (0..100).inspect(move |&x| {
        pulls.add(1);
        if x == 3 {
            opens.open();
        }
    });
    let mut outputs = pool.outputs_stream(stream::iter(items));
    for taken in 0..10 {
        block_on(outputs.next()).unwrap().unwrap();
        assert_eq!(pulled.get(), 4 + taken);
    }
}

fn failing(order: Order, on_error: OnError) -> AnyOrderRunner<Hooks> {
    let hooks = Hooks::new().work(|_, x| if x == 4 { Err("four".into()) } else { Ok(x) });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(on_error);
    builder.build().unwrap()
}

fn a_failed_item_is_the_last_error(order: Order) {
    let mut pool = failing(order, OnError::Stop);
    let results: Vec<_> = block_on(pool.outputs_stream(stream::iter(0..)).collect());
    assert_eq!(results.last().unwrap().as_ref().unwrap_err().item(), Some(4));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(pool.account().failed, 1);
}

fn a_skipped_item_is_an_error_among_others(order: Order) {
    let mut pool = failing(order, OnError::Skip);
    let results: Vec<_> = block_on(pool.outputs_stream(stream::iter(0..10)).collect());
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 9);
    assert_eq!((pool.account().ok, pool.account().failed), (9, 1));
}

fn a_stream_that_panics_is_the_last_error(order: Order) {
    let mut pool = Hooks::new().pool(order, 1);
    let items = (0..9_u64).inspect(|&x| assert!(x < 3, "the stream breaks"));
    let results: Vec<_> = block_on(pool.outputs_stream(stream::iter(items)).collect());
    let error = results.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, Error::InputPanicked { item: 3, .. }), "{error:?}");
}

fn a_cancel_wakes_the_task(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut pool = builder.cancel_token(token.clone()).build().unwrap();
    let mut outputs = pool.outputs_stream(stream::pending());
    let result = std::thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        block_on(outputs.next())
    });
    assert!(result.unwrap().unwrap_err().is_cancelled());
    assert!(block_on(outputs.next()).is_none());
}

fn a_drain_ends_a_pending_stream(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut pool = builder.cancel_token(token.clone()).build().unwrap();
    let mut outputs = pool.outputs_stream(stream::pending());
    assert!(poll_once(outputs.next()).is_pending());
    std::thread::scope(|scope| {
        scope.spawn(|| token.drain());
        assert!(block_on(outputs.next()).is_none());
    });
}

fn a_dropped_stream_waits_for_nothing(order: Order) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passed, begins) = (gate.clone(), begun.clone());
    let hooks = Hooks::new().work(move |_, x| {
        if x == 1 {
            begins.add(1);
            passed.pass();
        }
        Ok(x)
    });
    let mut pool = hooks.windowed(order, 1, 4);
    let mut outputs = pool.outputs_stream(stream::iter(0..100));
    assert_eq!(block_on(outputs.next()).unwrap().unwrap(), 0);
    begun.reach(1);
    drop(outputs);
    assert_eq!(pool.account().ok, 1);
    let mut next = pool.outputs_stream(stream::iter(5..8));
    assert!(poll_once(next.next()).is_pending(), "the hook of the earlier run is running");
    gate.open();
    let results: Vec<u64> = block_on(next.map(Result::unwrap).collect());
    assert_eq!(results, [5, 6, 7]);
}

fn batches_form_in_a_narrow_window(order: Order) {
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
    let mut pool = builder.batch(Batch::of(8)).window(8).build().unwrap();
    let outputs = pool.outputs_stream(pausing(50)).map(Result::unwrap);
    assert_eq!(sorted(block_on(outputs.collect())), (0..50).collect::<Vec<_>>());
}

fn a_closed_pool_is_the_only_error(order: Order) {
    let mut pool = Hooks::new().pool(order, 1);
    pool.close().unwrap();
    let results: Vec<_> = block_on(pool.outputs_stream(stream::iter(0..9)).collect());
    assert!(results.len() == 1 && results[0].as_ref().unwrap_err().is_closed());
}
