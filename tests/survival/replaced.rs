//! Producers that are lost, and others that take their places.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gangline::event::Event;
use gangline::report::RunReport;
use gangline::{Error, OnError, OrderedRunner, UnorderedRunner};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// What the hooks of a pool have done, and the gate that stuck ones wait at.
#[derive(Clone, Default)]
struct Seen {
    inits: Arc<Counter>,
    ends: Arc<Counter>,
    stuck: Arc<Counter>,
    gate: Arc<Gate>,
}

impl Seen {
    /// Hooks that are stuck at these items, on their first attempt.
    fn stuck_at(&self, items: &'static [u64]) -> Hooks {
        let (begun, gate) = (self.stuck.clone(), self.gate.clone());
        self.counted().work(move |cx, x| {
            if items.contains(&x) && cx.attempt() == 1 {
                begun.add(1);
                gate.pass();
            }
            Ok(x)
        })
    }

    fn counted(&self) -> Hooks {
        let (inits, ends) = (self.inits.clone(), self.ends.clone());
        Hooks::new()
            .init(move |_| {
                inits.add(1);
                Ok(())
            })
            .end(move |_| {
                ends.add(1);
                Ok(())
            })
    }
}

fn replacements(report: &RunReport) -> u64 {
    report.producers.iter().map(|producer| producer.replacements).sum()
}

#[test]
fn the_next_run_has_another_producer_for_each_that_is_stuck() {
    no_hang(|| {
        let seen = Seen::default();
        let builder = OrderedRunner::builder(seen.stuck_at(&[3, 8])).devices(3);
        let builder = builder.item_timeout(SOON).retries(2).replace_lost(10);
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(0..50).unwrap(), (0..50).collect::<Vec<_>>());
        assert_eq!(replacements(&pool.report()), 0, "the run goes on with the third");
        assert_eq!(pool.run(10..20).unwrap().len(), 10);
        let report = pool.report();
        assert_eq!(replacements(&report), 2, "{report}");
        assert_eq!(report.threads_abandoned(), 0, "no place is without a producer");
        assert_eq!(pool.run(10..20).unwrap().len(), 10);
        assert_eq!(replacements(&pool.report()), 0, "of this run");
        seen.gate.open();
        pool.close().unwrap();
        seen.ends.reach(5);
        assert_eq!((seen.inits.get(), seen.ends.get()), (5, 5), "each state has ended");
    });
}

#[test]
fn too_few_producers_are_left_only_when_no_other_can_be_started() {
    no_hang(|| {
        let seen = Seen::default();
        let builder = OrderedRunner::builder(seen.stuck_at(&[0])).devices(1);
        let builder = builder.item_timeout(SOON).on_error(OnError::Skip).replace_lost(2);
        let mut pool = builder.build().unwrap();
        for _ in 0..3 {
            let error = pool.run(0..1).unwrap_err();
            assert!(matches!(error, Error::TooFewProducers { here: 0, .. }), "{error:#}");
            assert_eq!(error.item(), Some(0));
        }
        let error = pool.run(1..4).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 0, .. }), "{error:#}");
        assert_eq!(seen.inits.get(), 3);
        seen.gate.open();
        pool.close().unwrap();
        pool.activate().unwrap();
        assert_eq!(pool.run(1..4).unwrap(), [1, 2, 3]);
    });
}

/// The hook returns while its replacement is at work: the result is dropped, and its thread ends.
#[test]
fn an_abandoned_hook_that_returns_ends_its_state_and_is_not_used_again() {
    no_hang(|| {
        let seen = Seen::default();
        let (gate, ends) = (seen.gate.clone(), seen.ends.clone());
        let hooks = seen.counted().work(move |cx, x| {
            match x {
                0 => {
                    gate.pass();
                    assert!(cx.is_cancelled(), "also while another is at work");
                }
                1 => {
                    gate.open();
                    ends.reach(1);
                }
                _ => {}
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).item_timeout(SOON);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert!(pool.run([0]).unwrap_err().is_timeout());
        assert_eq!(pool.run(1..5).unwrap(), [1, 2, 3, 4]);
        assert_eq!(seen.ends.get(), 1);
        pool.close().unwrap();
        assert_eq!((seen.inits.get(), seen.ends.get()), (2, 2));
    });
}

#[test]
fn a_quarantined_producer_ends_before_another_begins_in_its_place() {
    no_hang(|| {
        let seen = Seen::default();
        let (live, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (comes, goes, peak) = (live.clone(), live.clone(), most.clone());
        let (inits, fails) = (seen.inits.clone(), Arc::new(AtomicU64::new(0)));
        let broken = fails.clone();
        let hooks = Hooks::new()
            .init(move |cx| {
                if cx.producer() == 1 {
                    peak.fetch_max(comes.fetch_add(1, SeqCst) + 1, SeqCst);
                    inits.add(1);
                }
                Ok(())
            })
            .end(move |cx| {
                if cx.producer() == 1 {
                    goes.fetch_sub(1, SeqCst);
                }
                Ok(())
            })
            .work(move |cx, x| match cx.producer() {
                1 if broken.fetch_add(1, SeqCst) < 3 => Err("the device is broken".into()),
                _ => Ok(x),
            });
        let builder = OrderedRunner::builder(hooks).devices(2).quarantine_after(3);
        let mut pool = builder.replace_lost(1).build().unwrap();
        let items = (0..).take_while(|&x| x < 50 || fails.load(SeqCst) < 3);
        assert!(pool.run(items).unwrap().len() >= 50);
        assert!(pool.report().producers[1].quarantined.is_some());
        let after = seen.inits.clone();
        let items = (0..).take_while(|&x| x < 50 || after.get() < 2);
        assert!(pool.run(items).unwrap().len() >= 50);
        assert_eq!(replacements(&pool.report()), 1, "{}", pool.report());
        assert!(pool.report().producers[1].quarantined.is_none());
        pool.close().unwrap();
        assert_eq!((live.load(SeqCst), most.load(SeqCst)), (0, 1), "one state at a time");
    });
}

#[test]
fn a_producer_init_that_fails_in_a_run_is_called_again() {
    no_hang(|| {
        let inits = Arc::new(Counter::new());
        let made = inits.clone();
        let hooks = Hooks::new()
            .init(move |_| match made.add(1) {
                2 | 3 => Err("the device is busy".into()),
                _ => Ok(()),
            })
            .work(|cx, x| match (x, cx.attempt()) {
                (2, 1) => panic!("costs the state"),
                _ => Ok(x),
            });
        let builder = OrderedRunner::builder(hooks).devices(1).retries(1).replace_lost(2);
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(0..10).unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(inits.get(), 4, "the first, that after the panic, and two more");
        assert_eq!(replacements(&pool.report()), 2);
    });
}

#[test]
fn a_producer_lost_at_the_build_is_replaced_when_a_run_begins() {
    no_hang(|| {
        let inits = Arc::new(Counter::new());
        let made = inits.clone();
        let hooks = Hooks::new().init(move |cx| match (cx.producer(), made.add(1)) {
            (1, 1 | 2) => Err("the device is busy".into()),
            _ => Ok(()),
        });
        let builder = OrderedRunner::builder(hooks).devices(2).min_producers(1).replace_lost(1);
        let mut pool = builder.build().unwrap();
        let begun = inits.clone();
        let items = (0..).take_while(|&x| x < 10 || begun.get() < 3);
        assert!(pool.run(items).unwrap().len() >= 10);
        let report = pool.report();
        assert_eq!(report.producers[1].replacements, 1, "{report}");
        assert_eq!(report.producers[1].quarantined, None);
    });
}

/// The first run ends while the hook is stuck; nothing waits for it, and the next run has all producers.
#[test]
fn a_producer_abandoned_at_the_end_of_a_run_is_replaced_for_the_next() {
    no_hang(|| {
        let seen = Seen::default();
        let builder = OrderedRunner::builder(seen.stuck_at(&[5])).devices(1).replace_lost(1);
        let mut pool = builder.run_timeout(SOON).build().unwrap();
        assert!(pool.run(0..10).unwrap_err().is_timeout());
        assert_eq!(pool.run(0..5).unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(replacements(&pool.report()), 1);
        seen.gate.open();
        pool.close().unwrap();
    });
}

#[test]
fn a_pool_is_closed_and_dropped_while_a_replaced_hook_is_stuck() {
    no_hang(|| {
        for closes in [true, false] {
            let seen = Seen::default();
            let builder = OrderedRunner::builder(seen.stuck_at(&[0])).devices(1);
            let mut pool = builder.item_timeout(SOON).replace_lost(1).build().unwrap();
            assert!(pool.run([0]).unwrap_err().is_timeout());
            assert_eq!(pool.run(1..3).unwrap(), [1, 2]);
            if closes {
                pool.close().unwrap();
                assert_eq!(seen.ends.get(), 1, "of the replacement");
            }
            drop(pool);
            seen.gate.open();
            seen.ends.reach(2);
        }
    });
}

#[test]
fn a_replacement_that_starts_when_the_run_ends_is_there_for_the_next() {
    no_hang(|| {
        let inits = Counter::new();
        let (begun, gate) = (Arc::new(Counter::new()), Arc::new(Gate::new()));
        let (begins, stuck) = (begun.clone(), gate.clone());
        let hooks = Hooks::new()
            .init(move |cx| match inits.add(1) {
                2 => {
                    begins.add(1);
                    while !cx.is_cancelled() {
                        std::thread::yield_now();
                    }
                    Err("given up".into())
                }
                _ => Ok(()),
            })
            .work(move |_, x| {
                if x == 0 {
                    stuck.pass();
                }
                Ok(x)
            });
        let builder = OrderedRunner::builder(hooks).devices(1).on_error(OnError::Skip);
        let mut pool = builder.item_timeout(SOON).replace_lost(1).build().unwrap();
        assert!(matches!(pool.run([0]).unwrap_err(), Error::TooFewProducers { .. }));
        // The run ends while the replacement is in its hook.
        let end = std::iter::from_fn(move || {
            begun.reach(1);
            None
        });
        assert_eq!(pool.run(end).unwrap(), [0u64; 0]);
        assert_eq!(pool.run(1..4).unwrap(), [1, 2, 3]);
        gate.open();
    });
}

#[test]
fn observers_get_an_event_for_each_replacement() {
    no_hang(|| {
        let seen = Seen::default();
        let told = Arc::new(std::sync::Mutex::new(vec![]));
        let sink = told.clone();
        let builder = OrderedRunner::builder(seen.stuck_at(&[1])).devices(1).timeline();
        let builder = builder.observer(move |_: Duration, event: &Event| match event {
            Event::ProducerAbandoned { producer, .. } => {
                sink.lock().unwrap().push(("lost", *producer));
            }
            Event::ProducerReplaced { producer, .. } => {
                sink.lock().unwrap().push(("new", *producer));
            }
            Event::ItemStarted { producer, .. } => assert_eq!(*producer, 0, "its place"),
            _ => {}
        });
        let mut pool = builder.item_timeout(SOON).replace_lost(1).build().unwrap();
        assert!(pool.run(0..2).unwrap_err().is_timeout());
        assert_eq!(*told.lock().unwrap(), [("lost", 0)]);
        pool.run(2..5).unwrap();
        assert_eq!(*told.lock().unwrap(), [("lost", 0), ("new", 0)]);
        let report = pool.report();
        assert_eq!(report.producers[0].items, 3, "{report}");
        let text = report.to_string();
        assert!(text.contains("producer 0 (cpu) was replaced once"), "{text}");
        seen.gate.open();
    });
}

#[test]
fn the_next_run_has_the_new_producer_and_not_the_lost_one() {
    no_hang(|| {
        for items in 1..40 {
            let broken = Arc::new(OnceLock::new());
            let works = broken.clone();
            let hooks = Hooks::new().work(move |cx, x| {
                let thread = std::thread::current().id();
                let is_broken = || *works.get_or_init(|| thread) == thread;
                if cx.producer() == 0 && is_broken() { Err("broken".into()) } else { Ok(x) }
            });
            let builder = UnorderedRunner::builder(hooks).devices(2).retries(1);
            let mut pool = builder.quarantine_after(1).replace_lost(1).build().unwrap();
            assert_eq!(pool.run(0..items).unwrap().len(), items as usize);
            // It is broken only once it has failed an item.
            let is_lost = broken.get().is_some();
            assert_eq!(pool.run(0..20).unwrap().len(), 20);
            let failed: u64 = pool.report().producers.iter().map(|it| it.failed).sum();
            assert!(failed == 0 || !is_lost, "{}", pool.report());
        }
    });
}
