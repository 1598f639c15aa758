//! Pipelines with a stream as input.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_lite::stream;
use gangline::{AnyOrderRunner, Batch, Error, Journal, Order, Pipeline, map};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::runtimes::{block_on, pausing, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    every_item_comes_through_under_tokio,
    parts_are_gathered,
    a_consumer_that_cannot_begin_is_the_error,
    a_consumer_that_stops_ends_the_run,
    a_dropped_run_waits_for_nothing,
    the_next_use_waits_for_a_hook_of_the_consumer,
    the_next_run_waits_for_a_function_of_a_link,
    the_memory_of_all_stages_is_bounded,
    a_run_timeout_abandons_the_consumer,
);

fn pools(order: Order) -> [AnyOrderRunner<Hooks>; 3] {
    [2, 1, 2].map(|producers| Hooks::new().work(|_, x| Ok(x + 1)).pool(order, producers))
}

async fn come_through(order: Order) {
    let [a, mut b, mut c] = pools(order);
    let mut all = a.then(&mut b).then(&mut c);
    let expected = |items: u64| (3..items + 3).collect::<Vec<_>>();
    assert_eq!(sorted(all.run_stream(stream::iter(0..3000)).await.unwrap()), expected(3000));
    assert_eq!((all.account().ok, all.account().unread), (3000, Some(0)));
    assert_eq!(sorted(all.run_stream(pausing(200)).await.unwrap()), expected(200));
    assert_eq!(all.account().ok, 200);
    assert_eq!(all.report().account, all.account());
    assert!(all.run_stream(stream::empty()).await.unwrap().is_empty());
    assert_eq!(sorted(all.run(0..3).unwrap()), expected(3));
}

fn every_item_comes_through_under_tokio(order: Order) {
    block_on(come_through(order));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { tokio::spawn(come_through(order)).await.unwrap() });
}

fn parts_are_gathered(order: Order) {
    let sum = map(|_| Ok(()), |_, (), (parent, sum): (Arc<u64>, u64)| Ok((*parent, sum)));
    let [open, mut infer, _] = pools(order);
    let mut write = AnyOrderRunner::builder(sum).order(order).devices(1).build().unwrap();
    let mut all = open
        .expand(|parent| 0..**parent)
        .then(&mut infer)
        .gather(|_| 0, |sum, _, _, part| *sum += part)
        .then(&mut write);
    // Each stage adds 1.
    let expected: Vec<_> = (1..51_u64).map(|n| (n, n * (n + 1) / 2)).collect();
    let mut gathered = block_on(all.run_stream(pausing(50))).unwrap();
    gathered.sort_unstable();
    assert_eq!(gathered, expected);
}

fn a_consumer_that_cannot_begin_is_the_error(order: Order) {
    let a = Hooks::new().pool(order, 1);
    let mut b = Hooks::new().consumer_init(|_| Err("no".into())).pool(order, 1);
    let polls = AtomicU64::new(0);
    let items = stream::iter((0..9).inspect(|_| _ = polls.fetch_add(1, Ordering::Relaxed)));
    assert!(block_on(a.then(&mut b).run_stream(items)).is_err());
    assert_eq!(polls.load(Ordering::Relaxed), 0);
}

/// A stream of one item that is then pending, and wakes nothing.
fn one_and_no_more() -> impl stream::Stream<Item = u64> {
    let mut items = Some(7);
    stream::poll_fn(move |_| items.take().map_or(Poll::Pending, |x| Poll::Ready(Some(x))))
}

fn a_consumer_that_stops_ends_the_run(order: Order) {
    let a = Hooks::new().pool(order, 1);
    let hooks = Hooks::new().consume(|cx, _| {
        cx.stop();
        Ok(())
    });
    let mut b = hooks.pool(order, 1);
    assert_eq!(block_on(a.then(&mut b).run_stream(one_and_no_more())).unwrap(), [7]);
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

/// Polls until something has begun.
fn begin(run: &mut (impl Future + Unpin), begun: &Counter) {
    while begun.get() == 0 {
        assert!(poll_once(&mut *run).is_pending());
    }
}

fn a_dropped_run_waits_for_nothing(order: Order) {
    let mut a = Hooks::new().windowed(order, 1, 4);
    let (mut b, gate, begun) = stuck(order);
    let mut both = Pipeline::new(&mut a).then(&mut b);
    let mut run = both.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    drop(run);
    assert!((1..=8).contains(&both.account().cancelled), "{:?}", both.account());
    let mut next = both.run_stream(stream::iter(5..8));
    assert!(poll_once(&mut next).is_pending(), "the hook of the earlier run is running");
    gate.open();
    assert_eq!(block_on(next).unwrap(), [5, 6, 7]);
    drop(both);
    assert_eq!(a.run(1..4).unwrap(), [1, 2, 3]);
    assert_eq!(b.run(1..4).unwrap(), [1, 2, 3]);
}

fn the_next_use_waits_for_a_hook_of_the_consumer(order: Order) {
    let (gate, begun, ended) = (Arc::new(Gate::new()), Arc::new(Counter::new()), Counter::new());
    let (passed, begins, ended) = (gate.clone(), begun.clone(), Arc::new(ended));
    let ends = ended.clone();
    let hooks = Hooks::new().consume(move |_, x| {
        if x == 0 {
            begins.add(1);
            passed.pass();
            ends.add(1);
        }
        Ok(())
    });
    let (a, mut b) = (Hooks::new().pool(order, 1), hooks.pool(order, 1));
    let mut both = a.then(&mut b);
    let mut run = both.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    drop(run);
    let mut next = both.run_stream(stream::iter(5..8));
    assert!(poll_once(&mut next).is_pending(), "the hook of the earlier run is running");
    drop(next);
    drop(both);
    std::thread::scope(|scope| {
        scope.spawn(|| gate.open());
        assert_eq!(b.run(1..4).unwrap(), [1, 2, 3]);
    });
    assert_eq!(ended.get(), 1);
}

fn the_next_run_waits_for_a_function_of_a_link(order: Order) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passed, begins) = (gate.clone(), begun.clone());
    let whole = map(|_| Ok(()), |_, (), (parent, _): (Arc<u64>, ())| Ok(*parent));
    let [open, mut infer, _] = pools(order);
    let mut write = AnyOrderRunner::builder(whole).order(order).devices(1).build().unwrap();
    let expand = move |parent: &Arc<u64>| {
        if **parent == 1 {
            begins.add(1);
            passed.pass();
        }
        0..**parent
    };
    let mut all =
        open.expand(expand).then(&mut infer).gather(|_| (), |(), _, _, _| ()).then(&mut write);
    let mut run = all.run_stream(stream::iter(0..100));
    begin(&mut run, &begun);
    drop(run);
    let mut next = all.run_stream(stream::iter(5..8));
    assert!(poll_once(&mut next).is_pending(), "the function is running");
    gate.open();
    assert_eq!(sorted(block_on(next).unwrap()), [6, 7, 8]);
}

fn the_memory_of_all_stages_is_bounded(order: Order) {
    let pool = |producers| {
        let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(producers);
        builder.window_memory(9, |&x| x % 7, |&x| x % 5).batch(Batch::up_to(3)).build().unwrap()
    };
    let (a, mut b) = (pool(2), pool(1));
    let mut both = a.then(&mut b);
    assert_eq!(block_on(both.run_stream(pausing(200))).unwrap().len(), 200);
}

fn a_run_timeout_abandons_the_consumer(order: Order) {
    let gate = Arc::new(Gate::new());
    let passed = gate.clone();
    let hooks = Hooks::new().consume(move |_, _| {
        passed.pass();
        Ok(())
    });
    let a = Hooks::new().pool(order, 1);
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1);
    let mut b = builder.run_timeout(Duration::from_millis(50)).build().unwrap();
    let error = block_on(a.then(&mut b).run_stream(stream::iter(0..9))).unwrap_err();
    assert!(matches!(error, Error::RunTimedOut { .. }), "{error:?}");
    gate.open();
}

#[test]
fn a_journal_resumes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let run = |items: u64| {
        let journal = Journal::at(&path).resume();
        let a = AnyOrderRunner::builder(Hooks::new()).devices(1).journal(journal).build().unwrap();
        let mut b = Hooks::new().pool(Order::Input, 1);
        let mut both = a.then(&mut b);
        (block_on(both.run_stream(stream::iter(0..items))).unwrap(), both.account().already_done)
    };
    assert_eq!(run(5), (vec![0, 1, 2, 3, 4], 0));
    assert_eq!(run(7), (vec![5, 6], 5));
}
