//! Streams go in and out under every runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_lite::{Stream, StreamExt, stream};
use gangline::Order;

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

async fn both_ways(order: Order) {
    let mut pool = Hooks::new().work(|_, x| Ok(x * x)).pool(order, 3);
    let squares = |items: u64| (0..items).map(|x| x * x).collect::<Vec<_>>();
    assert_eq!(sorted(pool.run_stream(stream::iter(0..3000)).await.unwrap()), squares(3000));
    assert_eq!(sorted(pool.run_stream(pausing(200)).await.unwrap()), squares(200));
    let outputs = pool.outputs_stream(stream::iter(0..3000));
    assert_eq!(sorted(outputs.map(Result::unwrap).collect().await), squares(3000));
    let outputs = pool.outputs_stream(pausing(200));
    assert_eq!(sorted(outputs.map(Result::unwrap).collect().await), squares(200));
    let nothing = pool.run_stream(stream::empty()).await.unwrap();
    assert_eq!((nothing.len(), pool.outputs_stream(stream::empty()).count().await), (0, 0));
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
