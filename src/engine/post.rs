//! Which call of a hook a producer is in, for whoever keeps its time.

use crate::error::Hook;
use crate::policy::Trial;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Where a producer says which call it is in.
///
/// A call ends once: by the producer that returns from it, or by the one who writes it off. The two agree by
/// one atomic exchange of `call`, after which the other has nothing to do with the items any more.
#[derive(Debug)]
pub(crate) struct Post<I> {
    /// The number of the call; [`IDLE`] or [`LEFT`].
    call: AtomicU64,
    /// How many ticks it has.
    ticks: AtomicU64,
    /// How many calls there were.
    calls: AtomicU64,
    held: Mutex<Option<Call<I>>>,
    /// What the hook is told: nobody waits for it.
    pub(crate) is_left: AtomicBool,
}

/// A call of a hook, with what is needed should it not return.
#[derive(Debug)]
pub(crate) struct Call<I> {
    pub(crate) hook: Hook,
    pub(crate) items: Vec<u64>,
    /// Copies of them, where they can be tried again.
    pub(crate) copies: Vec<Option<I>>,
    pub(crate) trial: Option<Box<Trial>>,
}

const IDLE: u64 = 0;
const LEFT: u64 = u64::MAX;

impl<I> Post<I> {
    pub(crate) fn new() -> Self {
        Post {
            call: AtomicU64::new(IDLE),
            ticks: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            held: Mutex::new(None),
            is_left: AtomicBool::new(false),
        }
    }

    /// The producer begins a call that has so many ticks.
    pub(crate) fn begin(&self, ticks: u64, call: Call<I>) {
        *lock(&self.held) = Some(call);
        // Only the producer writes these two.
        let number = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(number, Ordering::Relaxed);
        self.ticks.store(ticks, Ordering::Relaxed);
        self.call.store(number, Ordering::Release);
    }

    /// The producer has returned from the call. `None` when that was written off meanwhile.
    pub(crate) fn end(&self) -> Option<Call<I>> {
        let number = self.calls.load(Ordering::Relaxed);
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.call.compare_exchange(number, IDLE, order, failed).ok()?;
        lock(&self.held).take()
    }

    /// The number of the call that the producer is in, 0 for none, and how many ticks it has.
    pub(crate) fn current(&self) -> (u64, u64) {
        let call = self.call.load(Ordering::Acquire);
        let call = if call == LEFT { IDLE } else { call };
        (call, self.ticks.load(Ordering::Relaxed))
    }

    /// Nobody waits for this call any more. `None` when the producer has returned from it.
    pub(crate) fn write_off(&self, call: u64) -> Option<Call<I>> {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.call.compare_exchange(call, LEFT, order, failed).ok()?;
        self.is_left.store(true, Ordering::Relaxed);
        lock(&self.held).take()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn call(item: u64) -> Call<()> {
        Call { hook: Hook::ProducerWork, items: vec![item], copies: vec![], trial: None }
    }

    #[test]
    fn a_call_ends_once() {
        let post = Post::new();
        assert_eq!(post.current().0, 0);
        post.begin(9, call(5));
        let (first, ticks) = post.current();
        assert_eq!(ticks, 9);
        assert_eq!(post.end().unwrap().items, [5]);
        assert!(post.write_off(first).is_none(), "it has returned");
        post.begin(9, call(6));
        assert!(post.write_off(first).is_none(), "that was another call");
        let (second, _) = post.current();
        assert_eq!(post.write_off(second).unwrap().items, [6]);
        assert!(post.end().is_none());
        assert_eq!(post.current().0, 0, "it is not timed any more");
    }
}
