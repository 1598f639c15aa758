//! Outputs as a stream.

use std::sync::Arc;

use futures_lite::{StreamExt, stream};
use gangline::Order;

use crate::hooks::{Hooks, both_orders};
use crate::runtimes::{block_on, poll_once};
use crate::support::{Counter, Gate};

both_orders!(the_window_is_filled_before_a_result, a_dropped_stream_waits_for_nothing,);

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
