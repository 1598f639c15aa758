//! Calls of a hook in a child, for the items of a lease.

use std::time::Duration;

use super::frame::{Frame, FrameKind, frame};
use super::message::{self, Done, Failed, ItemOutcome, ItemsHeader, WorkHook};
use super::waiting::{ChildAnswer, Interest};
use super::worker_process::{WorkerProcess, out_of_turn, refusal};
use crate::backend::remote::failure::{CallFailure, RemoteFailure};
use crate::backend::remote::item_codec::unsent;
use crate::base::{BoxError, Hook};
use crate::error::{Error, FrameError, Site, WorkerError};
use crate::run::Run;
use crate::run::handover::signals::Revocations;
use crate::runner::ProducerContext;
use crate::scheduler::{Copies, Lease};

/// What came of a call for the items of a lease.
pub(super) enum CallOutcome<T> {
    /// Each item has an outcome.
    Each(Vec<Result<T, Error>>),
    /// They failed together.
    Failed(Error),
    /// They failed together, and the process has ended.
    Crashed(Error),
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
}

/// The bytes of a call.
type Encoded = Result<Vec<u8>, Box<Error>>;

impl<I, T> WorkerProcess<I, T> {
    /// A call of the hook for the items of a lease, with the bytes to send.
    pub(super) fn prepare_call(
        &mut self,
        run: &Run<I, T>,
        lease: Lease,
        inputs: Vec<I>,
    ) -> (Sent<I>, Encoded) {
        let call = self.next_call();
        let sent = Sent { call, lease, inputs, copies: Copies::Missing, is_stale: false };
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
    pub(super) fn interest_in(
        &self,
        run: &Run<I, T>,
        revocations: &Revocations,
        sent: &Sent<I>,
    ) -> Interest {
        let Sent { lease, is_stale, .. } = sent;
        let flag = revocations.flag(Some(lease.id));
        let cx = ProducerContext::new(&self.setup, &run.wanted, &lease.items)
            .with_abandon_flag(Some(flag))
            .with_open_items(run.open_items());
        match () {
            () if revocations.is_abandoned() => Interest::Abandoned,
            () if run.wanted.gave_up_on(lease.items.first().copied()) => {
                self.settings.cancelled(run)
            }
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
    ) -> Result<Vec<u8>, BoxError> {
        let hook = match run.handover.batching() {
            None => WorkHook::Single,
            Some(_) => WorkHook::Batch,
        };
        let items = &lease.items;
        let (shown, attempt) = self.codec.origins(inputs, items, lease.attempt);
        let header = ItemsHeader { call, attempt, hook, items: shown };
        let most = self.settings.processes.max_frame as usize;
        let written = frame(FrameKind::Items, most, |bytes| -> Result<(), BoxError> {
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
                outcome.unwrap_or_else(|source| {
                    let error = refusal(&frame).unwrap_or(WorkerError::Frame { source });
                    let source = Box::new(error);
                    CallOutcome::Crashed(Error::HookFailed { hook, site: Box::new(site), source })
                })
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
                ItemOutcome::Output => self.codec.decode_output(part).map_err(failed),
                ItemOutcome::Failure => {
                    let body = part.to_vec();
                    let failure: RemoteFailure =
                        message::decode(&Frame { kind: frame.kind, body })?;
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
