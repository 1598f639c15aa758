//! What a worker does around its hooks: it decodes the inputs of calls, and answers them. For batches, the helper does so, a
//! thread beside that of the hooks.

use std::sync::{Arc, OnceLock, Weak};

use super::frame::{Frame, FrameKind};
use super::memory_writer::{FrameWithBytes, message_into};
use super::message::{
    self, Done, Failed, HandedBack, ItemOutcome, ItemsHeader, LargeOutputs, WorkHook,
};
use super::outlet::Outlet;
use super::queued_calls::{CallTimes, HookOutputs, Inputs, QueuedCalls, call_parts};
use super::spare_buffers::SpareBuffers;
use crate::backends::memory::shared_bytes::{SharedBytes, apart, reading};
use crate::backends::remote::failure::{CallFailure, RemoteFailure};
use crate::backends::remote::item_codec::unsent;
use crate::backends::remote::recipe::Recipe;
use crate::base::Result;
use crate::base::panic::drop_quietly;
use crate::concurrency::call_queue::HelperTask;
use crate::error::FrameError;
use crate::runner::Runner;

/// Writes and sends answers, for the thread of the hooks and for the helper.
pub(super) struct CallAnswers<R: Runner> {
    pub(super) recipe: Recipe<R>,
    /// The largest frame, in bytes.
    pub(super) most: usize,
    pub(super) large: LargeOutputs,
    pub(super) spares: SpareBuffers,
    pub(super) outlet: Arc<Outlet>,
    /// The runner, once it is made: for the helper. The thread of the hooks drops it.
    pub(super) runner: Arc<OnceLock<Weak<R>>>,
}

/// Whether the devices of the producer work in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceState {
    Works,
    /// A hook has said so. The coordinator ends this process when it has the answer.
    Lost,
}

impl<R: Runner> CallAnswers<R> {
    /// Finishes the outputs of a call, and answers it.
    pub(super) fn answer(
        &self,
        HookOutputs { header, mut outputs, times }: HookOutputs<R::Output>,
    ) -> Result<DeviceState, FrameError> {
        let (call, count) = (header.call, outputs.len());
        if header.hook == WorkHook::Batch
            && let Some(runner) = self.runner.get().and_then(Weak::upgrade)
            && let Err(error) = self.recipe.finish(&runner, &mut outputs)
        {
            outputs.into_iter().for_each(drop_quietly);
            let failure = CallFailure::Error(RemoteFailure::of(&self.recipe.items, error));
            return self.fail(call, failure);
        }
        if outputs.len() != count {
            let failure =
                CallFailure::Outputs { inputs: count as u64, outputs: outputs.len() as u64 };
            outputs.into_iter().for_each(drop_quietly);
            return self.fail(call, failure);
        }
        let mut device = DeviceState::Works;
        match self.done(&header, outputs, times, &mut device) {
            Ok(answer) => self.outlet.send(answer),
            Err(error) => {
                let failure = RemoteFailure::of(&self.recipe.items, unsent("output", &error));
                self.fail(call, CallFailure::Error(failure))?;
            }
        }
        Ok(device)
    }

    /// CallAnswers that a call has failed as a whole.
    pub(super) fn fail(&self, call: u64, failure: CallFailure) -> Result<DeviceState, FrameError> {
        let device = if failure.is_device_lost() { DeviceState::Lost } else { DeviceState::Works };
        let answer = message::encode(FrameKind::Failed, self.most, &Failed { call, failure })?;
        self.outlet.send(answer.into());
        Ok(device)
    }

    fn done(
        &self,
        items: &ItemsHeader,
        outputs: Vec<Result<R::Output>>,
        times: CallTimes,
        device: &mut DeviceState,
    ) -> Result<FrameWithBytes> {
        let outcome = |output: &Result<R::Output>| match output {
            Ok(_) => ItemOutcome::Output,
            Err(_) => ItemOutcome::Failure,
        };
        let outcomes = outputs.iter().map(outcome).collect();
        let (took, in_hook) = times.numbers();
        let header = Done { call: items.call, took, in_hook, outcomes };
        let spare = self.spares.take();
        message_into(spare, FrameKind::Done, self.most, |bytes| -> Result<()> {
            message::put(bytes, &header)?;
            for (item, output) in items.items.iter().zip(outputs) {
                message::put_part(bytes, |bytes| self.put_outcome(*item, output, bytes, device))?;
            }
            Ok(())
        })
    }

    fn put_outcome(
        &self,
        item: u64,
        output: Result<R::Output>,
        bytes: &mut Vec<u8>,
        device: &mut DeviceState,
    ) -> Result<()> {
        match output {
            Ok(output) => {
                let mut encode = || self.recipe.items.encode_output(item, &output, bytes);
                let written = match self.large {
                    LargeOutputs::Lent => encode(),
                    LargeOutputs::Inline => apart(encode),
                };
                drop_quietly(output);
                written
            }
            Err(error) => {
                let failure = RemoteFailure::of(&self.recipe.items, error);
                if failure.is_device_lost {
                    *device = DeviceState::Lost;
                }
                Ok(message::put(bytes, &failure)?)
            }
        }
    }
}

impl<R: Runner> Clone for CallAnswers<R> {
    fn clone(&self) -> Self {
        CallAnswers {
            recipe: self.recipe,
            most: self.most,
            large: self.large,
            spares: self.spares.clone(),
            outlet: self.outlet.clone(),
            runner: self.runner.clone(),
        }
    }
}

/// Prepares each call that can be prepared while the hook works on the one before, and answers the calls that are handed over,
/// until the process ends.
pub(super) fn help<R: Runner>(
    answers: &CallAnswers<R>,
    calls: &QueuedCalls<R::Input, R::Output>,
) -> ! {
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
    CallAnswers { recipe, outlet, runner, .. }: &CallAnswers<R>,
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

pub(super) fn decode_batch<R: Runner>(
    recipe: &Recipe<R>,
    runner: &R,
    parts: &[&[u8]],
    attachments: &[SharedBytes],
) -> Inputs<R::Input> {
    let inputs = reading(attachments, || recipe.decode_batch(runner, parts));
    inputs.map_err(|error| CallFailure::Error(RemoteFailure::of(&recipe.items, error)))
}
