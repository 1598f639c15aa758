//! What comes out, and what is pulled meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{AnyOrderRunner, OnError, Order};

use crate::hooks::{Hooks, sorted};
use crate::rows::{Stage, failing, orders, skipping};
use crate::support::{Gate, no_hang};

fn stage(hooks: Hooks, order: Order, window: usize) -> Stage {
    AnyOrderRunner::builder(hooks).order(order).devices(2).window(window).build().unwrap()
}

/// In the second stage the first item waits for the second, for which the first stage has room only then.
#[test]
fn the_input_is_pulled_while_the_caller_waits_for_a_result() {
    no_hang(|| {
        for orders in orders(2) {
            let gate = Arc::new(Gate::new());
            let waits = Hooks::new().work(move |_, x| {
                match x {
                    0 => gate.pass(),
                    _ => gate.open(),
                }
                Ok(x)
            });
            let a = stage(Hooks::new(), orders[0], 1);
            let mut b = stage(waits, orders[1], 2);
            let seen: Vec<u64> = a.then(&mut b).outputs(0..20).map(Result::unwrap).collect();
            assert_eq!(sorted(seen), (0..20).collect::<Vec<_>>());
        }
    });
}

#[test]
fn no_more_is_pulled_than_the_windows_hold() {
    no_hang(|| {
        let pulled = AtomicU64::new(0);
        let a = stage(Hooks::new(), Order::Input, 3);
        let mut b = stage(Hooks::new(), Order::Input, 2);
        let mut row = a.then(&mut b);
        let items = (0..).inspect(|_| _ = pulled.fetch_add(1, SeqCst));
        let mut outputs = row.outputs(items);
        assert_eq!(pulled.load(SeqCst), 0, "nothing before the first `next`");
        for taken in 1..100 {
            assert!(outputs.next().unwrap().is_ok());
            assert!(pulled.load(SeqCst) <= taken + 5, "{pulled:?} for {taken}");
        }
    });
}

#[test]
fn too_many_failures_end_it() {
    no_hang(|| {
        let a = skipping(failing(|x| x % 2 == 0), Order::Input).build().unwrap();
        let b = AnyOrderRunner::builder(failing(|x| x % 2 == 1)).on_error(OnError::Skip);
        let mut b = b.devices(1).max_failures(3_u64).build().unwrap();
        let seen: Vec<_> = a.then(&mut b).outputs(0..100).collect();
        let error = seen.last().unwrap().as_ref().unwrap_err();
        assert!(error.to_string().contains("at most 3 may fail"), "{error}");
        assert!(seen.len() < 12, "{}", seen.len());
    });
}
