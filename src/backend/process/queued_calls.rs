//! The two threads of a worker beside that of the hooks: the reader, which queues calls, and the helper, which prepares and
//! answers them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::answers::{Answers, HookOutputs};
use super::connection::FrameHandler;
use super::frame::{Frame, FrameKind};
use super::memory_writer::MemoryNote;
use super::message::{self, CallNumber, HandedBack, ItemsHeader, WorkHook};
use super::outlet::Outlet;
use crate::backend::memory::shared_bytes::{SharedBytes, reading};
use crate::backend::remote::failure::{CallFailure, RemoteFailure};
use crate::backend::remote::recipe::Recipe;
use crate::concurrency::call_queue::{CallQueue, HelperTask, Preparing};
use crate::error::FrameError;
use crate::runner::Runner;

/// The inputs of a call.
pub(super) type Inputs<I> = Result<Vec<I>, CallFailure>;

/// Frames for the thread of the hooks, and outputs from it. The inputs are `None` if the helper could not read their call.
pub(super) type QueuedCalls<I, T> = CallQueue<Frame, Option<Inputs<I>>, HookOutputs<T>>;

/// Hands frames on to the thread of the hooks.
pub(super) struct CommandReader<I, T> {
    pub(super) calls: Arc<QueuedCalls<I, T>>,
    pub(super) outlet: Arc<Outlet>,
    /// The number of the last call that the coordinator gave up.
    pub(super) revoked: Arc<AtomicU64>,
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

/// Prepares each call that can be prepared while the hook works on the one before, and answers the calls that are handed over,
/// until the process ends.
pub(super) fn help<R: Runner>(answers: &Answers<R>, calls: &QueuedCalls<R::Input, R::Output>) -> ! {
    loop {
        match calls.next_task() {
            HelperTask::Finish(outputs) => {
                // With a lost device, the coordinator ends this process when it has the answer.
                if let Err(error) = answers.answer(outputs) {
                    answers.outlet.refuse(error.to_string());
                }
                calls.note_finished();
            }
            HelperTask::Prepare(frame) => prepare(answers, calls, frame),
        }
    }
}

fn prepare<R: Runner>(
    Answers { recipe, outlet, runner, .. }: &Answers<R>,
    calls: &QueuedCalls<R::Input, R::Output>,
    frame: Frame,
) {
    // In its turn, the thread of the hooks says what is wrong with the frame.
    let prepared = runner.get().and_then(Weak::upgrade).and_then(|runner| {
        let (_, parts) = call_parts(&frame).ok()?;
        Some(decode_batch(recipe, &runner, &parts, &frame.attachments))
    });
    if let Some(call) = calls.put_prepared(frame, prepared) {
        let calls = HandedBack { calls: vec![call] };
        let back = message::encode(FrameKind::HandedBack, usize::MAX, &calls);
        outlet.send_aside(&back.expect("a number can be encoded"));
    }
}

/// The header of a call, and its parts.
pub(super) fn call_parts(frame: &Frame) -> Result<(ItemsHeader, Vec<&[u8]>), FrameError> {
    let (header, mut parts): (ItemsHeader, _) = message::split(frame)?;
    let each = header.items.iter().map(|_| message::take_part(&mut parts));
    let parts = each.collect::<Result<Vec<_>, _>>()?;
    Ok((header, parts))
}

pub(super) fn decode_batch<R: Runner>(
    recipe: &Recipe<R>,
    runner: &R,
    parts: &[&[u8]],
    attachments: &[SharedBytes],
) -> Inputs<R::Input> {
    let inputs = reading(attachments, || recipe.decode_batch(runner, parts));
    inputs.map_err(|error| CallFailure::Error(RemoteFailure::of(recipe, error)))
}
