//! Producers have work while the caller of `outputs` works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gangline::{Error, Order};

use crate::hooks::{Hooks, both_orders};
use crate::support::Gate;

both_orders!(
    an_item_is_pulled_in_place_of_each_result,
    an_input_that_panics_behind_a_result_fails_after_it,
);

/// Items pass once the whole window has been pulled.
fn after(gate: &Arc<Gate>) -> Hooks {
    let gate = gate.clone();
    Hooks::new().work(move |_, x| {
        gate.pass();
        if x == 99 { Err("no".into()) } else { Ok(x) }
    })
}

fn an_item_is_pulled_in_place_of_each_result(order: Order) {
    let gate = Arc::new(Gate::new());
    let mut pool = after(&gate).windowed(order, 1, 5);
    let pulled = AtomicU64::new(0);
    let items = (0..100).inspect(|_| {
        if pulled.fetch_add(1, Ordering::Relaxed) == 4 {
            gate.open();
        }
    });
    let mut outputs = pool.outputs(items.filter(|&x| x != 99));
    for taken in 0..10 {
        outputs.next().unwrap().unwrap();
        assert_eq!(pulled.load(Ordering::Relaxed), 5 + taken, "the window is full");
    }
}

fn an_input_that_panics_behind_a_result_fails_after_it(order: Order) {
    let gate = Arc::new(Gate::new());
    let mut pool = after(&gate).windowed(order, 1, 2);
    let items = (0..10).inspect(|&x| match x {
        1 => gate.open(),
        2 => panic!("the source breaks"),
        _ => {}
    });
    let mut outputs = pool.outputs(items);
    assert_eq!(outputs.next().unwrap().unwrap(), 0);
    let errors: Vec<Error> = outputs.filter_map(Result::err).collect();
    assert!(matches!(&errors[..], [Error::InputPanicked { item: 2, .. }]), "{errors:?}");
}
