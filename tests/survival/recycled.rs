//! States that are ended and built anew after a number of items.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use gangline::{Batch, CancelToken, Error, Hook, OnError, OrderedRunner, UnorderedRunner};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// Gives each item the number of items that its state has seen.
fn aging() -> crate::support::Tasks<'static, u64, u64> {
    map(
        |_| Ok(0),
        |_, age: &mut u64, _: u64| {
            *age += 1;
            Ok(*age)
        },
    )
}

#[test]
fn no_state_sees_more_items_than_that() {
    no_hang(|| {
        let mut pool =
            OrderedRunner::builder(aging()).devices(3).recycle_after(10).build().unwrap();
        let ages = pool.run(0..500).unwrap();
        assert_eq!((ages.len(), ages.iter().max()), (500, Some(&10)));
        let report = pool.report();
        let recycles: u64 = report.producers.iter().map(|producer| producer.recycles).sum();
        assert!(recycles >= 500 / 10 - 3, "{report}");
        let rebuilds: u64 = report.producers.iter().map(|producer| producer.rebuilds).sum();
        let failed: u64 = report.producers.iter().map(|producer| producer.failed).sum();
        assert_eq!((rebuilds, failed), (0, 0), "it is no fault");
        assert!(report.to_string().contains("recycled its state"), "{report}");
    });
}

#[test]
fn the_first_states_do_not_all_end_at_the_same_age() {
    no_hang(|| {
        let all = Arc::new(std::sync::Barrier::new(4));
        let counts: Arc<[AtomicU64; 4]> = Arc::default();
        let first_ends = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
        let (worked, seen, ends) = (counts.clone(), counts, first_ends.clone());
        let hooks = Hooks::new()
            .work(move |cx, x| {
                // Each producer works on one item of each round.
                all.wait();
                worked[cx.producer()].fetch_add(1, SeqCst);
                Ok(x)
            })
            .end(move |cx| {
                let age = seen[cx.producer()].load(SeqCst);
                ends.lock().unwrap().entry(cx.producer()).or_insert(age);
                Ok(())
            });
        let mut pool = UnorderedRunner::builder(hooks).devices(4).recycle_after(8).build().unwrap();
        assert_eq!(pool.run(0..40).unwrap().len(), 40);
        let ages: Vec<u64> = first_ends.lock().unwrap().values().copied().collect();
        assert_eq!(ages, [2, 4, 6, 8]);
    });
}

#[test]
fn each_state_ends_before_the_next_is_built_and_none_at_the_end_of_a_run() {
    no_hang(|| {
        let told = Arc::new(Mutex::new(vec![]));
        let (inits, ends, works) = (told.clone(), told.clone(), told.clone());
        let hooks = Hooks::new()
            .init(move |_| {
                inits.lock().unwrap().push("init");
                Ok(())
            })
            .end(move |_| {
                ends.lock().unwrap().push("end");
                Ok(())
            })
            .work(move |_, x| {
                works.lock().unwrap().push("work");
                Ok(x)
            });
        let mut pool = OrderedRunner::builder(hooks).devices(1).recycle_after(2).build().unwrap();
        assert_eq!(pool.run(0..4).unwrap(), [0, 1, 2, 3]);
        let expected = ["init", "work", "work", "end", "init", "work", "work"];
        assert_eq!(*told.lock().unwrap(), expected, "there is no item for another state");
        assert_eq!(pool.run(4..5).unwrap(), [4]);
        pool.close().unwrap();
        let expected =
            ["init", "work", "work", "end", "init", "work", "work", "end", "init", "work", "end"];
        assert_eq!(*told.lock().unwrap(), expected);
    });
}

#[test]
fn all_items_of_a_batch_count() {
    no_hang(|| {
        let builder = OrderedRunner::builder(one_by_one(aging())).devices(1).batch(Batch::of(4));
        let mut pool = builder.recycle_after(6).build().unwrap();
        let ages = pool.run(0..20).unwrap();
        let life = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(ages, [&life[..], &life[..], &life[..4]].concat(), "whole batches");
        assert_eq!(pool.report().producers[0].recycles, 2);
    });
}

#[test]
fn an_init_that_fails_loses_the_producer_and_no_item() {
    no_hang(|| {
        let inits = AtomicU64::new(0);
        let hooks = Hooks::new().init(move |cx| match cx.producer() {
            1 if inits.fetch_add(1, SeqCst) > 0 => Err("the device is busy".into()),
            _ => Ok(()),
        });
        let builder = OrderedRunner::builder(hooks).devices(2).on_error(OnError::Skip);
        let mut pool = builder.recycle_after(5).build().unwrap();
        let mut next = 0;
        // Until the second producer has come to it.
        while pool.report().producers.get(1).is_none_or(|it| it.quarantined.is_none()) {
            assert_eq!(pool.run(next..next + 50).unwrap(), (next..next + 50).collect::<Vec<_>>());
            next += 50;
        }
        assert_eq!(pool.run(0..50).unwrap().len(), 50, "with the other");
    });
}

#[test]
fn the_last_producer_that_cannot_be_recycled_ends_the_run_with_its_error() {
    no_hang(|| {
        let inits = AtomicU64::new(0);
        let hooks = Hooks::new().init(move |_| match inits.fetch_add(1, SeqCst) {
            0 => Ok(()),
            _ => Err("the device is busy".into()),
        });
        let mut pool = OrderedRunner::builder(hooks).devices(1).recycle_after(5).build().unwrap();
        let error = pool.run(0..50).unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerInit), "{error:#}");
        assert_eq!((pool.account().failed, error.items().len()), (0, 0));
    });
}

#[test]
fn an_end_that_fails_is_reported_by_close() {
    no_hang(|| {
        let ends = AtomicU64::new(0);
        let hooks = Hooks::new().end(move |_| match ends.fetch_add(1, SeqCst) {
            0 => Err("the library is confused".into()),
            _ => Ok(()),
        });
        let mut pool = OrderedRunner::builder(hooks).devices(1).recycle_after(5).build().unwrap();
        assert_eq!(pool.run(0..20).unwrap().len(), 20);
        let error = pool.close().unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerEnd), "{error:#}");
        assert!(format!("{error:#}").contains("the library is confused"));
    });
}

/// Its producer is abandoned, and replaced for the next run.
#[test]
fn an_end_that_does_not_return_between_two_items_holds_up_no_run() {
    no_hang(|| {
        let (gate, ends) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, begun) = (gate.clone(), ends.clone());
        let hooks = Hooks::new().end(move |_| {
            if begun.add(1) == 1 {
                stuck.pass();
            }
            Ok(())
        });
        let builder = OrderedRunner::builder(hooks).devices(2).recycle_after(5);
        let mut pool = builder.end_timeout(SOON).replace_lost(1).build().unwrap();
        assert_eq!(pool.run(0..20).unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(pool.run(0..4).unwrap().len(), 4);
        let report = pool.report();
        assert_eq!(report.producers.iter().map(|it| it.replacements).sum::<u64>(), 1);
        gate.open();
        pool.close().unwrap();
    });
}

#[test]
fn without_another_producer_that_end_is_the_error_of_the_run() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let hooks = Hooks::new().end(move |_| {
            stuck.pass();
            Ok(())
        });
        let builder = OrderedRunner::builder(hooks).devices(1).recycle_after(5);
        let mut pool = builder.end_timeout(SOON).build().unwrap();
        let error = pool.run(0..20).unwrap_err();
        let Error::TimedOut { hook, limit, .. } = &error else { panic!("{error:#}") };
        assert_eq!((*hook, *limit, error.producer()), (Hook::ProducerEnd, SOON, Some(0)));
        gate.open();
    });
}

#[test]
fn services_recycle_too_and_count_their_items() {
    no_hang(|| {
        let pool = UnorderedRunner::builder(aging()).devices(1).recycle_after(3).build().unwrap();
        let service = pool.into_service();
        let ages: Vec<u64> = (0..8).map(|x| service.call(x).unwrap()).collect();
        assert_eq!(ages, [1, 2, 3, 1, 2, 3, 1, 2]);
        let report = service.report();
        assert_eq!((report.account.ok, report.producers[0].recycles), (8, 2), "{report}");
        let pool = service.into_pool().ok().unwrap();
        assert_eq!(pool.report().producers[0].items, 8);
    });
}

#[test]
fn a_life_of_no_items_is_refused() {
    let error = OrderedRunner::builder(Hooks::new()).devices(1).recycle_after(0).build();
    let text = error.err().unwrap().to_string();
    assert!(text.starts_with("recycle_after must be at least 1 item, got 0"), "{text}");
}

/// The producer has to pass over the items that it has taken, and no state is recycled for them.
#[test]
fn a_producer_whose_state_is_due_leaves_a_run_that_is_cancelled() {
    no_hang(|| {
        let (token, pulled) = (CancelToken::new(), Arc::new(Counter::new()));
        let (cancel, seen) = (token.clone(), pulled.clone());
        let hooks = Hooks::new().work(move |_, x| {
            // Those behind the first are taken together.
            seen.reach(7);
            if x == 1 {
                cancel.cancel();
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).window(8).recycle_after(2);
        let mut pool = builder.cancel_token(token).build().unwrap();
        let items = (0..10).inspect(|_| _ = pulled.add(1));
        assert!(pool.run(items).unwrap_err().is_cancelled());
    });
}
