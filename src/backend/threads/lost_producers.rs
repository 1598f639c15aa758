//! The producers that a run goes on without.

use std::sync::Arc;

use crate::backend::threads::run::{Run, text_of};
use crate::base::panic::drop_quietly;
use crate::concurrency::lock;
use crate::error::Error;
use crate::observe::event;
use crate::policy::OnError;
use crate::runner::Runner;
use crate::scheduler::{Absence, Event, TooFewProducers};

/// A producer that takes part in no run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostProducer {
    pub(crate) producer: usize,
    /// Why, as text.
    pub(crate) reason: Arc<str>,
    pub(crate) abandoned: Abandoned,
}

/// Whether the thread of a producer is still in a hook that nothing waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Yes,
    No,
}

impl<R: Runner> Run<R> {
    /// Does what the scheduler asks for after a producer's call.
    pub(crate) fn heed(&self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Quarantined(producer) => {
                    let reason = "it failed items in a row that other producers were done with";
                    let abandoned = Abandoned::No;
                    self.note_loss(LostProducer { producer, reason: reason.into(), abandoned });
                }
                Event::TooFewProducers { live: here } => {
                    let least = self.least_producers();
                    self.abort_with(Error::TooFewProducers { here, least, source: None });
                }
                other => unreachable!("only the deadline thread hears of {other:?}"),
            }
        }
    }

    /// A producer takes part no more, since it failed with this error that is no item's. Not where too few
    /// would be left: then the error is what the run fails with.
    pub(crate) fn lose(&self, producer: usize, error: Error) -> Result<(), Error> {
        let (lost, events) =
            self.handover.schedule(|state, now| state.scheduler.producer_lost(producer, now));
        debug_assert!(events.is_empty(), "enough are left");
        match lost {
            Ok(()) => {
                let reason = text_of(&error);
                self.note_loss(LostProducer { producer, reason, abandoned: Abandoned::No });
                drop_quietly(error);
                Ok(())
            }
            Err(TooFewProducers { live }) => Err(self.too_few(live, error)),
        }
    }

    /// What a run fails with that an abandoned producer leaves with too few, given the error of its hook, if it
    /// has one.
    pub(crate) fn too_few_after(&self, live: usize, error: Option<Error>) -> Error {
        // An item that would have been left out is not what ends the run.
        let goes_on = self.policy().on_error == OnError::Skip;
        match error {
            Some(error) if !goes_on => self.too_few(live, error),
            source => {
                let least = self.least_producers();
                Error::TooFewProducers { here: live, least, source: source.map(Box::new) }
            }
        }
    }

    /// What a run fails with that has lost a producer to `error`. Where none is left the error says enough.
    fn too_few(&self, here: usize, error: Error) -> Error {
        match (here, self.least_producers()) {
            (0, 0 | 1) => error,
            (here, least) => Error::TooFewProducers { here, least, source: Some(Box::new(error)) },
        }
    }

    pub(crate) fn least_producers(&self) -> usize {
        self.policy().min_producers.unwrap_or(1)
    }

    pub(crate) fn note_loss(&self, loss: LostProducer) {
        let LostProducer { producer, reason, .. } = &loss;
        tracing::warn!(producer = producer, %reason, "a producer takes no more items");
        let (producer, reason) = (*producer, reason.clone());
        self.event_log.tell(match loss.abandoned {
            Abandoned::Yes => event::Event::ProducerAbandoned { producer },
            Abandoned::No => event::Event::ProducerQuarantined { producer, reason },
        });
        lock(&self.losses).push(loss);
    }

    /// The producers that take part no more.
    pub(crate) fn losses(&self) -> Vec<LostProducer> {
        lock(&self.losses).clone()
    }

    /// The producer is in a hook that belongs to no item of this run.
    pub(crate) fn expect(&self, producer: usize, absence: Absence) {
        let ((), events) =
            self.handover.schedule(|state, now| state.scheduler.expect(producer, absence, now));
        debug_assert!(events.is_empty(), "it is not late yet");
    }

    /// The producer is in no such hook any more. Whether it takes part: it may have taken too long.
    pub(crate) fn has_joined(&self, producer: usize) -> bool {
        let (takes_part, _) =
            self.handover.schedule(|state, _| state.scheduler.producer_joined(producer));
        takes_part
    }
}
