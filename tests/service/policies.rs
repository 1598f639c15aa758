//! The policies of a pool hold in its service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gangline::testing::{Script, Simulated};
use gangline::{Batch, Error, OnError, OrderedRunner, UnorderedRunner, Verdict};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

#[test]
fn a_failed_item_is_tried_again() {
    no_hang(|| {
        let hooks = Hooks::new().work(|cx, x| match cx.attempt() {
            1 => Err("the first attempt".into()),
            _ => Ok(x),
        });
        let builder = OrderedRunner::builder(hooks).devices(2).retries(2);
        let builder = builder.backoff(Duration::ZERO, Duration::ZERO);
        let service = builder.build().unwrap().into_service();
        for x in 0..20 {
            assert_eq!(service.call(x).unwrap(), x);
        }
        assert_eq!(service.account().ok, 20);
    });
}

#[test]
fn a_verdict_to_stop_fails_that_call_only() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, x| if x == 1 { Err("bad".into()) } else { Ok(x) });
        let builder = OrderedRunner::builder(hooks).devices(1).retries(3);
        let builder = builder.on_error(OnError::Stop).classify(|_| Verdict::Stop);
        let service = builder.build().unwrap().into_service();
        assert_eq!(service.call(1).unwrap_err().attempt(), Some(1));
        assert_eq!(service.call(2).unwrap(), 2);
    });
}

/// They bound the run that a service does not have.
#[test]
fn limits_of_a_run_do_not_apply() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, x| if x % 2 == 1 { Err("bad".into()) } else { Ok(x) });
        let builder = OrderedRunner::builder(hooks).devices(1).on_error(OnError::Skip);
        let builder = builder.max_failures(1).window_memory(1, |_| 9_u64, |_| 9_u64);
        let service = builder.build().unwrap().into_service();
        for x in 0..20 {
            assert_eq!(service.call(x).ok(), (x % 2 == 0).then_some(x));
        }
        assert_eq!((service.account().ok, service.account().failed), (10, 10));
    });
}

#[test]
fn a_producer_whose_items_succeed_elsewhere_is_quarantined() {
    no_hang(|| {
        let failed = Arc::new(AtomicU64::new(0));
        let counted = failed.clone();
        let hooks = Hooks::new().work(move |cx, x| match cx.producer() {
            0 => {
                counted.fetch_add(1, Ordering::Relaxed);
                Err("a broken device".into())
            }
            _ => Ok(x),
        });
        let builder = UnorderedRunner::builder(hooks).devices(2).quarantine_after(2);
        let service = builder.build().unwrap().into_service();
        for x in 0..50 {
            assert_eq!(service.call(x).unwrap(), x);
        }
        assert!(failed.load(Ordering::Relaxed) <= 3);
    });
}

/// The hook of one item hangs. Its caller gets the error, and the other producer goes on.
#[test]
fn an_item_that_takes_too_long_answers_its_caller() {
    no_hang(|| {
        let stuck = Arc::new(Gate::new());
        let until = stuck.clone();
        let hooks = Hooks::new().work(move |_, x| {
            if x == 1 {
                until.pass();
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(2);
        let builder = builder.item_timeout(Duration::from_millis(300));
        let service = builder.build().unwrap().into_service();
        let error = service.call(1).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert_eq!(service.call(2).unwrap(), 2);
        stuck.open();
        service.close().unwrap();
    });
}

#[test]
fn too_few_producers_end_the_service_and_answer_every_call() {
    no_hang(|| {
        let stuck = Arc::new(Gate::new());
        let until = stuck.clone();
        let hooks = Hooks::new().work(move |_, x| {
            until.pass();
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1);
        let builder = builder.item_timeout(Duration::from_millis(300));
        let service = builder.build().unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1, 2]).unwrap();
        for ticket in tickets {
            let error = ticket.wait().unwrap_err();
            assert!(matches!(error, Error::ServiceEnded { .. }), "{error}");
            assert!(error.is_timeout() || format!("{error:#}").contains("too few"), "{error:#}");
        }
        let later = service.call(3).unwrap_err();
        assert!(matches!(later, Error::ServiceEnded { .. }), "{later}");
        stuck.open();
        service.close().unwrap();
        assert!(service.call(4).is_err());
    });
}

#[test]
fn an_idle_producer_copies_a_slow_item() {
    no_hang(|| {
        let (stuck, tries) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (until, tried) = (stuck.clone(), tries.clone());
        let hooks = Hooks::new().work(move |_, x| {
            if x == 1 && tried.add(1) == 1 {
                until.pass();
            }
            Ok(x)
        });
        let service = OrderedRunner::builder(hooks).devices(2).speculate().build().unwrap();
        let service = service.into_service();
        assert_eq!(service.call(1).unwrap(), 1, "the copy");
        assert_eq!(tries.get(), 2);
        stuck.open();
        service.close().unwrap();
    });
}

/// A batch that the device has no memory for is split; no caller notices.
#[test]
fn a_batch_out_of_memory_is_split_across_callers() {
    no_hang(|| {
        let small = Script::new().out_of_memory_above(2);
        let squares = Hooks::new().work(|_, x| Ok(x * x));
        let simulated = Simulated::new(squares).everywhere(small);
        let builder = OrderedRunner::builder(simulated).devices("cpu").batch(Batch::up_to(8));
        let service = builder.build().unwrap().into_service();
        let tickets = service.try_submit_all((0..8).collect()).unwrap();
        let squares: Vec<_> = tickets.into_iter().map(|it| it.wait().unwrap()).collect();
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
    });
}
