//! A call is a plain future.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use gangline::closures::BoxRunner;
use gangline::{OrderedRunner, map};

use crate::hooks::Hooks;
use crate::support::no_hang;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn service() -> gangline::Service<Hooks> {
    let builder = OrderedRunner::builder(Hooks::new().work(|_, x| Ok(x * x))).devices(2).window(4);
    builder.build().unwrap().into_service()
}

#[test]
fn it_is_ready_under_a_bare_executor() {
    no_hang(|| {
        let service = service();
        let sum = block_on(async {
            let calls: Vec<_> = (0..50).map(|x| service.call_async(x)).collect();
            let mut sum = 0;
            for call in calls {
                sum += call.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, (0..50).map(|x| x * x).sum::<u64>());
    });
}

#[test]
fn it_is_ready_under_tokio() {
    no_hang(|| {
        let service = service();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let sum = runtime.block_on(async {
            let tasks: Vec<_> = (0..200).map(|x| tokio::spawn(service.call_async(x))).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap().unwrap();
            }
            sum
        });
        assert_eq!(sum, (0..200).map(|x| x * x).sum::<u64>());
    });
}

/// Without the box, the compiler does not see that the task is `Send`.
#[test]
fn a_spawned_task_holds_a_service_of_boxed_closures() {
    no_hang(|| {
        let squares = BoxRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x * x)));
        let service = OrderedRunner::new(squares, 2).unwrap().into_service();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let task = runtime.spawn(async move { service.call_async(3).await });
        assert_eq!(runtime.block_on(task).unwrap().unwrap(), 9);
    });
}

#[test]
fn it_is_ready_under_smol() {
    no_hang(|| {
        let service = service();
        let sum = smol::block_on(async {
            let tasks: Vec<_> = (0..200).map(|x| smol::spawn(service.call_async(x))).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, (0..200).map(|x| x * x).sum::<u64>());
    });
}
