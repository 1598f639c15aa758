//! The calls that a worker was sent, which its reader queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::connection::FrameHandler;
use super::frame::{Frame, FrameKind};
use super::memory_writer::MemoryNote;
use super::message::{self, CallNumber, HandedBack, ItemsHeader, WorkHook};
use super::outlet::Outlet;
use crate::backends::remote::failure::CallFailure;
use crate::base::Result;
use crate::concurrency::call_queue::{CallQueue, Preparing};
use crate::error::FrameError;

/// The inputs of a call.
pub(super) type Inputs<I> = Result<Vec<I>, CallFailure>;

/// Frames for the thread of the hooks, and outputs from it. The inputs are `None` if the helper could not read their call.
pub(super) type QueuedCalls<I, T> = CallQueue<Frame, Option<Inputs<I>>, HookOutputs<T>>;

/// What a hook has made of the items of a call.
pub(super) struct HookOutputs<T> {
    pub(super) header: ItemsHeader,
    pub(super) outputs: Vec<Result<T>>,
    pub(super) times: CallTimes,
}

/// How long a worker was busy with a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    /// From its turn on, until the hook had returned.
    pub(super) took: Duration,
    pub(super) in_hook: Duration,
}

/// Hands frames on to the thread of the hooks.
pub(super) struct CommandReader<I, T> {
    pub(super) calls: Arc<QueuedCalls<I, T>>,
    pub(super) outlet: Arc<Outlet>,
    /// The number of the last call that the coordinator gave up.
    pub(super) revoked: Arc<AtomicU64>,
}

impl CallTimes {
    /// In microseconds, and in nanoseconds, as messages have them.
    pub(super) fn numbers(self) -> (u64, u64) {
        let took = u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX);
        (took, u64::try_from(self.in_hook.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<T> HookOutputs<T> {
    /// Whether no item has failed, and nothing is wrong with the device, as far as the hook knows.
    pub(super) fn are_all_well(&self) -> bool {
        self.outputs.iter().all(Result::is_ok)
    }
}

impl<I, T> FrameHandler for CommandReader<I, T> {
    fn take(&mut self, frame: Frame) -> Result<(), FrameError> {
        match frame.kind {
            FrameKind::GiveUp => {
                let CallNumber { call } = message::decode(&frame)?;
                self.revoked.store(call, Ordering::Relaxed);
                Ok(())
            }
            FrameKind::Recall => {
                let CallNumber { call: last } = message::decode(&frame)?;
                let calls = self.calls.take_back(last);
                let frame =
                    message::encode(FrameKind::HandedBack, usize::MAX, &HandedBack { calls })?;
                self.outlet.send_aside(&frame);
                Ok(())
            }
            FrameKind::Items => {
                let (call, hook) = message::call_of(&frame)?;
                let preparing = match hook {
                    // For one item, the helper would cost more than it saves.
                    WorkHook::Single => Preparing::InTurn,
                    WorkHook::Batch => Preparing::Ahead,
                };
                self.calls.push(Some(call), frame, preparing);
                Ok(())
            }
            FrameKind::Init | FrameKind::End => {
                self.calls.push(None, frame, Preparing::InTurn);
                Ok(())
            }
            other => {
                let reason = format!("a worker was sent a message {other:?}");
                Err(FrameError::Damaged { reason })
            }
        }
    }

    fn heed(&mut self, note: MemoryNote) {
        self.outlet.heed(note);
    }

    fn answer(&mut self, notes: Vec<MemoryNote>) {
        self.outlet.answer(notes);
    }

    fn tell(&mut self, notes: &[MemoryNote]) {
        self.outlet.tell(notes);
    }

    fn age(&mut self, now: Instant) -> Option<Instant> {
        self.outlet.age(now)
    }
}

/// The header of a call, and its parts.
pub(super) fn call_parts(frame: &Frame) -> Result<(ItemsHeader, Vec<&[u8]>), FrameError> {
    let (header, mut parts): (ItemsHeader, _) = message::split(frame)?;
    let each = header.items.iter().map(|_| message::take_part(&mut parts));
    let parts = each.collect::<Result<Vec<_>, _>>()?;
    Ok((header, parts))
}
