//! Unwanted values with destructors that panic or call back: of batches that were split, of items that two
//! producers work on, of calls that were given up.

mod at_the_end;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use gangline::event::Event;
use gangline::order::RuntimeOrder;
use gangline::{
    AnyOrderRunner, Batch, Builder, CancelToken, ConsumerContext, Error, OnError, Order,
    ProducerContext, Result, Runner,
};

use crate::support::{Counter, Gate, no_hang};

const SOON: Duration = Duration::from_millis(250);

/// An input, a copy of one, an output, or what an error is made of.
struct Value {
    number: u64,
    kind: Kind,
    destructor: Arc<dyn Fn(&Value) + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Input,
    /// The number of copies made.
    Copy(u32),
    Output,
    Error,
    /// It was made use of, and its destructor does nothing.
    Spent,
}

impl Value {
    fn input(number: u64, destructor: impl Fn(&Value) + Send + Sync + 'static) -> Self {
        Value { number, kind: Kind::Input, destructor: Arc::new(destructor) }
    }

    /// Another with this destructor.
    fn as_kind(&self, kind: Kind) -> Self {
        Value { number: self.number, kind, destructor: self.destructor.clone() }
    }

    fn spend(mut self) -> u64 {
        self.kind = Kind::Spent;
        self.number
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.as_kind(match self.kind {
            Kind::Copy(times) => Kind::Copy(times + 1),
            _ => Kind::Copy(1),
        })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        (self.destructor.clone())(self);
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Value {}

/// Values with destructors that panic. One that is dropped while the panic of another unwinds would abort
/// the process; it is recorded instead.
#[derive(Default)]
struct Bombs {
    dropped: Counter,
    dropped_together: AtomicBool,
}

impl Bombs {
    fn inputs<F>(self: &Arc<Self>, count: u64, is_bomb: F) -> Vec<Value>
    where
        F: Fn(&Value) -> bool + Clone + Send + Sync + 'static,
    {
        let input = |number| {
            let (bombs, is_bomb) = (self.clone(), is_bomb.clone());
            Value::input(number, move |value| {
                if is_bomb(value) {
                    bombs.go_off(value);
                }
            })
        };
        (0..count).map(input).collect()
    }

    fn go_off(&self, value: &Value) {
        self.dropped.add(1);
        match thread::panicking() {
            true => self.dropped_together.store(true, SeqCst),
            false => panic!("the destructor of {value:?}"),
        }
    }

    #[track_caller]
    fn check(&self, dropped: u64) {
        self.dropped.reach(dropped);
        assert!(!self.dropped_together.load(SeqCst), "each is dropped by itself");
    }
}

type OnProducer = dyn Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync;

type OnBatch = dyn Fn(&ProducerContext<'_>, &[Value]) -> Result<Vec<Result<Value>>> + Send + Sync;

type OnConsumer = dyn Fn(u64) -> Result<()> + Send + Sync;

/// Its hooks leave inputs where they are. The summary is the numbers of what was consumed.
struct Hooks {
    init: Box<OnProducer>,
    work: Box<OnBatch>,
    consume: Box<OnConsumer>,
    skipped: Box<dyn Fn() + Send + Sync>,
    ended: Arc<Counter>,
}

impl Hooks {
    fn new<F>(work: F) -> Self
    where
        F: Fn(&ProducerContext<'_>, &[Value]) -> Result<Vec<Result<Value>>> + Send + Sync + 'static,
    {
        Hooks {
            init: Box::new(|_| Ok(())),
            work: Box::new(work),
            consume: Box::new(|_| Ok(())),
            skipped: Box::new(|| ()),
            ended: Arc::default(),
        }
    }

    fn consume(mut self, f: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Self {
        self.consume = Box::new(f);
        self
    }

    /// A copy of what one producer is slow at is worked on by the other.
    fn raced(self) -> Builder<Self, RuntimeOrder> {
        let builder = AnyOrderRunner::builder(self).order(Order::Completion).devices(2);
        builder.on_error(OnError::Skip).speculate()
    }
}

impl Runner for Hooks {
    type Input = Value;
    type Output = Value;
    type ProducerState = ();
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<()> {
        (self.init)(cx)
    }
    fn producer_work(&self, cx: &ProducerContext<'_>, (): &mut (), input: Value) -> Result<Value> {
        let outputs = (self.work)(cx, std::slice::from_ref(&input));
        input.spend();
        outputs?.pop().unwrap()
    }
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<Value>,
    ) -> Result<Vec<Result<Value>>> {
        (self.work)(cx, inputs)
    }
    fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> Result<()> {
        self.ended.add(1);
        Ok(())
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
        Ok(vec![])
    }
    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        all: &mut Vec<u64>,
        output: Value,
    ) -> Result<()> {
        all.push(output.spend());
        (self.consume)(all[all.len() - 1])
    }
    fn consumer_skipped(&self, _: &ConsumerContext<'_>, _: &mut Vec<u64>, _: &Error) -> Result<()> {
        (self.skipped)();
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
        Ok(all)
    }
}

fn outputs(inputs: &[Value]) -> Result<Vec<Result<Value>>> {
    Ok(inputs.iter().map(|input| Ok(input.as_kind(Kind::Output))).collect())
}

fn numbers(inputs: &[Value]) -> Vec<u64> {
    inputs.iter().map(|input| input.number).collect()
}

fn is_copy(value: &Value) -> bool {
    matches!(value.kind, Kind::Copy(_))
}

/// Which of two producers is at the first item: the one that took it, or the one that helps.
#[derive(Default)]
struct Pair(OnceLock<usize>);

#[derive(Debug, PartialEq)]
enum Who {
    Slow,
    Helper,
}

impl Pair {
    fn who(&self, cx: &ProducerContext<'_>) -> Who {
        match *self.0.get_or_init(|| cx.producer()) == cx.producer() {
            true => Who::Slow,
            false => Who::Helper,
        }
    }
}

/// Both producers split a batch; the helper has failed both items, and the slow one, which is told to leave after the
/// first, never comes to the second.
#[test]
fn a_copy_of_an_item_that_one_of_two_has_failed_may_panic_when_a_cancelled_run_drops_it() {
    no_hang(|| {
        let (pair, token) = (Pair::default(), CancelToken::new());
        let (helps, is_in_first, is_cancelled) = (Gate::new(), Gate::new(), Gate::new());
        let cancel = token.clone();
        let hooks = Hooks::new(move |cx, inputs| {
            match (pair.who(cx), &numbers(inputs)[..]) {
                (Who::Slow, [0, 1]) => helps.pass(),
                (Who::Helper, [0, 1]) => helps.open(),
                (Who::Slow, _) => {
                    is_in_first.open();
                    is_cancelled.pass();
                }
                (Who::Helper, [1]) => {
                    is_in_first.pass();
                    cancel.cancel();
                    is_cancelled.open();
                }
                _ => {}
            }
            Err("it fails".into())
        });
        let mut pool =
            hooks.raced().batch(Batch::of(2)).window(4).cancel_token(token).build().unwrap();
        let bombs = Arc::<Bombs>::default();
        let error = pool.run(bombs.inputs(2, is_copy)).unwrap_err();
        assert!(error.is_cancelled(), "{error:#}");
        let dropped = bombs.dropped.get();
        drop(pool);
        assert_eq!(bombs.dropped.get(), dropped, "all are dropped before the run returns");
        bombs.check(1);
    });
}

#[test]
fn what_a_batch_leaves_that_comes_back_too_late_may_panic_when_dropped() {
    no_hang(|| {
        for kind in [Kind::Input, Kind::Output] {
            let (stuck, left) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
            let (until, opens) = (stuck.clone(), left.clone());
            let hooks = Hooks::new(move |_, inputs| {
                if inputs[0].number == 0 {
                    until.pass();
                }
                outputs(inputs)
            });
            let ended = hooks.ended.clone();
            let builder =
                AnyOrderRunner::builder(hooks).order(Order::Input).devices(2).batch(Batch::of(2));
            let builder = builder.observer(move |_: Duration, event: &Event| {
                if let Event::ProducerAbandoned { .. } = event {
                    opens.open();
                }
            });
            let builder = builder.item_timeout(SOON).on_error(OnError::Skip);
            let mut pool = builder.build().unwrap();
            let bombs = Arc::<Bombs>::default();
            let inputs = bombs.inputs(40, move |value| value.kind == kind && value.number < 2);
            let late = bombs.clone();
            let inputs = inputs.into_iter().inspect(move |input| {
                if input.number == 39 {
                    left.pass();
                    stuck.open();
                    late.dropped.reach(2);
                }
            });
            assert_eq!(pool.run(inputs).unwrap(), (2..40).collect::<Vec<_>>());
            assert_eq!(pool.account().failed, 2);
            pool.close().unwrap();
            ended.reach(2);
            bombs.check(2);
        }
    });
}

#[test]
fn copies_of_a_batch_that_is_split_are_dropped_one_by_one() {
    no_hang(|| {
        let hooks = Hooks::new(|_, inputs| match inputs.len() {
            1 => outputs(inputs),
            _ => Err("as a whole".into()),
        });
        let builder =
            AnyOrderRunner::builder(hooks).order(Order::Input).devices(1).batch(Batch::of(2));
        let mut pool = builder.retries(1).build().unwrap();
        let bombs = Arc::<Bombs>::default();
        assert_eq!(pool.run(bombs.inputs(2, is_copy)).unwrap(), [0, 1]);
        bombs.check(4);
    });
}

#[test]
fn an_output_and_a_copy_of_the_loser_are_dropped_one_by_one() {
    no_hang(|| {
        let (pair, helps) = (Pair::default(), Gate::new());
        let won = Arc::new(Gate::new());
        let is_won = won.clone();
        let hooks = Hooks::new(move |cx, inputs| {
            match pair.who(cx) {
                Who::Slow => helps.pass(),
                Who::Helper => {
                    helps.open();
                    is_won.pass();
                }
            }
            outputs(inputs)
        });
        let hooks = hooks.consume(move |_| {
            won.open();
            Ok(())
        });
        let mut pool = hooks.raced().build().unwrap();
        let bombs = Arc::<Bombs>::default();
        let is_bomb = |value: &Value| matches!(value.kind, Kind::Copy(2) | Kind::Output);
        assert_eq!(pool.run(bombs.inputs(1, is_bomb)).unwrap(), [0]);
        pool.close().unwrap();
        bombs.check(2);
    });
}

#[test]
fn an_error_and_a_copy_that_a_cancel_leaves_are_dropped_one_by_one() {
    no_hang(|| {
        let token = CancelToken::new();
        let cancel = token.clone();
        let hooks = Hooks::new(move |_, inputs| {
            cancel.cancel();
            Err(inputs[0].as_kind(Kind::Error).into())
        });
        let builder = AnyOrderRunner::builder(hooks).order(Order::Input).devices(1).retries(1);
        let mut pool = builder.cancel_token(token).build().unwrap();
        let bombs = Arc::<Bombs>::default();
        let is_bomb = |value: &Value| is_copy(value) || value.kind == Kind::Error;
        assert!(pool.run(bombs.inputs(1, is_bomb)).unwrap_err().is_cancelled());
        bombs.check(2);
    });
}

/// An input of a producer that has lost its state, and the error of rebuilding it.
#[test]
fn an_input_and_an_error_that_a_cancel_leaves_are_dropped_one_by_one() {
    no_hang(|| {
        let token = CancelToken::new();
        let (cancel, bombs) = (token.clone(), Arc::<Bombs>::default());
        let is_bomb = |value: &Value| {
            value.kind == Kind::Input && value.number == 1 || value.kind == Kind::Error
        };
        let inputs = bombs.inputs(2, is_bomb);
        let error = inputs[0].as_kind(Kind::Spent);
        let mut hooks = Hooks::new(|_, _| panic!("the state is lost"));
        let inits = AtomicU64::new(0);
        hooks.init = Box::new(move |_| match inits.fetch_add(1, SeqCst) {
            0 => Ok(()),
            _ => {
                cancel.cancel();
                Err(error.as_kind(Kind::Error).into())
            }
        });
        let builder = AnyOrderRunner::builder(hooks).order(Order::Input).devices(1);
        let mut pool =
            builder.on_error(OnError::Skip).speculate().cancel_token(token).build().unwrap();
        assert!(pool.run(inputs).unwrap_err().is_cancelled());
        bombs.check(2);
    });
}

/// The helper has failed item 0; the slow one comes second, and is done with it.
#[test]
fn what_was_kept_of_the_one_that_failed_is_dropped_one_by_one_when_the_other_is_done() {
    no_hang(|| {
        let (pair, failed) = (Pair::default(), Arc::new(Gate::new()));
        let has_failed = failed.clone();
        let hooks = Hooks::new(move |cx, inputs| {
            if pair.who(cx) == Who::Slow {
                has_failed.pass();
                // By itself, so that it has a copy of its own.
                return if inputs.len() > 1 { Err("as a whole".into()) } else { outputs(inputs) };
            }
            let output = |input: &Value| match input.number {
                0 => Err(input.as_kind(Kind::Error).into()),
                _ => Ok(input.as_kind(Kind::Output)),
            };
            Ok(inputs.iter().map(output).collect())
        });
        // That is delivered after the error of the other.
        let hooks = hooks.consume(move |number| {
            if number == 1 {
                failed.open();
            }
            Ok(())
        });
        let mut pool = hooks.raced().batch(Batch::of(2)).window(4).build().unwrap();
        let bombs = Arc::<Bombs>::default();
        let is_bomb = |value: &Value| {
            value.kind == Kind::Error || value.kind == Kind::Copy(2) && value.number == 0
        };
        assert_eq!(pool.run(bombs.inputs(2, is_bomb)).unwrap(), [1, 0]);
        assert_eq!(pool.account().failed, 0);
        pool.close().unwrap();
        bombs.check(2);
    });
}
