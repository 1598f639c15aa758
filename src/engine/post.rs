//! Which call of a hook a producer is in, for whoever keeps its time.

use std::time::Instant;

use super::batch_work::Part;
use crate::batch::Size;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::{Mutex, lock};
use crate::error::Hook;
use crate::policy::Trial;

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
    /// The number of the last call that nobody waits for.
    left: AtomicU64,
}

/// By which a hook knows whether anybody waits for its call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Leave<'a> {
    /// Of one call within a run.
    Call { left: &'a AtomicU64, call: u64 },
    /// Of the building of a producer.
    Building { is_left: &'a AtomicBool },
}

impl Leave<'_> {
    pub(crate) fn is_given(&self) -> bool {
        match self {
            Leave::Call { left, call } => left.load(Ordering::Relaxed) == *call,
            Leave::Building { is_left } => is_left.load(Ordering::Relaxed),
        }
    }
}

/// A call of a hook, with what is needed should it not return.
#[derive(Debug)]
pub(crate) struct Call<I> {
    pub(crate) hook: Hook,
    pub(crate) items: Vec<u64>,
    /// Copies of them, where they can be tried again; before a hook has them, they themselves.
    pub(crate) copies: Vec<Option<I>>,
    /// How large they are; empty where nobody measures them, or may start the same.
    pub(crate) sizes: Vec<Size>,
    pub(crate) trial: Option<Box<Trial>>,
    /// When it began, where somebody may start the same; `None` where nobody may.
    pub(crate) since: Option<Instant>,
    /// What the producer has to do after that, and nobody else knows of.
    pub(crate) rest: Vec<Part<I>>,
}

/// What a producer works on, for another that starts the same.
#[derive(Debug)]
pub(crate) struct Loan<I> {
    pub(crate) items: Vec<u64>,
    pub(crate) copies: Vec<I>,
    pub(crate) sizes: Vec<Size>,
    pub(crate) trial: Option<Box<Trial>>,
    /// What it has put off for that: nobody else would come to it.
    pub(crate) rest: Vec<Part<I>>,
}

impl<I> Call<I> {
    /// A call for the first attempt at items, which nobody else may start.
    pub(crate) fn new(hook: Hook, items: Vec<u64>, copies: Vec<Option<I>>) -> Self {
        Call { hook, items, copies, sizes: vec![], trial: None, since: None, rest: vec![] }
    }

    /// Whether it works on that item, which others may be at too. A `producer_init` for an item is nobody else's.
    fn may_be_raced_for(&self, seq: u64) -> bool {
        self.since.is_some() && self.items.contains(&seq)
    }

    /// Whether there is a copy of all that it works on.
    fn is_copied(&self) -> bool {
        !self.items.is_empty() && self.copies.iter().flatten().count() == self.items.len()
    }
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
            left: AtomicU64::new(IDLE),
        }
    }

    /// The producer begins a call that has so many ticks.
    pub(crate) fn begin(&self, ticks: u64, call: Call<I>) {
        let mut held = lock(&self.held);
        *held = Some(call);
        // Under the lock: who finds the call there tells it by this number that it has lost.
        let number = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(number, Ordering::Relaxed);
        self.ticks.store(ticks, Ordering::Relaxed);
        drop(held);
        self.call.store(number, Ordering::Release);
    }

    /// The producer has returned from the call. `None` when that was written off meanwhile.
    pub(crate) fn end(&self) -> Option<Call<I>> {
        let number = self.calls.load(Ordering::Relaxed);
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.call.compare_exchange(number, IDLE, order, failed).ok()?;
        lock(&self.held).take()
    }

    /// The producer has come back from a call of an earlier run. Whether anybody has waited for that.
    pub(crate) fn come_back(&self) -> bool {
        drop(self.end());
        self.call.load(Ordering::Acquire) != LEFT
    }

    /// For the hook of the call that has just begun.
    pub(crate) fn leave(&self) -> Leave<'_> {
        Leave::Call { left: &self.left, call: self.calls.load(Ordering::Relaxed) }
    }

    /// The first item of the call that the producer is in, and since when, if there are copies to lend.
    pub(crate) fn item_with_copy(&self) -> Option<(u64, Instant)> {
        let held = lock(&self.held);
        let call = held.as_ref().filter(|call| call.is_copied())?;
        Some((*call.items.iter().min()?, call.since?))
    }

    /// Since when the producer is in a call, if it is in one: `unknown`, where nobody may start the same.
    pub(crate) fn is_busy_since(&self, unknown: Instant) -> Option<Instant> {
        lock(&self.held).as_ref().map(|call| call.since.unwrap_or(unknown))
    }

    /// Copies of that item and of all that the producer works on together with it, if it still does.
    pub(crate) fn lend(&self, seq: u64) -> Option<Loan<I>> {
        let mut held = lock(&self.held);
        let call = held.as_mut().filter(|call| call.may_be_raced_for(seq) && call.is_copied())?;
        Some(Loan {
            items: call.items.clone(),
            copies: call.copies.iter_mut().filter_map(Option::take).collect(),
            sizes: call.sizes.clone(),
            trial: call.trial.clone(),
            rest: std::mem::take(&mut call.rest),
        })
    }

    /// Another producer was done with an item first. What this one has put off for its call, if it works on that item,
    /// and on nothing else that nobody is done with.
    pub(crate) fn lose(&self, seq: u64, is_won: impl Fn(u64) -> bool) -> Option<Vec<Part<I>>> {
        let mut held = lock(&self.held);
        let call = held.as_mut().filter(|call| call.may_be_raced_for(seq))?;
        if !call.items.iter().all(|&item| is_won(item)) {
            return None;
        }
        self.left.store(self.calls.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(std::mem::take(&mut call.rest))
    }

    /// Whether the producer is in a call that nobody waits for.
    pub(crate) fn is_left(&self) -> bool {
        let (call, _) = self.current();
        call != IDLE && self.left.load(Ordering::Relaxed) == call
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
        self.left.store(call, Ordering::Relaxed);
        lock(&self.held).take()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn call(item: u64) -> Call<()> {
        let hook = Hook::ProducerWork;
        Call::new(hook, vec![item], vec![])
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

    #[test]
    fn who_was_written_off_before_it_came_back_is_told() {
        let post = Post::new();
        assert!(post.come_back(), "nobody has expected it");
        post.begin(9, call(5));
        assert!(post.come_back());
        post.begin(9, call(6));
        assert!(post.write_off(post.current().0).is_some());
        assert!(!post.come_back());
    }
}
