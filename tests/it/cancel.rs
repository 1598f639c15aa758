//! A token ends what is in progress, wherever that waits, and is then spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Error, Order, Result};

use crate::hooks::{Hooks, both_orders};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    in_producer_init,
    in_activate,
    in_a_state_made_anew,
    in_consumer_init,
    with_the_feeder_waiting_for_the_window,
    with_the_feeder_in_the_callers_iterator,
    with_all_producers_at_work,
    with_the_consumer_at_work,
    with_everybody_at_work,
    in_consumer_end,
    in_a_stream_that_waits,
    in_a_stream_between_two_outputs,
    before_a_run,
    before_a_stream,
    over_and_over,
    a_leaked_stream,
    one_token_for_a_chain,
    one_token_for_a_runner_within_a_runner,
    a_request_made_before_a_run_makes_no_state_anew_for_it,
);

/// From here on items make the hooks wait; smaller ones pass.
const BAD: u64 = 1_000_000;

/// A place to wait until cancelled, from which another thread is told to cancel.
#[derive(Default)]
struct Place {
    reached: Counter,
    left: AtomicBool,
    /// Then the hook fails, which does not hide the cancel.
    gives_up: bool,
}

impl Place {
    /// Imitates a long computation: it checks now and then whether its result is still wanted.
    fn wait(&self, is_cancelled: impl Fn() -> bool) -> Result<()> {
        if self.left.load(SeqCst) {
            return Ok(());
        }
        self.reached.add(1);
        while !is_cancelled() {
            thread::yield_now();
        }
        if self.gives_up { Err("gave up".into()) } else { Ok(()) }
    }

    /// Runs `f`, cancelling as soon as `parties` threads wait here. After that no thread waits here.
    fn cancel_at<T>(&self, parties: u64, token: &CancelToken, f: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                self.reached.reach(parties);
                self.left.store(true, SeqCst);
                token.cancel();
            });
            f()
        })
    }
}

#[track_caller]
fn check_cancelled<T>(result: Result<T, Error>) {
    match result {
        Ok(_) => panic!("it was not cancelled"),
        Err(error) => assert!(error.is_cancelled(), "{error:#}"),
    }
}

/// The request is spent, and nothing of the cancelled run is left.
#[track_caller]
fn check_works(pool: &mut AnyOrderRunner<Hooks>) {
    for _ in 0..2 {
        assert_eq!(pool.run(0..20).unwrap().len(), 20);
        assert_eq!(pool.account().ok, 20);
        assert_eq!(pool.outputs(0..20).filter(Result::is_ok).count(), 20);
    }
}

/// Cancels a run as soon as `parties` wait in `place`.
#[track_caller]
fn check(
    mut pool: AnyOrderRunner<Hooks>,
    place: &Place,
    parties: u64,
    items: impl Iterator<Item = u64>,
) {
    let token = pool.cancel_token();
    check_cancelled(place.cancel_at(parties, &token, || pool.run(items)));
    check_works(&mut pool);
    pool.close().unwrap();
}

fn place() -> (Arc<Place>, Arc<Place>) {
    let place = Arc::<Place>::default();
    (place.clone(), place)
}

/// Both kinds of places: hooks return once they are cancelled, or fail.
fn both_places() -> [(Arc<Place>, Arc<Place>); 2] {
    [false, true].map(|gives_up| {
        let place = Arc::new(Place { gives_up, ..Place::default() });
        (place.clone(), place)
    })
}

fn in_producer_init(order: Order) {
    for (place, waits) in both_places() {
        let ended = Arc::new(AtomicU64::new(0));
        let (token, ends) = (CancelToken::new(), ended.clone());
        let hooks = || {
            let (waits, ends) = (waits.clone(), ends.clone());
            Hooks::new()
                .init(move |cx| {
                    if cx.producer() == 1 {
                        waits.wait(|| cx.is_cancelled())?;
                    }
                    Ok(())
                })
                .end(move |_| {
                    ends.fetch_add(1, SeqCst);
                    Ok(())
                })
        };
        let build = || {
            AnyOrderRunner::builder(hooks())
                .order(order)
                .devices(3)
                .cancel_token(token.clone())
                .build()
        };
        check_cancelled(place.cancel_at(1, &token, build));
        let made = 3 - u64::from(place.gives_up);
        assert_eq!(ended.load(SeqCst), made, "every state that was made is ended");
        check_works(&mut build().unwrap());
    }
}

fn in_activate(order: Order) {
    for (place, waits) in both_places() {
        let armed = Arc::new(AtomicBool::new(false));
        let arms = armed.clone();
        let hooks = Hooks::new().init(move |cx| {
            if arms.load(SeqCst) {
                waits.wait(|| cx.is_cancelled())?;
            }
            Ok(())
        });
        let mut pool = hooks.pool(order, 3);
        let token = pool.cancel_token();
        pool.close().unwrap();
        armed.store(true, SeqCst);
        check_cancelled(place.cancel_at(3, &token, || pool.activate()));
        assert!(!pool.is_active());
        assert!(pool.run(0..).unwrap_err().is_closed());
        pool.activate().unwrap();
        check_works(&mut pool);
    }
}

fn in_a_state_made_anew(order: Order) {
    for (place, waits) in both_places() {
        let inits = AtomicU64::new(0);
        let hooks = Hooks::new()
            .init(move |cx| {
                if inits.fetch_add(1, SeqCst) >= 2 {
                    waits.wait(|| cx.is_cancelled())?;
                }
                Ok(())
            })
            .work(|_, x| if x == BAD { panic!("no") } else { Ok(x) });
        let mut pool = hooks.pool(order, 2);
        assert!(pool.run([BAD]).unwrap_err().is_panic());
        check(pool, &place, 1, 0..);
    }
}

fn in_consumer_init(order: Order) {
    for (place, waits) in both_places() {
        let hooks = Hooks::new().consumer_init(move |cx| {
            waits.wait(|| cx.is_cancelled())?;
            Ok(())
        });
        let items = (0..).inspect(|_| panic!("nothing is pulled before `consumer_init` returned"));
        check(hooks.pool(order, 2), &place, 1, items);
    }
}

fn with_the_feeder_waiting_for_the_window(order: Order) {
    let (place, waits) = place();
    let hooks = Hooks::new().consume(move |cx, y| {
        if y >= BAD {
            waits.wait(|| cx.is_cancelled())?;
        }
        Ok(())
    });
    // One party is the consumer, the other the feeder as it gives out the last that it may.
    let feeder = place.clone();
    let items = (BAD..).inspect(move |&x| {
        if x == BAD + 3 {
            feeder.reached.add(1);
        }
    });
    check(hooks.windowed(order, 2, 4), &place, 2, items);
}

fn with_the_feeder_in_the_callers_iterator(order: Order) {
    for yields_one_more in [true, false] {
        let mut pool = Hooks::new().pool(order, 2);
        let token = pool.cancel_token();
        let (reached, cancelled) = (Gate::new(), Gate::new());
        let items = (0..).map_while(|x| {
            if x == 5 {
                reached.open();
                cancelled.pass();
            }
            assert!(x <= 5, "the iterator was called again");
            (yields_one_more || x < 5).then_some(x)
        });
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                reached.pass();
                token.cancel();
                cancelled.open();
            });
            pool.run(items)
        });
        check_cancelled(result);
        check_works(&mut pool);
    }
}

fn with_all_producers_at_work(order: Order) {
    for (place, waits) in both_places() {
        let hooks = Hooks::new().work(move |cx, x| {
            if x >= BAD {
                waits.wait(|| cx.is_cancelled())?;
            }
            Ok(x)
        });
        check(hooks.pool(order, 3), &place, 3, BAD..);
    }
}

fn with_the_consumer_at_work(order: Order) {
    for (place, waits) in both_places() {
        let hooks = Hooks::new().consume(move |cx, y| {
            if y >= BAD {
                waits.wait(|| cx.is_cancelled())?;
            }
            Ok(())
        });
        check(hooks.pool(order, 3), &place, 1, BAD..);
    }
}

fn with_everybody_at_work(order: Order) {
    for (place, waits) in both_places() {
        let consumer = waits.clone();
        let hooks = Hooks::new()
            .work(move |cx, x| {
                if x > BAD {
                    waits.wait(|| cx.is_cancelled())?;
                }
                Ok(x)
            })
            .consume(move |cx, y| {
                if y >= BAD {
                    consumer.wait(|| cx.is_cancelled())?;
                }
                Ok(())
            });
        check(hooks.windowed(order, 3, 4), &place, 4, BAD..);
    }
}

/// Everything was consumed, so either answer is right; the next run is not affected.
fn in_consumer_end(order: Order) {
    let (place, waits) = place();
    let hooks = Hooks::new().consumer_end(move |cx| {
        waits.wait(|| cx.is_cancelled())?;
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    match place.cancel_at(1, &token, || pool.run(0..10)) {
        Ok(seen) => assert_eq!(seen.len(), 10),
        Err(error) => assert!(error.is_cancelled(), "{error:#}"),
    }
    check_works(&mut pool);
}

fn in_a_stream_that_waits(order: Order) {
    let (place, waits) = place();
    let hooks = Hooks::new().work(move |cx, x| {
        if x >= BAD {
            waits.wait(|| cx.is_cancelled())?;
        }
        Ok(x)
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    let mut stream = pool.outputs(BAD..);
    check_cancelled(place.cancel_at(2, &token, || stream.next().unwrap()));
    assert!(stream.next().is_none());
    drop(stream);
    check_works(&mut pool);
}

fn in_a_stream_between_two_outputs(order: Order) {
    for drops in [true, false] {
        let mut pool = Hooks::new().pool(order, 2);
        let token = pool.cancel_token();
        let mut stream = pool.outputs(0..);
        assert!((0..5).all(|_| stream.next().unwrap().is_ok()));
        thread::spawn(move || token.cancel()).join().unwrap();
        if !drops {
            check_cancelled(stream.next().unwrap());
            assert!(stream.next().is_none());
        }
        drop(stream);
        check_works(&mut pool);
    }
}

fn before_a_run(order: Order) {
    let pulled = AtomicU64::new(0);
    let ends = Arc::new(Counter::new());
    let counts = ends.clone();
    let hooks = Hooks::new().consumer_end(move |_| {
        counts.add(1);
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    for requests in 1..3 {
        (0..requests).for_each(|_| pool.cancel_token().cancel());
        let items = (0..).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
        });
        assert!(pool.cancel_token().is_cancelled());
        let before = ends.get();
        check_cancelled(pool.run(items));
        assert_eq!((pulled.load(SeqCst), ends.get()), (0, before));
        assert_eq!(pool.account().failed, 0);
        check_works(&mut pool);
    }
}

fn before_a_stream(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    for begun in [true, false] {
        let token = pool.cancel_token();
        if !begun {
            token.cancel();
        }
        let mut stream = pool.outputs((0..).inspect(|_| panic!("nothing is to be pulled")));
        if begun {
            token.cancel();
        }
        check_cancelled(stream.next().unwrap());
        assert!(stream.next().is_none());
        drop(stream);
        check_works(&mut pool);
    }
}

/// Whenever the cancel comes, the run ends, and the next is not affected.
fn over_and_over(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    let token = pool.cancel_token();
    for round in 0..300 {
        let go = Gate::new();
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                go.pass();
                (0..round % 17).for_each(|_| thread::yield_now());
                token.cancel();
            });
            pool.run((0..).inspect(|_| go.open()))
        });
        check_cancelled(result);
        assert_eq!(pool.run(0..3).unwrap().len(), 3);
    }
}

/// A stream that was leaked is ended, with what waits in it, before the next run begins.
fn a_leaked_stream(order: Order) {
    let hooks = Hooks::new().work(|cx, x| {
        while x >= BAD && !cx.is_cancelled() {
            thread::yield_now();
        }
        Ok(x)
    });
    let mut pool = hooks.pool(order, 2);
    let mut stream = pool.outputs((0..1).chain(BAD..));
    assert!(stream.next().unwrap().is_ok());
    std::mem::forget(stream);
    check_works(&mut pool);
}

fn one_token_for_a_chain(order: Order) {
    let token = CancelToken::new();
    let build = || {
        let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
        builder.cancel_token(token.clone()).build().unwrap()
    };
    let (mut a, mut b, mut c) = (build(), build(), build());
    for cancel_at in [0, 1, 50] {
        let items = (0..).inspect(|&x| {
            if x == cancel_at {
                thread::scope(|scope| {
                    scope.spawn(|| token.cancel());
                });
            }
        });
        check_cancelled(c.try_run(b.try_outputs(a.outputs(items))));
        [&mut a, &mut b, &mut c].into_iter().for_each(check_works);
    }
    token.cancel();
    check_cancelled(c.try_run(b.try_outputs(a.outputs(0..))));
    [&mut a, &mut b, &mut c].into_iter().for_each(check_works);
    // A first Ctrl-C: what the first runner was given comes out of the last.
    let items = (0..).inspect(|&x| {
        if x == 30 {
            token.drain();
        }
    });
    let seen = c.try_run(b.try_outputs(a.outputs(items))).unwrap();
    assert!(seen.len() <= 31);
    [&mut a, &mut b, &mut c].into_iter().for_each(check_works);
}

fn one_token_for_a_runner_within_a_runner(order: Order) {
    let token = CancelToken::new();
    let inner_token = token.clone();
    let (place, waits) = place();
    let hooks = Hooks::new().work(move |_, x| {
        if x < BAD {
            return Ok(x);
        }
        let waits = waits.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            waits.wait(|| cx.is_cancelled())?;
            Ok(x)
        });
        let inner = AnyOrderRunner::builder(hooks).order(order).devices(2);
        let mut inner = inner.cancel_token(inner_token.clone()).build()?;
        Ok(inner.run(0..10)?.len() as u64)
    });
    let pool =
        AnyOrderRunner::builder(hooks).order(order).devices(2).cancel_token(token).build().unwrap();
    check(pool, &place, 4, BAD..);
}

#[test]
fn a_token_outlives_its_runner() {
    no_hang(|| {
        let mut pool = Hooks::new().pool(Order::Input, 2);
        let token = pool.cancel_token();
        pool.run(0..3).unwrap();
        drop(pool);
        token.cancel();
        token.drain();
        let (_sender, receiver) = crossbeam_channel::bounded::<u64>(0);
        assert!(token.is_cancelled());
        assert_eq!(token.guard(receiver).next(), None);
    });
}

fn a_request_made_before_a_run_makes_no_state_anew_for_it(order: Order) {
    let inits = Arc::new(Counter::new());
    let counts = inits.clone();
    let hooks = Hooks::new()
        .init(move |_| {
            counts.add(1);
            Ok(())
        })
        .work(|_, x| if x == 99 { panic!("no") } else { Ok(x) });
    let mut pool = hooks.pool(order, 1);
    pool.run([99]).unwrap_err();
    pool.cancel_token().cancel();
    assert!(pool.run(0..3).unwrap_err().is_cancelled());
    pool.cancel_token().drain();
    assert_eq!(pool.run(0..3).unwrap().len(), 0);
    assert_eq!(inits.get(), 1);
    assert_eq!(pool.run(0..3).unwrap().len(), 3);
    assert_eq!(inits.get(), 2);
}
