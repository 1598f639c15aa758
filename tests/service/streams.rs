//! Streams beside the calls of a service.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use gangline::{Batch, Error, OrderedRunner, Service};

use crate::batches::{batches, passed};
use crate::hooks::Hooks;
use crate::runtimes::block_on;
use crate::support::{Counter, Gate, no_hang};

/// A service of one producer whose hook notes its items, and waits for the gate before the first.
fn noted(gate: &Arc<Gate>) -> (Service<Hooks>, Noted) {
    let (gate, noted) = (gate.clone(), Noted::default());
    let notes = noted.clone();
    let hooks = Hooks::new().work(move |_, x| {
        notes.items.lock().unwrap().push(x);
        notes.begun.add(1);
        gate.pass();
        Ok(x)
    });
    (OrderedRunner::new(hooks, 1).unwrap().into_service(), noted)
}

#[derive(Clone)]
struct Noted {
    items: Arc<Mutex<Vec<u64>>>,
    begun: Arc<Counter>,
}

impl Default for Noted {
    fn default() -> Self {
        Noted { items: Arc::default(), begun: Arc::new(Counter::new()) }
    }
}

impl Noted {
    fn items(&self) -> Vec<u64> {
        self.items.lock().unwrap().clone()
    }
}

/// These items, and a gate that is opened when all were offered.
fn offered(items: Range<u64>) -> (impl Iterator<Item = u64> + Send + 'static, Arc<Gate>) {
    let all = Arc::new(Gate::new());
    let opens = all.clone();
    let end = std::iter::from_fn(move || {
        opens.open();
        None
    });
    (items.chain(end), all)
}

#[test]
fn its_results_come_in_order_and_calls_are_answered_meanwhile() {
    no_hang(|| {
        let service = OrderedRunner::new(Hooks::new().work(|_, x| Ok(10 * x)), 3).unwrap();
        let service = service.into_service();
        let stream = service.stream(0..2_000);
        let taken = thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
        for x in 0..200 {
            assert_eq!(service.call(x).unwrap(), 10 * x);
            assert_eq!(block_on(service.call_async(x)).unwrap(), 10 * x);
        }
        assert!(taken.join().unwrap().into_iter().eq((0..2_000).map(|x| 10 * x)));
        assert_eq!((service.account().ok, service.stream_account().ok), (2_400, 2_000));
        assert_eq!(service.report().account.ok, 2_400);
    });
}

#[test]
fn calls_go_before_all_items_that_no_hook_has() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (service, noted) = noted(&gate);
        let mut stream = service.stream(100..110);
        let other = service.clone();
        let caller = thread::spawn({
            let (gate, noted) = (gate.clone(), noted.clone());
            move || {
                noted.begun.reach(1);
                let calls: Vec<_> = (0..5).map(|x| other.call_async(x)).collect();
                gate.open();
                calls.into_iter().for_each(|call| _ = block_on(call).unwrap());
            }
        });
        assert_eq!(stream.next().unwrap().unwrap(), 100);
        caller.join().unwrap();
        assert!(stream.map(Result::unwrap).eq(101..110));
        let expected: Vec<u64> = [100, 0, 1, 2, 3, 4].into_iter().chain(101..110).collect();
        assert_eq!(noted.items(), expected);
    });
}

#[test]
fn the_stream_has_its_share_while_calls_wait() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (service, noted) = noted(&gate);
        service.set_stream_share(50);
        let mut calls = vec![service.call_async(0)];
        noted.begun.reach(1);
        calls.extend((1..20).map(|x| service.call_async(x)));
        let (items, offered) = offered(100..110);
        let stream = service.stream(items);
        let taken = thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
        offered.pass();
        gate.open();
        calls.into_iter().for_each(|call| _ = block_on(call).unwrap());
        assert!(taken.join().unwrap().into_iter().eq(100..110));
        let in_turns = (1..11).flat_map(|x| [x, x + 99]);
        let expected: Vec<u64> = [0].into_iter().chain(in_turns).chain(11..20).collect();
        assert_eq!(noted.items(), expected);
    });
}

#[test]
fn it_is_pulled_as_far_as_its_window_and_only_while_results_are_taken() {
    no_hang(|| {
        let pulled = Arc::new(AtomicU64::new(0));
        let pulls = pulled.clone();
        let items = (0..1_000).inspect(move |_| _ = pulls.fetch_add(1, Ordering::Relaxed));
        let builder = OrderedRunner::builder(Hooks::new().work(|_, x| Ok(x))).devices(2);
        let service = builder.window(5).build().unwrap().into_service();
        let mut stream = service.stream(items);
        assert_eq!(pulled.load(Ordering::Relaxed), 0, "nothing before the first `next`");
        for taken in 1..50 {
            assert_eq!(stream.next().unwrap().unwrap(), taken - 1);
            assert!(pulled.load(Ordering::Relaxed) <= taken + 4, "five are open at most");
        }
        assert!(service.call(7).is_ok(), "it takes no places");
        assert_eq!(service.try_submit_all(vec![0; 5]).unwrap().len(), 5);
        drop(stream);
        assert!(pulled.load(Ordering::Relaxed) <= 54, "and none is pulled at the end");
    });
}

#[test]
fn an_item_that_fails_is_an_error_in_its_place() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, x| if x % 3 == 1 { Err("bad".into()) } else { Ok(x) });
        let service = OrderedRunner::new(hooks, 2).unwrap().into_service();
        let results: Vec<_> = service.stream(0..9).collect();
        for (x, result) in (0..).zip(results) {
            match result {
                Ok(y) => assert_eq!(y, x),
                Err(error) => {
                    assert!(x % 3 == 1 && matches!(error, Error::HookFailed { .. }), "{error:?}");
                }
            }
        }
        let account = service.stream_account();
        assert_eq!((account.ok, account.failed, account.cancelled), (6, 3, 0));
        assert_eq!(service.report().failures.len(), 3);
    });
}

#[test]
fn retries_save_items_of_the_stream_as_they_save_calls() {
    no_hang(|| {
        let failed = Arc::new(Mutex::new(HashSet::new()));
        let hooks =
            Hooks::new().work(move |_, x| match x % 4 == 0 && failed.lock().unwrap().insert(x) {
                true => Err("once".into()),
                false => Ok(x),
            });
        let builder = OrderedRunner::builder(hooks).devices(2).retries(1);
        let service = builder.build().unwrap().into_service();
        let stream = service.stream(0..100);
        let taken = thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
        (1_000..1_050).for_each(|x| assert_eq!(service.call(x).unwrap(), x));
        assert!(taken.join().unwrap().into_iter().eq(0..100));
        assert_eq!(service.account().ok, 150);
    });
}

#[test]
fn a_stream_fills_the_batch_of_a_call_up() {
    no_hang(|| {
        let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (passes, begins) = (gate.clone(), begun.clone());
        let seen = Arc::new(Mutex::new(vec![]));
        let sees = seen.clone();
        let runner = batches(move |_, inputs| {
            begins.add(1);
            passes.pass();
            sees.lock().unwrap().push(inputs.clone());
            passed(inputs)
        });
        let builder = OrderedRunner::builder(runner).devices(1).batch(Batch::up_to(4));
        let service = builder.build().unwrap().into_service();
        let mut calls = vec![service.call_async(0)];
        begun.reach(1);
        let (items, offered) = offered(100..107);
        let stream = service.stream(items);
        let taken = thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
        offered.pass();
        calls.extend((1..3).map(|x| service.call_async(x)));
        gate.open();
        calls.into_iter().for_each(|call| _ = block_on(call).unwrap());
        assert!(taken.join().unwrap().into_iter().eq(100..107));
        let expected = [vec![0], vec![1, 2, 100, 101], vec![102, 103, 104, 105], vec![106]];
        let mut batches = seen.lock().unwrap().clone();
        batches.iter_mut().for_each(|batch| batch.sort_unstable());
        assert_eq!(batches, expected);
    });
}

#[test]
fn a_dropped_stream_is_taken_back_and_disturbs_no_call() {
    no_hang(|| {
        let (begun, cancelled) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (begins, seen) = (begun.clone(), cancelled.clone());
        let hooks = Hooks::new().work(move |cx, x| {
            if x == 101 {
                begins.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                seen.open();
            }
            assert!(!(102..1_000).contains(&x), "it was taken back");
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let mut stream = service.stream(100..1_000);
        assert_eq!(stream.next().unwrap().unwrap(), 100);
        begun.pass();
        let calls: Vec<_> = (0..5).map(|x| service.call_async(x)).collect();
        drop(stream);
        cancelled.pass();
        for (x, call) in (0..).zip(calls) {
            assert_eq!(block_on(call).unwrap(), x);
        }
        let account = service.stream_account();
        assert_eq!((account.ok, account.failed), (1, 0));
        assert!((1..=64).contains(&account.cancelled), "{account:?}");
        let all = service.account();
        assert_eq!((all.ok, all.cancelled), (6, account.cancelled));
    });
}

#[test]
fn closing_the_service_ends_the_stream_with_an_error() {
    no_hang(|| {
        let begun = Arc::new(Counter::new());
        let begins = begun.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            begins.add(1);
            while x == 3 && !cx.is_cancelled() {
                thread::yield_now();
            }
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let mut stream = service.stream(0..);
        (0..3).for_each(|x| assert_eq!(stream.next().unwrap().unwrap(), x));
        let waiter = thread::spawn(move || {
            let last = stream.next();
            (last, stream.next().is_none() && stream.next().is_none())
        });
        begun.reach(4);
        service.close().unwrap();
        let (last, is_over) = waiter.join().unwrap();
        assert!(last.unwrap().unwrap_err().is_closed() && is_over);
        let mut late = service.stream(0..3);
        assert!(late.next().unwrap().unwrap_err().is_closed() && late.next().is_none());
    });
}

#[test]
fn a_drain_works_on_what_was_pulled_and_then_ends_the_stream() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (service, noted) = noted(&gate);
        let stream = service.stream(0..);
        let taker = thread::spawn(move || stream.collect::<Vec<_>>());
        noted.begun.reach(1);
        let other = service.clone();
        let drained = thread::spawn(move || other.drain(Duration::from_secs(25)));
        gate.open();
        assert!(drained.join().unwrap());
        let mut results = taker.join().unwrap();
        assert!(results.pop().unwrap().unwrap_err().is_closed());
        let pulled = results.len() as u64;
        assert!(results.into_iter().map(Result::unwrap).eq(0..pulled));
        assert_eq!(service.stream_account().ok, pulled);
    });
}

#[test]
fn a_source_that_panics_ends_the_stream_and_not_the_service() {
    no_hang(|| {
        let service = OrderedRunner::new(Hooks::new().work(|_, x| Ok(x)), 2).unwrap();
        let service = service.into_service();
        let items = (0..9).inspect(|&x| assert!(x != 5, "the source is broken"));
        let mut results: Vec<_> = service.stream(items).collect();
        let last = results.pop().unwrap().unwrap_err();
        assert!(matches!(last, Error::InputPanicked { item: 5, .. }), "{last:?}");
        assert!(results.into_iter().map(Result::unwrap).eq(0..5));
        assert_eq!(service.call(7).unwrap(), 7);
    });
}

#[test]
fn several_streams_share_the_gaps() {
    no_hang(|| {
        let service = OrderedRunner::new(Hooks::new().work(|_, x| Ok(x)), 2).unwrap();
        let service = service.into_service();
        let takers: Vec<_> = (0..5)
            .map(|i| {
                let stream = service.stream(1_000 * i..1_000 * i + 400);
                thread::spawn(move || {
                    assert!(stream.map(Result::unwrap).eq(1_000 * i..1_000 * i + 400));
                })
            })
            .collect();
        (0..100).for_each(|x| assert_eq!(service.call(x).unwrap(), x));
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        // Also on one thread, in turns.
        let (first, second) = (service.stream(0..200), service.stream(200..400));
        assert!(first.zip(second).all(|(a, b)| a.unwrap() + 200 == b.unwrap()));
        assert_eq!(service.stream_account().ok, 2_400);
    });
}

#[test]
fn a_hook_cannot_wait_for_a_stream_of_its_own_service() {
    no_hang(|| {
        let own = Arc::new(OnceLock::<Service<Hooks>>::new());
        let inner = own.clone();
        let hooks = Hooks::new().work(move |_, x| {
            let mut stream = inner.get().unwrap().stream(0..3);
            let error = stream.next().unwrap().unwrap_err();
            assert!(matches!(error, Error::OwnThread { .. }) && stream.next().is_none());
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        assert!(own.set(service.clone()).is_ok());
        assert_eq!(service.call(7).unwrap(), 7);
        service.close().unwrap();
    });
}

#[test]
fn deadlines_hold_for_calls_beside_a_stream() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (service, noted) = noted(&gate);
        let limited = service.with_deadline(Duration::from_millis(30));
        let stream = limited.stream(100..120);
        let taken = thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
        noted.begun.reach(1);
        let late = limited.call(1).unwrap_err();
        assert!(matches!(late, Error::DeadlineExceeded { .. }), "{late:?}");
        gate.open();
        assert!(taken.join().unwrap().into_iter().eq(100..120), "the stream has no deadline");
        assert!(!noted.items().contains(&1));
    });
}

#[test]
fn a_lost_producer_costs_the_stream_nothing() {
    no_hang(|| {
        let hooks = Hooks::new().work(|cx, x| {
            while x == 7 && !cx.is_cancelled() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(2);
        let builder = builder.item_timeout(Duration::from_millis(300));
        let service = builder.build().unwrap().into_service();
        let stream = service.stream(0..50);
        let taken = thread::spawn(move || stream.collect::<Vec<_>>());
        (100..150).for_each(|x| assert_eq!(service.call(x).unwrap(), x));
        for (x, result) in (0..).zip(taken.join().unwrap()) {
            match result {
                Ok(y) => assert_eq!(y, x),
                Err(error) => assert!(x == 7 && error.is_timeout(), "{error:?}"),
            }
        }
        assert_eq!(service.stream_account().failed, 1);
    });
}

#[test]
fn the_stream_ends_with_the_reason_of_a_service_that_ends_by_itself() {
    no_hang(|| {
        let hooks = Hooks::new().work(|cx, x| {
            while x == 7 && !cx.is_cancelled() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1);
        let builder = builder.item_timeout(Duration::from_millis(300));
        let service = builder.build().unwrap().into_service();
        let results: Vec<_> = service.stream(0..).collect();
        let (last, before) = results.split_last().unwrap();
        assert!(matches!(last, Err(Error::ServiceEnded { .. })), "{last:?}");
        assert!(before.iter().take(7).all(Result::is_ok));
        assert!(before.iter().skip(7).all(|it| it.as_ref().is_err_and(Error::is_timeout)));
    });
}

#[test]
fn a_cancel_ends_the_stream() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let passes = gate.clone();
        let hooks = Hooks::new().work(move |_, x| {
            passes.open();
            Ok(x)
        });
        let pool = OrderedRunner::new(hooks, 1).unwrap();
        let token = pool.cancel_token();
        let service = pool.into_service();
        let stream = service.stream(0..);
        let taker = thread::spawn(move || stream.last());
        gate.pass();
        token.cancel();
        let last = taker.join().unwrap().unwrap().unwrap_err();
        // As a call: an item may also be refused first.
        assert!(last.is_cancelled() || last.is_closed(), "{last:?}");
    });
}

/// A stream keeps its service open, as any handle does.
#[test]
fn the_last_handle_may_be_a_stream() {
    no_hang(|| {
        let service = OrderedRunner::new(Hooks::new().work(|_, x| Ok(x)), 2).unwrap();
        let service = service.into_service();
        let stream = service.stream(0..100);
        let Err(service) = service.into_pool() else { panic!("the stream is a handle") };
        drop(service);
        assert!(stream.map(Result::unwrap).eq(0..100));
    });
}
