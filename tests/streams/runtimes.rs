//! Streams go in and out under every runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_lite::{Stream, StreamExt, stream};
use gangline::{Order, Pipeline};

use crate::hooks::{Hooks, both_orders, sorted};

both_orders!(under_a_bare_executor, under_tokio, under_smol, under_tokio_s_single_thread);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once, with a waker that does nothing.
pub fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A stream that is pending before each item, and wakes its task from another thread.
pub fn pausing(items: u64) -> impl Stream<Item = u64> + Send + 'static {
    let mut next = 0;
    let mut is_ready = true;
    stream::poll_fn(move |cx| {
        is_ready = !is_ready;
        if !is_ready {
            let waker = cx.waker().clone();
            thread::spawn(move || waker.wake());
            return Poll::Pending;
        }
        next += 1;
        Poll::Ready((next <= items).then_some(next - 1))
    })
}

/// Drives a pool, or a pipeline, that adds a number to its items.
macro_rules! drive_both_ways {
    ($row:expr, $added:expr) => {{
        let sums = |items: u64| ($added..items + $added).collect::<Vec<_>>();
        for items in [0, 3000] {
            let summary = $row.run_stream(stream::iter(0..items)).await.unwrap();
            assert_eq!(sorted(summary), sums(items));
            let outputs = $row.outputs_stream(stream::iter(0..items));
            assert_eq!(sorted(outputs.map(Result::unwrap).collect().await), sums(items));
        }
        assert_eq!(sorted($row.run_stream(pausing(200)).await.unwrap()), sums(200));
        let outputs = $row.outputs_stream(pausing(200));
        assert_eq!(sorted(outputs.map(Result::unwrap).collect().await), sums(200));
        assert_eq!(($row.account().ok, $row.report().account), (200, $row.account()));
        assert_eq!(sorted($row.run(0..3).unwrap()), sums(3));
    }};
}

async fn both_ways(order: Order) {
    let [mut a, mut b, mut c] =
        [2, 1, 3].map(|producers| Hooks::new().work(|_, x| Ok(x + 1)).pool(order, producers));
    drive_both_ways!(a, 1);
    let mut all = Pipeline::new(&mut a).then(&mut b).then(&mut c);
    drive_both_ways!(all, 3);
    drop(all);
    assert_eq!((c.account().ok, c.report().account.ok), (3, 3));
}

fn under_a_bare_executor(order: Order) {
    block_on(both_ways(order));
}

fn under_tokio(order: Order) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { tokio::spawn(both_ways(order)).await.unwrap() });
}

fn under_tokio_s_single_thread(order: Order) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(both_ways(order));
}

fn under_smol(order: Order) {
    smol::block_on(async { smol::spawn(both_ways(order)).await });
}
