//! The keeper as the backend of its child.

use std::time::{Duration, Instant};

use gangline_scheduler::LeaseId;

use super::frame::FrameKind;
use super::keeper::Keeper;
use super::message::{self, Bye};
use super::shift::Shift;
use super::waiting::{ChildAnswer, Interest, wait_for_answer};
use super::worker_process::{KeeperSettings, out_of_turn, refusal};
use crate::base::Hook;
use crate::error::{Error, WorkerError};
use crate::producers::backend::{Backend, NextStep};
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::runner::Wanted;

/// How long a process that has said goodbye may take to end.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

impl<I, T> Backend<I, T> for Keeper<I, T> {
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let kill_after = self.worker.settings.processes.kill_after;
        self.hang_bell()?;
        self.worker.listen_to(&wanted.bells);
        self.make_state(&|| match wanted.gave_up_on(None) {
            true => Interest::Cancelled { kill_after },
            false => Interest::Wanted,
        })
    }

    fn is_ready(&self) -> bool {
        self.has_state
    }

    fn prepare(&mut self, run: &Run<I, T>, lease: Option<LeaseId>) -> Result<(), Error> {
        if self.has_state {
            return Ok(());
        }
        let (shared, producer) = (self.shared.clone(), self.producer());
        self.hang_bell()?;
        self.listen_to(run);
        self.lifetime.init_begins(run, &shared, producer);
        let settings = self.worker.settings.clone();
        let prepared = self.make_state(&|| interest(run, &shared, lease, &settings));
        self.lifetime.init_ends(run, &shared, producer, &prepared);
        prepared
    }

    fn work_on(&mut self, run: &Run<I, T>) -> NextStep {
        Shift::new(self, run).work()
    }

    fn end_in(&mut self, run: &Run<I, T>) -> Result<(), Error> {
        self.lifetime.recycle(run, self.producer());
        self.listen_to(run);
        // The process that takes its place is no restart.
        self.note_worker(run, |worker| worker.pid = None);
        let (shared, settings) = (self.shared.clone(), self.worker.settings.clone());
        self.end_state(&|| interest(run, &shared, None, &settings))
    }

    fn end(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        self.end_state(&|| match shared.is_terminated() {
            true => Interest::Abandoned,
            false => Interest::Wanted,
        })
    }

    fn tidy(&mut self) -> Option<Instant> {
        self.worker.child.as_mut()?.tidy_idle()
    }
}

/// Whether a run waits for the `producer_init` or `producer_end` of a process.
fn interest<I, T>(
    run: &Run<I, T>,
    shared: &Shared,
    lease: Option<LeaseId>,
    settings: &KeeperSettings,
) -> Interest {
    let revocations = &shared.revocations;
    match () {
        () if shared.is_terminated() || revocations.is_abandoned() => Interest::Abandoned,
        () if run.wanted.gave_up_on(None) => settings.cancelled(run),
        () if lease.is_some_and(|id| revocations.flag(Some(id)).is_set()) => Interest::Revoked,
        () => Interest::Wanted,
    }
}

impl<I, T> Keeper<I, T> {
    /// Has the child call `producer_end`, and waits until it has ended.
    fn end_state(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Error> {
        let (child, had_state) = (self.worker.child.take(), std::mem::take(&mut self.has_state));
        self.shared.note_end();
        // One that is dropped is killed.
        let ends = had_state && !self.shared.is_terminated();
        let Some(mut child) = child.filter(|_| ends) else { return Ok(()) };
        let producer = self.worker.setup.producer;
        if !child.is_alive() {
            tracing::warn!(producer, "a worker has ended by itself: {}", child.reap_gone());
            return Ok(());
        }
        let end = message::encode(FrameKind::End, usize::MAX, &());
        child.send([end.expect("an empty message can be encoded").into()]);
        let call = self.worker.next_call();
        let (limit, bell) = (self.worker.settings.limits.end, self.worker.bell());
        let answer = wait_for_answer(&mut child, bell, call, limit, interest);
        let (hook, site) = (Hook::ProducerEnd, self.worker.setup.site(&[], None));
        let frame = match answer {
            ChildAnswer::Frame(frame) => frame,
            ChildAnswer::Died(_) if self.shared.is_terminated() => return Ok(()),
            ChildAnswer::Died(source) => {
                return Err(Error::HookCrashed { hook, site: Box::new(site), source });
            }
            ChildAnswer::Damaged(source) => return Err(WorkerError::Frame { source }.into()),
            ChildAnswer::TimedOut => {
                let limit = limit.expect("only a limit is exceeded");
                return Err(Error::TimedOut { hook, site: Box::new(site), limit });
            }
        };
        if frame.kind != FrameKind::Bye {
            let source = out_of_turn(&frame);
            return Err(refusal(&frame).unwrap_or(WorkerError::Frame { source }).into());
        }
        let bye: Bye = message::decode(&frame).map_err(|source| WorkerError::Frame { source })?;
        child.reap(EXIT_WITHIN);
        match bye.failure {
            None => Ok(()),
            Some(failure) => Err(failure.into_error(&self.worker.codec, (hook, site))),
        }
    }
}
