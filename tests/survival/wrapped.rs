//! Producers whose threads a function calls.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use gangline::error::WrapperError;
use gangline::{Error, OnError, OrderedRunner, ProducerContext, Work};

use crate::support::no_hang;

thread_local! {
    /// The number of times that this thread was entered.
    static ENTERED: Cell<u64> = const { Cell::new(0) };
}

fn entered() -> gangline::Result<u64> {
    match ENTERED.get() {
        0 => Err("this hook is outside of the function".into()),
        times => Ok(times),
    }
}

/// Has each hook fail that is not within the function.
struct Inside;

impl Work for Inside {
    type Input = u64;
    type Output = (u64, thread::ThreadId);
    type ProducerState = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> gangline::Result<()> {
        entered().map(drop)
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        _: &mut (),
        x: u64,
    ) -> gangline::Result<Self::Output> {
        let times = entered()?;
        assert_ne!(x, 3, "a panic costs the state, and not the thread");
        Ok((times, thread::current().id()))
    }

    fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> gangline::Result<()> {
        entered().map(drop)
    }
}

#[test]
fn all_hooks_of_a_producer_run_within_one_call() {
    no_hang(|| {
        let left = Arc::new(AtomicU64::new(0));
        let leaves = left.clone();
        let builder = OrderedRunner::builder(Inside.collect()).devices("cpu*2");
        let builder = builder.cpu_threads(2);
        let builder = builder.on_error(OnError::Skip).around_producers(move |producer| {
            ENTERED.set(ENTERED.get() + 1);
            producer();
            ENTERED.set(0);
            leaves.fetch_add(1, Ordering::Relaxed);
        });
        let mut pool = builder.build().unwrap();
        for _ in 0..2 {
            let outputs = pool.run(0..40).unwrap();
            assert_eq!(outputs.len(), 39, "{:?}", pool.failures());
            assert!(outputs.iter().all(|output| output.0 == 1));
        }
        assert_eq!(left.load(Ordering::Relaxed), 0, "they live on between runs");
        pool.close().unwrap();
        assert_eq!(left.load(Ordering::Relaxed), 2);
    });
}

/// What building a pool and closing it come to.
fn built_and_closed(function: fn(&mut (dyn FnMut() + Send))) -> Result<Result<(), Error>, Error> {
    no_hang(move || {
        let works = gangline::map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let builder = OrderedRunner::builder(works).devices(2).around_producers(function);
        let mut pool = builder.build()?;
        assert_eq!(pool.run(0..20).unwrap(), (0..20).collect::<Vec<_>>());
        Ok(pool.close())
    })
}

fn cause(error: &Error) -> &WrapperError {
    match error {
        Error::Wrapper { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_function_that_does_not_call_its_producer_fails_the_build() {
    let error = built_and_closed(|_| ()).unwrap_err();
    assert!(matches!(cause(&error), WrapperError::Calls { calls: 0, .. }), "{error:?}");
    let error = built_and_closed(|_| panic!("no runtime")).unwrap_err();
    assert!(matches!(cause(&error), WrapperError::Panicked(_)), "{error:?}");
    assert!(error.is_panic() && format!("{error:#}").ends_with(": no runtime"), "{error:#}");
}

#[test]
fn a_function_that_errs_after_its_producer_fails_the_close() {
    let twice = |producer: &mut (dyn FnMut() + Send)| {
        producer();
        producer();
    };
    let error = built_and_closed(twice).unwrap().unwrap_err();
    assert!(matches!(cause(&error), WrapperError::Calls { calls: 2, .. }), "{error:?}");
    let late = |producer: &mut (dyn FnMut() + Send)| {
        producer();
        panic!("the runtime does not let go");
    };
    let error = built_and_closed(late).unwrap().unwrap_err();
    assert!(matches!(cause(&error), WrapperError::Panicked(_)), "{error:?}");
}
