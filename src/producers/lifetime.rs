//! How long a producer's state lives, if it is to be recycled.

use crate::error::Error;
use crate::observe::event::Event;
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::runner::ProducerSetup;

/// The life of a producer's state: see [`recycle_after`](crate::Builder::recycle_after).
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// The number of items that the state has seen.
    pub(crate) worked: u64,
    life: Life,
}

/// Which life of a producer a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    First,
    /// A later one. The state before it was lost.
    Later,
    /// The state before was ended for it, and it has no state yet.
    Recycled,
}

impl Lifetime {
    /// Makes the lifetime of a first state.
    pub(crate) fn new() -> Self {
        Lifetime { worked: 0, life: Life::First }
    }

    /// The number of items after which the state is to be recycled. The first states of a pool's producers end
    /// earlier, one after the other, so that they are not all away at the same time.
    pub(crate) fn span<I, T>(&self, run: &Run<I, T>, setup: &ProducerSetup) -> u64 {
        let Some(items) = run.run_settings.recycle_after else { return u64::MAX };
        let ProducerSetup { producer, producers, .. } = setup;
        match self.life {
            Life::First => {
                let share = u128::from(items) * (*producer as u128 + 1) / *producers as u128;
                u64::try_from(share).map_or(items, |share| share.max(1))
            }
            Life::Later | Life::Recycled => items,
        }
    }

    /// Whether the state is to be recycled before the next item. It is not for a run that is over.
    pub(crate) fn is_over<I, T>(&self, run: &Run<I, T>, setup: &ProducerSetup) -> bool {
        self.worked >= self.span(run, setup) && !run.wanted.gave_up_on(None)
    }

    /// Notes that the state is ended, for another.
    pub(crate) fn recycle<I, T>(&mut self, run: &Run<I, T>, producer: usize) {
        self.life = Life::Recycled;
        run.handover.stats.recycling_begins(producer);
    }

    /// Notes that `producer_init` is called in a run.
    pub(crate) fn init_begins<I, T>(&self, run: &Run<I, T>, shared: &Shared, producer: usize) {
        if self.life != Life::Recycled && !shared.is_new() {
            run.handover.stats.rebuild_begins(producer);
        }
    }

    /// Notes that `producer_init` has returned.
    pub(crate) fn init_ends<I, T>(
        &mut self,
        run: &Run<I, T>,
        shared: &Shared,
        producer: usize,
        outcome: &Result<(), Error>,
    ) {
        run.handover.stats.rebuild_ends(producer);
        if self.life == Life::Recycled {
            self.life = Life::Later;
            let took = run.handover.stats.recycling_ends(producer);
            if outcome.is_ok() {
                run.event_log.tell(Event::ProducerRecycled { producer, took });
            }
        }
        if outcome.is_err() {
            shared.note_loss();
        }
    }
}
