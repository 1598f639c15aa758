//! A `producer_end` that does not return.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use gangline::{Error, Hook, OrderedRunner};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// The `producer_end` of producer 1 waits at the gate.
fn stuck_end(gate: &Arc<Gate>, ends: &Arc<Counter>) -> Hooks {
    let (gate, ends) = (gate.clone(), ends.clone());
    Hooks::new().end(move |cx| {
        if cx.producer() == 1 {
            gate.pass();
        }
        ends.add(1);
        Ok(())
    })
}

#[test]
fn close_names_the_end_that_does_not_return_and_ends_the_others() {
    no_hang(|| {
        let (gate, ends) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let builder = OrderedRunner::builder(stuck_end(&gate, &ends)).devices(3);
        let mut pool = builder.end_timeout(SOON).build().unwrap();
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2]);
        let error = pool.close().unwrap_err();
        let Error::TimedOut { hook, limit, .. } = &error else { panic!("{error:#}") };
        assert_eq!((*hook, *limit), (Hook::ProducerEnd, SOON));
        assert_eq!((error.producer(), error.items().len()), (Some(1), 0), "{error:#}");
        assert!(error.to_string().contains("on cpu"), "{error}");
        assert_eq!(ends.get(), 2, "those of the others");
        assert!(!pool.is_active());
        pool.close().unwrap();
        pool.activate().unwrap();
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2], "with a new state");
        gate.open();
        ends.reach(3);
        pool.close().unwrap();
    });
}

#[test]
fn a_drop_does_not_wait_for_an_end_that_does_not_return() {
    no_hang(|| {
        let (gate, ends) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let builder = OrderedRunner::builder(stuck_end(&gate, &ends)).devices(2);
        drop(builder.end_timeout(SOON).build().unwrap());
        assert_eq!(ends.get(), 1);
        gate.open();
        ends.reach(2);
    });
}

#[test]
fn a_service_is_closed_although_an_end_does_not_return() {
    no_hang(|| {
        let (gate, ends) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let builder = OrderedRunner::builder(stuck_end(&gate, &ends)).devices(2);
        let service = builder.end_timeout(SOON).build().unwrap().into_service();
        assert_eq!(service.call(7).unwrap(), 7);
        let error = service.close().unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerEnd), "{error:#}");
        gate.open();
    });
}

#[test]
fn a_failed_build_does_not_wait_for_an_end_that_does_not_return() {
    no_hang(|| {
        let (gate, ready) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (stuck, is_ready) = (gate.clone(), ready.clone());
        let hooks = Hooks::new()
            .init(move |cx| {
                if cx.producer() == 0 {
                    is_ready.pass();
                    return Err("no such device".into());
                }
                is_ready.open();
                Ok(())
            })
            .end(move |_| {
                stuck.pass();
                Ok(())
            });
        let built = OrderedRunner::builder(hooks).devices(2).end_timeout(SOON).build();
        assert_eq!(built.err().unwrap().hook(), Some(Hook::ProducerInit), "the cause");
        gate.open();
    });
}

#[test]
fn an_abandoned_end_is_told() {
    no_hang(|| {
        let told = Arc::new(Counter::new());
        let tells = told.clone();
        let hooks = Hooks::new().end(move |cx| {
            while !cx.is_cancelled() {
                std::thread::yield_now();
            }
            tells.add(1);
            Ok(())
        });
        let mut pool = OrderedRunner::builder(hooks).devices(1).end_timeout(SOON).build().unwrap();
        assert!(pool.close().unwrap_err().is_timeout());
        told.reach(1);
    });
}

/// The place is not lost to it.
#[test]
fn a_replacement_begins_although_the_end_before_it_does_not_return() {
    no_hang(|| {
        let (gate, inits) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, made) = (gate.clone(), inits.clone());
        let broken = Arc::new(AtomicU64::new(0));
        let breaks = broken.clone();
        let hooks = Hooks::new()
            .init(move |cx| {
                made.add(cx.producer() as u64);
                Ok(())
            })
            .end(move |cx| {
                if cx.producer() == 1 {
                    stuck.pass();
                }
                Ok(())
            })
            .work(move |cx, x| match cx.producer() {
                1 if breaks.fetch_add(1, SeqCst) == 0 => Err("the device is broken".into()),
                _ => Ok(x),
            });
        let builder = OrderedRunner::builder(hooks).devices(2).quarantine_after(1);
        let mut pool = builder.replace_lost(1).end_timeout(SOON).build().unwrap();
        let items = (0..).take_while(|&x| x < 10 || broken.load(SeqCst) == 0);
        assert!(pool.run(items).unwrap().len() >= 10);
        let begun = inits.clone();
        let items = (0..).take_while(|&x| x < 10 || begun.get() < 2);
        assert!(pool.run(items).unwrap().len() >= 10);
        let error = pool.close().unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerEnd), "{error:#}");
        gate.open();
    });
}
