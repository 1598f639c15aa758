//! Streams whose items one thread sends and whose results another takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gangline::service::{SendError, StreamOptions, StreamReceiver, StreamSender};
use gangline::{Error, Order, OrderedRunner, ProducerContext, Result, Service};

use crate::hooks::Hooks;
use crate::runtimes::block_on;
use crate::support::{Counter, Gate, LIMIT, no_hang};

fn service<F>(producers: usize, work: F) -> Service<Hooks>
where
    F: Fn(&ProducerContext<'_>, u64) -> Result<u64> + Send + Sync + 'static,
{
    OrderedRunner::new(Hooks::new().work(work), producers).unwrap().into_service()
}

/// Sends all that there is room for, until the items or the stream end. Returns the number of items that were sent.
fn feed(
    mut sender: StreamSender<Hooks>,
    items: impl IntoIterator<Item = u64, IntoIter: Send + 'static>,
) -> JoinHandle<u64> {
    let mut items = items.into_iter();
    thread::spawn(move || {
        let mut sent = 0;
        loop {
            let room = sender.room();
            let chunk: Vec<u64> = items.by_ref().take(room).collect();
            let count = chunk.len() as u64;
            if chunk.is_empty() || sender.send_some(chunk).is_err() {
                return sent;
            }
            sent += count;
        }
    })
}

/// The outputs of a stream without failures, in the order in which they come.
fn outputs(results: StreamReceiver<Hooks>) -> Vec<u64> {
    results.map(|next| next.result.unwrap()).collect()
}

fn soon() -> Instant {
    Instant::now() + LIMIT
}

#[test]
fn results_come_in_input_order_and_calls_are_answered_meanwhile() {
    no_hang(|| {
        let service = service(3, |_, x| Ok(10 * x));
        let (sender, results) = service.open_stream(StreamOptions::new());
        let feeder = feed(sender, 0..2_000);
        let taken = thread::spawn(move || {
            results.enumerate().for_each(|(i, next)| {
                assert_eq!((next.index, next.result.unwrap()), (i as u64, 10 * i as u64));
            });
        });
        (0..200).for_each(|x| assert_eq!(service.call(x).unwrap(), 10 * x));
        assert_eq!(feeder.join().unwrap(), 2_000);
        taken.join().unwrap();
        assert_eq!((service.account().ok, service.stream_account().ok), (2_200, 2_000));
    });
}

#[test]
fn in_completion_order_a_slow_item_holds_no_other_back() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let passes = gate.clone();
        let service = service(2, move |_, x| {
            if x == 0 {
                passes.pass();
            }
            Ok(x)
        });
        let options = StreamOptions::new().order(Order::Completion).window(8);
        let (sender, mut results) = service.open_stream(options);
        let feeder = feed(sender, 0..100);
        let mut taken: Vec<u64> = (0..99).map(|_| results.next().unwrap().index).collect();
        gate.open();
        assert_eq!(results.next().unwrap().index, 0);
        assert!(results.next().is_none());
        taken.sort_unstable();
        assert!(taken.into_iter().eq(1..100));
        assert_eq!(feeder.join().unwrap(), 100);
    });
}

#[test]
fn no_more_items_are_open_than_the_window() {
    no_hang(|| {
        let service = service(2, |_, x| Ok(x));
        let (mut sender, mut results) = service.open_stream(StreamOptions::new().window(4));
        assert_eq!(sender.room(), 4);
        sender.send_some(vec![0, 1, 2]).unwrap();
        assert_eq!(sender.room(), 1);
        sender.send(3).unwrap();
        assert!(sender.poll_room(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!((0..3).all(|i| results.next().unwrap().index == i));
        assert_eq!(sender.room(), 3, "results that were not taken count");
        assert_eq!(service.try_submit_all(vec![7; 9]).unwrap().len(), 9, "it takes no places");
    });
}

/// More items than there is room for are sent as it comes.
#[test]
fn items_without_room_wait_for_it() {
    no_hang(|| {
        for window in 1..6 {
            let service = service(2, |_, x| Ok(x));
            let options = StreamOptions::new().window(window);
            let (mut sender, results) = service.open_stream(options);
            let feeder = thread::spawn(move || {
                sender.send_some((0..100).collect()).unwrap();
                (100..200).for_each(|x| sender.send(x).unwrap());
            });
            assert!(outputs(results).into_iter().eq(0..200), "with a window of {window}");
            feeder.join().unwrap();
        }
    });
}

#[test]
fn memory_bounds_the_open_items() {
    no_hang(|| {
        let service = service(1, |_, x| Ok(x));
        let options = StreamOptions::new().window(50).memory(100_u64, |x| *x, |x: &u64| *x);
        let (mut sender, mut results) = service.open_stream(options);
        sender.send(10).unwrap();
        assert!(results.wait_until(soon()));
        assert_eq!(sender.room(), 9, "ten of ten bytes");
        sender.send_some(vec![10; 9]).unwrap();
        assert!(sender.poll_room(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(results.next().unwrap().result.unwrap(), 10);
        assert_eq!(sender.room(), 1);
        let large = thread::spawn(move || {
            sender.send_some(vec![101, 5]).unwrap();
            sender
        });
        assert!((0..9).all(|_| results.next().unwrap().result.unwrap() == 10));
        assert_eq!(results.next().unwrap().result.unwrap(), 101, "it goes alone");
        assert_eq!(results.next().unwrap().result.unwrap(), 5);
        large.join().unwrap().finish();
        assert!(results.next().is_none());
    });
}

#[test]
fn some_items_may_be_open_whatever_they_take() {
    no_hang(|| {
        let service = service(1, |_, x| Ok(x));
        let options = StreamOptions::new().least_open(3).memory(1_u64, |_| 100, |_: &u64| 100);
        let (mut sender, mut results) = service.open_stream(options);
        for first in 0..4 {
            assert_eq!(sender.room(), 3);
            sender.send_some(vec![first; 3]).unwrap();
            assert!(sender.poll_room(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!((0..3).all(|_| results.next().unwrap().result.unwrap() == first));
        }
    });
}

#[test]
fn a_size_function_that_panics_fails_its_item() {
    no_hang(|| {
        let service = service(2, |_, x| Ok(x));
        let size = |bad: u64| {
            move |x: &u64| {
                assert!(*x != bad, "it has no size");
                1
            }
        };
        let options = StreamOptions::new().memory(50_u64, size(3), size(5));
        let (sender, results) = service.open_stream(options);
        let feeder = feed(sender, 0..8);
        for (x, next) in (0..).zip(results) {
            match next.result {
                Ok(output) => assert_eq!(output, x),
                Err(Error::MeasurePanicked { .. }) => assert!(x == 3 || x == 5),
                Err(other) => panic!("{other:?}"),
            }
        }
        feeder.join().unwrap();
        let account = service.stream_account();
        assert_eq!((account.ok, account.failed, account.cancelled), (6, 2, 0));
        assert_eq!(service.report().failures.len(), 2);
    });
}

#[test]
fn results_come_while_the_input_blocks() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let blocks = gate.clone();
        let service = service(2, |_, x| Ok(x));
        let (mut sender, mut results) = service.open_stream(StreamOptions::new());
        let feeder = thread::spawn(move || {
            sender.send_some(vec![0, 1, 2]).unwrap();
            blocks.pass();
            sender.send(3).unwrap();
        });
        assert!((0..3).all(|i| results.next().unwrap().index == i));
        gate.open();
        assert_eq!(results.next().unwrap().index, 3);
        assert!(results.next().is_none() && results.next().is_none());
        feeder.join().unwrap();
    });
}

#[test]
fn an_item_that_fails_is_an_error_in_its_place() {
    no_hang(|| {
        let service = service(2, |_, x| if x % 3 == 1 { Err("bad".into()) } else { Ok(x) });
        let (sender, results) = service.open_stream(StreamOptions::new());
        feed(sender, 0..9).join().unwrap();
        let failed = results.filter_map(|next| next.result.is_err().then_some(next.index));
        assert_eq!(failed.collect::<Vec<_>>(), [1, 4, 7]);
        let account = service.stream_account();
        assert_eq!((account.ok, account.failed, account.cancelled), (6, 3, 0));
    });
}

#[test]
fn several_streams_and_calls_share_a_service() {
    no_hang(|| {
        let service = service(3, |_, x| Ok(x));
        let streams: Vec<_> = (0..5)
            .map(|i| {
                let order = if i % 2 == 0 { Order::Input } else { Order::Completion };
                let options = StreamOptions::new().order(order).window(3 + i as usize);
                let (sender, results) = service.open_stream(options);
                let feeder = feed(sender, 1_000 * i..1_000 * i + 400);
                (i, feeder, thread::spawn(move || outputs(results)))
            })
            .collect();
        let (old, one_by_one) = (service.stream(0..300), service.stream(0..300));
        assert!(old.zip(one_by_one).all(|(a, b)| a.unwrap() == b.unwrap()));
        (0..100).for_each(|x| assert_eq!(service.call(x).unwrap(), x));
        for (i, feeder, taken) in streams {
            let mut taken = taken.join().unwrap();
            if i % 2 == 1 {
                taken.sort_unstable();
            }
            assert!(taken.into_iter().eq(1_000 * i..1_000 * i + 400), "stream {i}");
            assert_eq!(feeder.join().unwrap(), 400);
        }
        assert_eq!((service.account().ok, service.stream_account().ok), (2_700, 2_600));
    });
}

#[test]
fn calls_go_before_items_that_no_hook_has() {
    no_hang(|| {
        let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let seen = Arc::new(Mutex::new(vec![]));
        let (passes, begins, sees) = (gate.clone(), begun.clone(), seen.clone());
        let service = service(1, move |_, x| {
            sees.lock().unwrap().push(x);
            begins.add(1);
            passes.pass();
            Ok(x)
        });
        let (mut sender, results) = service.open_stream(StreamOptions::new());
        sender.send_some((100..105).collect()).unwrap();
        begun.reach(1);
        let calls: Vec<_> = (0..3).map(|x| service.call_async(x)).collect();
        gate.open();
        calls.into_iter().for_each(|call| _ = block_on(call).unwrap());
        sender.finish();
        assert!(outputs(results).into_iter().eq(100..105));
        assert_eq!(*seen.lock().unwrap(), [100, 0, 1, 2, 101, 102, 103, 104]);
    });
}

#[test]
fn what_is_ready_is_taken_without_waiting() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let passes = gate.clone();
        let service = service(2, move |_, x| {
            if x == 3 {
                passes.pass();
            }
            Ok(x)
        });
        let (mut sender, mut results) = service.open_stream(StreamOptions::new());
        assert!(results.take_ready(5).is_empty());
        sender.send_some((0..6).collect()).unwrap();
        sender.finish();
        let mut taken = vec![];
        while taken.len() < 3 {
            assert!(results.wait_until(soon()));
            taken.extend(results.take_ready(2).iter().map(|next| next.index));
            assert!(results.take_ready(0).is_empty());
        }
        assert_eq!(taken, [0, 1, 2]);
        assert!(!results.wait_until(Instant::now()), "the next waits for the gate");
        gate.open();
        assert_eq!(results.next().unwrap().index, 3);
        assert_eq!(outputs(results), [4, 5]);
    });
}

/// Counts how often it is woken.
struct Bell(Counter);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.add(1);
    }
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let passes = gate.clone();
        let service = service(1, move |_, x| {
            passes.pass();
            Ok(x)
        });
        let (mut sender, mut results) = service.open_stream(StreamOptions::new().window(1));
        let bells: Vec<_> = (0..3).map(|_| Arc::new(Bell(Counter::new()))).collect();
        let wakers: Vec<_> = bells.iter().map(|bell| Waker::from(bell.clone())).collect();
        sender.send(7).unwrap();
        for waker in &wakers {
            let mut cx = Context::from_waker(waker);
            assert!(
                results.poll_next(&mut cx).is_pending() && sender.poll_room(&mut cx).is_pending()
            );
        }
        gate.open();
        bells[2].0.reach(1);
        let mut cx = Context::from_waker(&wakers[0]);
        let Poll::Ready(Some(next)) = results.poll_next(&mut cx) else { panic!("it was woken") };
        assert_eq!(next.result.unwrap(), 7);
        bells[2].0.reach(2);
        assert!(matches!(sender.poll_room(&mut cx), Poll::Ready(1)));
        drop(wakers);
        assert!(bells[..2].iter().all(|bell| Arc::strong_count(bell) == 1), "none is kept");
    });
}

#[test]
fn a_dropped_receiver_gives_up_what_is_open() {
    no_hang(|| {
        let (begun, cancelled) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (begins, seen) = (begun.clone(), cancelled.clone());
        let service = service(1, move |cx, x| {
            if x == 101 {
                begins.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                seen.open();
            }
            assert!(!(102..200).contains(&x), "it was taken back");
            Ok(x)
        });
        let (sender, mut results) = service.open_stream(StreamOptions::new().window(10));
        let feeder = feed(sender, 100..200);
        assert_eq!(results.next().unwrap().result.unwrap(), 100);
        begun.pass();
        let call = service.call_async(7);
        drop(results);
        cancelled.pass();
        assert_eq!(block_on(call).unwrap(), 7);
        let sent = feeder.join().unwrap();
        let account = service.stream_account();
        assert_eq!((account.ok, account.failed, account.cancelled), (1, 0, sent - 1));
        assert!((10..=15).contains(&sent), "{sent}");
    });
}

#[test]
fn a_sender_whose_receiver_is_gone_has_no_room() {
    no_hang(|| {
        let service = service(1, |_, x| Ok(x));
        let (mut sender, results) = service.open_stream(StreamOptions::new().window(2));
        sender.send_some(vec![1, 2]).unwrap();
        let waits = thread::spawn(move || (sender.room(), sender));
        drop(results);
        let (room, mut sender) = waits.join().unwrap();
        assert_eq!(room, 0);
        assert_eq!(sender.send(3), Err(SendError(3)));
        assert_eq!(sender.send_some(vec![4, 5]), Err(SendError(vec![4, 5])));
        assert_eq!(service.call(7).unwrap(), 7);
    });
}

#[test]
fn a_dropped_sender_ends_the_input() {
    no_hang(|| {
        let service = service(2, |_, x| Ok(x));
        let (mut sender, results) = service.open_stream(StreamOptions::new());
        sender.send_some(vec![0, 1]).unwrap();
        drop(sender);
        assert_eq!(outputs(results), [0, 1]);
        let (sender, mut results) = service.open_stream(StreamOptions::new());
        let waits = thread::spawn(move || results.next().is_none());
        sender.finish();
        assert!(waits.join().unwrap());
    });
}

/// A service of one producer that is busy until it is cancelled, from item 3 on.
fn busy_from_three() -> (Service<Hooks>, Arc<Counter>) {
    let begun = Arc::new(Counter::new());
    let begins = begun.clone();
    let service = service(1, move |cx, x| {
        begins.add(1);
        while x == 3 && !cx.is_cancelled() {
            thread::yield_now();
        }
        Ok(x)
    });
    (service, begun)
}

#[test]
fn closing_the_service_ends_the_stream_once() {
    no_hang(|| {
        let (service, begun) = busy_from_three();
        let (sender, mut results) = service.open_stream(StreamOptions::new().window(5));
        let feeder = feed(sender, 0..);
        assert!((0..3).all(|i| results.next().unwrap().index == i));
        let waiter = thread::spawn(move || (results.next(), results.next(), results.next()));
        begun.reach(4);
        service.close().unwrap();
        let (last, second, third) = waiter.join().unwrap();
        let last = last.unwrap();
        assert!(last.result.unwrap_err().is_closed() && second.is_none() && third.is_none());
        assert_eq!(last.index, 3);
        feeder.join().unwrap();
        let (mut sender, mut results) = service.open_stream(StreamOptions::new());
        assert_eq!((sender.room(), sender.send(7)), (0, Err(SendError(7))));
        assert!(results.next().unwrap().result.unwrap_err().is_closed());
        assert!(results.next().is_none());
    });
}

/// A receiver that waits for a sender that waits for its own input, and a sender without room.
#[test]
fn closing_the_service_wakes_both_halves() {
    no_hang(|| {
        let service = service(1, |_, x| Ok(x));
        let (_idle, mut results) = service.open_stream(StreamOptions::new());
        let (mut full, _kept) = service.open_stream(StreamOptions::new().window(1));
        full.send(1).unwrap();
        let receiver = thread::spawn(move || results.next().unwrap().result);
        let sender = thread::spawn(move || full.room());
        service.close().unwrap();
        assert!(receiver.join().unwrap().unwrap_err().is_closed());
        assert_eq!(sender.join().unwrap(), 0);
    });
}

#[test]
fn a_drain_works_on_what_was_sent_and_then_ends_the_stream() {
    no_hang(|| {
        let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (passes, begins) = (gate.clone(), begun.clone());
        let service = service(2, move |_, x| {
            begins.open();
            passes.pass();
            Ok(x)
        });
        let (mut sender, results) = service.open_stream(StreamOptions::new());
        sender.send_some((0..20).collect()).unwrap();
        let (_idle, mut empty) = service.open_stream(StreamOptions::new());
        let (mut complete, whole) = service.open_stream(StreamOptions::new());
        complete.send(7).unwrap();
        complete.finish();
        begun.pass();
        let other = service.clone();
        let drained = thread::spawn(move || other.drain(Duration::from_secs(25)));
        assert!(empty.next().unwrap().result.unwrap_err().is_closed(), "it learns of the drain");
        assert_eq!((sender.room(), sender.send(21)), (0, Err(SendError(21))));
        sender.finish();
        gate.open();
        assert!(drained.join().unwrap());
        let mut results: Vec<_> = results.map(|next| next.result).collect();
        assert!(results.pop().unwrap().unwrap_err().is_closed());
        assert!(results.into_iter().map(Result::unwrap).eq(0..20));
        assert_eq!(outputs(whole), [7], "all of its items were sent before");
        assert_eq!(service.stream_account().ok, 21);
    });
}

#[test]
fn a_cancel_ends_the_stream() {
    no_hang(|| {
        let begun = Arc::new(Gate::new());
        let begins = begun.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            begins.open();
            while !cx.is_cancelled() {
                thread::yield_now();
            }
            Ok(x)
        });
        let pool = OrderedRunner::new(hooks, 1).unwrap();
        let token = pool.cancel_token();
        let service = pool.into_service();
        let (sender, results) = service.open_stream(StreamOptions::new());
        let feeder = feed(sender, 0..);
        begun.pass();
        token.cancel();
        let results: Vec<_> = results.map(|next| next.result).collect();
        let last = results[0].as_ref().unwrap_err();
        // As a call: an item may also be refused first.
        assert!(last.is_cancelled() || last.is_closed(), "{last:?}");
        assert_eq!(results.len(), 1);
        feeder.join().unwrap();
    });
}

#[test]
fn a_hook_cannot_wait_for_a_stream_of_its_own_service() {
    no_hang(|| {
        let own = Arc::new(OnceLock::<Service<Hooks>>::new());
        let inner = own.clone();
        let service = service(1, move |_, x| {
            let Some(service) = inner.get().filter(|_| x == 7) else { return Ok(x) };
            let (mut sender, mut results) = service.open_stream(StreamOptions::new().window(2));
            sender.send_some(vec![1, 2]).unwrap();
            assert_eq!(sender.room(), 0, "it does not wait");
            assert_eq!(sender.send(3), Err(SendError(3)));
            assert!(results.wait_until(soon()), "it does not wait");
            let error = results.next().unwrap().result.unwrap_err();
            assert!(matches!(error, Error::OwnThread { .. }) && results.next().is_none());
            Ok(x)
        });
        assert!(own.set(service.clone()).is_ok());
        assert_eq!(service.call(7).unwrap(), 7);
        assert_eq!(service.stream_account().cancelled, 2, "they were given up");
        service.close().unwrap();
    });
}

/// A stream keeps its service open, as any handle does.
#[test]
fn the_last_handles_may_be_the_halves_of_a_stream() {
    no_hang(|| {
        let service = service(2, |_, x| Ok(x));
        let (sender, results) = service.open_stream(StreamOptions::new());
        drop(service);
        let feeder = feed(sender, 0..100);
        assert!(outputs(results).into_iter().eq(0..100));
        feeder.join().unwrap();
    });
}

#[test]
fn values_that_were_not_taken_are_dropped() {
    struct Value(Arc<AtomicU64>);

    impl Value {
        fn new(alive: &Arc<AtomicU64>) -> Self {
            alive.fetch_add(1, Ordering::Relaxed);
            Value(alive.clone())
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    no_hang(|| {
        let alive = Arc::new(AtomicU64::new(0));
        let pass = crate::support::map(|_| Ok(()), |_, (), value: Value| Ok(value));
        let service = OrderedRunner::new(pass, 2).unwrap().into_service();
        for first in [true, false] {
            let (mut sender, mut results) = service.open_stream(StreamOptions::new().window(9));
            sender.send_some((0..9).map(|_| Value::new(&alive)).collect()).unwrap();
            drop(results.next().unwrap());
            match first {
                true => drop((sender, results)),
                false => drop((results, sender)),
            }
        }
        service.close().unwrap();
        drop(service);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}
