//! Runs of a pool with a task as the caller, which must not block.

use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::consuming_task::ConsumingTask;
use super::feed::Source;
use super::in_progress::InProgress;
use super::outputs;
use super::polled::Polled;
use super::run_session::{Left, Session};
use super::session::Engine;
use super::stream_run::{Over, StreamRun};
use super::streaming::{FedBy, Yield, last_error};
use crate::backend::threads::handover::WakeReason;
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run_shape::{Rebuilt, RunKind};
use crate::base::quiet_waker::quiet;
use crate::error::Error;
use crate::runner::Runner;

/// How far a task has come with a run.
enum Stage<T> {
    /// An earlier run of the pool may still be ending.
    New,
    Running,
    /// The last step is kept until every producer has left.
    Ending(Option<Yield<T>>),
    Over,
}

/// A run of a task, from a stream to a summary.
pub(crate) struct SummaryTask<R: Runner> {
    stage: Stage<R::Output>,
}

/// A run of a task, from a stream to outputs.
pub(crate) struct OutputsTask<R: Runner> {
    stage: Stage<R::Output>,
}

impl<R: Runner + 'static> SummaryTask<R> {
    pub(crate) fn new() -> Self {
        SummaryTask { stage: Stage::New }
    }

    /// # Panics
    ///
    /// If it was ready before.
    pub(crate) fn poll<S: Stream>(
        &mut self,
        engine: &mut Engine<R>,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<R::Summary, Error>> {
        if let Err(error) = engine.check_home() {
            self.stage = Stage::Over;
            engine.leave_run_to_parent();
            return Poll::Ready(Err(error));
        }
        let waker = quiet(cx.waker());
        if let Stage::New = self.stage {
            ready!(poll_idle(engine, &waker));
            self.stage = Stage::Over;
            begin_run(engine, source.unread())?;
            self.stage = Stage::Running;
        }
        match (&self.stage, &mut engine.in_progress) {
            (Stage::Running, Some(InProgress::Run(run))) => ready!(run.poll(source, cx, &waker)),
            _ => panic!("a run was polled after it had ended"),
        }
        self.stage = Stage::Over;
        let Some(InProgress::Run(run)) = engine.in_progress.take() else {
            unreachable!("it was just polled");
        };
        let Over { result, left: Left { session, account, failures } } = run.into_over();
        engine.keep(failures);
        engine.account = account;
        let over = session.end();
        engine.part(over, result.as_ref().err());
        Poll::Ready(result)
    }
}

impl<R: Runner> SummaryTask<R> {
    /// Gives the run up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, engine: &mut Engine<R>) {
        if let Stage::Running = self.stage {
            give_up(engine);
        }
    }
}

impl<R: Runner + 'static> OutputsTask<R> {
    pub(crate) fn new() -> Self {
        OutputsTask { stage: Stage::New }
    }

    pub(crate) fn poll<S: Stream>(
        &mut self,
        engine: &mut Engine<R>,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<R::Output, Error>>> {
        if !self.is_over()
            && let Err(error) = engine.check_home()
        {
            self.stage = Stage::Over;
            engine.leave_run_to_parent();
            return Poll::Ready(Some(Err(error)));
        }
        if let Stage::New = self.stage {
            ready!(poll_idle(engine, &quiet(cx.waker())));
            self.stage = Stage::Over;
            if let Err(error) = begin_outputs(engine, source.unread()) {
                return Poll::Ready(Some(Err(error)));
            }
            self.stage = Stage::Running;
        }
        if let (Stage::Running, Some(streaming)) = (&self.stage, outputs::in_progress(engine)) {
            match ready!(streaming.poll_next(source, cx)) {
                step @ (None | Some(Yield::Last(_))) => self.stage = Stage::Ending(step),
                step => return Poll::Ready(step.map(Yield::into_result)),
            }
        }
        if let (Stage::Ending(_), Some(in_progress)) = (&self.stage, &engine.in_progress)
            && !in_progress.session().have_left(&quiet(cx.waker()))
        {
            return Poll::Pending;
        }
        let Stage::Ending(step) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Poll::Ready(None);
        };
        engine.end_stream_with(last_error(&step));
        Poll::Ready(step.map(Yield::into_result))
    }
}

impl<R: Runner> OutputsTask<R> {
    /// Whether no output is to come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Ending(None))
    }

    /// Gives the run up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, engine: &mut Engine<R>) {
        if let Stage::Running | Stage::Ending(_) = self.stage {
            give_up(engine);
        }
    }
}

/// Ends the run in progress, which an earlier task has given up.
pub(super) fn poll_idle<R: Runner + 'static>(engine: &mut Engine<R>, waker: &Waker) -> Poll<()> {
    if let Some(lent) = &engine.lent
        && !engine.is_own_thread()
        && !lent.have_left(waker)
    {
        return Poll::Pending;
    }
    let Some(in_progress) = &engine.in_progress else { return Poll::Ready(()) };
    let session = in_progress.session();
    // Not again: it wakes the task.
    if session.run.handover.wake_reason() != WakeReason::Aborted {
        in_progress.abort();
    }
    session.run.handover.keep_waker(waker);
    let has_left = session.have_left(waker)
        && match in_progress {
            InProgress::Run(run) => run.is_consumed(),
            _ => true,
        };
    // On a producer's own thread, beginning fails, and this would wait for that thread.
    if has_left || engine.is_own_thread() {
        engine.end_stream();
        return Poll::Ready(());
    }
    Poll::Pending
}

fn give_up<R: Runner>(engine: &mut Engine<R>) {
    if engine.is_in_fork() {
        return engine.leave_run_to_parent();
    }
    engine.in_progress = engine.in_progress.take().map(InProgress::give_up);
}

/// Begins a run without waiting for producers that rebuild their states.
fn begin<R: Runner + 'static>(
    engine: &mut Engine<R>,
    recording: Recording,
) -> Result<Session<R>, Error> {
    let entered = engine.enter(RunKind::Task, recording);
    let session = entered.inspect_err(|error| engine.refuse(error))?;
    let joined = match session.run.handover.is_halted() {
        true => Ok(()),
        false => engine.join(&session, Rebuilt::Later),
    };
    match joined {
        Ok(()) => Ok(session),
        Err(error) => Err(end(engine, session, error)),
    }
}

fn end<R: Runner + 'static>(engine: &mut Engine<R>, session: Session<R>, error: Error) -> Error {
    let over = session.end();
    engine.part(over, Some(&error));
    error
}

fn begin_run<R: Runner + 'static>(
    engine: &mut Engine<R>,
    unread: Option<u64>,
) -> Result<(), Error> {
    engine.reset(unread);
    let journal = engine.open_journal(vec![]).inspect_err(|error| engine.refuse(error))?;
    let session = begin(engine, Recording::whole(journal))?;
    let run = session.run.clone();
    if run.is_cancelled() {
        return Err(end(engine, session, Error::Cancelled {}));
    }
    let consumer = engine.consumer(run.clone());
    match ConsumingTask::start(consumer, &run, engine.settings.stack_size, None) {
        Ok(consumer) => {
            let run = StreamRun::new(session, consumer, unread);
            engine.in_progress = Some(InProgress::Run(Box::new(run)));
            Ok(())
        }
        Err(error) => Err(end(engine, session, error)),
    }
}

fn begin_outputs<R: Runner + 'static>(
    engine: &mut Engine<R>,
    unread: Option<u64>,
) -> Result<(), Error> {
    engine.reset(unread);
    engine.check_no_journal().inspect_err(|error| engine.refuse(error))?;
    let session = begin(engine, Recording::default())?;
    outputs::enter(engine, session, FedBy::Task, unread);
    Ok(())
}
