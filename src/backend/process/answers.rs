//! The answers of a worker to its calls.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::frame::FrameKind;
use super::memory_writer::{FrameWithBytes, message_into};
use super::message::{self, Done, Failed, ItemOutcome, ItemsHeader};
use super::outlet::Outlet;
use super::spare_buffers::SpareBuffers;
use crate::backend::remote::failure::{CallFailure, RemoteFailure};
use crate::backend::remote::item_codec::unsent;
use crate::backend::remote::recipe::Recipe;
use crate::base::Result;
use crate::base::panic::drop_quietly;
use crate::error::FrameError;
use crate::runner::Runner;

/// Writes and sends answers, for the thread of the hooks and for the helper.
pub(super) struct Answers<R: Runner> {
    pub(super) recipe: Recipe<R>,
    /// The largest frame, in bytes.
    pub(super) most: usize,
    pub(super) spares: SpareBuffers,
    pub(super) outlet: Arc<Outlet>,
    /// The runner, once it is made: for the helper. The thread of the hooks drops it.
    pub(super) runner: Arc<OnceLock<Weak<R>>>,
}

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

/// Whether the devices of the producer work in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceState {
    Works,
    /// A hook has said so. The coordinator ends this process when it has the answer.
    Lost,
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

impl<R: Runner> Answers<R> {
    /// Finishes the outputs of a call, and answers it.
    pub(super) fn answer(
        &self,
        HookOutputs { header, mut outputs, times }: HookOutputs<R::Output>,
    ) -> Result<DeviceState, FrameError> {
        let (call, count) = (header.call, outputs.len());
        if header.hook == message::WorkHook::Batch
            && let Some(runner) = self.runner.get().and_then(Weak::upgrade)
            && let Err(error) = self.recipe.finish(&runner, &mut outputs)
        {
            outputs.into_iter().for_each(drop_quietly);
            let failure = CallFailure::Error(RemoteFailure::of(&self.recipe, error));
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
                let failure = RemoteFailure::of(&self.recipe, unsent("output", &error));
                self.fail(call, CallFailure::Error(failure))?;
            }
        }
        Ok(device)
    }

    /// Answers that a call has failed as a whole.
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
                let written = self.recipe.items.encode_output(item, &output, bytes);
                drop_quietly(output);
                written
            }
            Err(error) => {
                let failure = RemoteFailure::of(&self.recipe, error);
                if failure.is_device_lost {
                    *device = DeviceState::Lost;
                }
                Ok(message::put(bytes, &failure)?)
            }
        }
    }
}

impl<R: Runner> Clone for Answers<R> {
    fn clone(&self) -> Self {
        Answers {
            recipe: self.recipe,
            most: self.most,
            spares: self.spares.clone(),
            outlet: self.outlet.clone(),
            runner: self.runner.clone(),
        }
    }
}
