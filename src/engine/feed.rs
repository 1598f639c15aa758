//! The caller's iterator, pulled on the caller's thread.

use std::cell::Cell;
#[cfg(feature = "futures")]
use std::pin::Pin;
#[cfg(feature = "futures")]
use std::task::{Context, Poll, ready};

#[cfg(feature = "futures")]
use futures_core::Stream;

use crate::base::panic::{catch, catch_theirs, drop_quietly};
use crate::concurrency::now;
use crate::concurrency::time_aside::take_waited;
use crate::error::{BoxError, Error, PanicMessage};
use crate::journal::{ItemPlan, JournalError};
use crate::observe::event::Event;
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::handover::feeder::{Feeder, PulledFrom};
use crate::run::measures::{Measured, Measures, Rejected};
use crate::run::no_output::NoOutput;

/// The caller's iterator. It is dropped as soon as it has ended, failed or panicked, and never touched again.
pub(crate) struct Source<I, T> {
    iter: Option<I>,
    next: Next<I, T>,
    remaining: fn(&I) -> (usize, Option<usize>),
    pulled: u64,
    /// The number of items left, as the iterator reported it before the first pull and again at its end.
    unread: Option<u64>,
    /// The panic of creating the iterator.
    broken: Option<PanicMessage>,
}

/// Pulls and converts one item of an iterator.
pub(crate) type Next<I, T> = fn(&mut I) -> Option<Result<T, BoxError>>;

/// The result of pulling.
pub(crate) enum Pulled {
    Items,
    /// There are no more items.
    End,
}

/// Why pulling paused or ended.
pub(super) enum Pause {
    /// All permits are used, or the requested number of items was given out.
    Permits,
    /// There are no more items, or no more are wanted.
    End,
    Failed(BoxError),
    Panicked(PanicMessage),
    Rejected(Rejected),
}

impl<I, T> Source<I, T>
where
    I: Iterator,
{
    /// Creates a source from `items`; `next` pulls and converts one item.
    pub(crate) fn new<J>(items: J, next: Next<I, T>) -> Self
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
    /// Gives out all items, and waits for a permit before each, until there are no more or the run wants no
    /// more. Then ends the run's input. `next` is the function that this source was created with. As a
    /// generic parameter it can be inlined.
    pub(crate) fn feed<U>(
        &mut self,
        run: &Run<T, U>,
        next: impl Fn(&mut I) -> Option<Result<T, BoxError>>,
    ) {
        let _pulling = run.pulling();
        let mut feeder = Feeder::new(&run.handover).before_pulls();
        // An earlier use of the thread does not count.
        take_waited();
        let (came, mut pulled) = (now(), Pulled::Items);
        while let Pulled::Items = pulled
            && wait_for_permit(run, &mut feeder)
            && !run.handover.is_halted()
        {
            pulled = self.pull(run, &mut feeder, &next, u64::MAX);
        }
        run.handover.stats.source_left(now() - came, feeder.waited() + take_waited());
        if let Pulled::Items = pulled {
            self.end(run, &mut feeder);
        }
    }

    /// Pulls up to `most` items, while there are permits at hand, and gives them out.
    pub(crate) fn pull_some<U>(
        &mut self,
        run: &Run<T, U>,
        feeder: &mut Feeder<T, U>,
        most: u64,
    ) -> Pulled {
        self.pull(run, feeder, self.next, most)
    }

    /// Pulls the item that was polled, for which there is a permit, and gives it out, also if the run was told to stop
    /// while the stream was polled.
    pub(super) fn pull_polled<U>(&mut self, run: &Run<T, U>, feeder: &mut Feeder<T, U>) -> Pulled {
        feeder.set_source(PulledFrom::Polled);
        let pulled = self.pull_some(run, feeder, 1);
        feeder.set_source(PulledFrom::Source);
        pulled
    }

    fn pull<U>(
        &mut self,
        run: &Run<T, U>,
        feeder: &mut Feeder<T, U>,
        next: impl Fn(&mut I) -> Option<Result<T, BoxError>>,
        most: u64,
    ) -> Pulled {
        let end = self.pulled.saturating_add(most);
        // Without observers the loop that each item goes through has nothing to publish.
        let burst = if run.event_log.is_observed() { 1 } else { most };
        loop {
            let until = end.min(self.pulled.saturating_add(burst));
            let pause = self.pull_while_permitted(run, feeder, &next, until);
            run.event_log.read(self.pulled);
            let item = self.pulled;
            let mut error = match pause {
                Pause::Permits if self.pulled == until && until < end => continue,
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
                Pause::Rejected(Rejected::AlreadyDone) => {
                    run.event_log.tell(Event::ItemAlreadyDone { item });
                    feeder.leave_gap(&run.handover, item, Err(NoOutput::done()));
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
                Verdict::Retry | Verdict::RetryHere | Verdict::Stop => {
                    self.fail(run, feeder, error);
                    return Pulled::End;
                }
            }
        }
    }

    /// The loop that every item goes through. Panics are caught around the whole loop, not per item.
    fn pull_while_permitted<U>(
        &mut self,
        run: &Run<T, U>,
        feeder: &mut Feeder<T, U>,
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
                    Some(Ok(item)) => match name_and_push(run, feeder, *pulled, item) {
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

    /// The iterator, until it has ended.
    #[cfg(feature = "futures")]
    pub(super) fn iter_mut(&mut self) -> Option<&mut I> {
        self.iter.as_mut()
    }

    /// Takes note of a panic outside the iterator's `next`. The next pull fails with it.
    #[cfg(feature = "futures")]
    pub(super) fn break_with(&mut self, message: PanicMessage) {
        self.abandon();
        self.broken = Some(message);
    }

    /// Ends the run's input, even if the iterator has more.
    pub(crate) fn end<U>(&mut self, run: &Run<T, U>, feeder: &mut Feeder<T, U>) {
        self.retire();
        feeder.clear(&run.handover).into_iter().for_each(drop_quietly);
        run.handover.end(self.pulled);
    }

    /// The number of items pulled.
    pub(crate) fn pulled(&self) -> u64 {
        self.pulled
    }

    /// The number of items left, if the iterator knows it exactly.
    pub(crate) fn unread(&self) -> Option<u64> {
        match &self.iter {
            Some(iter) => exact(iter, self.remaining),
            None => self.unread,
        }
    }

    /// The largest number of items left, if the iterator knows one.
    pub(crate) fn most_left(&self) -> Option<usize> {
        self.iter.as_ref().map_or(Some(0), |iter| catch(|| (self.remaining)(iter)).ok()?.1)
    }

    /// Skips the item: its failure takes its place in the order, and the input goes on.
    fn skip<U>(&mut self, run: &Run<T, U>, feeder: &mut Feeder<T, U>, error: Error) {
        feeder.leave_gap(&run.handover, self.pulled, Err(run.skipping(error)));
        self.pulled += 1;
    }

    /// Fails the run: the failure takes the item's place in the order.
    fn fail<U>(&mut self, run: &Run<T, U>, feeder: &mut Feeder<T, U>, error: Error) {
        let seq = self.pulled;
        self.pulled += 1;
        let fault = run.ending(error);
        run.fail(seq);
        feeder.deliver(&run.handover, seq, Err(fault));
        self.end(run, feeder);
    }

    /// Fails the run because the input as a whole is wrong; the failure is behind the last item, and belongs
    /// to none.
    fn fail_behind<U>(&mut self, run: &Run<T, U>, feeder: &mut Feeder<T, U>, error: Error) {
        run.abort_with(error);
        self.end(run, feeder);
    }

    /// Asks the iterator for its size hint, then drops it.
    fn retire(&mut self) {
        if let Some(iter) = self.iter.take() {
            self.unread = exact(&iter, self.remaining);
            drop_quietly(iter);
        }
    }

    /// Drops the iterator without asking for its size hint, because it panicked.
    fn abandon(&mut self) {
        if let Some(iter) = self.iter.take() {
            self.unread = self.unread.map(|all| all.saturating_sub(self.pulled + 1));
            drop_quietly(iter);
        }
    }
}

/// Waits for a permit, and reports a wait that was long.
pub(super) fn wait_for_permit<I, T>(run: &Run<I, T>, feeder: &mut Feeder<I, T>) -> bool {
    let before = feeder.waited();
    let has_permit = feeder.wait_for_permit(&run.handover);
    run.report_full_window(feeder.waited() - before);
    has_permit
}

/// Names and measures an item that was read, and gives it out.
#[cold]
fn name_and_push<I, T>(
    run: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    seq: u64,
    item: I,
) -> Result<(), Rejected> {
    let since = now();
    let looked = look(run, seq, &item);
    run.handover.stats.source_named(now() - since);
    push_looked(run, feeder, item, looked)
}

/// Names and measures an item of the stage before, and gives it out.
#[cold]
pub(super) fn look_and_push<I, T>(
    run: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    seq: u64,
    item: I,
) -> Result<(), Rejected> {
    let looked = look(run, seq, &item);
    push_looked(run, feeder, item, looked)
}

fn look<I, T>(run: &Run<I, T>, seq: u64, item: &I) -> Result<Option<Measured>, Rejected> {
    match run.admit(seq, item)? {
        ItemPlan::Run => {}
        ItemPlan::AlreadyDone => return Err(Rejected::AlreadyDone),
    }
    run.run_settings.measures.as_ref().map_or(Ok(None), |measures| measure(measures, item))
}

fn push_looked<I, T>(
    run: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    item: I,
    looked: Result<Option<Measured>, Rejected>,
) -> Result<(), Rejected> {
    match looked {
        Ok(None) => feeder.push(&run.handover, item),
        Ok(Some(measured)) => feeder.push_measured(&run.handover, item, measured),
        Err(rejected) => {
            drop_quietly(item);
            return Err(rejected);
        }
    }
    Ok(())
}

/// Checks that the input has all items that the journal knows. Not if the run was told to end: a guarded
/// input then ends early.
fn check_length<I, T>(run: &Run<I, T>, items: u64) -> Result<(), JournalError> {
    match &run.recording.plans {
        Some(journal_writer) if !run.handover.is_halted() => journal_writer.check_length(items),
        _ => Ok(()),
    }
}

pub(super) fn measure<I, T>(
    measures: &Measures<I, T>,
    item: &I,
) -> Result<Option<Measured>, Rejected> {
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

/// A stream, and the item that was polled last. As an iterator it yields that item.
///
/// The stream is polled first, and its item then goes the way of all items.
#[cfg(feature = "futures")]
pub(crate) struct Polled<S: Stream> {
    stream: Pin<Box<S>>,
    /// What the stream has returned, until it is pulled.
    item: Option<S::Item>,
}

/// The stream is pinned by its box; items are moved.
#[cfg(feature = "futures")]
impl<S: Stream> Unpin for Polled<S> {}

#[cfg(feature = "futures")]
impl<S: Stream> Iterator for Polled<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        self.item.take()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

#[cfg(feature = "futures")]
impl<S: Stream, T> Source<Polled<S>, T> {
    /// Creates a source from `stream`; `next` takes and converts the item that was polled.
    pub(crate) fn polled(stream: S, next: Next<Polled<S>, T>) -> Self {
        Source::new(Polled { stream: Box::pin(stream), item: None }, next)
    }

    /// Polls for the next item, or the end. Call it before each pull.
    pub(super) fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(polled) = self.iter_mut() else { return Poll::Ready(()) };
        match catch(|| polled.stream.as_mut().poll_next(cx)) {
            Ok(poll) => polled.item = ready!(poll),
            Err(message) => self.break_with(message),
        }
        Poll::Ready(())
    }
}
