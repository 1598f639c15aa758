//! How a keeper waits for an answer of its child.

use std::time::{Duration, Instant};

use super::child::{Child, EventBell, Wake};
use super::frame::{Frame, FrameKind};
use super::message::{self, CallNumber};
use crate::error::{Crash, FrameError};

/// Whether anything waits for the call that a child works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    Wanted,
    /// Its result does not count, but the child is needed.
    Revoked,
    /// The run is over, or has failed at an earlier item. After this time, the process is killed.
    Cancelled {
        kill_after: Option<Duration>,
    },
    /// Not even the end of the run waits for it, or the end of the pool waits for nothing.
    Abandoned,
}

/// What became known of a call.
#[derive(Debug)]
pub(super) enum ChildAnswer {
    Frame(Frame),
    /// The process has ended, and is reaped.
    Died(Crash),
    /// The call took too long; the process was killed.
    TimedOut,
    /// What came is no message; the process was killed.
    Damaged(FrameError),
}

/// The number of ticks within a limit.
const TICKS: u32 = 16;

/// A limit, counted in ticks: no ticks pass while this process is stopped.
#[derive(Debug)]
struct Timer {
    tick: Duration,
    left: u32,
    next: Instant,
}

impl Timer {
    fn new(limit: Duration) -> Self {
        // At least 1 ns, so that even a limit of 0 has ticks.
        let tick = (limit / TICKS).max(Duration::from_nanos(1));
        // A process that was stopped before its first tick gets one more.
        Timer { tick, left: TICKS + 1, next: Instant::now() + tick }
    }

    /// Returns whether the limit is over.
    fn pass(&mut self, now: Instant) -> bool {
        if now >= self.next {
            self.left -= 1;
            self.next = now + self.tick;
        }
        self.left == 0
    }
}

/// The call that a child works on, and how long it may go on.
#[derive(Debug, Default)]
pub(super) struct CallWatch {
    limit: Option<Timer>,
    kill: Option<Timer>,
    is_given_up: bool,
}

impl CallWatch {
    /// Watches a call that begins now. `limit`: how long it may take.
    pub(super) fn begin(&mut self, limit: Option<Duration>) {
        self.limit = limit.map(Timer::new);
        self.is_given_up = false;
    }

    /// Tells the child if nothing waits for the call any more.
    pub(super) fn heed(&mut self, child: &mut Child, call: u64, interest: Interest) {
        if interest != Interest::Wanted && !std::mem::replace(&mut self.is_given_up, true) {
            let give_up = message::encode(FrameKind::GiveUp, usize::MAX, &CallNumber { call });
            child.send([give_up.expect("a number can be encoded").into()]);
        }
        match interest {
            Interest::Cancelled { kill_after } if self.kill.is_none() => {
                self.kill = kill_after.map(Timer::new);
            }
            Interest::Cancelled { .. } | Interest::Abandoned => {}
            Interest::Wanted | Interest::Revoked => self.kill = None,
        }
    }

    /// Waits for the next thing to happen.
    pub(super) fn wait(&mut self, child: &mut Child, bell: &EventBell) -> WaitEnd {
        let CallWatch { limit, kill, .. } = self;
        match wait(child, bell, limit, kill) {
            WaitEnd::Bell => {
                bell.silence();
                WaitEnd::Bell
            }
            waited => waited,
        }
    }
}

/// Waits for the answer to a call, and tells the child if nothing waits for it any more. `limit`: how long the
/// call may take.
///
/// After every answer but a frame the process has ended.
pub(super) fn wait_for_answer(
    child: &mut Child,
    bell: &EventBell,
    call: u64,
    limit: Option<Duration>,
    interest: &dyn Fn() -> Interest,
) -> ChildAnswer {
    let mut watch = CallWatch::default();
    watch.begin(limit);
    loop {
        let now = interest();
        watch.heed(child, call, now);
        if now == Interest::Abandoned {
            return ChildAnswer::Died(child.reap(Duration::ZERO));
        }
        match watch.wait(child, bell) {
            // All calls were answered while the worker was told to hand them back.
            WaitEnd::Frame(frame) if frame.kind == FrameKind::HandedBack => {}
            WaitEnd::Frame(frame) => return ChildAnswer::Frame(frame),
            WaitEnd::Bell => {}
            WaitEnd::Ended(end) => return end.answer(child),
        }
    }
}

/// What a wait for a child has ended with.
pub(super) enum WaitEnd {
    Frame(Frame),
    Bell,
    Ended(ChildEnd),
}

/// Why no further frame comes.
pub(super) enum ChildEnd {
    Gone,
    Damaged(FrameError),
    Limit,
    Kill,
}

impl ChildEnd {
    /// Ends the process, and returns what that says of its call.
    pub(super) fn answer(self, child: &mut Child) -> ChildAnswer {
        match self {
            ChildEnd::Gone => ChildAnswer::Died(child.reap_gone()),
            ChildEnd::Damaged(error) => {
                child.reap(Duration::ZERO);
                ChildAnswer::Damaged(error)
            }
            ChildEnd::Limit => {
                child.reap(Duration::ZERO);
                ChildAnswer::TimedOut
            }
            ChildEnd::Kill => ChildAnswer::Died(child.reap(Duration::ZERO)),
        }
    }
}

fn wait(
    child: &mut Child,
    bell: &EventBell,
    limit: &mut Option<Timer>,
    kill: &mut Option<Timer>,
) -> WaitEnd {
    loop {
        let until = [&*limit, &*kill].into_iter().flatten().map(|timer| timer.next).min();
        match child.wait(Some(bell), until) {
            Wake::Frame(frame) => return WaitEnd::Frame(frame),
            Wake::Bell => return WaitEnd::Bell,
            // Half a message is how a process ends that dies while it answers.
            Wake::Gone | Wake::Damaged(FrameError::Half { .. }) => {
                return WaitEnd::Ended(ChildEnd::Gone);
            }
            Wake::Damaged(error) => return WaitEnd::Ended(ChildEnd::Damaged(error)),
            Wake::Time => {
                let now = Instant::now();
                if limit.as_mut().is_some_and(|timer| timer.pass(now)) {
                    return WaitEnd::Ended(ChildEnd::Limit);
                }
                if kill.as_mut().is_some_and(|timer| timer.pass(now)) {
                    return WaitEnd::Ended(ChildEnd::Kill);
                }
            }
        }
    }
}
