//! Unwanted values whose destructors panic or cancel while a run ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use gangline::{AnyOrderRunner, Batch, CancelToken, Order};

use super::{Bombs, Hooks, Kind, Pair, Value, Who, numbers, outputs};
use crate::support::{Gate, no_hang};

/// Opens its gate when it is dropped, after a cancel.
struct CancelsWhenDropped(CancelToken, Arc<Gate>);

impl Drop for CancelsWhenDropped {
    fn drop(&mut self) {
        self.0.cancel();
        self.1.open();
    }
}

/// Is dropped once the failure that it belongs to is settled.
#[derive(Debug)]
struct RebuildError(Arc<Gate>);

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no state")
    }
}

impl std::error::Error for RebuildError {}

impl Drop for RebuildError {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Both producers have lost their states and an item that both work on, and neither can rebuild its state.
/// The consumer, which is called for another item, is cancelled before it could see the failure.
#[test]
fn an_error_that_ended_a_run_before_the_cancel_may_panic_when_dropped() {
    no_hang(|| {
        let (token, ended) = (CancelToken::new(), Arc::new(Gate::new()));
        let bombs = Arc::<Bombs>::default();
        let inputs = bombs.inputs(9, |value| value.kind == Kind::Error);
        let (pair, helps) = (Pair::default(), Gate::new());
        let helper_failed = Arc::new(Gate::new());
        let has_failed = helper_failed.clone();
        let mut hooks = Hooks::new(move |cx, inputs| {
            match (pair.who(cx), inputs.len()) {
                (Who::Slow, 2) => helps.pass(),
                (Who::Helper, 2) => {
                    helps.open();
                    panic!("the helper");
                }
                _ => {
                    has_failed.pass();
                    panic!("the slow one");
                }
            }
            Err("as a whole".into())
        });
        let (inits, error) = (AtomicU64::new(0), inputs[0].as_kind(Kind::Spent));
        let told = Arc::new(Gate::new());
        let is_told = told.clone();
        hooks.init = Box::new(move |_| {
            let count = inits.fetch_add(1, SeqCst);
            // The last of all that fail, which is what ends the run.
            if count == 4 {
                is_told.pass();
            }
            match count {
                0 | 1 => Ok(()),
                2 => Err(RebuildError(helper_failed.clone()).into()),
                _ => Err(error.as_kind(Kind::Error).into()),
            }
        });
        let is_ended = ended.clone();
        hooks.skipped = Box::new(move || {
            told.open();
            is_ended.pass();
        });
        let mut pool = hooks
            .raced()
            .batch(Batch::of(2))
            .window(2)
            .cancel_token(token.clone())
            .build()
            .unwrap();
        // The feeder has no credit for more, and drops its input once the run has ended.
        let cancels = CancelsWhenDropped(token, ended);
        let inputs = inputs.into_iter().inspect(move |_| {
            let _with_the_input = &cancels;
        });
        let error = pool.run(inputs).unwrap_err();
        assert!(error.is_cancelled(), "{error:#}");
        bombs.check(1);
    });
}

/// Both producers have split a batch. The slow one is done with item 0, and drops what was kept of the helper's
/// failure: the destructor of that waits until the helper is done with item 1, and then panics.
#[test]
fn what_was_kept_of_an_item_is_dropped_while_others_work() {
    no_hang(|| {
        let (pair, is_failed) = (Pair::default(), Arc::new(AtomicBool::new(false)));
        let (helps, is_at_last) = (Gate::new(), Gate::new());
        let (dropping, done) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (is_dropping, fails) = (dropping.clone(), is_failed.clone());
        let hooks = Hooks::new(move |cx, inputs| {
            match (pair.who(cx), &numbers(inputs)[..]) {
                (Who::Slow, [0, 1]) => {
                    helps.pass();
                    is_at_last.pass();
                }
                (Who::Helper, [0, 1]) => helps.open(),
                (Who::Helper, [0]) => fails.store(true, SeqCst),
                (Who::Helper, [1]) => {
                    is_at_last.open();
                    is_dropping.pass();
                    return outputs(inputs);
                }
                _ => return outputs(inputs),
            }
            Err("it fails".into())
        });
        let is_done = done.clone();
        let hooks = hooks.consume(move |number| {
            if number == 1 {
                is_done.open();
            }
            Ok(())
        });
        let mut pool = hooks.raced().batch(Batch::of(2)).window(4).build().unwrap();
        let bombs = Arc::<Bombs>::default();
        let inputs = bombs.inputs(2, move |value| {
            let is_kept =
                is_failed.load(SeqCst) && value.number == 0 && value.kind == Kind::Copy(2);
            if is_kept {
                dropping.open();
                done.pass();
            }
            is_kept
        });
        assert_eq!(pool.run(inputs).unwrap(), [1, 0]);
        bombs.check(1);
        let harmless = |count| (0..count).map(|number| Value::input(number, |_| ()));
        for _ in 0..3 {
            assert_eq!(pool.run(harmless(20).skip(2)).unwrap().len(), 18);
        }
        pool.close().unwrap();
    });
}

#[test]
fn a_value_that_is_not_wanted_may_cancel_as_it_is_dropped() {
    no_hang(|| {
        for kind in [Kind::Input, Kind::Copy(1), Kind::Output] {
            for order in [Order::Input, Order::Completion] {
                let token = CancelToken::new();
                let hooks = Hooks::new(|_, inputs| outputs(inputs));
                let hooks = hooks.consume(|number| match number {
                    3 => Err("enough".into()),
                    _ => Ok(()),
                });
                let builder =
                    AnyOrderRunner::builder(hooks).order(order).devices(2).window(8).retries(1);
                let mut pool = builder.cancel_token(token.clone()).build().unwrap();
                let inputs = (0..40).map(|number| {
                    let cancel = token.clone();
                    Value::input(number, move |value| {
                        if value.number > 3 && value.kind == kind {
                            cancel.cancel();
                        }
                    })
                });
                let error = pool.run(inputs).unwrap_err();
                assert!(error.is_cancelled() || error.item() == Some(3), "{error:#}");
                let harmless = (10..30).map(|number| Value::input(number, |_| ()));
                assert_eq!(pool.run(harmless).unwrap().len(), 20, "and that run alone");
                pool.close().unwrap();
            }
        }
    });
}
