//! How a service ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use gangline::{CancelToken, Error, Journal, OrderedRunner, Service};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

#[test]
fn a_drain_answers_what_was_accepted_and_refuses_callers_that_wait() {
    no_hang(|| {
        let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (passed, begins) = (gate.clone(), begun.clone());
        let hooks = Hooks::new().work(move |_, x| {
            begins.open();
            passed.pass();
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).window(2);
        let service = builder.build().unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1]).unwrap();
        let waiting = service.call_async(2);
        begun.pass();
        let drained = thread::scope(|scope| {
            let draining = scope.spawn(|| service.drain(Duration::from_secs(60)));
            assert!(crate::runtimes::block_on(waiting).unwrap_err().is_closed());
            assert!(service.call(3).unwrap_err().is_closed());
            gate.open();
            draining.join().unwrap()
        });
        assert!(drained);
        assert_eq!(tickets.into_iter().map(|it| it.wait().unwrap()).collect::<Vec<_>>(), [0, 1]);
        assert!(service.try_submit(4).unwrap().wait().unwrap_err().is_closed());
        assert_eq!(service.account().ok, 2);
    });
}

#[test]
fn a_drain_that_takes_too_long_cancels_the_rest() {
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
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1]).unwrap();
        begun.pass();
        assert!(!service.drain(Duration::from_millis(10)));
        for ticket in tickets {
            assert!(ticket.wait().unwrap_err().is_cancelled());
        }
        assert!(service.call(2).unwrap_err().is_closed());
        assert_eq!(service.account().cancelled, 2);
        service.close().unwrap();
    });
}

/// The only place is taken by a call whose hook returns once it is cancelled.
#[test]
fn callers_that_wait_for_a_place_are_sent_away_at_the_end() {
    no_hang(|| {
        for closes in [true, false] {
            let begun = Arc::new(Gate::new());
            let begins = begun.clone();
            let hooks = Hooks::new().work(move |cx, x| {
                begins.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                Ok(x)
            });
            let token = CancelToken::new();
            let builder = OrderedRunner::builder(hooks).devices(1).window(1);
            let service = builder.cancel_token(token.clone()).build().unwrap().into_service();
            let ticket = service.try_submit(0).unwrap();
            begun.pass();
            let mut waiting = service.call_async(1);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
            if closes {
                service.close().unwrap();
            } else {
                token.cancel();
            }
            let (open, queued) = (ticket.wait(), crate::runtimes::block_on(waiting));
            assert!(open.is_err_and(|error| error.is_closed() == closes));
            assert!(queued.is_err_and(|error| error.is_closed()));
            assert_eq!(service.account().cancelled, 1, "the other was never accepted");
        }
    });
}

#[test]
fn a_close_answers_open_calls_and_pairs_the_states() {
    no_hang(|| {
        let (begun, ended) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
        let (begins, ends) = (begun.clone(), ended.clone());
        let hooks = Hooks::new()
            .work(move |cx, x| {
                begins.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                Ok(x)
            })
            .end(move |_| {
                ends.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        let service = OrderedRunner::new(hooks, 3).unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1, 2, 3]).unwrap();
        begun.pass();
        service.close().unwrap();
        for ticket in tickets {
            assert!(ticket.wait().unwrap_err().is_closed());
        }
        assert_eq!(ended.load(Ordering::Relaxed), 3);
        service.close().unwrap();
        assert!(service.call(0).unwrap_err().is_closed());
    });
}

#[test]
fn the_last_handle_closes_the_service() {
    no_hang(|| {
        let ended = Arc::new(AtomicU64::new(0));
        let ends = ended.clone();
        let hooks = Hooks::new().end(move |_| {
            ends.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let service = OrderedRunner::new(hooks, 2).unwrap().into_service();
        let other = service.clone();
        let ticket = service.try_submit(1).unwrap();
        drop(service);
        assert_eq!(other.call(2).unwrap(), 2);
        assert_eq!(ticket.wait().unwrap(), 1);
        drop(other);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_pool_comes_back_from_its_last_handle() {
    no_hang(|| {
        let inits = Arc::new(AtomicU64::new(0));
        let counted = inits.clone();
        let hooks = Hooks::new().init(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let service = OrderedRunner::new(hooks, 2).unwrap().into_service();
        let other = service.clone();
        let service = service.into_pool().unwrap_err();
        drop(other);
        assert_eq!(service.call(1).unwrap(), 1);
        let mut pool = service.into_pool().unwrap();
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2]);
        assert_eq!(pool.into_service().call(4).unwrap(), 4, "and is a service again");
        assert_eq!(inits.load(Ordering::Relaxed), 2, "the same producers");
    });
}

#[test]
fn a_cancelled_service_answers_every_call() {
    no_hang(|| {
        let (token, begun) = (CancelToken::new(), Arc::new(Gate::new()));
        let begins = begun.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            begins.open();
            while !cx.is_cancelled() {
                thread::yield_now();
            }
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).cancel_token(token.clone());
        let service = builder.build().unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1]).unwrap();
        begun.pass();
        token.cancel();
        for ticket in tickets {
            assert!(ticket.wait().unwrap_err().is_cancelled());
        }
        assert!(service.call(0).unwrap_err().is_closed());
    });
}

#[test]
fn what_cannot_be_a_service_answers_every_call_with_the_reason() {
    no_hang(|| {
        let mut closed = OrderedRunner::new(Hooks::new(), 1).unwrap();
        closed.close().unwrap();
        assert!(closed.into_service().call(1).unwrap_err().is_closed());
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::at(folder.path().join("journal"));
        let builder = OrderedRunner::builder(Hooks::new()).devices(1).journal(journal);
        let service = builder.build().unwrap().into_service();
        let error = service.call(1).unwrap_err();
        assert!(format!("{error:#}").contains("journal"), "{error:#}");
        assert!(service.into_pool().is_ok());
    });
}

/// A producer that waits for its own service would wait for itself.
#[test]
fn a_hook_cannot_wait_for_its_own_service() {
    no_hang(|| {
        let own = Arc::new(std::sync::OnceLock::<gangline::Service<Hooks>>::new());
        let inner = own.clone();
        let hooks = Hooks::new().work(move |_, x| match x {
            0 => match inner.get().unwrap().call(1) {
                Err(Error::OwnThread { .. }) if inner.get().unwrap().is_producer_thread() => Ok(7),
                other => panic!("{other:?}"),
            },
            x => Ok(x),
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        assert!(own.set(service.clone()).is_ok());
        assert!(!service.is_producer_thread());
        assert_eq!(service.call(0).unwrap(), 7);
        service.close().unwrap();
    });
}

/// The waker runs on a producer's thread, and closes the service there.
#[test]
fn a_waker_may_close_the_service_and_panic() {
    struct Closes(Arc<Counter>, std::sync::Mutex<Option<gangline::Service<Hooks>>>);
    impl std::task::Wake for Closes {
        fn wake(self: Arc<Self>) {
            drop(self.1.lock().unwrap().take());
            self.0.add(1);
            panic!("a waker that panics");
        }
    }
    no_hang(|| {
        let (gate, woken) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let passed = gate.clone();
        let hooks = Hooks::new().work(move |_, x| {
            passed.pass();
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let mut call = service.call_async(1);
        let closes = Closes(woken.clone(), std::sync::Mutex::new(Some(service)));
        let waker = std::task::Waker::from(Arc::new(closes));
        let mut cx = std::task::Context::from_waker(&waker);
        let poll = std::future::Future::poll(std::pin::Pin::new(&mut call), &mut cx);
        assert!(poll.is_pending());
        gate.open();
        woken.reach(1);
        assert_eq!(crate::runtimes::block_on(call).unwrap(), 1);
    });
}

#[test]
fn a_call_at_the_moment_at_which_the_service_ends_by_itself_says_why() {
    no_hang(|| {
        for _ in 0..100 {
            // Not until the end of the service: a producer that comes back in time would be used again.
            let over = Arc::new(Gate::new());
            let passed = over.clone();
            let hooks = Hooks::new().work(move |_, x: u64| {
                if x == 0 {
                    passed.pass();
                }
                Ok(x)
            });
            let builder = OrderedRunner::builder(hooks).devices(1);
            let pool = builder.item_timeout(Duration::from_millis(2)).build().unwrap();
            let service = pool.into_service();
            let hanging = service.call_async(0);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let answer = loop {
                            // Those that are not answered at once are given up.
                            let mut call = service.call_async(1);
                            let mut cx = Context::from_waker(Waker::noop());
                            if let Poll::Ready(answer) = Pin::new(&mut call).poll(&mut cx) {
                                break answer;
                            }
                        };
                        // A producer that gets no processor within the time limit has not begun, and goes on.
                        let Err(error) = answer else { return };
                        assert!(matches!(error, Error::ServiceEnded { .. }), "{error:?}");
                    });
                }
            });
            drop(hanging);
            over.open();
        }
    });
}

/// Callable while another thread closes, and waits for the hook.
#[test]
fn a_termination_cancels_hooks_on_threads_and_waits_for_them() {
    no_hang(|| {
        let (begun, in_hooks) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
        let (begins, counts) = (begun.clone(), in_hooks.clone());
        let hooks = Hooks::new().work(move |cx, x| {
            counts.fetch_add(1, Ordering::Relaxed);
            begins.open();
            while !cx.is_cancelled() {
                thread::yield_now();
            }
            counts.fetch_sub(1, Ordering::Relaxed);
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let tickets = service.try_submit_all(vec![0, 1]).unwrap();
        begun.pass();
        service.terminate().unwrap();
        // The second hook may begin, and see at once that it is cancelled, before the service has given up its item.
        assert_eq!(in_hooks.load(Ordering::Relaxed), 0);
        for ticket in tickets {
            assert!(ticket.wait().unwrap_err().is_cancelled());
        }
        assert!(service.call(2).unwrap_err().is_closed());
        service.terminate().unwrap();
    });
}

#[test]
fn a_hook_may_terminate_its_own_service() {
    no_hang(|| {
        let (own, ends) = (Arc::new(OnceLock::<Service<Hooks>>::new()), Arc::new(Gate::new()));
        let (service, terminated) = (own.clone(), ends.clone());
        let hooks = Hooks::new().work(move |_, x| {
            service.wait().terminate().unwrap();
            terminated.open();
            Ok(x)
        });
        _ = own.set(OrderedRunner::new(hooks, 1).unwrap().into_service());
        assert!(own.wait().call(0).unwrap_err().is_cancelled());
        ends.pass();
    });
}
