//! The items of a service that are accepted and not yet answered, and the callers that wait for a place.

mod streams;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use gangline_report::{Account, AnswerTimes, CallReport};
use gangline_scheduler::IndexMap;
use gangline_scheduler::Priority;

use super::places::{Left, PlaceRequest, PlaceState, Places, Slot, wake};
use super::service_state::{Deadline, Late, OpenCall, ServiceState};
use super::stream_channel::Recipient;
use crate::base::panic::drop_quietly;
use crate::concurrency::home_process::HomeProcess;
use crate::concurrency::{Condvar, Mutex, MutexGuard, lock, now, wait};
use crate::error::Error;
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::run::no_output::{FailedItem, NoOutput};
use crate::run::outbox::Outcome;
use crate::run::outbox::{End, ResultSink};
use crate::runner::OpenItems;

/// The open calls of a service, and the open items of its streams.
///
/// A call is answered by the thread that removes it from here: a producer, the service's own thread at its
/// deadline or at the end, or the caller that gives it up. So it is answered once.
pub(crate) struct Board<T> {
    state: Mutex<ServiceState<T>>,
    /// For the service's own thread, and for callers of `drain`.
    changed: Condvar,
    event_log: Arc<EventLog>,
    home: HomeProcess,
}

/// How a service ends.
pub(super) enum ServiceEnd {
    Closed,
    Cancelled,
    /// By an error, with which every open and every later call is answered.
    Failed(Error),
}

/// What the service's own thread does next.
pub(super) enum Duty<T> {
    /// Withdraw the items of these calls, whose deadline has passed, and then answer the calls.
    Expire(Vec<ExpiredCall<T>>),
    /// Answer all open calls and end the thread: the run is over.
    End,
}

/// A call that has missed its deadline.
pub(super) struct ExpiredCall<T> {
    pub(super) index: u64,
    slot: Arc<Slot<T>>,
    pub(super) limit: Duration,
}

impl<T> ExpiredCall<T> {
    pub(super) fn answer(self, error: Error) {
        self.slot.answer(Err(error));
    }
}

impl<T> Board<T> {
    pub(super) fn new(places: usize, event_log: Arc<EventLog>) -> Self {
        let state = ServiceState {
            open: IndexMap::default(),
            next: 0,
            places: Places::new(places),
            deadlines: BTreeSet::new(),
            account: Account::default(),
            times: AnswerTimes::default(),
            streams: vec![],
            background: Account::default(),
            end: None,
            is_halt_told: false,
            is_drained: false,
            is_closed: false,
            is_cancelled: false,
            reason: None,
        };
        let home = HomeProcess::here();
        Board { state: Mutex::new(state), changed: Condvar::new(), event_log, home }
    }

    /// Fails in a process that was forked after the service had begun: no thread answers there.
    pub(super) fn check_home(&self) -> Result<(), Error> {
        Ok(self.home.check()?)
    }

    /// Takes `places` at once, or none.
    pub(crate) fn try_take(&self, places: usize) -> Result<bool, Error> {
        self.check_home()?;
        let mut state = lock(&self.state);
        state.check()?;
        Ok(state.places.try_take(places))
    }

    /// The number of calls that may be open.
    pub(crate) fn size(&self) -> usize {
        lock(&self.state).places.size()
    }

    /// Takes a place, or queues the caller for one.
    pub(super) fn take(&self, deadline: Option<Deadline>) -> Result<PlaceRequest, Error> {
        self.check_home()?;
        let mut state = lock(&self.state);
        state.check()?;
        let asked = state.places.take();
        if let PlaceRequest::Queued(arrival) = asked {
            self.note_deadline(&mut state, deadline, Late::Caller(arrival));
        }
        Ok(asked)
    }

    /// Takes the place that was kept for a caller.
    pub(super) fn poll_place(
        &self,
        arrival: u64,
        deadline: Option<Deadline>,
        waker: &Waker,
    ) -> Poll<Result<(), Error>> {
        if let Err(error) = self.check_home() {
            return Poll::Ready(Err(error));
        }
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let (polled, spare) = state.places.poll(arrival, waker);
        let answer = match polled {
            PlaceState::Granted => {
                state.forget_deadline(deadline, Late::Caller(arrival));
                Poll::Ready(Ok(()))
            }
            PlaceState::Waits => Poll::Pending,
            PlaceState::SentAway => {
                let late = deadline.filter(|deadline| deadline.at <= now());
                let late = late.map(|late| Error::DeadlineExceeded {
                    limit: late.limit,
                    site: Box::default(),
                });
                let refused = state.check().err();
                Poll::Ready(Err(late.or(refused).unwrap_or(Error::Closed {})))
            }
        };
        drop(state);
        drop(spare);
        answer
    }

    /// Removes a caller that no longer waits for a place.
    pub(super) fn leave(&self, arrival: u64, deadline: Option<Deadline>) {
        let mut state = lock(&self.state);
        state.forget_deadline(deadline, Late::Caller(arrival));
        let left = state.places.leave(arrival);
        drop(state);
        match left {
            Left::PassedOn(next) => next.into_iter().for_each(wake),
            Left::Waiting(own) => drop_quietly(own),
        }
    }

    /// Opens a call, for which its caller has a place. Returns the index of the item.
    pub(super) fn open(
        &self,
        slot: &Arc<Slot<T>>,
        deadline: Option<Deadline>,
    ) -> Result<u64, Error> {
        let mut state = lock(&self.state);
        state.check()?;
        let index = state.next;
        state.next += 1;
        self.event_log.read(state.next);
        let recipient = Recipient::Call(slot.clone());
        state.open.insert(index, OpenCall { recipient, deadline, since: Some(now()) });
        self.note_deadline(&mut state, deadline, Late::Call(index));
        Ok(index)
    }

    /// Returns a place that no call has used.
    pub(super) fn release(&self) {
        let waker = lock(&self.state).places.release();
        waker.into_iter().for_each(wake);
    }

    /// Gives up a call whose caller has gone away. Returns whether it was open.
    pub(super) fn give_up(&self, index: u64) -> bool {
        let state = lock(&self.state);
        self.settle(state, index, |account| account.cancelled += 1).is_some()
    }

    /// Counts a call that was refused before any hook, and answers it.
    pub(super) fn refuse(&self, index: u64, error: Error) {
        self.answer_with(index, Err(NoOutput::skipped(error)));
    }

    pub(crate) fn account(&self) -> Account {
        lock(&self.state).account
    }

    /// The account of the items of streams alone.
    pub(crate) fn stream_account(&self) -> Account {
        lock(&self.state).background
    }

    /// Fails if no more items are accepted.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        self.check_home()?;
        let state = lock(&self.state);
        state.check()
    }

    /// Why the service has ended, unless it was closed or has not ended.
    pub(super) fn reason(&self) -> Option<Arc<Error>> {
        let state = lock(&self.state);
        let cancelled = || state.is_cancelled.then(|| Arc::new(Error::Cancelled {}));
        state.reason.clone().or_else(cancelled)
    }

    /// Waits until no call is open, at most for `timeout`. Returns whether none is.
    pub(super) fn wait_until_answered(&self, timeout: Duration) -> bool {
        let end = now().checked_add(timeout);
        let mut state = lock(&self.state);
        while !state.open.is_empty() {
            state = match end {
                None => wait(&self.changed, state),
                Some(end) => {
                    let left = end.saturating_duration_since(now());
                    if left.is_zero() {
                        return false;
                    }
                    self.wait_for(state, left)
                }
            };
        }
        true
    }

    /// Waits for something that the service's own thread has to do.
    pub(super) fn next_duty(&self) -> Duty<T> {
        let mut state = lock(&self.state);
        loop {
            if state.end == Some(End::Halted) {
                let wakers = state.places.refuse_all();
                let streams = state.streams_to_halt();
                if !wakers.is_empty() || !streams.is_empty() {
                    drop(state);
                    wakers.into_iter().for_each(wake);
                    streams.into_iter().for_each(|(it, error)| it.end_input(Some(error)));
                    state = lock(&self.state);
                    continue;
                }
            }
            if state.end == Some(End::Aborted) {
                return Duty::End;
            }
            let now = now();
            match state.deadlines.first().copied() {
                None => state = wait(&self.changed, state),
                Some((at, _)) if at > now => state = self.wait_for(state, at - now),
                Some(_) => return self.expire(state, now),
            }
        }
    }

    /// Takes out the calls whose deadline has passed, and sends away the callers without a place.
    fn expire(&self, mut state: MutexGuard<'_, ServiceState<T>>, now: Instant) -> Duty<T> {
        let (mut late, mut wakers) = (vec![], vec![]);
        while let Some(&(at, what)) = state.deadlines.first().filter(|(at, _)| *at <= now) {
            state.deadlines.remove(&(at, what));
            state.times.missed();
            match what {
                Late::Caller(arrival) => match state.places.leave(arrival) {
                    Left::PassedOn(waker) | Left::Waiting(waker) => wakers.extend(waker),
                },
                Late::Call(index) => late.push(index),
            }
        }
        drop(state);
        wakers.into_iter().for_each(wake);
        let take = |index| {
            let state = lock(&self.state);
            let limit = state.open.get(&index)?.deadline?.limit;
            match self.settle(state, index, |account| account.failed += 1)? {
                Recipient::Call(slot) => Some(ExpiredCall { index, slot, limit }),
                Recipient::Stream(..) => unreachable!("an item of a stream has no deadline"),
            }
        };
        Duty::Expire(late.into_iter().filter_map(take).collect())
    }

    /// Answers all open calls, and refuses all later ones.
    pub(super) fn end(&self, ended: ServiceEnd) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.is_cancelled = matches!(ended, ServiceEnd::Cancelled);
        if let ServiceEnd::Failed(error) = ended {
            state.reason = Some(Arc::new(error));
        }
        state.deadlines.clear();
        let wakers = state.places.refuse_all();
        let open = std::mem::take(&mut state.open);
        let streams = state.streams_to_fail(&open);
        let lost: usize = streams.iter().map(|&(_, lost)| lost).sum();
        state.account.cancelled += open.len() as u64;
        state.background.cancelled += lost as u64;
        let error = || if state.is_cancelled { Error::Cancelled {} } else { state.why() };
        let errors: Vec<_> = streams.iter().map(|_| error()).collect();
        let calls = open.into_values().filter_map(|it| it.recipient.into_call());
        let calls: Vec<_> = calls.map(|slot| (slot, error())).collect();
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(wake);
        calls.into_iter().for_each(|(slot, error)| slot.answer(Err(error)));
        for ((stream, lost), error) in streams.into_iter().zip(errors) {
            stream.fail(error, lost);
        }
    }

    /// Removes an open call, counts its outcome, and passes its place on. The caller is answered afterwards: it may
    /// look at the account as soon as it has the answer.
    fn settle(
        &self,
        mut state: MutexGuard<'_, ServiceState<T>>,
        index: u64,
        count: impl Fn(&mut Account),
    ) -> Option<Recipient<T>> {
        let OpenCall { recipient, deadline, .. } = state.open.remove(&index)?;
        state.forget_deadline(deadline, Late::Call(index));
        count(&mut state.account);
        let waker = match recipient.priority() {
            Priority::Normal => state.places.release(),
            Priority::Background => {
                count(&mut state.background);
                None
            }
        };
        let is_last = self.note_settled(&state);
        drop(state);
        if is_last {
            self.changed.notify_all();
        }
        waker.into_iter().for_each(wake);
        Some(recipient)
    }

    /// Tells observers how many items are settled. Returns whether that was the last, so that callers of `drain` go on.
    fn note_settled(&self, state: &ServiceState<T>) -> bool {
        let Account { ok, failed, cancelled, .. } = state.account;
        self.event_log.delivered(ok, ok + failed + cancelled);
        state.open.is_empty() && state.end.is_some()
    }

    fn answer_with(&self, index: u64, outcome: Outcome<T>) {
        let (outcome, bytes, state) = self.measured(index, outcome);
        if state.end == Some(End::Aborted) {
            // The service's own thread answers.
            drop(state);
            return drop_quietly(outcome);
        }
        let is_ok = outcome.is_ok();
        let mut state = state;
        state.note_answer(index);
        let recipient = self.settle(state, index, |account| match is_ok {
            true => account.ok += 1,
            false => account.failed += 1,
        });
        let Some(recipient) = recipient else { return drop_quietly(outcome) };
        let answer = outcome.map_err(|none| {
            let NoOutput::Failed(FailedItem { error, .. }) = *none else {
                unreachable!("a service has neither a journal nor parts");
            };
            self.event_log.tell(Event::ItemFailed { failure: EventLog::failure(&error) });
            error
        });
        recipient.answer(answer, bytes);
    }

    fn note_deadline(&self, state: &mut ServiceState<T>, deadline: Option<Deadline>, what: Late) {
        let Some(Deadline { at, .. }) = deadline else { return };
        let is_first = state.deadlines.first().is_none_or(|&(first, _)| at < first);
        state.deadlines.insert((at, what));
        if is_first {
            self.changed.notify_all();
        }
    }

    fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, ServiceState<T>>,
        most: Duration,
    ) -> MutexGuard<'a, ServiceState<T>> {
        let waited = self.changed.wait_timeout(state, most);
        waited.expect("nothing panics under a lock of ours").0
    }
}

impl<T: Send> ResultSink<T> for Board<T> {
    fn answer(&self, item: u64, outcome: Outcome<T>) {
        self.answer_with(item, outcome);
    }

    fn note_end(&self, end: End) {
        let mut state = lock(&self.state);
        state.is_drained |= end == End::Halted && state.end.is_none();
        state.end = state.end.max(Some(end));
        drop(state);
        self.changed.notify_all();
    }
}

impl<T: Send> OpenItems for Board<T> {
    fn is_open(&self, item: u64) -> bool {
        lock(&self.state).open.contains_key(&item)
    }

    fn calls(&self) -> Option<CallReport> {
        Some(lock(&self.state).times.report())
    }
}

impl<T> fmt::Debug for Board<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("account", &self.account()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::event_log::Detail;

    #[test]
    fn a_call_between_the_abort_and_its_reason_is_answered_with_the_reason() {
        let board = Board::<u64>::new(1, Arc::new(EventLog::new(0, None, Detail::Run)));
        board.note_end(End::Aborted);
        board.note_end(End::Halted);
        assert!(board.try_take(1).expect("the reason is not known yet"));
        let slot = Arc::new(Slot::new());
        board.open(&slot, None).expect("the same");
        board.end(ServiceEnd::Failed(Error::Active {}));
        let Poll::Ready(Err(error)) = slot.poll(Waker::noop()) else { panic!("it is answered") };
        assert!(matches!(error, Error::ServiceEnded { .. }), "{error:?}");
        assert!(matches!(board.try_take(1), Err(Error::ServiceEnded { .. })));
        assert_eq!(board.account().cancelled, 1);
    }

    #[test]
    fn a_board_that_drains_accepts_no_call_when_it_is_aborted() {
        let board = Board::<u64>::new(1, Arc::new(EventLog::new(0, None, Detail::Run)));
        for end in [End::Halted, End::Aborted] {
            board.note_end(end);
            assert!(board.try_take(1).is_err_and(|error| error.is_closed()));
        }
    }
}
