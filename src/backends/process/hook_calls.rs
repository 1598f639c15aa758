//! Calls of a hook in a child, for the items of a lease.

use std::time::Duration;

use gangline_scheduler::{Copies, Lease};

use super::frame::{Frame, FrameKind};
use super::memory_writer::{FrameWithBytes, message_into};
use super::message::{self, Done, Failed, ItemOutcome, ItemsHeader, WorkHook};
use super::waiting::{ChildAnswer, Interest};
use super::worker_process::{WorkerProcess, out_of_turn, refusal};
use crate::backends::memory::shared_bytes::reading;
use crate::backends::remote::failure::{CallFailure, RemoteFailure};
use crate::backends::remote::item_codec::unsent;
use crate::base::panic::catch;
use crate::base::{BoxError, Hook};
use crate::error::{Error, FrameError, Site, WorkerError, is_device_lost, is_untried};
use crate::producers::shared::Shared;
use crate::run::{Run, settle};
use crate::runner::ProducerContext;

/// What came of a call for the items of a lease.
pub(super) enum CallOutcome<T> {
    /// Each item has an outcome.
    Each(Vec<Result<T, Error>>),
    /// They failed together.
    Failed(Error),
    /// They failed together, and the process has ended.
    Crashed(Error),
}

impl<T> CallOutcome<T> {
    /// Whether the process works no more, and is to be replaced.
    pub(super) fn is_device_lost(&self) -> bool {
        let is_lost = |error: &Error| catch(|| is_device_lost(error)).unwrap_or(false);
        match self {
            CallOutcome::Each(results) => {
                results.iter().any(|result| result.as_ref().is_err_and(is_lost))
            }
            CallOutcome::Failed(error) | CallOutcome::Crashed(error) => is_lost(error),
        }
    }

    /// Whether memory was missing for the batch, or for items that were left for a smaller one.
    pub(super) fn is_short(&self) -> bool {
        let is_left = |error: &Error| catch(|| is_untried(error)).unwrap_or(false);
        match self {
            CallOutcome::Each(results) => {
                let mut errors = results.iter().filter_map(|result| result.as_ref().err());
                errors.any(|error| is_left(error) && settle::is_short(error))
            }
            CallOutcome::Failed(error) => settle::is_short(error),
            CallOutcome::Crashed(_) => false,
        }
    }
}

/// A call that was sent, and is not answered.
pub(super) struct Sent<I> {
    /// Its number. Those of later calls are greater.
    pub(super) call: u64,
    pub(super) lease: Lease,
    /// Kept for another attempt.
    pub(super) inputs: Vec<I>,
    /// Whether other producers can begin the items too.
    pub(super) copies: Copies,
    /// No result of it counts.
    pub(super) is_stale: bool,
    /// Its hook has returned, and the child works on the next call.
    pub(super) has_returned: bool,
}

/// What is sent for a call.
type Encoded = Result<FrameWithBytes, Box<Error>>;

impl<I, T> WorkerProcess<I, T> {
    /// A call of the hook for the items of a lease, with what to send.
    pub(super) fn prepare_call(
        &mut self,
        run: &Run<I, T>,
        lease: Lease,
        inputs: Vec<I>,
    ) -> (Sent<I>, Encoded) {
        let call = self.next_call();
        let sent = Sent {
            call,
            lease,
            inputs,
            copies: Copies::Missing,
            is_stale: false,
            has_returned: false,
        };
        let bytes = self.encode(run, call, &sent.lease, &sent.inputs).map_err(|source| {
            let (hook, site) = self.hook(run, &sent.lease);
            Box::new(Error::HookFailed { hook, site: Box::new(site), source })
        });
        (sent, bytes)
    }

    /// How long a call may take.
    pub(super) fn limit_of(&self, lease: &Lease) -> Option<Duration> {
        let items = u32::try_from(lease.items.len()).unwrap_or(u32::MAX);
        Some(self.settings.limits.item?.saturating_mul(items))
    }

    /// Whether anything waits for the call that the child works on.
    pub(super) fn interest_in(&self, run: &Run<I, T>, shared: &Shared, sent: &Sent<I>) -> Interest {
        let Sent { lease, is_stale, .. } = sent;
        let revocations = &shared.revocations;
        let flag = revocations.flag(Some(lease.id));
        let cx = ProducerContext::new(&self.setup, &run.wanted, &lease.items)
            .with_abandon_flag(Some(flag))
            .with_open_items(run.open_items());
        match () {
            () if shared.is_terminated() || revocations.is_abandoned() => Interest::Abandoned,
            () if run.wanted.gave_up_on(lease.items.first().copied()) => {
                self.settings.cancelled(run)
            }
            // Whoever has given it up is elsewhere, and may have ended: nothing else would end its hook.
            () if cx.is_cancelled() && self.codec.is_relayed() => self.settings.cancelled(run),
            () if *is_stale || cx.is_cancelled() => Interest::Revoked,
            () => Interest::Wanted,
        }
    }

    fn encode(
        &self,
        run: &Run<I, T>,
        call: u64,
        lease: &Lease,
        inputs: &[I],
    ) -> Result<FrameWithBytes, BoxError> {
        let hook = match run.handover.batching() {
            None => WorkHook::Single,
            Some(_) => WorkHook::Batch,
        };
        let items = &lease.items;
        let (shown, attempt) = self.codec.origins(inputs, items, lease.attempt);
        let header = ItemsHeader { call, attempt, hook, items: shown };
        let most = self.settings.processes.max_frame as usize;
        let spare = self.child.as_ref().map(|child| child.spares().take()).unwrap_or_default();
        let written =
            message_into(spare, FrameKind::Items, most, |bytes| -> Result<(), BoxError> {
                message::put(bytes, &header)?;
                for (&item, input) in items.iter().zip(inputs) {
                    message::put_part(bytes, |bytes| self.codec.encode_input(item, input, bytes))?;
                }
                Ok(())
            });
        written.map_err(|error| unsent("input", &error))
    }

    fn hook(&self, run: &Run<I, T>, lease: &Lease) -> (Hook, Site) {
        let hook = match run.handover.batching() {
            None => Hook::ProducerWork,
            Some(_) => Hook::ProducerWorkBatch,
        };
        (hook, self.setup.site(&lease.items, Some(lease.attempt)))
    }

    /// What an answer says of a call.
    pub(super) fn worked(
        &self,
        run: &Run<I, T>,
        sent: &Sent<I>,
        answer: ChildAnswer,
    ) -> CallOutcome<T> {
        let (call, lease) = (sent.call, &sent.lease);
        let (hook, site) = self.hook(run, lease);
        match answer {
            ChildAnswer::Frame(frame) => {
                let outcome = match frame.kind {
                    FrameKind::Done => self.done(&frame, call, lease, hook),
                    FrameKind::Failed => self.failed(&frame, call, (hook, site.clone())),
                    _ => Err(out_of_turn(&frame)),
                };
                let outcome = outcome.unwrap_or_else(|source| {
                    let error = refusal(&frame).unwrap_or(WorkerError::Frame { source });
                    let source = Box::new(error);
                    CallOutcome::Crashed(Error::HookFailed { hook, site: Box::new(site), source })
                });
                if let Some(child) = &self.child {
                    child.spares().give(frame.body);
                }
                outcome
            }
            ChildAnswer::Died(source) => {
                CallOutcome::Crashed(Error::HookCrashed { hook, site: Box::new(site), source })
            }
            ChildAnswer::TimedOut => {
                let limit = self.limit_of(lease).expect("only a limit is exceeded");
                CallOutcome::Crashed(Error::TimedOut { hook, site: Box::new(site), limit })
            }
            ChildAnswer::Damaged(source) => {
                let source = Box::new(WorkerError::Frame { source });
                CallOutcome::Crashed(Error::HookFailed { hook, site: Box::new(site), source })
            }
        }
    }

    fn done(
        &self,
        frame: &Frame,
        call: u64,
        lease: &Lease,
        hook: Hook,
    ) -> Result<CallOutcome<T>, FrameError> {
        let (Done { call: of, outcomes, .. }, mut parts) = message::split(frame)?;
        if of != call || outcomes.len() != lease.items.len() {
            return Err(out_of_turn(frame));
        }
        let each = lease.items.iter().zip(outcomes).map(|(&item, outcome)| {
            let part = message::take_part(&mut parts)?;
            let failed = |source| {
                let site = Box::new(self.setup.site(&[item], Some(lease.attempt)));
                Error::HookFailed { hook, site, source }
            };
            Ok(match outcome {
                ItemOutcome::Output => {
                    let decode = || self.codec.decode_output(part);
                    reading(&frame.attachments, decode).map_err(failed)
                }
                ItemOutcome::Failure => {
                    let body = part.to_vec();
                    let failure: RemoteFailure = message::decode(&Frame::new(frame.kind, body))?;
                    Err(failed(failure.restore(&self.codec)))
                }
            })
        });
        Ok(CallOutcome::Each(each.collect::<Result<_, FrameError>>()?))
    }

    fn failed(
        &self,
        frame: &Frame,
        call: u64,
        place: (Hook, Site),
    ) -> Result<CallOutcome<T>, FrameError> {
        let Failed { call: of, failure } = message::decode(frame)?;
        if of != call || matches!(failure, CallFailure::Make(_) | CallFailure::Cfg(_)) {
            return Err(out_of_turn(frame));
        }
        Ok(CallOutcome::Failed(failure.into_error(&self.codec, place)))
    }
}
