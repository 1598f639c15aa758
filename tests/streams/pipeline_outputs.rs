//! Outputs of a pipeline as a stream.

use std::sync::Arc;

use futures_lite::{StreamExt, stream};
use gangline::{AnyOrderRunner, OnError, Order};

use crate::hooks::{Gauge, Hooks, both_orders, sorted};
use crate::runtimes::{block_on, poll_once};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    a_gathered_output_is_in_flight_until_the_next_is_asked_for,
    a_dropped_stream_counts_the_errors_that_its_caller_has,
    a_stream_dropped_at_its_end_leaves_the_stages_usable,
    leaked_outputs_of_a_stage_that_has_ended_are_ended_by_the_next_use,
);

/// The caller holds each output until the next item has begun in the last stage, behind the parts. No more have begun.
fn a_gathered_output_is_in_flight_until_the_next_is_asked_for(order: Order) {
    for is_task in [false, true] {
        let (full, gauge, taken) = (Arc::new(Gate::new()), Gauge::default(), Counter::new());
        let (begun, begins, fills) = (Arc::new(Counter::new()), gauge.clone(), full.clone());
        let counts = begun.clone();
        let sum = gangline::map(
            |_| Ok(()),
            move |_, (), (parent, sum): (Arc<u64>, u64)| {
                begins.up();
                counts.add(1);
                full.pass();
                Ok(*parent + sum)
            },
        );
        let open = Hooks::new().windowed(order, 1, 3);
        let mut parts = Hooks::new().windowed(order, 1, 4);
        let builder = AnyOrderRunner::builder(sum).order(order).devices(1);
        let mut write = builder.window(2).build().unwrap();
        let mut all = open
            .expand(|_| 0..3_u64)
            .then(&mut parts)
            .gather(|_| 0, |sum, _, _, part| *sum += part)
            .then(&mut write);
        let items = (0..100_u64).inspect(|&x| {
            if x == 5 {
                fills.open();
            }
        });
        let take = |output: Result<u64, _>| {
            assert_eq!(output.unwrap(), taken.get() + 3);
            begun.reach((taken.add(1) + 1).min(100));
            gauge.down();
        };
        if is_task {
            let mut outputs = all.outputs_stream(stream::iter(items));
            while let Some(output) = block_on(outputs.next()) {
                take(output);
            }
        } else {
            all.outputs(items).for_each(take);
        }
        assert_eq!((taken.get(), gauge.most()), (100, 2));
    }
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
    let a = hooks.pool(order, 1);
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

/// The run of the first stage is over while the second is full, so its error waits for its turn there.
fn leaked_outputs_of_a_stage_that_has_ended_are_ended_by_the_next_use(order: Order) {
    let each = move |is_task: bool, stage: usize| {
        let over = Arc::new(Gate::new());
        let opens = over.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            if x == 3 {
                while !cx.is_cancelled() {
                    std::thread::yield_now();
                }
                opens.open();
            }
            Ok(x)
        });
        let builder = AnyOrderRunner::builder(hooks).order(order).devices(1);
        let limit = std::time::Duration::from_millis(300);
        let mut a = builder.window(4).run_timeout(limit).build().unwrap();
        let mut b = Hooks::new().windowed(order, 1, 1);
        let mut both = gangline::Pipeline::new(&mut a).then(&mut b);
        let mut outputs = both.outputs(0..);
        assert_eq!(outputs.next().unwrap().unwrap(), 0);
        std::mem::forget(outputs);
        over.pass();
        drop(both);
        let next = if stage == 0 { &mut a } else { &mut b };
        let came = match is_task {
            true => block_on(next.run_stream(stream::iter(5..8))),
            false => next.run(5..8),
        };
        // On a slow machine the limit may be over.
        assert!(came.is_ok_and(|all| sorted(all) == [5, 6, 7]) || stage == 0);
    };
    for (is_task, stage) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        no_hang(move || each(is_task, stage));
    }
}
