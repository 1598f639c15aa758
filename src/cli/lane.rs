//! A lane: one run of the library, with its own workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::CliError;
use super::exit;
use super::gate::{Gate, Rest};
use super::groups::Groups;
use super::halt;
use super::job::Job;
use super::sequence::Turns;
use super::shared::Shared;
use crate::base::plain::Plain;
use crate::concurrency::cancel::CancelToken;

/// What the hooks and the signals of one lane need.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) gate: Arc<Gate>,
    pub(super) token: CancelToken,
    /// The number of its first worker among those of all lanes.
    pub(super) first_worker: usize,
    /// There where outputs come in the order of the input, and lanes are several.
    pub(super) turns: Option<Turns>,
}

impl Lane {
    /// Starts nothing more in it.
    pub(super) fn close(&self) {
        self.follow(self.gate.close());
    }

    /// One of its jobs has ended, and its output was written.
    pub(super) fn end_one(&self) {
        self.follow(self.gate.end());
    }

    fn follow(&self, rest: Rest) {
        match rest {
            Rest::Some => {}
            // In this order: a job that is given up is then one of a run that was cancelled, and none that
            // failed.
            Rest::None => {
                self.token.cancel();
                self.gate.abandon();
            }
        }
    }
}

/// All lanes of a run: what ends one ends the others.
#[derive(Clone)]
pub(super) struct Lanes {
    pub(super) shared: Arc<Shared>,
    pub(super) lanes: Arc<[Lane]>,
    /// How many of them have begun.
    begun: Arc<AtomicUsize>,
}

impl Lanes {
    pub(super) fn new(shared: Shared, lanes: Vec<Lane>) -> Lanes {
        Lanes { shared: Arc::new(shared), lanes: lanes.into(), begun: Arc::default() }
    }

    /// One has its journal and the locks of its GPUs. No job of any is started before all have: a run that is
    /// refused has done nothing.
    pub(super) fn begin_one(&self) {
        if self.begun.fetch_add(1, Ordering::SeqCst) + 1 == self.lanes.len() {
            self.lanes.iter().for_each(|lane| lane.gate.open());
        }
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.shared.groups
    }

    /// Starts nothing more.
    pub(super) fn close(&self) {
        self.lanes.iter().for_each(Lane::close);
    }

    /// Starts nothing more where results of another job are in the place of this one's.
    pub(super) fn spare_results(&self, job: &Job) {
        let Some(results) = &self.shared.results else { return };
        if let Some(other) = results.other_in_place_of(job) {
            let (place, other) = (results.place(job.number), Plain(&other));
            let text = format!(
                "{} has the results of another input, {other}: with other inputs before it a job has another \
                 number, so this run needs a --results of its own",
                place.display()
            );
            self.shared.fail(CliError::new(exit::OUTPUT, text));
            self.close();
        }
    }

    /// Does what a failure of a job asks for.
    pub(super) fn obey(&self, order: halt::Order) {
        match order {
            halt::Order::GoOn if self.shared.has_failed() => self.close(),
            halt::Order::GoOn => {}
            halt::Order::StartNoMore => {
                self.shared.halt();
                self.close();
            }
            halt::Order::EndAll => {
                self.shared.halt();
                self.close();
                self.groups().end_all();
            }
        }
    }

    /// Nobody wants the outputs any more, or they cannot be given.
    pub(super) fn give_up(&self) {
        self.lanes.iter().for_each(|lane| lane.gate.abandon());
        self.groups().end_all();
    }
}
