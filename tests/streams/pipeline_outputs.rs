//! Outputs of a pipeline as a stream.

use std::sync::Arc;
use std::task::Poll;

use futures_lite::{StreamExt, stream};
use gangline::{AnyOrderRunner, CancelToken, Error, Journal, OnError, Order};

use crate::hooks::{Gauge, Hooks, both_orders, sorted};
use crate::runtimes::{block_on, pausing, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    every_output_comes_under_tokio,
    items_in_flight_never_exceed_the_windows,
    a_pending_input_delays_no_output,
    parts_are_gathered,
    nothing_happens_before_the_first_poll,
    a_failure_in_any_stage_is_the_last_error,
    a_skipped_item_is_an_error_among_others,
    a_dropped_stream_counts_the_errors_that_its_caller_has,
    a_failed_input_is_the_last_error,
    a_stream_that_panics_is_the_last_error,
    a_cancel_of_any_stage_wakes_the_task,
    a_drain_ends_a_pending_stream,
    a_dropped_stream_waits_for_nothing,
    a_stream_dropped_at_its_end_leaves_the_stages_usable,
    a_leaked_stream_is_ended_by_the_next,
    a_state_that_was_lost_is_rebuilt,
    the_weights_of_all_stages_are_bounded,
    a_closed_stage_is_the_only_error,
    a_journal_is_refused,
);

fn pools(order: Order) -> [AnyOrderRunner<Hooks>; 3] {
    [2, 1, 2].map(|producers| Hooks::new().work(|_, x| Ok(x + 1)).pool(order, producers))
}

async fn come_through(order: Order) {
    let [mut a, mut b, mut c] = pools(order);
    let mut all = a.then(&mut b).then(&mut c);
    for (items, expected) in [(3000, (3..3003).collect::<Vec<_>>()), (0, vec![])] {
        let outputs = all.outputs_stream(stream::iter(0..items)).map(Result::unwrap);
        assert_eq!(sorted(outputs.collect().await), expected);
        assert_eq!((all.account().ok, all.account().unread), (items, Some(0)));
    }
    let outputs = all.outputs_stream(pausing(200)).map(Result::unwrap);
    assert_eq!(sorted(outputs.collect().await), (3..203).collect::<Vec<_>>());
    assert_eq!(all.report().account, all.account());
    assert_eq!(sorted(all.run(0..3).unwrap()), [3, 4, 5]);
    drop(all);
    assert_eq!((c.account().ok, c.report().account.ok), (3, 3));
}

fn every_output_comes_under_tokio(order: Order) {
    block_on(come_through(order));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { tokio::spawn(come_through(order)).await.unwrap() });
}

fn items_in_flight_never_exceed_the_windows(order: Order) {
    let gauge = Gauge::default();
    let reading = gauge.clone();
    let (mut a, mut b) = (Hooks::new().windowed(order, 2, 3), Hooks::new().windowed(order, 2, 4));
    let mut both = a.then(&mut b);
    let mut outputs = both.outputs_stream(stream::iter((0..500).inspect(|_| reading.up())));
    block_on(async {
        while outputs.next().await.transpose().unwrap().is_some() {
            gauge.down();
        }
    });
    // The last is with the caller, and no longer in flight.
    assert!(gauge.most() <= 8, "{}", gauge.most());
}

fn a_pending_input_delays_no_output(order: Order) {
    let (sender, items) = std::sync::mpsc::channel();
    let items =
        stream::poll_fn(move |_| items.try_recv().map_or(Poll::Pending, |x| Poll::Ready(Some(x))));
    let [mut a, mut b, _] = pools(order);
    let mut both = a.then(&mut b);
    let mut outputs = both.outputs_stream(items);
    for x in 0..10 {
        sender.send(x).unwrap();
        assert_eq!(block_on(outputs.next()).unwrap().unwrap(), x + 2);
    }
}

fn parts_are_gathered(order: Order) {
    let sum = gangline::map(|_| Ok(()), |_, (), (parent, sum): (Arc<u64>, u64)| Ok((*parent, sum)));
    let [mut open, mut infer, _] = pools(order);
    let mut write = AnyOrderRunner::builder(sum).order(order).devices(1).build().unwrap();
    let mut all = open
        .expand(|parent| 0..**parent)
        .then(&mut infer)
        .gather(|_| 0, |sum, _, part| *sum += part)
        .then(&mut write);
    // Each stage adds 1.
    let expected: Vec<_> = (1..51_u64).map(|n| (n, n * (n + 1) / 2)).collect();
    let outputs = all.outputs_stream(pausing(50)).map(Result::unwrap);
    let mut gathered: Vec<_> = block_on(outputs.collect());
    gathered.sort_unstable();
    assert_eq!(gathered, expected);
}

fn nothing_happens_before_the_first_poll(order: Order) {
    let polls = Counter::new();
    let [mut a, mut b, _] = pools(order);
    drop(a.then(&mut b).outputs_stream(stream::iter((0..9).inspect(|_| _ = polls.add(1)))));
    assert_eq!(polls.get(), 0);
}

fn failing(order: Order, on_error: OnError) -> AnyOrderRunner<Hooks> {
    let hooks = Hooks::new().work(|_, x| if x == 4 { Err("four".into()) } else { Ok(x) });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(on_error);
    builder.build().unwrap()
}

fn a_failure_in_any_stage_is_the_last_error(order: Order) {
    for stage in 0..2 {
        let (mut failing, mut sound) = (failing(order, OnError::Stop), Hooks::new().pool(order, 1));
        let mut both = match stage {
            0 => failing.then(&mut sound),
            _ => sound.then(&mut failing),
        };
        let results: Vec<_> = block_on(both.outputs_stream(stream::iter(0..)).collect());
        assert_eq!(results.last().unwrap().as_ref().unwrap_err().item(), Some(4));
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        assert_eq!(both.account().failed, 1);
        let outputs = both.outputs_stream(stream::iter(0..4)).map(Result::unwrap);
        assert_eq!(sorted(block_on(outputs.collect())), [0, 1, 2, 3]);
    }
}

fn a_skipped_item_is_an_error_among_others(order: Order) {
    let (mut a, mut b) = (failing(order, OnError::Skip), Hooks::new().pool(order, 1));
    let mut both = a.then(&mut b);
    let results: Vec<_> = block_on(both.outputs_stream(stream::iter(0..10)).collect());
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 9);
    assert_eq!((both.account().ok, both.account().failed), (9, 1));
}

fn a_dropped_stream_counts_the_errors_that_its_caller_has(order: Order) {
    let odd = || Hooks::new().work(|_, x| if x % 2 == 1 { Err("odd".into()) } else { Ok(x) });
    for stage in 0..2 {
        let builder = AnyOrderRunner::builder(odd()).order(order).devices(1);
        let mut failing = builder.on_error(OnError::Skip).build().unwrap();
        let mut sound = Hooks::new().pool(order, 1);
        let mut both = if stage == 0 { failing.then(&mut sound) } else { sound.then(&mut failing) };
        let mut outputs = both.outputs_stream(stream::iter(0..100));
        let results: Vec<_> = block_on((&mut outputs).take(6).collect());
        drop(outputs);
        let failed = results.iter().filter(|result| result.is_err()).count() as u64;
        assert_eq!((both.account().ok, both.account().failed), (6 - failed, failed));
    }
}

fn a_failed_input_is_the_last_error(order: Order) {
    let [mut a, mut b, _] = pools(order);
    let items = ["1", "x", "3"].map(str::parse::<u64>);
    let results: Vec<_> =
        block_on(a.then(&mut b).try_outputs_stream(stream::iter(items)).collect());
    assert!(results.last().unwrap().as_ref().unwrap_err().is_input(), "{results:?}");
}

fn a_stream_that_panics_is_the_last_error(order: Order) {
    let [mut a, mut b, _] = pools(order);
    let items = (0..9_u64).inspect(|&x| assert!(x < 3, "the stream breaks"));
    let results: Vec<_> = block_on(a.then(&mut b).outputs_stream(stream::iter(items)).collect());
    let error = results.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, Error::InputPanicked { item: 3, .. }), "{error:?}");
}

fn a_cancel_of_any_stage_wakes_the_task(order: Order) {
    for stage in 0..2 {
        let tokens = [CancelToken::new(), CancelToken::new()];
        let [mut a, mut b] = tokens.clone().map(|token| {
            let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
            builder.cancel_token(token).build().unwrap()
        });
        let mut both = a.then(&mut b);
        let mut outputs = both.outputs_stream(stream::pending());
        assert!(poll_once(outputs.next()).is_pending());
        let result = std::thread::scope(|scope| {
            scope.spawn(|| tokens[stage].cancel());
            block_on(outputs.next())
        });
        assert!(result.unwrap().unwrap_err().is_cancelled());
        assert!(block_on(outputs.next()).is_none());
    }
}

fn a_drain_ends_a_pending_stream(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut a = builder.cancel_token(token.clone()).build().unwrap();
    let mut b = Hooks::new().pool(order, 1);
    let mut both = a.then(&mut b);
    let mut outputs = both.outputs_stream(stream::pending());
    assert!(poll_once(outputs.next()).is_pending());
    std::thread::scope(|scope| {
        scope.spawn(|| token.drain());
        assert!(block_on(outputs.next()).is_none());
    });
}

/// A pool with a hook that waits for a gate at item 1; the gate; and the number of hooks that wait.
fn stuck(order: Order) -> (AnyOrderRunner<Hooks>, Arc<Gate>, Arc<Counter>) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passed, begins) = (gate.clone(), begun.clone());
    let hooks = Hooks::new().work(move |_, x| {
        if x == 1 {
            begins.add(1);
            passed.pass();
        }
        Ok(x)
    });
    (hooks.windowed(order, 1, 4), gate, begun)
}

fn a_dropped_stream_waits_for_nothing(order: Order) {
    for is_first in [true, false] {
        let (mut a, (mut b, gate, begun)) = (Hooks::new().windowed(order, 1, 4), stuck(order));
        let mut both = if is_first { b.then(&mut a) } else { a.then(&mut b) };
        let mut outputs = both.outputs_stream(stream::iter(0..100));
        assert_eq!(block_on(outputs.next()).unwrap().unwrap(), 0);
        begun.reach(1);
        drop(outputs);
        assert_eq!(both.account().ok, 1);
        let mut next = both.outputs_stream(stream::iter(5..8));
        assert!(poll_once(next.next()).is_pending(), "the hook of the earlier run is running");
        gate.open();
        let results: Vec<u64> = block_on(next.map(Result::unwrap).collect());
        assert_eq!(results, [5, 6, 7]);
        assert_eq!(both.run(2..5).unwrap(), [2, 3, 4]);
    }
}

fn a_stream_dropped_at_its_end_leaves_the_stages_usable(order: Order) {
    let (mut b, gate, begun) = stuck(order);
    let taken = Arc::new(Counter::new());
    // In completion order the error would overtake the output, and wait for the hook.
    let (awaited, takes) = (begun.clone(), taken.clone());
    let hooks = Hooks::new().work(move |_, x| match x {
        4 => {
            awaited.reach(1);
            takes.reach(1);
            Err("four".into())
        }
        x => Ok(x),
    });
    let mut a = hooks.pool(order, 1);
    let mut both = a.then(&mut b);
    let mut outputs = both.outputs_stream(stream::iter([0, 1, 4]));
    assert_eq!(block_on(outputs.next()).unwrap().unwrap(), 0);
    taken.add(1);
    begun.reach(1);
    // Whether the error has come or not: the hook is running.
    assert!(poll_once(outputs.next()).is_pending());
    drop(outputs);
    gate.open();
    let outputs = both.outputs_stream(stream::iter(5..8)).map(Result::unwrap);
    assert_eq!(sorted(block_on(outputs.collect())), [5, 6, 7]);
}

fn a_leaked_stream_is_ended_by_the_next(order: Order) {
    let (mut a, (mut b, gate, begun)) = (Hooks::new().windowed(order, 1, 4), stuck(order));
    let mut both = a.then(&mut b);
    let mut outputs = both.outputs_stream(stream::iter(0..100));
    assert_eq!(block_on(outputs.next()).unwrap().unwrap(), 0);
    begun.reach(1);
    std::mem::forget(outputs);
    drop(both);
    gate.open();
    assert_eq!(a.run(2..5).unwrap(), [2, 3, 4]);
    assert_eq!(b.run(2..5).unwrap(), [2, 3, 4]);
    b.close().unwrap();
}

fn a_state_that_was_lost_is_rebuilt(order: Order) {
    let hooks = || Hooks::new().work(|_, x| if x == 9 { panic!("nine") } else { Ok(x) });
    let (mut a, mut b) = (Hooks::new().pool(order, 1), hooks().pool(order, 1));
    let mut both = a.then(&mut b);
    let results: Vec<_> = block_on(both.outputs_stream(stream::iter([9])).collect());
    assert!(results.len() == 1 && results[0].as_ref().unwrap_err().is_panic());
    let outputs = both.outputs_stream(stream::iter([1, 2])).map(Result::unwrap);
    assert_eq!(block_on(outputs.collect::<Vec<_>>()), [1, 2]);
}

fn the_weights_of_all_stages_are_bounded(order: Order) {
    let pool = |producers| {
        let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(producers);
        builder.window_weight(u64::MAX, |&x| x % 7).build().unwrap()
    };
    let (mut a, mut b) = (pool(2), pool(1));
    let mut both = a.then(&mut b).window_weight(9);
    let outputs = both.outputs_stream(pausing(200)).map(Result::unwrap);
    assert_eq!(block_on(outputs.collect::<Vec<_>>()).len(), 200);
}

fn a_closed_stage_is_the_only_error(order: Order) {
    let [mut a, mut b, _] = pools(order);
    b.close().unwrap();
    let results: Vec<_> = block_on(a.then(&mut b).outputs_stream(stream::iter(0..9)).collect());
    assert!(results.len() == 1 && results[0].as_ref().unwrap_err().is_closed(), "{results:?}");
}

fn a_journal_is_refused(order: Order) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::at(folder.path().join("journal"));
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let mut a = builder.journal(journal).build().unwrap();
    let mut b = Hooks::new().pool(order, 1);
    let results: Vec<_> = block_on(a.then(&mut b).outputs_stream(stream::iter(0..9)).collect());
    assert!(results.len() == 1 && results[0].is_err(), "{results:?}");
}
