//! An engine as a stage of a line, whatever its items are.

use std::mem::take;
use std::sync::Arc;
#[cfg(feature = "futures")]
use std::task::{Poll, Waker};

use gangline_report::Account;
use gangline_report::RunReport;
use gangline_report::stages::StagePart;
use serde_json::Value;

use super::pool::Engine;
use super::session::{AllRuns, Session};
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::error::{Error, Result};
use crate::observe::event::Event;
use crate::observe::event_log::{Detail, EventLog};
use crate::observe::failure::end_with;
use crate::observe::observing::Observing;
use crate::producers::deadline_thread::DeadlineThread;
use crate::run::Run;
use crate::run::run_shape::Rebuilt;

/// What a stage takes and makes: `fn(I) -> T` for one that makes `T` of `I`.
pub(crate) trait StageTypes {
    type Input: Send;
    type Output: Send;
}

impl<I: Send, T: Send> StageTypes for fn(I) -> T {
    type Input = I;
    type Output = T;
}

/// Why an engine has a session.
const CREATED: &str = "a run of each stage was created";

/// The run of a stage with these types.
pub(crate) type RunOf<S> = Run<<S as StageTypes>::Input, <S as StageTypes>::Output>;

/// An engine as a stage of a line, whatever its items are. Its session is that of the run in progress.
pub(crate) trait StageEngine {
    fn order(&self) -> Order;
    fn part(&self) -> StagePart;
    /// The name that the builder was given.
    fn name(&self) -> Option<&str>;
    /// The configuration as JSON. Fails if the stage cannot take part in a run.
    fn check(&self) -> Result<Value, Error>;
    /// Fails if the stage has a journal: only the first may, and an output handed to a caller is never known to be
    /// consumed.
    fn check_no_journal(&self) -> Result<(), Error>;
    /// Fails in a process that was forked after the producers were started.
    fn check_home(&self) -> Result<(), Error>;
    /// Ends what is left of the last run, and resets the stage for one with `unread` inputs.
    fn reset(&mut self, unread: Option<u64>);
    /// Drops a session that has not begun, and reports that the run ended with this error.
    fn refuse(&mut self, error: &Error);
    /// Makes the token of the stage end all stages. A token used before does so at once.
    fn watch(&mut self, all: &Arc<AllRuns>) -> Result<(), Error>;
    /// Makes the producers take part.
    fn join(&self, rebuilt: Rebuilt) -> Result<(), Error>;
    /// Ends the run, and waits until no thread takes part.
    fn end_run(&self);
    /// Takes over the remains of the session, which ended with `error`, if any. `pipeline` is the account of all stages,
    /// if this is the last.
    fn settle(&mut self, account: Account, pipeline: Option<Account>, error: Option<&Error>);
    /// Leaves the session to the parent of a forked process.
    fn leave_run_to_parent(&mut self);
    fn close(&mut self) -> Result<(), Error>;
    /// Drops what is left in the session, without waiting for threads.
    #[cfg(feature = "futures")]
    fn discard(&self);
    /// Whether no thread takes part in the session any more. If some do, they ring its driver's bell.
    #[cfg(feature = "futures")]
    fn has_ended(&self) -> bool;
    /// Ends a session that an earlier task has given up, or leaked.
    #[cfg(feature = "futures")]
    fn poll_idle(&mut self, waker: &Waker) -> Poll<()>;
}

impl<I: Send + 'static, T: Send + 'static> StageEngine for Engine<I, T> {
    fn order(&self) -> Order {
        self.settings().order
    }

    fn part(&self) -> StagePart {
        StagePart { name: self.told.description.clone(), report: self.report() }
    }

    fn name(&self) -> Option<&str> {
        self.told.description.as_deref()
    }

    fn check(&self) -> Result<Value, Error> {
        self.check_home()?;
        let is_over = self.shared().is_none_or(|shared| shared.is_terminated());
        if is_over { Err(Error::Closed {}) } else { Ok(self.cfg.to_json()) }
    }

    fn check_no_journal(&self) -> Result<(), Error> {
        match self.run_settings.journal {
            Some(_) => Err(Error::JournalUnsupported {}),
            None => Ok(()),
        }
    }

    fn check_home(&self) -> Result<(), Error> {
        Engine::check_home(self)
    }

    fn reset(&mut self, unread: Option<u64>) {
        self.end_session();
        self.account = Account::new(0, 0, 0, 0, unread);
        self.event_log = Arc::new(EventLog::new(0, self.told.description.clone(), Detail::Run));
        take(&mut self.failures).into_iter().for_each(drop_quietly);
    }

    fn refuse(&mut self, error: &Error) {
        self.session = None;
        let mut totals = RunReport::default();
        totals.account = self.account;
        end_with(&mut totals, Some(error));
        self.event_log.tell(Event::RunEnded { totals: Arc::new(totals), pipeline: None });
    }

    fn watch(&mut self, all: &Arc<AllRuns>) -> Result<(), Error> {
        let session = self.session.as_mut().expect(CREATED);
        session.all = Some(all.clone());
        let observers =
            self.observers.get_mut().expect("it is never locked, so it is not poisoned");
        session.observing = Observing::start(&session.run.event_log, take(observers))?;
        session.watch = Some(self.settings.token.watch(self.seen, all));
        Ok(())
    }

    fn join(&self, rebuilt: Rebuilt) -> Result<(), Error> {
        let producers = self.producers.as_ref().expect("a run is made only with producers");
        let Session { run, participants, deadline_thread, .. } =
            self.session.as_ref().expect(CREATED);
        if let Some(tick) = self.run_settings.limits.tick() {
            let devices = self.settings.devices.clone();
            let (run, participants) = (run.clone(), participants.clone());
            let keeper = DeadlineThread::start(run, participants, devices, tick)?;
            *deadline_thread.lock().expect("nothing panics under this lock") = Some(keeper);
        }
        producers.join(run, participants, rebuilt, |producer| self.gone.has(producer))?;
        // The run may have timed out before it began.
        run.take_fatal_error().map_or(Ok(()), Err)
    }

    fn end_run(&self) {
        Engine::end_run(self);
    }

    fn settle(&mut self, account: Account, pipeline: Option<Account>, error: Option<&Error>) {
        self.account = account;
        if let Some(session) = self.session.take() {
            self.take_over(session, pipeline, error);
        }
    }

    fn leave_run_to_parent(&mut self) {
        Engine::leave_run_to_parent(self);
    }

    fn close(&mut self) -> Result<(), Error> {
        Engine::close(self)
    }

    #[cfg(feature = "futures")]
    fn discard(&self) {
        self.session.iter().for_each(|session| session.run.discard());
    }

    #[cfg(feature = "futures")]
    fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.has_ended())
    }

    #[cfg(feature = "futures")]
    fn poll_idle(&mut self, waker: &Waker) -> Poll<()> {
        let Some(session) = &self.session else { return Poll::Ready(()) };
        // First: a thread that leaves later rings.
        session.run.driver().keep(waker);
        // On a producer's own thread, beginning fails, and this would wait for that thread.
        if !self.is_own_thread() && !session.has_ended() {
            return Poll::Pending;
        }
        self.end_session();
        Poll::Ready(())
    }
}
