//! Items that are to be tried again, and the producers that are there to do it.

use std::time::Instant;

use super::{Exchange, Gathered};
use crate::engine::call::drop_quietly;
use crate::policy::{Fault, Retries, Retry, Roster, Trial, Turn};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, now};

/// What is looked at together, under one lock.
#[derive(Debug)]
pub(super) struct Trials<I> {
    pub(super) retries: Retries<I>,
    pub(super) roster: Roster,
}

/// What a producer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Take whatever there is.
    Free,
    /// Try again what others failed, but take nothing new.
    Suspended,
    /// Leave.
    Gone,
}

impl<I, T> Exchange<I, T> {
    /// The item is tried again, by whoever finds it.
    pub(crate) fn retry_later(&self, seq: u64, retry: Retry<I>) {
        // Until the race knows of it: who takes the item meanwhile could fail it as the first of two, where nobody
        // else comes.
        let mut races = self.has_races().then(|| lock(&self.races));
        let mut trials = lock(&self.trials);
        let displaced = trials.retries.put(seq, retry);
        self.retrying.store(trials.retries.len(), Ordering::Release);
        drop(trials);
        if let (Some(races), Some(_)) = (&mut races, &displaced) {
            races.leave_to_the_other(seq);
        }
        drop(races);
        drop_quietly(displaced.map(|displaced| displaced.input));
        // All: it may not be for the one that would wake up, and who sleeps has to know for how long.
        self.look_again();
    }

    /// Whose fault it is that `producer` has failed an item.
    pub(crate) fn failed(&self, seq: u64, producer: usize, trial: &mut Trial) -> Fault {
        trial.note(producer);
        let fault = lock(&self.trials).roster.failed(seq, &trial.tried);
        if fault == Fault::Item {
            trial.fault = fault;
            self.look_again();
        }
        fault
    }

    /// An item's failures are its own fault: others that failed it may be free again.
    pub(crate) fn blame(&self, seq: u64) {
        lock(&self.trials).roster.blame(seq);
        self.look_again();
    }

    /// `producer` was done with an item. The producers that this shows to be broken: they take part no more.
    pub(crate) fn succeeded(&self, seq: u64, producer: usize) -> Vec<usize> {
        let guilty = lock(&self.trials).roster.succeeded(seq, producer);
        self.look_again();
        guilty
    }

    /// A producer takes part no more, if at least so many others do. How many those are, if not.
    pub(crate) fn remove(&self, producer: usize, least: usize) -> Result<(), usize> {
        let mut trials = lock(&self.trials);
        let others = trials.roster.here() - usize::from(trials.roster.is_here(producer));
        if others < least.max(1) {
            return Err(others);
        }
        trials.roster.remove(producer);
        drop(trials);
        self.look_again();
        Ok(())
    }

    /// A producer takes part no more, whoever is left. How many those are.
    pub(crate) fn leave(&self, producer: usize) -> usize {
        let mut trials = lock(&self.trials);
        trials.roster.remove(producer);
        let here = trials.roster.here();
        drop(trials);
        self.look_again();
        here
    }

    /// A producer is not back from an earlier run: nothing waits for it.
    pub(crate) fn note_away(&self, producer: usize) {
        lock(&self.trials).roster.leave(producer);
    }

    /// It is back, if it was away.
    pub(crate) fn note_back(&self, producer: usize) {
        if lock(&self.trials).roster.come_back(producer) {
            self.look_again();
        }
    }

    pub(crate) fn is_here(&self, producer: usize) -> bool {
        lock(&self.trials).roster.is_here(producer)
    }

    /// How many producers take part.
    pub(crate) fn producers_here(&self) -> usize {
        lock(&self.trials).roster.here()
    }

    /// Nobody asks any more whose fault a failure is.
    pub(crate) fn end_trials(&self) {
        lock(&self.trials).roster.forgive();
        self.look_again();
    }

    pub(super) fn standing(&self, producer: usize) -> Standing {
        let trials = lock(&self.trials);
        match () {
            () if !trials.roster.is_here(producer) => Standing::Gone,
            () if trials.roster.is_suspended(producer) => Standing::Suspended,
            () => Standing::Free,
        }
    }

    /// Whether it is not known yet whose fault a failure of this producer is.
    pub(super) fn is_suspect(&self, producer: usize) -> bool {
        let trials = lock(&self.trials);
        !trials.roster.is_here(producer) || trials.roster.is_suspect(producer)
    }

    pub(super) fn retries_anything(&self) -> bool {
        self.retrying.load(Ordering::Acquire) > 0
    }

    /// What there is for `producer` to try again.
    pub(super) fn turn(&self, producer: usize) -> Turn {
        match self.retries_anything() {
            true => lock(&self.trials).turn(producer, now()),
            false => Turn::Nothing,
        }
    }

    #[cold]
    pub(super) fn take_retry(&self, producer: usize) -> Option<(u64, Retry<I>)> {
        let mut trials = lock(&self.trials);
        let Turn::Now(seq) = trials.turn(producer, now()) else { return None };
        let retry = trials.retries.take(seq);
        self.retrying.store(trials.retries.len(), Ordering::Release);
        Some((seq, retry))
    }

    /// Waits until a producer that is suspended, or may be, has something to try again or to help with, or may
    /// take what is new, or has to leave.
    pub(super) fn wait_for_standing(&self, producer: usize) -> Suspension<I> {
        loop {
            if self.is_aborted() {
                return Suspension::Over;
            }
            if let Some(retry) = self.take_retry(producer) {
                return Suspension::Retry(retry);
            }
            match self.standing(producer) {
                Standing::Free => return Suspension::Lifted,
                Standing::Gone => return Suspension::Over,
                Standing::Suspended => {}
            }
            // What another is slow at is nothing new, and all may wait for it.
            if self.copies_stragglers()
                && let Some(copy) = self.enter_race(producer)
            {
                return Suspension::Help(copy);
            }
            let (turn, race) = (self.turn(producer), self.race_turn(producer));
            let has_news = || {
                self.is_aborted()
                    || self.turn(producer) != turn
                    || self.race_turn(producer) != race
                    || self.standing(producer) != Standing::Suspended
            };
            match turn.or_before(race) {
                Turn::Now(_) => {}
                Turn::At(due) => {
                    self.suspended.wait_at_most(due.saturating_duration_since(now()), has_news);
                }
                Turn::Nothing => self.suspended.wait_unless(has_news),
            }
        }
    }

    /// Has every producer look again for what it may do.
    pub(super) fn look_again(&self) {
        self.idle.notify_all();
        self.suspended.notify_all();
    }
}

/// What a suspended producer waited for.
pub(super) enum Suspension<I> {
    Lifted,
    Retry((u64, Retry<I>)),
    Help(Gathered<I>),
    Over,
}

impl<I> Trials<I> {
    fn turn(&self, producer: usize, now: Instant) -> Turn {
        match self.roster.is_here(producer) {
            true => self.retries.turn(&self.roster, producer, now),
            false => Turn::Nothing,
        }
    }
}
