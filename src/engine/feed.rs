//! The caller's iterator, pulled on the caller's thread.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::backend::threads::failed_item::FailedItem;
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::measures::{Measured, Measures};
use crate::backend::threads::rejected::Rejected;
use crate::backend::threads::run::Run;
use crate::base::panic::{catch, catch_theirs, drop_quietly};
use crate::concurrency::now;
use crate::error::{BoxError, Error, PanicMessage};
use crate::journal::{JournalError, Plan};
use crate::observe::event::Event;
use crate::policy::Verdict;
use crate::runner::Runner;

/// An iterator with what is known about it. It is not touched again once it has ended, failed or
/// panicked, and is dropped at that moment.
pub(crate) struct Source<I, T> {
    /// `None` once it has ended.
    iter: Option<I>,
    next: fn(&mut I) -> Option<Result<T, BoxError>>,
    remaining: fn(&I) -> (usize, Option<usize>),
    pulled: u64,
    /// How many items are left: what the iterator said before the first pull, and again at its end.
    unread: Option<u64>,
    /// What the iterator was found to be wrong with before the first pull.
    broken: Option<PanicMessage>,
}

/// What pulling gave.
pub(crate) enum Pulled {
    /// Items were given out.
    Items,
    /// There is no more.
    End,
}

/// Why pulling paused or ended.
enum Pause {
    /// As many items were given out as there were permits, or as were asked for.
    Permits,
    /// There is no more.
    End,
    Failed(BoxError),
    Panicked(PanicMessage),
    Rejected(Rejected),
}

impl<I, T> Source<I, T>
where
    I: Iterator,
{
    /// The items of `items`, as `convert` makes them of what it yields.
    pub(crate) fn new<J>(items: J, next: fn(&mut I) -> Option<Result<T, BoxError>>) -> Self
    where
        J: IntoIterator<IntoIter = I>,
    {
        let (iter, broken) = match catch(|| items.into_iter()) {
            Ok(iter) => (Some(iter), None),
            Err(message) => (None, Some(message)),
        };
        let unread = iter.as_ref().and_then(|iter| exact(iter, I::size_hint));
        Source { iter, next, remaining: I::size_hint, pulled: 0, unread, broken }
    }
}

impl<I, T> Source<I, T> {
    /// Gives everything out, waiting for a permit before each item, until there is no more or the
    /// run wants none. Ends the run's input. `next` is what this source was made with, as a type of
    /// its own, so that the compiler can see through it.
    pub(crate) fn feed<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        next: impl Fn(&mut I) -> Option<Result<T, BoxError>>,
    ) {
        let _pulling = run.pulling();
        let mut feeder = Feeder::new(&run.handover);
        let mut watch = FeederTime::new();
        while watch.wait_for_permit(run, &mut feeder) && !run.handover.is_halted() {
            if let Pulled::End = self.pull(run, &mut feeder, &next, u64::MAX) {
                watch.leave(run);
                return;
            }
        }
        watch.leave(run);
        self.end(run, &mut feeder);
    }

    /// Pulls one item, for which there is a permit, and gives it out.
    pub(crate) fn pull_one<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
    ) -> Pulled {
        self.pull(run, feeder, self.next, 1)
    }

    fn pull<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
        next: impl Fn(&mut I) -> Option<Result<T, BoxError>>,
        most: u64,
    ) -> Pulled {
        let end = self.pulled.saturating_add(most);
        loop {
            let pause = self.pull_while_permitted(run, feeder, &next, end);
            let item = self.pulled;
            let mut error = match pause {
                Pause::Permits => return Pulled::Items,
                Pause::End => match self.broken.take() {
                    None => {
                        match check_length(run, item) {
                            Ok(()) => self.end(run, feeder),
                            Err(source) => self.fail_behind(run, feeder, Error::Journal { source }),
                        }
                        return Pulled::End;
                    }
                    Some(source) => {
                        self.fail(run, feeder, Error::InputPanicked { item, source });
                        return Pulled::End;
                    }
                },
                Pause::Panicked(source) => {
                    self.abandon();
                    self.fail(run, feeder, Error::InputPanicked { item, source });
                    return Pulled::End;
                }
                Pause::Failed(source) => Error::InputFailed { item, source },
                Pause::Rejected(Rejected::LeftOut) => {
                    run.event_log.tell(Event::ItemAlreadyDone { item });
                    feeder.leave_gap(&run.handover, item, Err(FailedItem::left_out()));
                    self.pulled += 1;
                    continue;
                }
                Pause::Rejected(Rejected::Journal(source)) => {
                    self.fail(run, feeder, Error::Journal { source });
                    return Pulled::End;
                }
                Pause::Rejected(rejected) => run.named(rejected.into_error(item)),
            };
            match run.verdict(&mut error) {
                Verdict::Skip => self.skip(run, feeder, error),
                Verdict::Retry | Verdict::Stop => {
                    self.fail(run, feeder, error);
                    return Pulled::End;
                }
            }
        }
    }

    /// The loop that every item goes through. A panic is caught around all of it and not around each
    /// item.
    fn pull_while_permitted<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
        next: impl Fn(&mut I) -> Option<Result<T, BoxError>>,
        end: u64,
    ) -> Pause {
        let Some(iter) = &mut self.iter else { return Pause::End };
        let pulled = &mut self.pulled;
        let in_iterator = Cell::new(false);
        let is_plain = run.run_settings.measures.is_none() && !run.asks_for_names();
        let pull = || {
            while *pulled < end && feeder.spend(&run.handover) {
                in_iterator.set(true);
                let pulling = next(iter);
                in_iterator.set(false);
                match pulling {
                    Some(Ok(item)) if is_plain => feeder.push(&run.handover, item),
                    Some(Ok(item)) => match look_and_push(run, feeder, *pulled, item) {
                        Ok(()) => {}
                        Err(rejected) => return Pause::Rejected(rejected),
                    },
                    Some(Err(source)) => return Pause::Failed(source),
                    None => return Pause::End,
                }
                *pulled += 1;
            }
            Pause::Permits
        };
        catch_theirs(&in_iterator, pull).unwrap_or_else(Pause::Panicked)
    }

    /// Ends the run's input, whether or not the iterator has more.
    pub(crate) fn end<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
    ) {
        self.retire();
        feeder.clear(&run.handover);
        run.handover.end(self.pulled);
    }

    /// How many items were pulled.
    pub(crate) fn pulled(&self) -> u64 {
        self.pulled
    }

    /// How many were not, where the iterator says so exactly.
    pub(crate) fn unread(&self) -> Option<u64> {
        match &self.iter {
            Some(iter) => exact(iter, self.remaining),
            None => self.unread,
        }
    }

    /// The item is left out: its failure takes its place in the order, and the input goes on.
    fn skip<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
        error: Error,
    ) {
        feeder.leave_gap(&run.handover, self.pulled, Err(FailedItem::skipped(error)));
        self.pulled += 1;
    }

    /// The failure takes the place in the order that its item would have had.
    fn fail<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
        error: Error,
    ) {
        let seq = self.pulled;
        self.pulled += 1;
        run.fail(seq);
        feeder.deliver(&run.handover, seq, Err(FailedItem::ending(error)));
        self.end(run, feeder);
    }

    /// The input as a whole is not what it should be: a failure behind its last item, and of none.
    fn fail_behind<R: Runner<Input = T>>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<T, R::Output>,
        error: Error,
    ) {
        run.abort_with(error);
        self.end(run, feeder);
    }

    /// Drops the iterator, having asked it what is left.
    fn retire(&mut self) {
        if let Some(iter) = self.iter.take() {
            self.unread = exact(&iter, self.remaining);
            drop_quietly(iter);
        }
    }

    /// Drops the iterator without asking: it panicked.
    fn abandon(&mut self) {
        if let Some(iter) = self.iter.take() {
            self.unread = self.unread.map(|all| all.saturating_sub(self.pulled + 1));
            drop_quietly(iter);
        }
    }
}

/// How long a feeder has no permit.
struct FeederTime {
    came: Instant,
    waited: Duration,
}

impl FeederTime {
    fn new() -> Self {
        FeederTime { came: now(), waited: Duration::ZERO }
    }

    fn wait_for_permit<R: Runner>(
        &mut self,
        run: &Run<R>,
        feeder: &mut Feeder<R::Input, R::Output>,
    ) -> bool {
        let before = feeder.waited();
        let has_credit = feeder.wait_for_permit(&run.handover);
        let lasted = feeder.waited() - before;
        self.waited = feeder.waited();
        run.tell_of_window(lasted);
        has_credit
    }

    fn leave<R: Runner>(&self, run: &Run<R>) {
        run.handover.stats.source_left(now() - self.came, self.waited);
    }
}

/// Gives an item out as what it is called, and as large as it is.
#[cold]
pub(super) fn look_and_push<R: Runner>(
    run: &Run<R>,
    feeder: &mut Feeder<R::Input, R::Output>,
    seq: u64,
    item: R::Input,
) -> Result<(), Rejected> {
    let admitted = run.admit(seq, &item).and_then(|plan| match plan {
        Plan::Run => Ok(()),
        Plan::LeaveOut => Err(Rejected::LeftOut),
    });
    let measured = admitted.and_then(|()| {
        run.run_settings.measures.as_ref().map_or(Ok(None), |measures| measure(measures, &item))
    });
    match measured {
        Ok(None) => feeder.push(&run.handover, item),
        Ok(Some(measured)) => feeder.push_measured(&run.handover, item, measured),
        Err(rejected) => {
            drop_quietly(item);
            return Err(rejected);
        }
    }
    Ok(())
}

/// Whether the input has all items that the journal knows. One that was told to end need not: a guard returns
/// as one that has no more.
fn check_length<R: Runner>(run: &Run<R>, items: u64) -> Result<(), JournalError> {
    match run.journal_writer() {
        Some(journal_writer) if !run.handover.is_halted() => journal_writer.check_length(items),
        _ => Ok(()),
    }
}

fn measure<I>(measures: &Measures<I>, item: &I) -> Result<Option<Measured>, Rejected> {
    let measuring = Cell::new(None);
    match catch(|| measures.measure(item, &measuring)) {
        Ok(Ok(measured)) => Ok(Some(measured)),
        Ok(Err(too_large)) => Err(Rejected::TooLarge(too_large)),
        Err(message) => {
            let measure = measuring.get().expect("nothing else in there can panic");
            Err(Rejected::MeasurePanicked(measure, message))
        }
    }
}

/// What is left of the iterator when nothing more is pulled.
impl<I, T> Drop for Source<I, T> {
    fn drop(&mut self) {
        if let Some(iter) = self.iter.take() {
            drop_quietly(iter);
        }
    }
}

fn exact<I>(iter: &I, remaining: fn(&I) -> (usize, Option<usize>)) -> Option<u64> {
    match catch(|| remaining(iter)) {
        Ok((least, Some(most))) if least == most => Some(least as u64),
        _ => None,
    }
}
