//! A waker that unblocks one thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Condvar, Mutex, lock, wait};

/// Blocks a thread until its waker is used.
#[derive(Debug, Default)]
struct Parker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.woken.notify_one();
    }
}

/// Blocks the calling thread until `poll` is ready.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = poll(&mut cx) {
            return value;
        }
        let mut is_woken = lock(&parker.is_woken);
        while !*is_woken {
            is_woken = wait(&parker.woken, is_woken);
        }
        *is_woken = false;
    }
}
