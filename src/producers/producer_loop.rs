//! The loop of a producer's thread: join a run, work on its items, leave it.

use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gangline_scheduler::Absence;

use crate::base::panic::drop_quietly;
use crate::concurrency::spawn::SubscriberGuard;
use crate::error::Error;
use crate::producers::backend::{Backend, NextStep};
use crate::producers::participants::Participants;
use crate::producers::ready::ReadySender;
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;
use crate::run::run_state::RunState;

/// Asks a producer to take part in a run. A closed channel asks it to end.
pub(crate) struct Join<I, T> {
    pub(crate) run: Arc<Run<I, T>>,
    pub(crate) producer: usize,
    /// Where the producer reports whether it rebuilt its state, before it takes an item. `None` if it is not
    /// asked.
    pub(crate) ready: Option<ReadySender>,
    pub(crate) participants: Arc<Participants>,
}

/// Where a producer reports that it is ready; once.
struct ReadyReport(Option<ReadySender>);

/// The loop of a producer's thread.
pub(crate) struct ProducerLoop<I, T> {
    backend: Box<dyn Backend<I, T>>,
    producer: usize,
    /// The first failure of a `producer_end` in a run.
    failed_end: Option<Error>,
    shared: Shared,
}

impl<I, T> ProducerLoop<I, T> {
    pub(crate) fn new(backend: Box<dyn Backend<I, T>>, producer: usize, shared: Shared) -> Self {
        ProducerLoop { backend, producer, failed_end: None, shared }
    }

    /// Takes part in runs until the channel is closed, then calls `producer_end`, with what `enter_close` makes the
    /// default subscriber.
    pub(crate) fn serve(
        mut self,
        runs: &Receiver<Join<I, T>>,
        enter_close: impl FnOnce() -> SubscriberGuard,
    ) -> Result<(), Error> {
        let (producer, revocations) = (self.producer, self.shared.revocations.clone());
        while let Some(join) = self.next_run(runs) {
            let Join { run, ready, participants, .. } = join;
            let signals = &run.handover.dispatch.signals;
            let come = || signals.enter(producer, &revocations);
            let entered = participants.enter(producer, &self.shared.away, come);
            let Some(present) = entered else { continue };
            let bug = AbortGuard::new(&run);
            let span = run.spans.enter();
            let mut ready = ReadyReport(ready);
            loop {
                match self.take_part(&run, &mut ready) {
                    NextStep::On | NextStep::Away => break,
                    NextStep::Return => {}
                    NextStep::Recycle => {
                        self.end_in(&run);
                        if !revocations.is_abandoned() {
                            continue;
                        }
                    }
                }
                // Nothing waited for its hook. Now that the hook has returned, the end of the run waits again.
                if !present.come_back(|| signals.readmit(producer)) {
                    break;
                }
            }
            drop(span);
            bug.disarm();
            // The run goes first: the thread that waits for this producer to leave expects to hold the last
            // reference.
            drop(run);
            drop(present);
        }
        let _default = enter_close();
        let ended = self.backend.end();
        match self.failed_end {
            None => ended,
            Some(error) => {
                drop_quietly(ended);
                Err(error)
            }
        }
    }

    /// Waits for the next run. `None` if there is none.
    fn next_run(&mut self, runs: &Receiver<Join<I, T>>) -> Option<Join<I, T>> {
        loop {
            let Some(due) = self.backend.tidy() else { return runs.recv().ok() };
            match runs.recv_deadline(due) {
                Ok(join) => return Some(join),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Ends the state, which is to be recycled. A failure is reported at the end of the producer, since no item
    /// has failed.
    fn end_in(&mut self, run: &Run<I, T>) {
        run.expect(self.producer, Absence::End);
        match self.backend.end_in(run) {
            Err(error) if self.failed_end.is_none() => self.failed_end = Some(error),
            other => drop_quietly(other),
        }
    }

    /// Takes part in a run, from its start or after it was abandoned in a hook.
    fn take_part(&mut self, run: &Run<I, T>, ready: &mut ReadyReport) -> NextStep {
        if !run.rejoin(self.producer) {
            return NextStep::On;
        }
        let Some(outcome) = self.prepare_in_time(run) else { return NextStep::Return };
        let is_ready = outcome.is_ok();
        if let Err(error) = self.report(run, ready.0.take(), unless_over(run, outcome)) {
            self.lose(run, error).unwrap_or_else(|error| run.abort_with(error));
        }
        if is_ready { self.backend.work_on(run) } else { NextStep::On }
    }

    /// Reports whether the producer is ready. Returns the error if the receiver is gone. The run has begun
    /// without this producer then: another was not ready in time, or this one lost its state after all were
    /// asked.
    fn report(
        &self,
        run: &Run<I, T>,
        ready: Option<ReadySender>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(ready) = ready else { return outcome };
        let outcome = match outcome {
            Err(error) if run.policy().min_producers.is_some() => self.lose(run, error),
            outcome => outcome,
        };
        ready.report(self.producer, outcome).or_else(|unsent| unsent)
    }

    fn lose(&self, run: &Run<I, T>, error: Error) -> Result<(), Error> {
        run.lose(self.producer, error)
    }

    /// Rebuilds a lost state, under the init timeout. `None` if the producer was abandoned meanwhile.
    fn prepare_in_time(&mut self, run: &Run<I, T>) -> Option<Result<(), Error>> {
        if self.backend.is_ready() {
            return Some(Ok(()));
        }
        loop {
            run.expect(self.producer, Absence::Init);
            let outcome = self.backend.prepare(run, None);
            let is_abandoned = self.shared.revocations.is_abandoned();
            if is_abandoned || !run.rejoin(self.producer) {
                drop_quietly(outcome);
                return None;
            }
            match outcome {
                Ok(()) => {
                    self.shared.tell_ready(run, self.producer);
                    return Some(Ok(()));
                }
                Err(error) if self.shared.starts_again(run, self.producer) => drop_quietly(error),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Ignores an init error once the run is over: the hook may have given up for that reason. The next run
/// rebuilds the state.
fn unless_over(run: &RunState, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if run.wanted.gave_up_on(None) => {
            drop_quietly(error);
            Ok(())
        }
        outcome => outcome,
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::api::map::map;
    use crate::backends::threads::producer::Producer;
    use crate::concurrency::atomic::{AtomicU64, Ordering};
    use crate::concurrency::spawn::CallerSubscriber;
    use crate::runner::{ProducerContext, ProducerSetup, Wanted};

    #[test]
    fn a_run_does_not_begin_without_a_producer_that_lost_its_state_after_it_was_asked() {
        let inits = AtomicU64::new(0);
        let init = move |_: &ProducerContext<'_>| match inits.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err("no state".into()),
        };
        let runner = Arc::new(map(init, |_, (), x: u64| Ok(x)));
        let setup = ProducerSetup::plain(0, &"cpu".parse().expect("it is a device"));
        let shared = Shared::new(&Arc::default());
        let mut producer = Producer::new(runner, setup, shared.clone());
        producer.start(&Wanted::all()).unwrap();
        producer.lose_state();
        let producer = ProducerLoop::new(Box::new(producer), 0, shared);
        let run = Run::<u64, u64>::alone(1, 4, None);
        let participants = Participants::new(1, Arc::default());
        let (sender, runs) = crossbeam_channel::bounded(1);
        sender.send(Join { run: run.clone(), producer: 0, ready: None, participants }).unwrap();
        drop(sender);
        producer.serve(&runs, || CallerSubscriber::current().enter()).unwrap();
        assert!(run.take_fatal_error().is_some(), "nobody else is there");
    }
}
