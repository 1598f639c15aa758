//! Runners and gates for the tests of expansions.

use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use gangline::{Builder, OnError, Order, ProducerContext, Result, Runner, map, order};

/// A parent with what was gathered of its parts.
pub type Gathered<G> = (Arc<u64>, G);

pub type Pool<R> = gangline::AnyOrderRunner<R>;

pub const ORDERS: [Order; 2] = [Order::Input, Order::Completion];

/// Runs `f` on a thread, and fails if it takes five minutes.
pub fn no_hang<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        let value = f();
        let _ = done.send(());
        value
    });
    if is_done.recv_timeout(Duration::from_secs(300)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

pub fn pass<T: Send + 'static>() -> impl Runner<Input = T, Output = T, Summary = Vec<T>> {
    map(|_| Ok(()), |_, (), x: T| Ok(x))
}

pub fn working<T, U>(
    f: impl Fn(&ProducerContext<'_>, T) -> Result<U> + Send + Sync + 'static,
) -> impl Runner<Input = T, Output = U, Summary = Vec<U>>
where
    T: Send + 'static,
    U: Send + 'static,
{
    map(|_| Ok(()), move |cx: &ProducerContext<'_>, _: &mut (), x: T| f(cx, x))
}

pub fn builder<R: Runner + 'static>(
    runner: R,
    order: Order,
    producers: usize,
) -> Builder<R, order::RuntimeOrder> {
    Pool::builder(runner).order(order).devices(producers)
}

pub fn pool<R: Runner + 'static>(runner: R, order: Order, producers: usize) -> Pool<R> {
    builder(runner, order, producers).build().unwrap()
}

/// Something that threads wait for.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<u64>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        self.add(1);
    }

    pub fn pass(&self) {
        self.reach(1);
    }

    pub fn add(&self, n: u64) {
        *self.0.0.lock().unwrap() += n;
        self.0.1.notify_all();
    }

    pub fn reach(&self, least: u64) {
        let count = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(count, |count| *count < least).unwrap());
    }
}

#[track_caller]
pub fn sorted<T: Ord + Debug>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values
}

/// A pool that skips failed items.
pub fn skipping<R: Runner + 'static>(runner: R, order: Order, producers: usize) -> Pool<R> {
    builder(runner, order, producers).on_error(OnError::Skip).build().unwrap()
}
