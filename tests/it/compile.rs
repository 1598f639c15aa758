//! What compiles, and what must not.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::iter::FusedIterator;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use gangline::{
    Account, AnyOrderRunner, Builder, CancelToken, CfgNode, ConsumerContext, Device, Devices,
    Error, GpuList, Guard, Hook, Order, OrderedRunner, Outputs, ProducerContext, Result, Runner,
    RuntimeOrder, UnorderedRunner, map,
};

use crate::hooks::Hooks;
use crate::support::no_hang;

fn send_and_sync<T: Send + Sync>() {}
fn unpinned<T: Unpin>() {}

#[test]
fn public_types_are_send_and_sync() {
    send_and_sync::<ProducerContext<'_>>();
    send_and_sync::<ConsumerContext<'_>>();
    send_and_sync::<CancelToken>();
    send_and_sync::<Guard<u64>>();
    send_and_sync::<Error>();
    send_and_sync::<Hook>();
    send_and_sync::<Account>();
    send_and_sync::<CfgNode>();
    send_and_sync::<Device>();
    send_and_sync::<Devices>();
    send_and_sync::<GpuList>();
    send_and_sync::<Order>();
    send_and_sync::<Builder<Hooks, RuntimeOrder>>();
    unpinned::<CancelToken>();
    // `Hooks` has states that are neither.
    send_and_sync::<OrderedRunner<Hooks>>();
    send_and_sync::<UnorderedRunner<Hooks>>();
    send_and_sync::<AnyOrderRunner<Hooks>>();
    send_and_sync::<Outputs<'_, Hooks, std::ops::Range<u64>>>();
}

/// Also where nothing but `Send` is known of the inputs and outputs.
#[test]
fn handles_are_send_and_sync_for_every_runner() {
    fn check<R: Runner + 'static>() {
        send_and_sync::<OrderedRunner<R>>();
        send_and_sync::<UnorderedRunner<R>>();
        send_and_sync::<AnyOrderRunner<R>>();
    }
    check::<Hooks>();
}

/// What moves between threads is `Send` for every runner: a type that is not is refused.
#[test]
fn inputs_outputs_and_summaries_are_send() {
    fn send<T: Send>() {}
    fn check<R: Runner + ?Sized>() {
        send_and_sync::<&R>();
        send::<R::Input>();
        send::<R::Output>();
        send::<R::Summary>();
    }
    check::<Unsendable>();
    check::<Boxed>();
}

/// States that nothing may move between threads: `Rc`, and closures that are not `Send`.
struct Unsendable;

impl Runner for Unsendable {
    type Input = u64;
    type Output = Box<dyn FnOnce() -> u64 + Send>;
    type ProducerState = (Rc<RefCell<u64>>, Box<dyn Fn(u64) -> u64>);
    type ConsumerState = Rc<Cell<u64>>;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Self::ProducerState> {
        let count = Rc::new(RefCell::new(0));
        let counts = count.clone();
        let twice = move |x| {
            *counts.borrow_mut() += 1;
            2 * x
        };
        Ok((count, Box::new(twice)))
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        (_, twice): &mut Self::ProducerState,
        x: u64,
    ) -> Result<Self::Output> {
        let y = twice(x);
        Ok(Box::new(move || y))
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Rc<Cell<u64>>> {
        Ok(Rc::default())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        sum: &mut Rc<Cell<u64>>,
        y: Self::Output,
    ) -> Result<()> {
        sum.set(sum.get() + y());
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: Rc<Cell<u64>>) -> Result<u64> {
        Ok(sum.get())
    }
}

type Boxed = Box<
    dyn Runner<
            Input = u64,
            Output = Box<dyn FnOnce() -> u64 + Send>,
            ProducerState = (Rc<RefCell<u64>>, Box<dyn Fn(u64) -> u64>),
            ConsumerState = Rc<Cell<u64>>,
            Summary = u64,
        >,
>;

#[track_caller]
fn check_sum(runner: impl Runner<Input = u64, Summary = u64> + 'static) {
    let mut runner = OrderedRunner::new(runner, 2).unwrap();
    assert_eq!(runner.run(0..10).unwrap(), 90);
}

#[test]
fn pointers_to_runners_are_runners() {
    static STATIC: Unsendable = Unsendable;
    no_hang(|| {
        check_sum(Unsendable);
        check_sum(Box::new(Unsendable));
        check_sum(Arc::new(Unsendable));
        check_sum(&STATIC);
        let boxed: Boxed = Box::new(Unsendable);
        check_sum(boxed);
        let shared: Arc<Boxed> = Arc::new(Box::new(Unsendable));
        check_sum(shared.clone());
        check_sum(shared);
    });
}

/// Every hook goes through the pointer, those with a default too.
#[test]
fn pointers_forward_the_end() {
    no_hang(|| {
        let ends = Arc::new(Mutex::new(0));
        let counts = ends.clone();
        let hooks = Hooks::new().end(move |_| {
            *counts.lock().unwrap() += 1;
            Ok(())
        });
        let runner = Arc::new(Box::new(hooks));
        drop(OrderedRunner::new(runner.clone(), 2).unwrap());
        drop(UnorderedRunner::new(runner, 3).unwrap());
        assert_eq!(*ends.lock().unwrap(), 5);
    });
}

/// Handles of runners of different types have one type when the runner is boxed.
#[test]
fn boxed_runners_share_a_type() {
    no_hang(|| {
        let mut runners: Vec<AnyOrderRunner<Boxed>> = vec![];
        for order in [Order::Input, Order::Completion] {
            let boxed: Boxed = Box::new(Unsendable);
            runners.push(
                AnyOrderRunner::builder(boxed).devices("cpu*2").order(order).build().unwrap(),
            );
        }
        assert!(runners.iter_mut().all(|runner| runner.run(0..10).unwrap() == 90));
    });
}

#[test]
fn iterators_may_borrow_and_need_not_be_send() {
    no_hang(|| {
        let mut pool = Hooks::new().pool(Order::Input, 2);
        let numbers = vec![1, 2, 3];
        let seen = Rc::new(Cell::new(0));
        let items = || {
            numbers.iter().copied().inspect(|_| {
                let seen = Rc::clone(&seen);
                seen.set(seen.get() + 1);
            })
        };
        assert_eq!(pool.run(items()).unwrap(), numbers);
        assert_eq!(pool.try_run(items().map(Ok::<_, std::io::Error>)).unwrap(), numbers);
        assert_eq!(pool.outputs(items()).map(Result::unwrap).collect::<Vec<_>>(), numbers);
        let stream = pool.try_outputs(items().map(Ok::<_, String>));
        assert_eq!(stream.map(Result::unwrap).collect::<Vec<_>>(), numbers);
        let boxed: Box<dyn Iterator<Item = u64> + '_> = Box::new(items());
        assert_eq!(pool.run(boxed).unwrap(), numbers);
        assert_eq!(pool.run(&mut items()).unwrap(), numbers);
        assert_eq!(pool.run(HashMap::from([(1, 2)]).into_values()).unwrap(), [2]);
        assert_eq!(seen.get(), 18);
    });
}

/// A stream has a name, so that it can be a field.
struct Squares<'a> {
    stream: Outputs<'a, Hooks, std::vec::IntoIter<u64>>,
}

#[test]
fn a_stream_is_nameable_and_fused() {
    fn fused<I: FusedIterator>(iter: I) -> I {
        iter
    }
    no_hang(|| {
        let mut pool = Hooks::new().pool(Order::Input, 2);
        let mut squares = Squares { stream: fused(pool.outputs(vec![1, 2])) };
        assert_eq!(squares.stream.by_ref().map(Result::unwrap).sum::<u64>(), 3);
        assert!(squares.stream.next().is_none() && squares.stream.next().is_none());
    });
}

#[test]
fn closures_infer() -> Result<()> {
    let doubled = map(|_| Ok(()), |_, _, x: u64| Ok(2 * x));
    assert_eq!(OrderedRunner::new(doubled, 2)?.run(0..3)?, [0, 2, 4]);

    let offset = 10;
    let counted = map(
        |cx| Ok((cx.producer(), Rc::new(Cell::new(0_u64)))),
        move |_, (_, count), word: &str| {
            count.set(count.get() + 1);
            Ok(word.len() + offset)
        },
    );
    let joined = counted.fold(
        |_| Ok(String::new()),
        |cx, text, length| {
            text.push_str(&format!("{}:{length} ", cx.item().unwrap_or_default()));
            Ok(())
        },
    );
    assert_eq!(OrderedRunner::new(joined, 3)?.run(["a", "bcd"])?, "0:11 1:13 ");

    let parsed = map(|_| Ok(()), |_, (), text: String| Ok(text.trim().parse::<i32>()?));
    let mut parsed = UnorderedRunner::new(parsed, 2)?;
    assert_eq!(parsed.run([" 7".to_owned()])?, [7]);
    let error = parsed.run(["x".to_owned()]).unwrap_err();
    assert!(format!("{error:#}").contains("invalid digit"), "{error:#}");
    Ok(())
}

#[track_caller]
fn check_cause(fail: fn() -> Result<u64>, text: &str) {
    let hooks = Hooks::new().work(move |_, _| fail());
    let error = hooks.pool(Order::Input, 1).run([0]).unwrap_err();
    assert!(format!("{error:#}").contains(text), "{error:#}");
}

#[test]
fn causes_of_any_kind_go_through_hooks() {
    #[derive(Debug)]
    struct Own;
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("of my own")
        }
    }
    impl std::error::Error for Own {}
    no_hang(|| {
        check_cause(|| Err(std::io::Error::other("disk full"))?, "disk full");
        check_cause(|| Err(anyhow::anyhow!("inner").context("outer"))?, "outer: inner");
        check_cause(|| Err("plain")?, "plain");
        check_cause(|| Err(String::from("owned"))?, "owned");
        check_cause(|| Err(Own)?, "of my own");
        check_cause(|| Ok("x".parse::<u64>()?), "invalid digit");
    });
}

#[test]
fn a_cause_can_be_downcast() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, _| Err(std::io::Error::other("disk full"))?);
        let error = hooks.pool(Order::Input, 1).run([0]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap();
        assert!(cause.is::<std::io::Error>());
        let error: gangline::BoxError = error.into();
        assert!(error.downcast::<Error>().is_ok());
    });
}
