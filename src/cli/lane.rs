//! A lane: one run of the library, with its own workers.

use std::sync::Arc;

use super::gate::{Gate, Rest};
use super::groups::Groups;
use super::halt::Order;
use super::sequence::Turns;
use super::shared::Shared;
use crate::cancel::CancelToken;

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
}

impl Lanes {
    pub(super) fn groups(&self) -> &Groups {
        &self.shared.groups
    }

    /// Starts nothing more.
    pub(super) fn close(&self) {
        self.lanes.iter().for_each(Lane::close);
    }

    /// Does what a failure of a job asks for.
    pub(super) fn obey(&self, order: Order) {
        match order {
            Order::GoOn if self.shared.has_failed() => self.close(),
            Order::GoOn => {}
            Order::StartNoMore => {
                self.shared.halt();
                self.close();
            }
            Order::EndAll => {
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
