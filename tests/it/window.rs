//! Items in flight never exceed the window, whatever is slow.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use gangline::error::BuildError;
use gangline::{AnyOrderRunner, Error, Hook, Journal, Order};
use gangline_scheduler::replay::{RunModel, replay};
use gangline_scheduler::window::Window;
use gangline_scheduler::{Backoff, Bypass, Config, Input, OnError, Outcome, Timeouts};

use crate::hooks::{Gauge, Hooks, both_orders};
use crate::probe::{Probe, check_afterwards, check_summary};
use crate::support::{Counter, map, no_hang};

const WINDOWS: [usize; 4] = [1, 2, 3, 64];
const PRODUCERS: u64 = 2;
/// What the default window starts with for [`PRODUCERS`], and keeps while something is slow.
const DEFAULT: u64 = 3 * PRODUCERS;

both_orders!(
    a_run_keeps_within_its_window,
    a_stream_keeps_within_its_window,
    the_whole_window_is_given_out,
    the_whole_window_of_a_stream_is_given_out,
    the_default_window_is_bounded,
    a_window_of_one_is_serial,
    the_largest_window_is_allowed,
    credits_of_a_failed_run_do_not_reach_the_next,
    a_window_of_nothing_is_an_error,
    a_straggler_at_the_head_holds_no_more_than_the_window,
    a_slow_consumer_keeps_the_input_back,
    hooks_that_meet_fit_into_any_window_that_holds_one_item_of_each,
);

/// Counts items from the moment they are pulled.
fn counted(gauge: &Gauge, count: u64) -> impl Iterator<Item = u64> + use<> {
    let gauge = gauge.clone();
    (0..count).inspect(move |_| gauge.up())
}

/// Counts items until the consumer is done with them.
fn consuming(gauge: &Gauge) -> Hooks {
    let gauge = gauge.clone();
    Hooks::new().consume(move |_, _| {
        gauge.down();
        Ok(())
    })
}

#[track_caller]
fn check(gauge: &Gauge, window: usize) {
    assert!(gauge.most() <= window as u64, "{} in a window of {window}", gauge.most());
    assert_eq!(gauge.now(), 0);
}

fn a_run_keeps_within_its_window(order: Order) {
    for window in WINDOWS {
        for producers in [1, 2, 5] {
            let gauge = Gauge::default();
            let mut pool = consuming(&gauge).windowed(order, producers, window);
            pool.run(counted(&gauge, 2_000)).unwrap();
            check(&gauge, window);
        }
    }
}

fn a_stream_keeps_within_its_window(order: Order) {
    for window in WINDOWS {
        let gauge = Gauge::default();
        let mut pool = Hooks::new().windowed(order, 3, window);
        for output in pool.outputs(counted(&gauge, 500)) {
            output.unwrap();
            gauge.down();
        }
        check(&gauge, window);
    }
}

/// The first item waits until as many items were pulled as the window holds.
fn until_full(pulled: &Arc<Counter>, window: u64) -> Hooks {
    let pulled = pulled.clone();
    Hooks::new().work(move |_, x| {
        if x == 0 {
            pulled.reach(window);
        }
        Ok(x)
    })
}

fn the_whole_window_is_given_out(order: Order) {
    for window in WINDOWS {
        let pulled = Arc::new(Counter::new());
        let mut pool = until_full(&pulled, window as u64).windowed(order, 2, window);
        let items = (0..1_000).inspect(|_| {
            pulled.add(1);
        });
        assert_eq!(pool.run(items).unwrap().len(), 1_000);
    }
}

fn the_whole_window_of_a_stream_is_given_out(order: Order) {
    for window in WINDOWS {
        let pulled = Arc::new(Counter::new());
        // With one producer nothing is ready before the first.
        let mut pool = until_full(&pulled, window as u64).windowed(order, 1, window);
        let items = (0..1_000).inspect(|_| {
            pulled.add(1);
        });
        assert_eq!(pool.outputs(items).map(Result::unwrap).count(), 1_000);
    }
}

/// A straggler at the head, released when everything that the window allows has been worked on.
#[test]
fn a_straggler_at_the_head_keeps_the_window() {
    for window in [2, 3, 64] {
        no_hang(move || {
            let gauge = Gauge::default();
            let worked = Arc::new(Counter::new());
            let (up, count) = (gauge.clone(), window as u64);
            // Not at a multiple of the window, so that no credit comes back by itself.
            let hooks = consuming(&gauge).work(move |_, x| {
                if x >= 5 && (x - 5) % count == 0 {
                    worked.reach(5 + ((x - 5) / count + 1) * (count - 1));
                    (0..20).for_each(|_| thread::yield_now());
                } else {
                    worked.add(1);
                }
                assert!(up.now() <= count);
                Ok(x)
            });
            hooks.windowed(Order::Input, 2, window).run(counted(&gauge, 5 + 10 * count)).unwrap();
            check(&gauge, window);
        });
    }
}

/// Item 0 stays at work until the number of others that are done shows a window of 16 items per producer.
#[test]
fn the_default_window_grows_behind_a_straggler_at_the_head() {
    // Which of the parties is last to see a full window is a race.
    for _ in 0..30 {
        no_hang(|| {
            let gauge = Gauge::default();
            let hooks = straggling(consuming(&gauge));
            let mut pool = hooks.pool(Order::Input, PRODUCERS as usize);
            let summary = pool.run(counted(&gauge, 100)).unwrap();
            assert_eq!(summary, (0..100).collect::<Vec<_>>());
            check(&gauge, 8_192);
        });
    }
}

#[test]
fn the_default_window_of_outputs_grows_behind_a_straggler_at_the_head() {
    for _ in 0..30 {
        no_hang(|| {
            let mut pool = straggling(Hooks::new()).pool(Order::Input, PRODUCERS as usize);
            assert_eq!(pool.outputs(0..100).map(Result::unwrap).count(), 100);
        });
    }
}

fn straggling(hooks: Hooks) -> Hooks {
    let done = Arc::new(Counter::new());
    hooks.work(move |_, x| {
        match x {
            0 => done.reach(16 * PRODUCERS - 1),
            _ => _ = done.add(1),
        }
        Ok(x)
    })
}

/// Predictions ask the same scheduler and window. The items that a run lets in behind a slow head are counted, so no clock
/// decides: item 0 stays at work until the predicted number of others are done.
#[test]
fn a_prediction_lets_in_as_many_items_behind_a_straggler_as_the_run() {
    for (producers, window) in [(2, None), (3, None), (2, Some(8)), (3, Some(100))] {
        no_hang(move || {
            let predicted = predicted_behind_head(producers, window);
            let (done, pulled) = (Counter::new(), Gauge::default());
            let in_flight = pulled.clone();
            let hooks = Hooks::new()
                .work(move |_, x| {
                    match x {
                        0 => done.reach(predicted - 1),
                        _ => _ = done.add(1),
                    }
                    Ok(x)
                })
                .consume(move |_, x| {
                    assert!(x > 0 || in_flight.now() == predicted, "{}", in_flight.now());
                    Ok(())
                });
            let mut pool = match window {
                Some(window) => hooks.windowed(Order::Input, producers, window),
                None => hooks.pool(Order::Input, producers),
            };
            pool.run(counted(&pulled, 1_000)).unwrap();
        });
    }
}

/// How many items are pulled in virtual time before the first is consumed, which takes a thousand times as long as others.
fn predicted_behind_head(producers: usize, window: Option<usize>) -> u64 {
    let window = Window::new(window, producers, None);
    let config = Config {
        producers,
        places: None,
        order: Order::Input,
        window: window.size(),
        batching: None,
        on_error: OnError::Stop,
        retries: 0,
        backoff: Backoff::default(),
        quarantine_after: None,
        copy_after: None,
        timeouts: Timeouts::default(),
        min_producers: 1,
        bypass: Bypass::Never,
        input: Input::MayCome,
    };
    let mut straggler = Straggler::default();
    replay(config, window, 1_000, &mut straggler);
    straggler.before_first
}

#[derive(Default)]
struct Straggler {
    pulled: u64,
    before_first: u64,
}

impl RunModel for Straggler {
    fn pull(&mut self, _: u64) -> Duration {
        self.pulled += 1;
        Duration::ZERO
    }

    fn work(&mut self, _: usize, items: &[u64], _: u32) -> (Duration, Outcome) {
        let took = if items == [0] { 1_000 } else { 1 };
        (Duration::from_millis(took), Outcome::Succeeded)
    }

    fn consume(&mut self, item: u64) -> Duration {
        if item == 0 {
            self.before_first = self.pulled;
        }
        Duration::ZERO
    }
}

/// Item 0 stays at work until the window has room for no more.
#[test]
fn the_default_window_is_bounded_behind_a_straggler_at_the_head() {
    no_hang(|| {
        let gauge = Gauge::default();
        let pulled = gauge.clone();
        let hooks = consuming(&gauge).work(move |_, x| {
            if x == 0 {
                let (mut before, mut now) = (0, 1);
                while before != now {
                    thread::sleep(Duration::from_millis(200));
                    (before, now) = (now, pulled.now());
                }
                assert!(now <= 64 * PRODUCERS, "{now} items were out");
            }
            Ok(x)
        });
        hooks.pool(Order::Input, PRODUCERS as usize).run(counted(&gauge, 1_000)).unwrap();
        assert_eq!(gauge.now(), 0);
    });
}

/// The consumer is busy until further results wait for it. In input order, a producer without a core may also make the
/// window grow, as a slow item does.
#[test]
fn a_slow_consumer_does_not_make_the_default_window_grow() {
    const ITEMS: u64 = 1_000;
    let gauge = Gauge::default();
    let (started, consumed) = (Arc::new(Counter::new()), Counter::new());
    let (down, behind) = (gauge.clone(), started.clone());
    let hooks = Hooks::new()
        .work(move |_, x| {
            started.add(1);
            Ok(x)
        })
        .consume(move |_, _| {
            behind.reach((consumed.add(1) + 4).min(ITEMS));
            down.down();
            Ok(())
        });
    hooks.pool(Order::Completion, PRODUCERS as usize).run(counted(&gauge, ITEMS)).unwrap();
    check(&gauge, DEFAULT as usize);
}

fn the_default_window_is_bounded(order: Order) {
    let gauge = Gauge::default();
    let mut pool = consuming(&gauge).pool(order, PRODUCERS as usize);
    pool.run(counted(&gauge, 30_000)).unwrap();
    assert!(gauge.most() <= 8_192, "{}", gauge.most());
}

fn a_window_of_one_is_serial(order: Order) {
    let gauge = Gauge::default();
    let alone = gauge.clone();
    let hooks = consuming(&gauge).work(move |_, x| {
        assert_eq!(alone.now(), 1);
        Ok(x)
    });
    let seen = hooks.windowed(order, 3, 1).run(counted(&gauge, 500)).unwrap();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
    check(&gauge, 1);
}

fn the_largest_window_is_allowed(order: Order) {
    let mut pool = Hooks::new().windowed(order, 2, usize::MAX);
    assert_eq!(pool.run(0..1_000).unwrap().len(), 1_000);
    assert_eq!(pool.outputs(0..1_000).count(), 1_000);
}

/// Runs that end badly leave the next run exactly its window.
fn credits_of_a_failed_run_do_not_reach_the_next(order: Order) {
    let gauge = Gauge::default();
    let consumed = gauge.clone();
    let hooks = Hooks::new()
        .work(|_, x| if x == 1_000 { Err("no".into()) } else { Ok(x) })
        .consume(move |_, y| {
            consumed.down();
            if y == 500 { Err("no".into()) } else { Ok(()) }
        });
    let mut pool = hooks.windowed(order, 3, 4);
    for bad in [500, 1_000, 500, 1_000] {
        pool.run((0..50).chain([bad]).chain(0..50)).unwrap_err();
        drop(pool.outputs(0..50).take(7).collect::<Vec<_>>());
    }
    let before = gauge.now();
    let items = (0..400).inspect(|_| {
        gauge.up();
        let given_out = gauge.now() - before;
        assert!(given_out <= 4, "{given_out} in a window of 4");
    });
    pool.run(items).unwrap();
}

#[test]
fn a_window_that_has_grown_for_quick_items_shrinks_for_slow_ones() {
    no_hang(|| {
        let quick = 1_000;
        // Twice as many as the default window may hold, each of which brings a credit back: on a machine that has
        // much else to do the first of them may not seem slow beside what else takes time.
        let slow = 2 * 8_192;
        let hooks = Hooks::new().work(move |_, x| {
            if x >= quick {
                thread::sleep(Duration::from_micros(500));
            }
            Ok(x)
        });
        let mut pool = AnyOrderRunner::builder(hooks).devices(8).build().unwrap();
        let (result, report) = pool.run_with_report(0..quick + slow);
        result.unwrap();
        assert!(report.window < 1_024, "{report}");
    });
}

#[test]
fn items_that_an_earlier_run_was_done_with_do_not_make_the_window_grow() {
    no_hang(|| {
        let place = tempfile::tempdir().unwrap();
        let journal = || Journal::at(place.path().join("journal"));
        let done = 20_000;
        let mut first =
            AnyOrderRunner::builder(Hooks::new()).devices(2).journal(journal()).build().unwrap();
        first.run(0..done).unwrap();
        let gauge = Gauge::default();
        let hooks = consuming(&gauge).work(move |_, x| {
            thread::sleep(Duration::from_millis(2));
            Ok(x)
        });
        let builder = AnyOrderRunner::builder(hooks).devices(2).journal(journal().resume());
        // In input order, a producer without a core would make it grow.
        let mut pool = builder.order(Order::Completion).build().unwrap();
        let inputs = (0..done + 100).inspect(|&x| {
            if x >= done {
                gauge.up();
            }
        });
        assert_eq!(pool.run(inputs).unwrap().len(), 100);
        check(&gauge, DEFAULT as usize);
    });
}

fn a_window_of_nothing_is_an_error(order: Order) {
    let probe = Probe::new();
    let tally = probe.tally();
    let error =
        AnyOrderRunner::builder(probe).devices(2).order(order).window(0).build().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::Window { window: 0, .. })), "{error:#}");
    assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
}

/// Item 0 stays at work until everything else that the window lets in was worked on.
fn a_straggler_at_the_head_holds_no_more_than_the_window(order: Order) {
    let worked = Arc::new(Counter::new());
    let count = worked.clone();
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        if cx.item() == Some(0) {
            count.reach(7);
        } else {
            count.add(1);
        }
        Ok(())
    });
    let mut runner = probe.on_three_within(8, order);
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..1000)).unwrap(), 0..1000, order);
    assert!(tally.most_outstanding() <= 8, "{}", tally.most_outstanding());
    check_afterwards(runner);
}

/// Each result is consumed only once everything that the window lets in was pulled. Permits come back after a quarter of
/// the window at the latest, so up to that number less one may be on their way.
fn a_slow_consumer_keeps_the_input_back(order: Order) {
    for window in [1, 2, 3, 16, 64] {
        let late = (window / 4).max(1) - 1;
        let probe = Probe::new();
        let tally = probe.tally();
        let probe = probe.on_consumer(Hook::ConsumerWork, move |_| {
            match tally.succeeded(Hook::ConsumerWork).get() {
                0 => tally.pulled.reach(window),
                consumed => tally.pulled.reach((consumed + window - late).min(2000)),
            }
            Ok(())
        });
        let mut runner = probe.on_three_within(window as usize, order);
        let tally = runner.runner().tally();
        check_summary(runner.run(tally.input(0..2000)).unwrap(), 0..2000, order);
        assert_eq!(tally.most_outstanding(), window);
        check_afterwards(runner);
    }
}

/// Every producer has to be in its hook at the same time, again and again.
fn hooks_that_meet_fit_into_any_window_that_holds_one_item_of_each(order: Order) {
    for (producers, window) in [(4, 4), (4, 5), (4, 7), (4, 9), (3, 5)] {
        let meeting = Barrier::new(producers);
        let meet = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                meeting.wait();
                Ok(x)
            },
        );
        let builder = AnyOrderRunner::builder(meet).order(order).devices(producers).window(window);
        let mut pool = builder.build().unwrap();
        for _ in 0..20 {
            let items = 100 * producers as u64;
            assert_eq!(pool.run(0..items).unwrap().len() as u64, items, "window {window}");
        }
    }
}
