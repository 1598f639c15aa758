//! Hooks that do not return: what happens to their batch, their run, and their thread when it comes back
//! after all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{
    AnyOrderRunner, Batch, Error, Hook, Journal, OnError, Order, OrderedRunner, Verdict,
};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// Opens its gate when it is dropped.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_consumer_that_comes_back_late_makes_no_summary() {
    no_hang(|| {
        let (gate, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let summarised = Arc::new(AtomicBool::new(false));
        let (stuck, flag, opens) = (gate.clone(), summarised.clone(), Opens(gone.clone()));
        let hooks = Hooks::new()
            .consume(move |_, y| {
                if y == 5 {
                    stuck.pass();
                }
                Ok(())
            })
            .consumer_end(move |_| {
                let _until_the_hooks_go = &opens;
                flag.store(true, SeqCst);
                Ok(())
            });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(2)
            .run_timeout(SOON)
            .build()
            .unwrap();
        let error = pool.run(0..50).unwrap_err();
        assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        drop(pool);
        gate.open();
        gone.pass();
        assert!(!summarised.load(SeqCst), "the run has failed");
    });
}

/// The limit on the run ended it, and the consumer does not return after that.
#[test]
fn a_state_that_is_stuck_when_dropped_hides_no_error() {
    struct Stuck(Arc<Gate>);
    impl Drop for Stuck {
        fn drop(&mut self) {
            self.0.pass();
        }
    }
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (work, state) = (gate.clone(), gate.clone());
        let runner = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 5 {
                    work.pass();
                }
                Ok(x)
            },
        );
        let runner = runner.fold(move |_| Ok(Stuck(state.clone())), |_, _, _| Ok(()));
        let mut runner =
            OrderedRunner::builder(runner).devices(2).run_timeout(SOON).build().unwrap();
        let error = runner.run(0..50).err().unwrap();
        assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        assert_eq!(runner.account().ok, 5);
        gate.open();
    });
}

#[test]
fn what_an_earlier_run_was_done_with_is_accounted_when_the_consumer_is_abandoned() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.journal");
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let hooks = Hooks::new().consume(move |_, y| {
            if y == 7 {
                stuck.pass();
            }
            Ok(())
        });
        let mut first = AnyOrderRunner::builder(Hooks::new())
            .devices(2)
            .journal(Journal::at(&path))
            .build()
            .unwrap();
        first.run(0..5).unwrap();
        let mut second = AnyOrderRunner::builder(hooks)
            .devices(2)
            .run_timeout(SOON)
            .journal(Journal::at(&path).resume())
            .build()
            .unwrap();
        let error = second.run(0..8).unwrap_err();
        assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        let account = second.account();
        assert_eq!((account.already_done, account.ok, account.cancelled), (5, 2, 1), "{account:?}");
        gate.open();
    });
}

/// Only the stuck producer knows the rest of a batch that was split.
#[test]
fn what_was_split_off_a_batch_that_is_stuck_goes_elsewhere() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (stuck, calls) = (gate.clone(), AtomicUsize::new(0));
        let hooks = Hooks::new().work(move |_, x| match x {
            0 if calls.fetch_add(1, SeqCst) > 0 => {
                stuck.pass();
                Ok(x)
            }
            3 => Err("bad".into()),
            _ => Ok(x),
        });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(2)
            .batch(Batch::of(4))
            .item_timeout(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let expected: Vec<u64> = (0..48).filter(|x| ![0, 1, 3].contains(x)).collect();
        assert_eq!(pool.run(0..48).unwrap(), expected);
        assert_eq!(pool.account().failed, 3);
        gate.open();
    });
}

/// The third `producer_init`, of two producers, is stuck.
fn stuck_at_the_third(gate: &Arc<Gate>, inits: &Arc<Counter>) -> Hooks {
    let (gate, inits) = (gate.clone(), inits.clone());
    Hooks::new().init(move |_| {
        if inits.add(1) == 3 {
            gate.pass();
        }
        Ok(())
    })
}

#[test]
fn a_state_that_is_made_anew_within_a_batch_has_so_much_time_too() {
    no_hang(|| {
        let (gate, inits) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let dies = AtomicBool::new(true);
        let hooks = stuck_at_the_third(&gate, &inits).work(move |_, x| {
            assert!(x != 3 || !dies.swap(false, SeqCst), "once");
            Ok(x)
        });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(2)
            .batch(Batch::of(4))
            .init_timeout(SOON)
            .build()
            .unwrap();
        assert_eq!(pool.run(0..48).unwrap(), (0..48).collect::<Vec<_>>());
        assert_eq!(pool.run(0..8).unwrap().len(), 8, "the other goes on");
        gate.open();
    });
}

/// As where it fails: no hook has seen the item.
#[test]
fn an_init_that_is_stuck_costs_no_item() {
    no_hang(|| {
        let (gate, inits) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let made = inits.clone();
        let hooks = stuck_at_the_third(&gate, &inits).work(move |_, x| {
            assert_ne!(x, 5, "dies");
            if x > 5 {
                made.reach(3);
            }
            Ok(x)
        });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(2)
            .init_timeout(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let expected: Vec<u64> = (0..50).filter(|&x| x != 5).collect();
        assert_eq!(pool.run(0..50).unwrap(), expected);
        assert_eq!((pool.account().failed, pool.failures().len()), (1, 1));
        gate.open();
    });
}

#[test]
fn an_init_that_was_abandoned_is_told() {
    no_hang(|| {
        let told = Arc::new(Gate::new());
        let gate = told.clone();
        let runner = map(
            move |cx| {
                if cx.producer() == 1 {
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                    gate.open();
                }
                Ok(())
            },
            |_, (), x: u64| Ok(x),
        );
        let builder = OrderedRunner::builder(runner).devices(2).min_producers(1).init_timeout(SOON);
        let mut runner = builder.build().unwrap();
        told.pass();
        assert_eq!(runner.run(0..5).unwrap().len(), 5);
    });
}

#[test]
fn a_report_has_what_a_producer_did_before_it_was_abandoned() {
    no_hang(|| {
        let (gate, done) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, others) = (gate.clone(), done.clone());
        let runner = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 40 {
                    others.reach(40);
                    stuck.pass();
                }
                others.add(1);
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(runner)
            .devices(2)
            .item_timeout(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..50);
        assert_eq!(outputs.unwrap().len(), 49);
        let items: u64 = report.producers.iter().map(|producer| producer.items).sum();
        assert_eq!(items, 49, "{report}");
        gate.open();
    });
}

/// The first copy of it can be made, and no other.
#[derive(Debug)]
struct CopiedOnce {
    copies: Arc<AtomicU64>,
}

impl Clone for CopiedOnce {
    fn clone(&self) -> Self {
        assert_eq!(self.copies.fetch_add(1, SeqCst), 0, "there is one already");
        CopiedOnce { copies: self.copies.clone() }
    }
}

/// An item that cannot be tried again is settled, and no producer waits for what others make of it.
#[test]
fn nobody_stays_suspended_for_an_item_that_is_settled() {
    for batch in [None, Some(Batch::up_to(2))] {
        no_hang(move || {
            let bad = map(|_| Ok(()), |_, (), _: CopiedOnce| Err::<u64, _>("bad".into()));
            let builder = OrderedRunner::builder(one_by_one(bad))
                .devices(2)
                .on_error(OnError::Skip)
                .quarantine_after(2);
            let builder = match batch {
                None => builder,
                Some(batch) => builder.batch(batch),
            };
            let mut runner = builder.build().unwrap();
            let items = (0..20).map(|_| CopiedOnce { copies: Arc::default() });
            assert!(runner.run(items).unwrap().is_empty());
            assert_eq!(runner.account().failed, 20);
        });
    }
}

/// A producer that ended the run by a panic has left it: an earlier item that fails elsewhere does not wait
/// for it.
#[test]
fn an_item_does_not_wait_for_a_producer_that_has_left() {
    no_hang(|| {
        let gate = Gate::new();
        let hooks = Hooks::new().work(move |cx, x| match (x, cx.attempt()) {
            (3, 1) => {
                gate.pass();
                Err("try again".into())
            }
            (5, _) => {
                gate.open();
                panic!("ends the run")
            }
            _ => Ok(x),
        });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(2)
            .batch(Batch::up_to(1))
            .retries(1)
            .backoff(Duration::ZERO, Duration::ZERO)
            .classify(|error| if error.is_panic() { Verdict::Stop } else { Verdict::Retry })
            .build()
            .unwrap();
        let error = pool.run(0..50).unwrap_err();
        assert_eq!((error.item(), error.is_panic()), (Some(5), true), "{error:#}");
        assert_eq!(pool.account().ok, 5);
    });
}

/// The last one stays for them as long as they are wanted, and has them fail.
#[test]
fn items_to_be_tried_again_are_not_forgotten_by_the_last_producer() {
    no_hang(|| {
        let inits = AtomicU64::new(0);
        let hooks = Hooks::new()
            .init(
                move |_| {
                    if inits.fetch_add(1, SeqCst) == 0 { Ok(()) } else { Err("gone".into()) }
                },
            )
            .work(|_, x| match x {
                0 => Err("try again".into()),
                1 => panic!("costs the state"),
                _ => Ok(x),
            });
        let mut pool = AnyOrderRunner::builder(hooks)
            .order(Order::Input)
            .devices(1)
            .batch(Batch::up_to(1))
            .on_error(OnError::Skip)
            .retries(1)
            .backoff(SOON, SOON)
            .build()
            .unwrap();
        let error = pool.run(0..50).unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerInit), "{error:#}");
        let account = pool.account();
        assert_eq!((account.ok, account.failed), (0, 1), "{account:?}");
    });
}
