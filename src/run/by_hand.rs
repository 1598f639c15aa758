//! A run without a pool: one thread feeds it, works in it and takes its results. For simulations of backends.

use std::sync::Arc;

use gangline_scheduler::{Backoff, Bypass, OnError, RunTime};

use crate::base::Order;
use crate::error::Error;
use crate::policy::{Policy, Stragglers};
use crate::run::Run;
use crate::run::handover::feeder::Feeder;
use crate::run::no_output::NoOutput;
use crate::run::ordered_merge::OrderedMerge;
use crate::run::run_settings::RunSettings;

/// What a [run by hand](run_by_hand) does with items that fail or take long.
#[derive(Debug, Clone, Copy, Default)]
pub struct HandRules {
    /// The number of attempts after the first.
    pub retries: u32,
    /// The delay before a retry.
    pub backoff: Backoff,
    /// The number of consecutive failures that quarantine a producer.
    pub quarantine_after: Option<usize>,
    /// Whether idle producers start copies of slow items.
    pub speculates: bool,
}

/// A run in input order whose producers work on leases only. Items that fail are skipped after their retries.
pub fn run_by_hand<I, T>(producers: usize, window: usize, rules: HandRules) -> Arc<Run<I, T>> {
    let HandRules { retries, backoff, quarantine_after, speculates } = rules;
    let stragglers = if speculates { Stragglers::Copy } else { Stragglers::Wait };
    let on_error = OnError::Skip;
    let policy =
        Policy { on_error, retries, backoff, quarantine_after, stragglers, ..Policy::default() };
    let settings = RunSettings { policy, bypass: Bypass::Never, ..RunSettings::default() };
    Run::with_settings(settings, producers, window)
}

/// The hands that feed a [run](run_by_hand) and take its results.
pub struct RunHands<'a, I, T> {
    run: &'a Run<I, T>,
    feeder: Feeder<I, T>,
    merge: OrderedMerge<T>,
}

impl<'a, I, T> RunHands<'a, I, T> {
    /// The hands of a run, which has them once.
    pub fn new(run: &'a Run<I, T>) -> Self {
        let merge = run.handover.merge(Order::Input);
        RunHands { run, feeder: Feeder::new(&run.handover), merge }
    }

    /// Takes a permit for the next input. Returns whether the window had one.
    pub fn take_permit(&mut self) -> bool {
        let handover = &self.run.handover;
        self.feeder.has_permit(handover) && self.feeder.spend(handover)
    }

    /// Gives the next input, for which there is a permit.
    pub fn give(&mut self, input: I) {
        self.feeder.push(&self.run.handover, input);
    }

    /// Ends the input after this number of items.
    pub fn end_input(&self, items: u64) {
        self.run.handover.end(items);
    }

    /// Takes the next result in input order, with its index.
    pub fn next_result(&mut self) -> Option<(u64, Result<T, String>)> {
        let (item, outcome) = self.merge.pop()?;
        self.run.handover.permits.give_back(1);
        let text = |it: Box<NoOutput>| match *it {
            NoOutput::Failed(failed) => format!("{:#}", failed.error),
            other => format!("{other:?}"),
        };
        Some((item, outcome.map_err(text)))
    }

    /// Takes the wake-up of a producer, if there is one.
    pub fn take_wake_up(&self, producer: usize) -> bool {
        self.run.handover.dispatch.signals.take_wake_up(producer)
    }

    /// The time of the run's clock.
    pub fn now(&self) -> RunTime {
        self.run.handover.dispatch.clock.now()
    }

    /// Ends the run.
    pub fn abort(&self) {
        self.run.abort();
    }

    /// Whether the run was ended.
    pub fn is_aborted(&self) -> bool {
        self.run.handover.is_aborted()
    }

    /// Whether an error has ended the run.
    pub fn has_error(&self) -> bool {
        self.run.has_fatal_error()
    }

    /// Takes the error that has ended the run.
    pub fn take_error(&self) -> Option<Error> {
        self.run.take_fatal_error()
    }
}
