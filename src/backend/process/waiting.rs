//! How a keeper waits for an answer of its child.

use std::time::{Duration, Instant};

use super::child::{Child, Wake};
use super::event_bell::EventBell;
use super::frame::{Frame, Kind};
use super::message::{self, Call};
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
    /// Not even the end of the run waits for it.
    Abandoned,
}

/// What became known of a call.
#[derive(Debug)]
pub(super) enum Answer {
    Frame(Frame),
    /// The process has ended, and is reaped.
    Died(Crash),
    /// It took too long; the process was killed.
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
) -> Answer {
    let mut limit = limit.map(Timer::new);
    let mut kill: Option<Timer> = None;
    let mut told = Interest::Wanted;
    loop {
        let now = interest();
        if now != Interest::Wanted && told == Interest::Wanted {
            let give_up = message::encode(Kind::GiveUp, usize::MAX, &Call { call });
            child.send(give_up.expect("a number can be encoded"));
        }
        if now == Interest::Abandoned {
            return Answer::Died(child.reap(Duration::ZERO));
        }
        if let Interest::Cancelled { kill_after } = now
            && kill.is_none()
        {
            kill = kill_after.map(Timer::new);
        }
        told = now;
        match wait(child, bell, &mut limit, &mut kill) {
            Waited::Frame(frame) => return Answer::Frame(frame),
            Waited::Bell => bell.silence(),
            // Half a message is how a process ends that dies while it answers.
            Waited::Gone => return Answer::Died(child.reap_gone()),
            Waited::Damaged(error) => {
                child.reap(Duration::ZERO);
                return Answer::Damaged(error);
            }
            Waited::Limit => {
                child.reap(Duration::ZERO);
                return Answer::TimedOut;
            }
            Waited::Kill => return Answer::Died(child.reap(Duration::ZERO)),
        }
    }
}

enum Waited {
    Frame(Frame),
    Bell,
    Gone,
    Damaged(FrameError),
    Limit,
    Kill,
}

fn wait(
    child: &mut Child,
    bell: &EventBell,
    limit: &mut Option<Timer>,
    kill: &mut Option<Timer>,
) -> Waited {
    loop {
        let until = [&*limit, &*kill].into_iter().flatten().map(|timer| timer.next).min();
        match child.wait(Some(bell), until) {
            Wake::Frame(frame) => return Waited::Frame(frame),
            Wake::Bell => return Waited::Bell,
            Wake::Gone | Wake::Damaged(FrameError::Half { .. }) => return Waited::Gone,
            Wake::Damaged(error) => return Waited::Damaged(error),
            Wake::Time => {
                let now = Instant::now();
                if limit.as_mut().is_some_and(|timer| timer.pass(now)) {
                    return Waited::Limit;
                }
                if kill.as_mut().is_some_and(|timer| timer.pass(now)) {
                    return Waited::Kill;
                }
            }
        }
    }
}
