//! Every item pulled is exactly one of ok, failed, already done and cancelled, however a run ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{AnyOrderRunner, CancelToken, Order, Result};

use crate::hooks::{Hooks, both_orders};

const ITEMS: u64 = 60;

/// How a run ends, or the hook or item at which it is made to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Complete,
    ProducerFails(u64),
    ProducerPanics(u64),
    ConsumerInitFails,
    ConsumerInitPanics,
    ConsumerFails(u64),
    ConsumerPanics(u64),
    ConsumerEndFails,
    SourceFails(u64),
    SourcePanics(u64),
    StopsAtInit,
    Stops(u64),
    StopsAndFails(u64),
    CancelledBefore,
    Cancelled(u64),
    CancelledByProducer(u64),
    FinishedBefore,
    Finished(u64),
    Closed,
}

use End::*;

const ENDS: &[End] = &[
    Complete,
    ProducerFails(0),
    ProducerFails(33),
    ProducerFails(ITEMS - 1),
    ProducerPanics(0),
    ProducerPanics(33),
    ConsumerInitFails,
    ConsumerInitPanics,
    ConsumerFails(0),
    ConsumerFails(33),
    ConsumerFails(ITEMS - 1),
    ConsumerPanics(33),
    ConsumerEndFails,
    SourceFails(0),
    SourceFails(33),
    SourcePanics(0),
    SourcePanics(33),
    StopsAtInit,
    Stops(0),
    Stops(33),
    Stops(ITEMS - 1),
    StopsAndFails(33),
    CancelledBefore,
    Cancelled(0),
    Cancelled(33),
    CancelledByProducer(33),
    FinishedBefore,
    Finished(0),
    Finished(33),
    Closed,
];

both_orders!(a_run_adds_up, a_stream_adds_up, a_dropped_stream_adds_up);

fn hooks(end: End, token: &CancelToken, ok: &Arc<AtomicU64>) -> Hooks {
    let (by_producer, by_consumer, ok) = (token.clone(), token.clone(), ok.clone());
    Hooks::new()
        .work(move |_, x| {
            assert!(end != ProducerPanics(x), "no {x}");
            if end == CancelledByProducer(x) {
                by_producer.cancel();
            }
            if end == ProducerFails(x) { Err("no".into()) } else { Ok(x) }
        })
        .consumer_init(move |cx| {
            assert!(end != ConsumerInitPanics);
            if end == StopsAtInit {
                cx.stop();
            }
            if end == ConsumerInitFails { Err("no".into()) } else { Ok(()) }
        })
        .consume(move |cx, y| {
            assert!(end != ConsumerPanics(y), "no {y}");
            if end == Stops(y) || end == StopsAndFails(y) {
                cx.stop();
            } else if end == Cancelled(y) {
                by_consumer.cancel();
            } else if end == Finished(y) {
                by_consumer.drain();
            }
            if end == ConsumerFails(y) || end == StopsAndFails(y) {
                return Err("no".into());
            }
            ok.fetch_add(1, SeqCst);
            Ok(())
        })
        .consumer_end(move |_| if end == ConsumerEndFails { Err("no".into()) } else { Ok(()) })
}

fn pool(end: End, order: Order, ok: &Arc<AtomicU64>) -> AnyOrderRunner<Hooks> {
    let token = CancelToken::new();
    let hooks = hooks(end, &token, ok);
    let builder =
        AnyOrderRunner::builder(hooks).order(order).devices(3).cancel_token(token.clone());
    let mut pool = builder.build().unwrap();
    match end {
        CancelledBefore => token.cancel(),
        FinishedBefore => token.drain(),
        Closed => pool.close().unwrap(),
        _ => {}
    }
    pool
}

/// The input, with a `size_hint` that is exact or not, counting what is pulled.
fn items(end: End, exact: bool, pulled: &AtomicU64) -> Box<dyn Iterator<Item = Result<u64>> + '_> {
    let items = (0..ITEMS).map(move |x| {
        pulled.fetch_add(1, SeqCst);
        assert!(end != SourcePanics(x), "torn page");
        if end == SourceFails(x) { Err("torn page".into()) } else { Ok(x) }
    });
    if exact { Box::new(items) } else { Box::new(items.filter(|_| true)) }
}

#[track_caller]
fn check(pool: &AnyOrderRunner<Hooks>, what: (End, bool), ok: u64, pulled: u64, is_ok: bool) {
    let account = pool.account();
    let sum = account.ok + account.failed + account.already_done + account.cancelled;
    assert_eq!(sum, pulled, "{what:?} {account:?}");
    assert_eq!(account.ok, ok, "{what:?} {account:?}");
    let (end, exact) = what;
    match account.unread {
        Some(unread) => assert_eq!(unread, ITEMS - pulled, "{what:?} {account:?}"),
        None => assert!(!exact, "{what:?} {account:?}"),
    }
    assert!(exact || account.unread.is_none() || pulled == ITEMS, "{what:?} {account:?}");
    let failed = match end {
        ProducerFails(_) | ProducerPanics(_) | ConsumerFails(_) | ConsumerPanics(_)
        | SourceFails(_) | SourcePanics(_) | StopsAndFails(_) => 1,
        _ => 0,
    };
    assert_eq!((account.failed, account.already_done), (failed, 0), "{what:?} {account:?}");
    let ends_well = matches!(end, Complete | StopsAtInit | Stops(_) | FinishedBefore | Finished(_));
    assert_eq!(is_ok, ends_well, "{what:?} {account:?}");
    if let Finished(_) | Complete = end {
        assert_eq!(account.cancelled, 0, "{what:?} {account:?}");
    }
}

fn a_run_adds_up(order: Order) {
    for &end in ENDS {
        for exact in [true, false] {
            let (ok, pulled) = (Arc::default(), AtomicU64::new(0));
            let mut pool = pool(end, order, &ok);
            let result = pool.try_run(items(end, exact, &pulled));
            check(&pool, (end, exact), ok.load(SeqCst), pulled.load(SeqCst), result.is_ok());
        }
    }
}

/// The ends that a stream can have: it has no consumer.
fn a_stream_adds_up(order: Order) {
    let ends = ENDS.iter().filter(|end| {
        matches!(
            end,
            Complete
                | ProducerFails(_)
                | ProducerPanics(_)
                | SourceFails(_)
                | SourcePanics(_)
                | CancelledBefore
                | CancelledByProducer(_)
                | FinishedBefore
                | Closed
        )
    });
    for &end in ends {
        for exact in [true, false] {
            let (mut ok, mut is_ok, pulled) = (0, true, AtomicU64::new(0));
            let mut pool = pool(end, order, &Arc::default());
            for output in pool.try_outputs(items(end, exact, &pulled)) {
                match output {
                    Ok(_) => ok += 1,
                    Err(_) => is_ok = false,
                }
            }
            check(&pool, (end, exact), ok, pulled.load(SeqCst), is_ok);
        }
    }
}

fn a_dropped_stream_adds_up(order: Order) {
    for yielded in [0, 1, 30, ITEMS] {
        for exact in [true, false] {
            let pulled = AtomicU64::new(0);
            let mut pool = pool(Complete, order, &Arc::default());
            let stream = pool.try_outputs(items(Complete, exact, &pulled));
            assert_eq!(stream.take(yielded as usize).count() as u64, yielded);
            check(&pool, (Stops(yielded), exact), yielded, pulled.load(SeqCst), true);
        }
    }
}
