//! Panics with odd payloads, and destructors that panic. What a second panic during the unwinding of the
//! first does is in `process_ends`.

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::event::Event;
use gangline::{AnyOrderRunner, Hook, Order, ProducerContext};

use crate::hooks::both_orders;
use crate::probe::{Alive, Census, Fault, Item, Probe, check_afterwards};
use crate::support::{Counter, map};

both_orders!(
    every_text_of_a_panic_is_kept,
    a_payload_whose_destructor_panics,
    a_producer_state_whose_destructor_panics,
    a_consumer_state_whose_destructor_panics,
    an_output_whose_destructor_panics_is_no_matter_once_it_is_not_wanted,
    thousands_of_outputs_whose_destructors_panic_are_each_dropped,
    what_measures_items_may_panic_when_dropped,
    observers_may_panic_when_dropped,
    an_input_of_a_stream_that_waits_for_room_may_panic_when_dropped,
    an_output_that_waits_for_room_in_the_next_stage_may_panic_when_dropped,
    an_input_that_was_never_asked_may_panic_when_dropped,
);

/// Panics when it is dropped, unless something is already wrong.
struct Bomb {
    _alive: Option<Alive>,
}

impl Bomb {
    fn new() -> Self {
        Bomb { _alive: None }
    }

    fn counted(census: &Arc<Census>) -> Self {
        Bomb { _alive: Some(Alive::new(census)) }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "the destructor");
    }
}

pub(crate) const HOOKS: [Hook; 4] =
    [Hook::ProducerWork, Hook::ConsumerInit, Hook::ConsumerWork, Hook::ConsumerEnd];

/// A probe that panics in `hook` as `f` does.
fn panicking(hook: Hook, f: impl Fn() + Send + Sync + 'static) -> Probe {
    let fail = move || {
        f();
        Ok(())
    };
    match hook {
        Hook::ProducerWork | Hook::ProducerInit | Hook::ProducerEnd => {
            Probe::new().on_producer(hook, move |_| fail())
        }
        _ => Probe::new().on_consumer(hook, move |_| fail()),
    }
}

#[track_caller]
fn check_text(f: impl Fn() + Send + Sync + Clone + 'static, text: &str, order: Order) {
    for hook in HOOKS {
        let mut runner = panicking(hook, f.clone()).on_three(order);
        let input = runner.runner().tally().input(0..20);
        let error = runner.run(input).unwrap_err();
        assert_eq!((error.hook(), error.is_panic()), (Some(hook), true), "{error:#}");
        assert_eq!(error.source().unwrap().to_string(), text);
        check_afterwards(runner);
    }
}

const NO_TEXT: &str = "a panic with a payload that is not text";

fn every_text_of_a_panic_is_kept(order: Order) {
    check_text(|| panic!("plain"), "plain", order);
    check_text(|| panic!("of {}", 7), "of 7", order);
    check_text(|| panic_any(String::from("a String")), "a String", order);
    check_text(|| panic!("two\nlines\u{1b}[31m"), "two\nlines\u{1b}[31m", order);
    check_text(|| panic!(""), "", order);
    check_text(|| panic_any(7), NO_TEXT, order);
    check_text(|| panic_any(vec![1, 2, 3]), NO_TEXT, order);
    check_text(|| std::panic::resume_unwind(Box::new("quiet")), "quiet", order);
}

fn a_payload_whose_destructor_panics(order: Order) {
    check_text(|| panic_any(Bomb::new()), NO_TEXT, order);
}

/// It panics when it is lost to a panic, and when it is ended.
fn a_producer_state_whose_destructor_panics(order: Order) {
    let census = Arc::<Census>::default();
    let states = census.clone();
    let runner = map(
        move |_| Ok((Bomb::counted(&states), Rc::new(()))),
        |_, _: &mut (Bomb, Rc<()>), x: u64| if x == 7 { panic!("it broke") } else { Ok(x) },
    );
    let mut runner = AnyOrderRunner::builder(runner).devices(3).order(order).build().unwrap();
    for made in 3..6 {
        assert_eq!(census.made(), made);
        let error = runner.run(0..20).unwrap_err();
        assert_eq!((error.hook(), error.item()), (Some(Hook::ProducerWork), Some(7)));
        assert!(format!("{error:#}").ends_with("it broke"), "{error:#}");
        assert_eq!(runner.run(0..5).unwrap().len(), 5);
    }
    let error = runner.close().unwrap_err();
    assert_eq!((error.hook(), error.is_panic()), (Some(Hook::ProducerEnd), true), "{error:#}");
    assert!(format!("{error:#}").ends_with("the destructor"), "{error:#}");
    assert_eq!(census.alive(), 0);
    runner.activate().unwrap();
    drop(runner);
    assert_eq!(census.alive(), 0, "dropping is quiet");
}

fn a_consumer_state_whose_destructor_panics(order: Order) {
    let census = Arc::<Census>::default();
    let states = census.clone();
    let runner = map(|_| Ok(()), |_, _, x: u64| Ok(x)).fold(
        move |_| Ok(Bomb::counted(&states)),
        |_, _, x| if x == 7 { Err("it broke".into()) } else { Ok(()) },
    );
    let mut runner = AnyOrderRunner::builder(runner).devices(3).order(order).build().unwrap();
    for _ in 0..3 {
        let Err(error) = runner.run(0..20) else { panic!("it should fail") };
        assert_eq!((error.hook(), error.item()), (Some(Hook::ConsumerWork), Some(7)));
        assert!(!error.is_panic(), "{error:#}");
        let token = runner.cancel_token();
        let input = (0..1000).inspect(move |x| {
            if *x == 5 {
                token.cancel();
            }
        });
        let Err(error) = runner.run(input) else { panic!("it should be cancelled") };
        assert!(error.is_cancelled() || error.item() == Some(7), "{error:#}");
        assert_eq!(census.alive(), 0);
    }
    runner.close().unwrap();
}

fn an_output_whose_destructor_panics_is_no_matter_once_it_is_not_wanted(order: Order) {
    let census = Arc::<Census>::default();
    let (outputs, worked) = (census.clone(), Arc::new(Counter::new()));
    let count = worked.clone();
    let runner = map(
        |_| Ok(()),
        move |_, _, _: u64| {
            let output = Bomb::counted(&outputs);
            count.add(1);
            Ok(output)
        },
    )
    .fold(
        |_| Ok(0),
        move |cx, consumed: &mut u64, output| {
            std::mem::forget(output);
            worked.reach(5);
            *consumed += 1;
            cx.stop();
            Ok(())
        },
    );
    let mut runner =
        AnyOrderRunner::builder(runner).devices(3).order(order).window(5).build().unwrap();
    assert_eq!(runner.run(0..20).unwrap(), 1);
    assert_eq!(census.alive(), 1, "the one that was forgotten");
    runner.close().unwrap();
}

/// Law 9: drop never panics.
fn what_measures_items_may_panic_when_dropped(order: Order) {
    let bomb = Bomb::new();
    let weight = move |_: &u64| u64::from(bomb._alive.is_none());
    let echo = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let builder = AnyOrderRunner::builder(echo).order(order).devices(1);
    let mut pool = builder.window_memory(5, weight, |_| 0).build().unwrap();
    assert_eq!(pool.run([7]).unwrap(), [7]);
    catch_unwind(AssertUnwindSafe(|| drop(pool))).expect("dropping panics");
}

/// Law 9: drop never panics, and each is dropped by itself.
fn observers_may_panic_when_dropped(order: Order) {
    let echo = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let mut builder = AnyOrderRunner::builder(echo).order(order).devices(1);
    for _ in 0..2 {
        let bomb = Bomb::new();
        builder = builder.observer(move |_: Duration, _: &Event| {
            let _until_it_goes = &bomb;
        });
    }
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run([7]).unwrap(), [7]);
    catch_unwind(AssertUnwindSafe(|| drop(pool))).expect("dropping panics");
}

/// The first of two is worked on when the second, for which it leaves no room, waits. Once the first is done, a producer
/// may be faster than the caller and take the second: then the input is not dropped by the stream.
fn an_input_of_a_stream_that_waits_for_room_may_panic_when_dropped(order: Order) {
    let has_waited = (0..100).any(|_| input_that_waits_panics_when_dropped(order));
    assert!(has_waited, "the second item was taken each time");
}

/// Whether the input waited until the stream was dropped.
fn input_that_waits_panics_when_dropped(order: Order) -> bool {
    let weighed = Arc::new(Counter::new());
    let weighing = weighed.clone();
    let work = move |_: &ProducerContext<'_>, (): &mut (), bomb: Option<Bomb>| {
        weighed.reach(2);
        Ok(bomb.is_some())
    };
    let weigh = move |bomb: &Option<Bomb>| {
        weighing.add(1);
        if bomb.is_some() { 8 } else { 1 }
    };
    let builder = AnyOrderRunner::builder(map(|_| Ok(()), work)).order(order).devices(2);
    let mut pool = builder.window_memory(10_u64, weigh, |_| 0).build().unwrap();
    let mut stream = pool.outputs([None, Some(Bomb::new())]);
    let first = stream.next().unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(stream))).expect("dropping panics");
    let account = pool.account();
    if account.failed > 0 {
        return false;
    }
    assert!(!first.unwrap());
    assert_eq!((account.ok, account.cancelled), (1, 1));
    true
}

fn an_output_that_waits_for_room_in_the_next_stage_may_panic_when_dropped(order: Order) {
    let weighed = Arc::new(Counter::new());
    let weighing = weighed.clone();
    let pass = || map(|_| Ok(()), |_, (), bomb: Option<Bomb>| Ok(bomb));
    let last = pass().fold(
        |_| Ok(()),
        move |_, (), _| {
            weighed.reach(2);
            Err("enough".into())
        },
    );
    let weigh = move |_: &Option<Bomb>| weighing.add(1).min(1);
    let first = AnyOrderRunner::builder(pass()).order(order).devices(1).build().unwrap();
    let last = AnyOrderRunner::builder(last).order(order).devices(1).window_memory(1, weigh, |_| 1);
    let mut last = last.build().unwrap();
    let error = first.then(&mut last).run([None, Some(Bomb::new())]).unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ConsumerWork));
    assert_eq!((last.account().failed, last.account().cancelled), (1, 1));
}

/// An input with a destructor that panics.
struct Clingy(std::ops::Range<u64>, Arc<Census>);

impl Iterator for Clingy {
    type Item = Item;
    fn next(&mut self) -> Option<Item> {
        self.0.next().map(|value| Item::new(value, &self.1))
    }
}

impl Drop for Clingy {
    fn drop(&mut self) {
        assert!(thread::panicking(), "I was not finished");
    }
}

/// As b9 has it for an input that was read: it changes no result, also where a run never got to it.
fn an_input_that_was_never_asked_may_panic_when_dropped(order: Order) {
    let mut runner =
        Probe::new().failing(Hook::ConsumerInit, Fault::Error, |_| true).on_three(order);
    let tally = runner.runner().tally();
    let clingy = || Clingy(0..9, tally.inputs.clone());
    let run = catch_unwind(AssertUnwindSafe(|| runner.run(clingy()))).expect("running panics");
    Fault::Error.check(&run.unwrap_err(), Hook::ConsumerInit, None);
    runner.cancel_token().cancel();
    let run = catch_unwind(AssertUnwindSafe(|| runner.run(clingy()))).expect("running panics");
    assert!(run.unwrap_err().is_cancelled());
    let stream = AssertUnwindSafe(|| runner.outputs(clingy()).next().unwrap().unwrap().value);
    catch_unwind(stream).expect("dropping a stream panics");
}

/// Enough items in flight to fill several of the rings that they travel in.
fn thousands_of_outputs_whose_destructors_panic_are_each_dropped(order: Order) {
    const COUNT: u64 = 2_000;
    struct Tracked(Arc<AtomicU64>, bool);
    impl Drop for Tracked {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            assert!(!self.1 || thread::panicking(), "the destructor");
        }
    }

    let (made, dropped) = (Arc::new(Counter::new()), Arc::new(AtomicU64::new(0)));
    let (makes, drops) = (made.clone(), dropped.clone());
    let make = map(
        |_| Ok(()),
        move |_, (), _: u64| {
            makes.add(1);
            Ok(Tracked(drops.clone(), true))
        },
    );
    let refuse = make.fold(
        |_| Ok(()),
        move |_, (), mut first: Tracked| {
            first.1 = false;
            made.reach(COUNT);
            Err("no".into())
        },
    );
    let builder =
        AnyOrderRunner::builder(refuse).order(order).devices(1).window(2 * COUNT as usize);
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(0..COUNT).unwrap_err().hook(), Some(Hook::ConsumerWork));
    assert_eq!((pool.account().failed, pool.account().cancelled), (1, COUNT - 1));
    assert_eq!(dropped.load(SeqCst), COUNT, "each is dropped before the run returns");
}
