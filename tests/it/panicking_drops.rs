//! Runners, inputs, outputs and states that all panic when they are dropped.

use std::sync::Arc;
use std::thread;

use gangline::{
    AnyOrderRunner, ConsumerContext, Order, OrderedRunner, ProducerContext, Result, Runner,
};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Alive, Census};
use crate::support::{Counter, Gate, map};

both_orders!(
    a_runner_value_may_panic_when_dropped,
    states_end_after_a_drop_on_a_thread_of_their_own,
    everything_of_the_user_s_may_panic_when_dropped,
    items_whose_destructor_panics_are_dropped_quietly,
);

struct PanicsInDrop;
impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("in a destructor");
        }
    }
}

fn caught<T>(f: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(_) => panic!("the destructor's panic came through"),
    }
}

fn a_runner_value_may_panic_when_dropped(order: Order) {
    let bad = PanicsInDrop;
    let hooks = Hooks::new().work(move |_, x| {
        let _owned = &bad;
        Ok(x)
    });
    let pool = hooks.pool(order, 2);
    caught(|| drop(pool));
}

#[derive(Debug)]
struct BadError;
impl std::fmt::Display for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad error")
    }
}
impl std::error::Error for BadError {}
impl Drop for BadError {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("in an error's destructor");
        }
    }
}

/// Dropped on its own thread by a hook, with an output that panics when dropped: the states end all the
/// same.
fn states_end_after_a_drop_on_a_thread_of_their_own(order: Order) {
    type Slot = Arc<std::sync::Mutex<Option<Box<dyn std::any::Any + Send>>>>;
    let slot: Slot = Arc::default();
    struct Ends(Arc<Counter>, Slot, Arc<Gate>, Arc<Gate>);
    impl Runner for Ends {
        type Input = u64;
        type Output = Option<PanicsInDrop>;
        type ProducerState = ();
        type ConsumerState = ();
        type Summary = ();
        fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
            Ok(())
        }
        fn producer_work(
            &self,
            _: &ProducerContext<'_>,
            _: &mut (),
            x: u64,
        ) -> Result<Option<PanicsInDrop>> {
            match x {
                0 => self.3.pass(),
                1 => {
                    self.3.open();
                    self.2.pass();
                    drop(self.1.lock().unwrap().take());
                    return Ok(Some(PanicsInDrop));
                }
                _ => {}
            }
            Ok(None)
        }
        fn producer_end(&self, _: &ProducerContext<'_>, _: ()) -> Result<()> {
            self.0.add(1);
            Ok(())
        }
        fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
            Ok(())
        }
        fn consumer_work(
            &self,
            _: &ConsumerContext<'_>,
            _: &mut (),
            _: Option<PanicsInDrop>,
        ) -> Result<()> {
            Ok(())
        }
        fn consumer_end(&self, _: &ConsumerContext<'_>, _: ()) -> Result<()> {
            Ok(())
        }
    }
    let (ends, filled, started) =
        (Arc::new(Counter::new()), Arc::new(Gate::new()), Arc::new(Gate::new()));
    let runner = Ends(ends.clone(), slot.clone(), filled.clone(), started.clone());
    let mut pool =
        AnyOrderRunner::builder(runner).order(order).devices(2).window(2).build().unwrap();
    let mut stream = pool.outputs(0..);
    stream.next().unwrap().unwrap();
    started.pass();
    std::mem::forget(stream);
    *slot.lock().unwrap() = Some(Box::new(pool));
    filled.open();
    ends.reach(2);
}

struct Item(u64);
impl Drop for Item {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("item {}", self.0);
        }
    }
}

/// Inputs, outputs, states and panic payloads that all panic when dropped.
fn everything_of_the_user_s_may_panic_when_dropped(order: Order) {
    for mode in 0..6 {
        let runner = map(
            |_| Ok(PanicsInDrop),
            move |_, _, x: Item| {
                if mode == 1 && x.0 == 20 {
                    std::panic::panic_any(PanicsInDrop);
                }
                if mode == 2 && x.0 == 20 {
                    std::mem::forget(x);
                    return Err(BadError)?;
                }
                Ok(x)
            },
        )
        .fold(
            |_| Ok(vec![]),
            move |cx, kept: &mut Vec<Item>, x| {
                if mode == 3 && x.0 == 20 {
                    kept.push(x);
                    std::panic::panic_any(PanicsInDrop);
                }
                if mode == 4 && x.0 == 20 {
                    cx.stop();
                }
                std::mem::forget(x);
                Ok(())
            },
        );
        let mut pool = AnyOrderRunner::builder(runner).order(order).devices(2).build().unwrap();
        for _ in 0..3 {
            let result = caught(|| pool.run((0..100).map(Item)));
            assert_eq!(result.is_ok(), matches!(mode, 0 | 4 | 5), "mode {mode}");
            std::mem::forget(result);
            let account = pool.account();
            assert!(account.ok <= 100);
            let stream = pool.outputs((0..100).map(Item));
            caught(|| stream.take(5).for_each(std::mem::forget));
            if mode == 5 {
                let mut stream = pool.outputs((0..100).map(Item));
                std::mem::forget(stream.next());
                std::mem::forget(stream);
            }
        }
        caught(|| drop(pool));
    }
}

/// An item with a destructor that panics, unless it was worked on.
struct Grenade {
    value: u64,
    is_armed: bool,
    _alive: Alive,
}

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(!self.is_armed || thread::panicking(), "an item that nobody wants");
    }
}

/// The inputs that were given out, and the outputs that were not consumed, all panic when dropped.
fn items_whose_destructor_panics_are_dropped_quietly(order: Order) {
    let census = Arc::<Census>::default();
    let worked = Arc::new(Counter::new());
    let count = worked.clone();
    let work = map(
        |_| Ok(()),
        move |_, _, mut item: Grenade| {
            count.add(1);
            if item.value == 20 {
                item.is_armed = false;
                return Err("it broke".into());
            }
            Ok(item)
        },
    );
    let runner = work.fold(
        |_| Ok(0),
        move |_, sum: &mut u64, mut item: Grenade| {
            item.is_armed = false;
            *sum += item.value;
            if item.value == 10 {
                worked.reach(12);
                return Err("enough".into());
            }
            Ok(())
        },
    );
    let mut runner =
        AnyOrderRunner::builder(runner).devices(3).order(order).window(24).build().unwrap();
    let grenades = |values: std::ops::Range<u64>| {
        let census = census.clone();
        values.map(move |value| Grenade { value, is_armed: true, _alive: Alive::new(&census) })
    };
    for _ in 0..3 {
        let error = runner.run(grenades(0..100)).unwrap_err();
        assert!(error.hook().is_some() && !error.is_panic(), "{error:#}");
        assert_eq!(census.alive(), 0, "all are dropped");
        assert_eq!(runner.run(grenades(0..10)).unwrap(), 45, "the runner works again");
    }
    let mut stream = runner.outputs(grenades(0..15));
    let mut first = stream.next().unwrap().unwrap();
    first.is_armed = false;
    drop(stream);
    drop(first);
    assert_eq!(census.alive(), 0, "all are dropped");
    runner.close().unwrap();
}

/// A panic of an input's destructor is no reason to lose the results.
#[test]
fn an_input_whose_destructor_panics_changes_no_result() {
    struct Clingy(std::ops::Range<u64>);
    impl Iterator for Clingy {
        type Item = u64;
        fn next(&mut self) -> Option<u64> {
            self.0.next()
        }
    }
    impl Drop for Clingy {
        fn drop(&mut self) {
            assert!(thread::panicking(), "I was not finished");
        }
    }
    let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2).unwrap();
    assert_eq!(runner.run(Clingy(0..5)).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(runner.run(0..2).unwrap(), [0, 1]);
}
