//! Errors of any size and type, and errors with destructors that panic.

use std::cell::RefCell;
use std::error::Error as _;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use gangline::{AnyOrderRunner, Hook, Order, ProducerContext, Result};

use crate::destructors::HOOKS;
use crate::hooks::both_orders;
use crate::probe::{Fault, Probe, check_afterwards, three};
use crate::support::{Counter, Gate, map};

both_orders!(
    an_error_whose_destructor_panics_reaches_the_caller,
    an_error_that_nobody_wants_may_panic_when_dropped,
    errors_of_producer_init_may_panic_when_dropped,
    an_error_of_producer_init_that_comes_too_late_may_panic_when_dropped,
    errors_of_producer_end_may_panic_when_dropped,
    dropping_a_runner_never_panics,
    errors_of_states_made_anew_may_panic_when_dropped,
    an_error_of_ten_megabytes_is_kept_whole,
    any_type_of_error_can_be_had_back,
);

/// An error with a destructor that panics, as often as it is armed.
#[derive(Debug)]
struct Grudge(Arc<AtomicBool>);

impl fmt::Display for Grudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a grudge")
    }
}

impl std::error::Error for Grudge {}

impl Drop for Grudge {
    fn drop(&mut self) {
        let is_armed = self.0.load(SeqCst) && !thread::panicking();
        assert!(!is_armed, "the destructor of an error");
    }
}

/// A probe that fails with a [`Grudge`] everywhere in `hook`.
fn grudging(hook: Hook, is_armed: &Arc<AtomicBool>) -> Probe {
    let is_armed = is_armed.clone();
    let fail = move || Err(Grudge(is_armed.clone()).into());
    match hook {
        Hook::ProducerWork | Hook::ProducerInit | Hook::ProducerEnd => {
            Probe::new().on_producer(hook, move |_| fail())
        }
        _ => Probe::new().on_consumer(hook, move |_| fail()),
    }
}

fn an_error_whose_destructor_panics_reaches_the_caller(order: Order) {
    for hook in HOOKS {
        let is_armed = Arc::new(AtomicBool::new(true));
        let mut runner = grudging(hook, &is_armed).on_three(order);
        let input = runner.runner().tally().input(0..20);
        let error = runner.run(input).unwrap_err();
        assert_eq!(error.hook(), Some(hook), "{error:#}");
        assert!(error.source().unwrap().is::<Grudge>());
        is_armed.store(false, SeqCst);
        drop(error);
        check_afterwards(runner);
    }
}

/// Every item fails; one error is the run's, the others are dropped.
fn an_error_that_nobody_wants_may_panic_when_dropped(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let mut runner = grudging(Hook::ProducerWork, &is_armed).on_three(order);
    let tally = runner.runner().tally();
    for _ in 0..20 {
        let error = runner.run(tally.input(0..50)).unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerWork), "{error:#}");
        std::mem::forget(error);
    }
    check_afterwards(runner);
}

fn an_error_of_ten_megabytes_is_kept_whole(order: Order) {
    let text = "x".repeat(10_000_000);
    let fails = text.clone();
    let fail = move |_: &gangline::ProducerContext<'_>| Err(fails.clone().into());
    let mut runner = Probe::new().on_producer(Hook::ProducerWork, fail).on_three(order);
    let input = runner.runner().tally().input(0..2);
    let error = runner.run(input).unwrap_err();
    assert!(error.to_string().len() < 100, "its own text does not hold the cause");
    assert_eq!(error.source().unwrap().to_string().len(), text.len());
    check_afterwards(runner);
}

fn any_type_of_error_can_be_had_back(order: Order) {
    let cause = |fail: fn() -> Result<()>| {
        let probe = Probe::new().on_producer(Hook::ProducerWork, move |_| fail());
        let mut runner = probe.on_three(order);
        let input = runner.runner().tally().input(0..1);
        runner.run(input).unwrap_err()
    };
    let error = cause(|| Ok(Err(std::io::Error::other("disk"))?));
    assert!(error.source().unwrap().is::<std::io::Error>());
    let error = cause(|| Ok(Err(anyhow::anyhow!("inner").context("outer"))?));
    assert!(format!("{error:#}").ends_with(": outer: inner"), "{error:#}");
}

/// Building fails with one of three errors; the other two are dropped.
fn errors_of_producer_init_may_panic_when_dropped(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let probe = grudging(Hook::ProducerInit, &is_armed);
    let tally = probe.tally();
    let build = || AnyOrderRunner::builder(probe).devices(three()).order(order).build();
    let error = catch_unwind(AssertUnwindSafe(build)).expect("building panics").unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerInit), "{error:#}");
    std::mem::forget(error);
    tally.check_closed();
}

thread_local! {
    /// Closes its channel when the thread that set it ends.
    static END_OF_THREAD: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// Calls this when it is dropped.
struct OnDrop(Box<dyn Fn()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// It was given up on, so its error belongs to no run: it comes while the others are being joined.
fn an_error_of_producer_init_that_comes_too_late_may_panic_when_dropped(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let late = Arc::new(Gate::new());
    let gate = late.clone();
    let (end_of_thread, ended) = bounded::<()>(0);
    let end_of_thread = Mutex::new(Some(end_of_thread));
    let init = move |cx: &ProducerContext<'_>| {
        if cx.producer() == 0 {
            let (late, ended) = (late.clone(), ended.clone());
            return Ok(OnDrop(Box::new(move || {
                late.open();
                assert!(ended.recv().is_err(), "it ends");
            })));
        }
        END_OF_THREAD.set(end_of_thread.lock().unwrap().take());
        gate.pass();
        Err(Grudge(is_armed.clone()).into())
    };
    let builder = AnyOrderRunner::builder(map(init, |_, _, x: u64| Ok(x))).order(order).devices(2);
    let build = || builder.init_timeout(Duration::from_millis(500)).build();
    let error = catch_unwind(AssertUnwindSafe(build)).expect("building panics").unwrap_err();
    assert!(error.is_timeout(), "{error:#}");
}

/// Closing returns one of three errors; the other two are dropped.
fn errors_of_producer_end_may_panic_when_dropped(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let mut runner = grudging(Hook::ProducerEnd, &is_armed).on_three(order);
    let tally = runner.runner().tally();
    let close = AssertUnwindSafe(|| runner.close());
    let error = catch_unwind(close).expect("closing panics").unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerEnd), "{error:#}");
    std::mem::forget(error);
    assert_eq!(tally.threads.alive(), 0);
}

/// All states are lost at once, and none can be rebuilt: three errors, one of them the run's.
fn errors_of_states_made_anew_may_panic_when_dropped(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let (inits, all) = (Counter::new(), std::sync::Barrier::new(3));
    let grudge = is_armed.clone();
    let probe = Probe::new()
        .on_producer(Hook::ProducerWork, move |_| {
            all.wait();
            Fault::Panic.strike()
        })
        .on_producer(Hook::ProducerInit, move |_| match inits.add(1) {
            ..=3 => Ok(()),
            _ => Err(Grudge(grudge.clone()).into()),
        });
    let mut runner = probe.on_three(order);
    let tally = runner.runner().tally();
    for _ in 0..10 {
        std::mem::forget(runner.run(tally.input(0..3)).unwrap_err());
    }
    is_armed.store(false, SeqCst);
    check_afterwards(runner);
}

fn dropping_a_runner_never_panics(order: Order) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let runner = grudging(Hook::ProducerEnd, &is_armed).on_three(order);
    let tally = runner.runner().tally();
    catch_unwind(AssertUnwindSafe(|| drop(runner))).expect("dropping panics");
    assert_eq!(tally.threads.alive(), 0);
}
