//! What comes of items that fail in a run.

use std::sync::Arc;
use std::time::Instant;

use super::call::{catch, drop_quietly};
use super::chronicle::Chronicle;
use super::fault::{Fate, Fault};
use super::run::Run;
use crate::error::Error;
use crate::event::Event;
use crate::failure::Failure;
use crate::policy::{self, Retry, Trial, Verdict};
use crate::runner::Runner;
use crate::sync::now;

impl<R: Runner> Run<R> {
    /// What comes of an item that failed with this error on the producer `producer`. `None` when nobody asks
    /// any more, and the error is dropped: the run was ended, or has failed already, and a hook may have
    /// returned it because it saw that. `None` also when there is another attempt, with the copy: on another
    /// producer than `producer`, where there is one.
    pub(crate) fn judge(
        &self,
        seq: u64,
        error: Error,
        producer: usize,
        trial: Option<Box<Trial>>,
        copy: Option<R::Input>,
    ) -> Option<Box<Fault>> {
        if self.wanted.gave_up_on(Some(seq)) {
            drop_quietly(error);
            drop_quietly(copy);
            return None;
        }
        self.exchange.timesheet.producer_failed(producer, 1);
        let mut error = self.named(error);
        let asked = self.ask(&mut error);
        let Some(copy) = copy else {
            self.close_trial(seq, &trial);
            return self.settle(seq, error, asked);
        };
        match self.trial(seq, &error, producer, trial, asked) {
            Ok(again) => {
                self.tell_of_retry(&error);
                self.retry(seq, copy, again);
                drop_quietly(error);
                None
            }
            Err(verdict) => {
                drop_quietly(copy);
                self.settle(seq, error, verdict)
            }
        }
    }

    /// The next attempt at an item that `producer` has failed, and when that is due, if there is one; else what
    /// becomes of it.
    fn trial(
        &self,
        seq: u64,
        error: &Error,
        producer: usize,
        trial: Option<Box<Trial>>,
        asked: Verdict,
    ) -> Result<(Box<Trial>, Instant), Verdict> {
        let mut trial = trial.unwrap_or_default();
        // What the user says outright is no matter of who else could do it.
        if asked != Verdict::Retry {
            self.exchange.blame(seq);
            return Err(asked);
        }
        let is_open = trial.fault == policy::Fault::Open
            && self.exchange.failed(seq, producer, &mut trial) == policy::Fault::Open;
        if is_open {
            return Ok((trial.next(producer), now()));
        }
        trial.fault = policy::Fault::Item;
        match self.policy().judge(error, asked) {
            Verdict::Retry => {
                let due = now() + self.policy().backoff.after(trial.attempt);
                Ok((trial.next(producer), due))
            }
            verdict => Err(verdict),
        }
    }

    /// An item cannot be tried again, since there is no copy of it: nobody learns whose fault its failures
    /// were, and those that failed it before do not wait for that.
    fn close_trial(&self, seq: u64, trial: &Option<Box<Trial>>) {
        if trial.is_some() {
            self.exchange.blame(seq);
        }
    }

    /// What comes of an item that is not tried again, of which the user's rules say `asked`.
    pub(crate) fn settle(&self, seq: u64, error: Error, asked: Verdict) -> Option<Box<Fault>> {
        let verdict = match asked {
            Verdict::Retry => self.terms.policy.verdict_without_retry(&error),
            verdict => verdict,
        };
        match verdict {
            Verdict::Skip => Some(Fault::skipped(error)),
            Verdict::Retry | Verdict::Stop => self.end_with(seq, error),
        }
    }

    /// As [`judge`](Run::judge), for what nobody can go on after.
    pub(crate) fn end_with(&self, seq: u64, error: Error) -> Option<Box<Fault>> {
        if self.wanted.gave_up_on(Some(seq)) {
            drop_quietly(error);
            return None;
        }
        self.fail(seq);
        Some(Fault::ending(self.named(error)))
    }

    /// Has the items of a batch that failed together tried again, each by itself, if all can be; else what
    /// becomes of them. The user's rules say `asked`.
    pub(crate) fn retry_all(
        &self,
        items: &[u64],
        error: &Error,
        asked: Verdict,
        producer: usize,
        trial: Option<Box<Trial>>,
        copies: &mut [Option<R::Input>],
    ) -> Result<(), Verdict> {
        if !copies.iter().all(Option::is_some) {
            items.iter().for_each(|&item| self.close_trial(item, &trial));
            return Err(asked);
        }
        let (&first, others) = items.split_first().expect("a batch is never empty");
        let again = self.trial(first, error, producer, trial.clone(), asked)?;
        // The others fare as the first, whatever has changed meanwhile.
        let others = others.iter().map(|&item| {
            let other = self.trial(item, error, producer, trial.clone(), asked);
            (item, other.unwrap_or_else(|_| again.clone()))
        });
        let others: Vec<_> = others.collect();
        for ((item, again), copy) in std::iter::once((first, again)).chain(others).zip(copies) {
            self.tell_of_retry_of(item, error);
            self.retry(item, copy.take().expect("all are there"), again);
        }
        Ok(())
    }

    /// Has the item tried again.
    pub(crate) fn retry(&self, seq: u64, input: R::Input, (trial, due): (Box<Trial>, Instant)) {
        self.exchange.retry_later(seq, Retry { input, due, trial });
    }

    /// What comes of items that failed together on the producer `producer`, unless each is tried again by
    /// itself. The error takes the place of the first. Where it ends the run, that is all; where items are
    /// left out, each of the others has to be.
    pub(crate) fn fail_together(
        &self,
        items: &[u64],
        error: Error,
        producer: usize,
        trial: Option<Box<Trial>>,
        copies: &mut [Option<R::Input>],
    ) -> Vec<(u64, Box<Fault>)> {
        let (&first, others) = items.split_first().expect("a batch is never empty");
        if self.wanted.gave_up_on(Some(first)) {
            drop_quietly(error);
            return vec![];
        }
        self.exchange.timesheet.producer_failed(producer, items.len() as u64);
        let mut error = self.named(error);
        let asked = self.ask(&mut error);
        let verdict = match self.retry_all(items, &error, asked, producer, trial, copies) {
            Ok(()) => {
                drop_quietly(error);
                return vec![];
            }
            Err(verdict) => verdict,
        };
        let Some(fault) = self.settle(first, error, verdict) else { return vec![] };
        let is_end = fault.fate == Fate::End;
        let mut faults = vec![(first, fault)];
        let others = others.iter().filter(|&&item| !is_end && !self.wanted.gave_up_on(Some(item)));
        faults.extend(others.map(|&item| {
            let error = Error::BatchFailed { item, first, key: self.name_of(item) };
            (item, Fault::skipped(error))
        }));
        faults
    }

    /// Items failed together on a producer that was abandoned.
    pub(crate) fn fail_from_aside(
        &self,
        items: &[u64],
        error: Error,
        producer: usize,
        trial: Option<Box<Trial>>,
        copies: &mut [Option<R::Input>],
    ) {
        for (seq, fault) in self.fail_together(items, error, producer, trial, copies) {
            self.exchange.deliver_aside(seq, Err(fault));
        }
    }

    /// What the policy says of an error that is no producer's.
    pub(crate) fn verdict(&self, error: &mut Error) -> Verdict {
        let asked = self.ask(error);
        self.policy().judge(error, asked)
    }

    /// What the user's rules say of an error. One that panics is no reason to go on, and the error tells of it.
    fn ask(&self, error: &mut Error) -> Verdict {
        catch(|| self.policy().ask(error)).unwrap_or_else(|message| {
            let failure = Box::new(std::mem::replace(error, Error::Cancelled {}));
            *error = Error::ClassifyPanicked { message, source: failure };
            Verdict::Stop
        })
    }

    /// What is told of an attempt that is not the last.
    fn tell_of_retry(&self, error: &Error) {
        self.chronicle.tell(Event::ItemRetried { failure: Chronicle::failure(error) });
    }

    /// The same, of an item of a batch that failed together.
    fn tell_of_retry_of(&self, item: u64, error: &Error) {
        let mut failure = Failure::clone(&Chronicle::failure(error));
        failure.item = Some(item);
        failure.key = self.name_of(item).map(|name| name.to_string());
        self.chronicle.tell(Event::ItemRetried { failure: Arc::new(failure) });
    }

    /// An error stands.
    pub(crate) fn tell_of_failure(&self, error: &Error) {
        self.chronicle.tell(Event::ItemFailed { failure: Chronicle::failure(error) });
    }
}
