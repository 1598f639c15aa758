//! Calls of a hook in a child, for the items of a lease.

use std::time::Duration;

use super::frame::{Frame, Kind, frame};
use super::message::{
    self, CallFailure, Done, Failed, ItemOutcome, Items, RemoteFailure, WorkHook,
};
use super::remote;
use super::waiting::{Answer, Interest, wait_for_answer};
use super::worker_process::{WorkerProcess, out_of_turn, refusal};
use crate::backend::threads::producer::site;
use crate::backend::threads::run::Run;
use crate::base::panic::catch;
use crate::base::{BoxError, Hook};
use crate::error::{Error, FrameError, Site, WorkerError};
use crate::runner::{ProducerContext, Runner};
use crate::scheduler::Lease;

/// What came of a call for the items of a lease.
pub(super) enum Worked<R: Runner> {
    /// Each item has an outcome.
    Each(Vec<Result<R::Output, Error>>),
    /// They failed together.
    Failed(Error),
    /// They failed together, and the process has ended.
    Crashed(Error),
}

impl<R: Runner> WorkerProcess<R> {
    /// Has the child call the hook for the items of a lease of this lane.
    pub(super) fn call(
        &mut self,
        run: &Run<R>,
        lane: usize,
        lease: &Lease,
        inputs: &[R::Input],
    ) -> Worked<R> {
        let call = self.next_call();
        let frame = match self.encode(run, call, lease, inputs) {
            Ok(frame) => frame,
            Err(source) => {
                let (hook, site) = self.hook(run, lease);
                return Worked::Failed(Error::HookFailed { hook, site: Box::new(site), source });
            }
        };
        let limit = self.settings.limits.item;
        let limit = limit.map(|limit| {
            limit.saturating_mul(u32::try_from(lease.items.len()).unwrap_or(u32::MAX))
        });
        let (setup, settings, bell) = (&self.setup, &self.settings, self.bell().clone());
        let interest = || {
            let flag = run.handover.dispatch.signals.flag(lane, Some(lease.id));
            let cx = ProducerContext::new(setup, &run.wanted, &lease.items)
                .with_abandon_flag(Some(flag))
                .with_open_items(run.open_items());
            match () {
                () if run.handover.dispatch.signals.is_abandoned(lane) => Interest::Abandoned,
                () if run.wanted.gave_up_on(lease.items.first().copied()) => {
                    settings.cancelled(run)
                }
                () if cx.is_cancelled() => Interest::Revoked,
                () => Interest::Wanted,
            }
        };
        let child = self.child.as_mut().expect("a keeper has a child when it sends items");
        child.send(frame);
        let answer = wait_for_answer(child, &bell, call, limit, &interest);
        self.worked(run, call, lease, limit, answer)
    }

    fn encode(
        &self,
        run: &Run<R>,
        call: u64,
        lease: &Lease,
        inputs: &[R::Input],
    ) -> Result<Vec<u8>, BoxError> {
        let hook = match run.handover.batching() {
            None => WorkHook::Single,
            Some(_) => WorkHook::Batch,
        };
        let items = &lease.items;
        let (shown, attempt) = self.recipe.origins(inputs, items, lease.attempt);
        let header = Items { call, attempt, hook, items: shown };
        let most = self.settings.processes.max_frame as usize;
        let written = catch(|| {
            frame(Kind::Items, most, |bytes| -> Result<(), BoxError> {
                message::put(bytes, &header)?;
                for (item, input) in items.iter().zip(inputs) {
                    // Shows an attribute that the codec cannot handle before results are wrong.
                    if self.recipe.is_checked() && *item == 0 {
                        self.recipe.check_input(input)?;
                    }
                    message::put_part(bytes, |bytes| self.recipe.encode_input(input, bytes))?;
                }
                Ok(())
            })
        });
        let written = written.unwrap_or_else(|message| Err(message.into()));
        written.map_err(|error| format!("the input cannot be sent: {error}").into())
    }

    fn hook(&self, run: &Run<R>, lease: &Lease) -> (Hook, Site) {
        let hook = match run.handover.batching() {
            None => Hook::ProducerWork,
            Some(_) => Hook::ProducerWorkBatch,
        };
        (hook, site(&self.setup, &lease.items, Some(lease.attempt)))
    }

    fn worked(
        &self,
        run: &Run<R>,
        call: u64,
        lease: &Lease,
        limit: Option<Duration>,
        answer: Answer,
    ) -> Worked<R> {
        let (hook, site) = self.hook(run, lease);
        match answer {
            Answer::Frame(frame) => {
                let outcome = match frame.kind {
                    Kind::Done => self.done(&frame, call, lease, hook),
                    Kind::Failed => self.failed(&frame, call, (hook, site.clone())),
                    _ => Err(out_of_turn(&frame)),
                };
                outcome.unwrap_or_else(|source| {
                    let error = refusal(&frame).unwrap_or(WorkerError::Frame { source });
                    let source = Box::new(error);
                    Worked::Crashed(Error::HookFailed { hook, site: Box::new(site), source })
                })
            }
            Answer::Died(source) => {
                Worked::Crashed(Error::HookCrashed { hook, site: Box::new(site), source })
            }
            Answer::TimedOut => {
                let limit = limit.expect("only a limit is exceeded");
                Worked::Crashed(Error::TimedOut { hook, site: Box::new(site), limit })
            }
            Answer::Damaged(source) => {
                let source = Box::new(WorkerError::Frame { source });
                Worked::Crashed(Error::HookFailed { hook, site: Box::new(site), source })
            }
        }
    }

    fn done(
        &self,
        frame: &Frame,
        call: u64,
        lease: &Lease,
        hook: Hook,
    ) -> Result<Worked<R>, FrameError> {
        let (Done { call: of, outcomes }, mut parts) = message::split(frame)?;
        if of != call || outcomes.len() != lease.items.len() {
            return Err(out_of_turn(frame));
        }
        let each = lease.items.iter().zip(outcomes).map(|(&item, outcome)| {
            let part = message::take_part(&mut parts)?;
            let failed = |source| {
                let site = Box::new(site(&self.setup, &[item], Some(lease.attempt)));
                Error::HookFailed { hook, site, source }
            };
            Ok(match outcome {
                ItemOutcome::Output => {
                    let output = catch(|| self.recipe.decode_output(part));
                    output.unwrap_or_else(|message| Err(message.into())).map_err(|error| {
                        failed(format!("the output does not decode: {error}").into())
                    })
                }
                ItemOutcome::Failure => {
                    let body = part.to_vec();
                    let failure: RemoteFailure =
                        message::decode(&Frame { kind: frame.kind, body })?;
                    Err(failed(remote::restore(&self.recipe, failure)))
                }
            })
        });
        Ok(Worked::Each(each.collect::<Result<_, FrameError>>()?))
    }

    fn failed(
        &self,
        frame: &Frame,
        call: u64,
        place: (Hook, Site),
    ) -> Result<Worked<R>, FrameError> {
        let Failed { call: of, failure } = message::decode(frame)?;
        if of != call || matches!(failure, CallFailure::Make(_) | CallFailure::Cfg(_)) {
            return Err(out_of_turn(frame));
        }
        Ok(Worked::Failed(remote::error_of(&self.recipe, place, failure)))
    }
}
