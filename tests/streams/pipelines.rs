//! Pipelines with a stream as input.

use std::sync::Arc;

use futures_lite::{StreamExt, stream};
use gangline::{AnyOrderRunner, Order, Pipeline, map};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::runtimes::{block_on, pausing, poll_once};
use crate::support::{Counter, Gate};

both_orders!(
    parts_are_gathered,
    the_next_use_waits_for_a_hook_of_the_consumer,
    the_next_run_waits_for_a_function_of_a_link,
    a_run_waits_for_leaked_outputs_of_a_pipeline,
);

fn pools(order: Order) -> [AnyOrderRunner<Hooks>; 3] {
    [2, 1, 2].map(|producers| Hooks::new().work(|_, x| Ok(x + 1)).pool(order, producers))
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
    let outputs = all.outputs_stream(pausing(50)).map(Result::unwrap);
    let mut gathered: Vec<_> = block_on(outputs.collect());
    gathered.sort_unstable();
    assert_eq!(gathered, expected);
}

/// Polls until something has begun.
fn begin(run: &mut (impl Future + Unpin), begun: &Counter) {
    while begun.get() == 0 {
        assert!(poll_once(&mut *run).is_pending());
    }
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
