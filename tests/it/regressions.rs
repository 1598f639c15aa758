//! Regressions: bugs that were found once.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

use gangline::{
    AnyOrderRunner, Batch, CancelToken, ConsumerContext, Order, ProducerContext, Result, Runner,
    UnorderedRunner,
};

use crate::hooks::{Hooks, both_orders};
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

both_orders!(
    a_guarded_input_that_blocks_ends_with_a_run_that_fails,
    a_guarded_input_that_blocks_ends_with_a_run_that_is_stopped,
    a_guarded_input_at_the_source_of_a_chain_ends_with_its_last_run,
    hooks_that_meet_fit_into_any_window_that_holds_one_item_of_each,
    a_request_made_before_a_run_makes_no_state_anew_for_it,
    a_guarded_input_that_ends_does_not_hide_the_cancel,
    an_init_that_gives_up_does_not_hide_the_cancel_of_a_building,
    a_cancel_that_ended_an_activation_is_spent,
    an_init_that_gives_up_does_not_hide_the_cancel_of_a_run,
    a_consumer_that_gives_up_does_not_hide_the_cancel,
    a_consumer_init_that_gives_up_does_not_hide_the_cancel,
    nothing_is_pulled_while_the_state_of_a_failed_consumer_is_dropped,
    a_failure_does_not_wait_behind_results_for_a_slow_consumer,
    a_runner_value_may_panic_when_dropped,
    a_hook_that_runs_its_own_runner_gets_an_error,
    states_end_after_a_drop_on_a_thread_of_their_own,
    states_that_fail_to_be_made_anew_may_succeed_later,
    everything_of_the_user_s_may_panic_when_dropped,
);

fn a_guarded_input_that_ends_does_not_hide_the_cancel(order: Order) {
    let consumed = Arc::new(Counter::new());
    let counts = consumed.clone();
    let hooks = Hooks::new().consume(move |_, _| {
        counts.add(1);
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    for round in 1..=200 {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let items = token.guard(receiver);
        (0..3).for_each(|x| sender.send(x).unwrap());
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                consumed.reach(3 * round);
                token.cancel();
            });
            pool.run(items)
        });
        assert!(result.is_err_and(|error| error.is_cancelled()), "round {round}");
    }
}

/// `cancel` once a producer_init is there; it gives up with an error.
fn giving_up(armed: &Arc<AtomicBool>, reached: &Arc<Gate>) -> Hooks {
    let (armed, reached) = (armed.clone(), reached.clone());
    Hooks::new()
        .init(move |cx| {
            if armed.load(SeqCst) {
                reached.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                return Err("gave up".into());
            }
            Ok(())
        })
        .work(|_, x| if x == 99 { panic!("no") } else { Ok(x) })
}

fn cancelling<T>(token: &CancelToken, reached: &Gate, f: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(|| {
            reached.pass();
            token.cancel();
        });
        f()
    })
}

fn an_init_that_gives_up_does_not_hide_the_cancel_of_a_building(order: Order) {
    let (armed, reached, token) = (Arc::new(true.into()), Arc::default(), CancelToken::new());
    let builder = AnyOrderRunner::builder(giving_up(&armed, &reached)).order(order).devices(2);
    let builder = builder.cancel_token(token.clone());
    let error = cancelling(&token, &reached, || builder.build()).unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
}

fn a_cancel_that_ended_an_activation_is_spent(order: Order) {
    let (armed, reached) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut pool = giving_up(&armed, &reached).pool(order, 2);
    pool.close().unwrap();
    armed.store(true, SeqCst);
    let token = pool.cancel_token();
    let error = cancelling(&token, &reached, || pool.activate()).unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
    armed.store(false, SeqCst);
    pool.activate().unwrap();
    pool.run(0..3).expect("the cancel is spent");
}

fn an_init_that_gives_up_does_not_hide_the_cancel_of_a_run(order: Order) {
    let (armed, reached) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut pool = giving_up(&armed, &reached).pool(order, 1);
    pool.run([99]).unwrap_err();
    armed.store(true, SeqCst);
    let token = pool.cancel_token();
    let error = cancelling(&token, &reached, || pool.run(0..3)).unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
}

fn a_consumer_that_gives_up_does_not_hide_the_cancel(order: Order) {
    let reached = Arc::new(Gate::new());
    let reaches = reached.clone();
    let hooks = Hooks::new().consume(move |cx, _| {
        reaches.open();
        while !cx.is_cancelled() {
            thread::yield_now();
        }
        Err("gave up".into())
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    let error = cancelling(&token, &reached, || pool.run(0..)).unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
}

fn a_consumer_init_that_gives_up_does_not_hide_the_cancel(order: Order) {
    let reached = Arc::new(Gate::new());
    let reaches = reached.clone();
    let hooks = Hooks::new().consumer_init(move |cx| {
        reaches.open();
        while !cx.is_cancelled() {
            thread::yield_now();
        }
        Err("gave up".into())
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    let error = cancelling(&token, &reached, || pool.run(0..)).unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
}

struct SlowToDrop(Arc<AtomicU64>);
impl Drop for SlowToDrop {
    fn drop(&mut self) {
        for _ in 0..2_000 {
            thread::yield_now();
        }
        self.0.store(1, SeqCst);
    }
}

/// With a window of one, nothing may be pulled after item 0 failed.
fn nothing_is_pulled_while_the_state_of_a_failed_consumer_is_dropped(order: Order) {
    let dropped = Arc::new(AtomicU64::new(0));
    let marks = dropped.clone();
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let fold = same.fold(move |_| Ok(SlowToDrop(marks.clone())), |_, _, _| Err("no".into()));
    let mut pool = AnyOrderRunner::builder(fold).order(order).devices(2).window(1).build().unwrap();
    let pulled = Cell::new(0);
    let error = pool.run((0_u64..).inspect(|_| pulled.set(pulled.get() + 1))).err().unwrap();
    assert_eq!(error.item(), Some(0));
    assert_eq!(pulled.get(), 1, "pulled after the failure");
}

/// In order of completion; in input order what comes before it is still consumed.
fn a_failure_does_not_wait_behind_results_for_a_slow_consumer(order: Order) {
    let (is_busy, consumed) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (gets_busy, counts) = (is_busy.clone(), consumed.clone());
    let fails_meanwhile = move |x| {
        if x < 30 {
            return Ok(x);
        }
        is_busy.pass();
        Err("no".into())
    };
    let hooks = Hooks::new().work(move |_, x| fails_meanwhile(x)).consume(move |cx, _| {
        if counts.add(1) == 1 {
            gets_busy.open();
            while order == Order::Completion && !cx.is_cancelled() {
                thread::yield_now();
            }
        }
        Ok(())
    });
    let error = hooks.windowed(order, 1, 64).run(0..).unwrap_err();
    assert_eq!(error.item(), Some(30));
    let expected = if order == Order::Completion { 1 } else { 30 };
    assert_eq!(consumed.get(), expected);
}

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

struct Bad(PanicsInDrop);
impl Runner for Bad {
    type Input = u64;
    type Output = u64;
    type ProducerState = Rc<()>;
    type ConsumerState = ();
    type Summary = ();
    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Rc<()>> {
        Ok(Rc::new(()))
    }
    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut Rc<()>, x: u64) -> Result<u64> {
        Ok(x)
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, _: &mut (), _: u64) -> Result<()> {
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, _: ()) -> Result<()> {
        Ok(())
    }
}

fn a_runner_value_may_panic_when_dropped(order: Order) {
    let pool = AnyOrderRunner::builder(Bad(PanicsInDrop)).order(order).devices(2).build().unwrap();
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

/// A hook of a leaked stream takes its own runner and runs it.
fn a_hook_that_runs_its_own_runner_gets_an_error(order: Order) {
    let slot: Arc<std::sync::Mutex<Option<AnyOrderRunner<Hooks>>>> = Arc::default();
    let (own, filled, done) = (slot.clone(), Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (go, did, started) = (filled.clone(), done.clone(), Arc::new(Gate::new()));
    let starts = started.clone();
    let hooks = Hooks::new().work(move |_, x| {
        match x {
            0 => starts.pass(),
            1 => {
                starts.open();
                go.pass();
                let mut pool = own.lock().unwrap().take().unwrap();
                let error = pool.run(10..20).unwrap_err();
                assert_eq!(error.to_string(), "a runner cannot be run by one of its own hooks");
                did.open();
            }
            _ => {}
        }
        Ok(x)
    });
    let mut pool = hooks.windowed(order, 2, 8);
    let mut stream = pool.outputs(0..);
    while stream.next().unwrap().unwrap() != 0 {}
    started.pass();
    std::mem::forget(stream);
    *slot.lock().unwrap() = Some(pool);
    filled.open();
    done.pass();
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

/// Both lose their state, one cannot rebuild it; then all is well.
fn states_that_fail_to_be_made_anew_may_succeed_later(order: Order) {
    let armed = Arc::new(AtomicU64::new(0));
    let arms = armed.clone();
    let both = Counter::new();
    let hooks = Hooks::new()
        .init(
            move |cx| {
                if arms.load(SeqCst) & (1 << cx.producer()) != 0 { Err("no")? } else { Ok(()) }
            },
        )
        .work(move |_, x| {
            if x == 99 {
                both.add(1);
                both.reach(2);
                panic!("no");
            }
            Ok(x)
        });
    let mut pool = hooks.pool(order, 2);
    for bits in [1, 2, 3, 1, 2] {
        armed.store(bits, SeqCst);
        let _ = pool.run([99, 99]);
        let _ = pool.run(0..5);
    }
    armed.store(0, SeqCst);
    assert_eq!(pool.run(0..3).unwrap().len(), 3);
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

/// While the consumer is busy with the first item, two producers finish the others in turns. The last
/// item of each may still be on its way when the consumer looks.
#[test]
fn what_was_finished_while_the_consumer_was_busy_is_not_sorted_by_producer() {
    no_hang(|| {
        let (turn, finished) = (Counter::new(), Arc::new(Counter::new()));
        let (busy, finishes) = (Arc::new(Counter::new()), finished.clone());
        let is_busy = busy.clone();
        let in_turns = map(
            |_| Ok(()),
            move |cx: &ProducerContext<'_>, (), x: u64| {
                turn.reach(x);
                is_busy.reach(x.min(1));
                turn.add(1);
                finishes.add(1);
                Ok((cx.producer(), x))
            },
        );
        let collect = in_turns.fold(
            |_| Ok(vec![]),
            move |_, all: &mut Vec<(usize, u64)>, x| {
                if all.is_empty() {
                    busy.add(1);
                    finished.reach(16);
                }
                all.push(x);
                Ok(())
            },
        );
        let builder =
            AnyOrderRunner::builder(collect).order(Order::Completion).devices(2).window(16);
        let all = builder.build().unwrap().run(0..16).unwrap();
        let is_last = |worker| all.iter().rposition(|&(who, _)| who == worker);
        let mut early: Vec<_> = all.clone();
        let mut last: Vec<_> = (0..2).filter_map(is_last).collect();
        last.sort_unstable();
        last.into_iter().rev().for_each(|at| _ = early.remove(at));
        assert!(early.is_sorted_by_key(|&(_, x)| x), "{all:?}");
    });
}

/// It sees that the run has failed elsewhere, and returns an error of its own, of an earlier item.
#[test]
fn a_hook_that_gives_up_does_not_take_the_place_of_the_failure() {
    for batch in [None, Some(Batch::of(1))] {
        no_hang(move || {
            for _ in 0..200 {
                let started = Counter::new();
                let runner = map(
                    |_| Ok(()),
                    move |cx: &ProducerContext<'_>, (), x: u64| {
                        started.add(1);
                        started.reach(2);
                        if x == 1 {
                            return Err("one".into());
                        }
                        while !cx.is_cancelled() {
                            thread::yield_now();
                        }
                        Err::<u64, _>("gave up".into())
                    },
                );
                let builder = UnorderedRunner::builder(one_by_one(runner)).devices(2);
                let builder = match batch {
                    Some(batch) => builder.batch(batch),
                    None => builder,
                };
                let error = builder.build().unwrap().run(0..2).unwrap_err();
                assert_eq!(error.item(), Some(1), "{error:#}");
            }
        });
    }
}

/// The token is never used, and the sender lives on.
fn a_guarded_input_that_blocks_ends_with_a_run_that_fails(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    sender.send(0).unwrap();
    let mut pool = Hooks::new().work(|_, _| Err("no".into())).pool(order, 2);
    let input = pool.cancel_token().guard(receiver);
    assert_eq!(pool.run(input).unwrap_err().item(), Some(0));
    drop(sender);
}

fn a_guarded_input_that_blocks_ends_with_a_run_that_is_stopped(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    sender.send(0).unwrap();
    let hooks = Hooks::new().consume(|cx, _| {
        cx.stop();
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let input = pool.cancel_token().guard(receiver);
    pool.run(input).unwrap();
    assert_eq!(pool.account().ok, 1);
    drop(sender);
}

fn a_guarded_input_at_the_source_of_a_chain_ends_with_its_last_run(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    (0..3).for_each(|x| sender.send(x).unwrap());
    let mut first = Hooks::new().windowed(order, 1, 1);
    let mut last = Hooks::new().work(|_, _| Err("no".into())).pool(order, 1);
    let input = first.cancel_token().guard(receiver);
    let error = last.try_run(first.outputs(input)).unwrap_err();
    assert_eq!(error.item(), Some(0));
    drop(sender);
}
