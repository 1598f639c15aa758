//! The producers that a run goes on without.

use std::sync::Arc;
use std::time::Instant;

use super::call::drop_quietly;
use super::exchange::Finish;
use super::post::{Call, Post};
use super::run::{Run, text_of};
use crate::error::{Error, Hook};
use crate::event::Event;
use crate::limits::ticks_in;
use crate::policy::{OnError, Trial};
use crate::runner::Runner;
use crate::sync::{lock, now};

/// A producer that takes part in no run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) producer: usize,
    /// Why, as text.
    pub(crate) reason: Arc<str>,
    pub(crate) abandoned: Abandoned,
}

/// Whether the thread of a producer is still in a hook that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Yes,
    No,
}

/// What an item came to, and a copy of it.
type Raced<R> = (Result<<R as Runner>::Output, Box<Error>>, Option<<R as Runner>::Input>);

impl<R: Runner> Run<R> {
    /// A producer was done with an item that others have failed, or after items that it failed itself.
    pub(crate) fn succeeded(&self, seq: u64, producer: usize) {
        if self.policy().quarantine_after.is_none() {
            return;
        }
        let guilty = self.exchange.succeeded(seq, producer);
        if guilty.is_empty() {
            return;
        }
        for producer in guilty {
            let reason = "it failed items in a row that other producers were done with".into();
            self.note_loss(Loss { producer, reason, abandoned: Abandoned::No });
        }
        let (here, least) = (self.exchange.producers_here(), self.least_producers());
        if here < least {
            self.end_as(Error::TooFewProducers { here, least, source: None });
        }
    }

    /// An item whose producer takes part no more, and has not called a hook for it.
    pub(crate) fn hand_on(&self, seq: u64, input: R::Input, trial: Option<Box<Trial>>) {
        self.retry(seq, input, (trial.unwrap_or_default(), now()));
    }

    /// A producer takes part no more, since it failed with this error that is no item's. Not where too few
    /// would be left: then the error is what the run fails with.
    pub(crate) fn lose(&self, producer: usize, error: Error) -> Result<(), Error> {
        let least = self.least_producers();
        match self.exchange.remove(producer, least) {
            Ok(()) => {
                let reason = text_of(&error);
                self.note_loss(Loss { producer, reason, abandoned: Abandoned::No });
                drop_quietly(error);
                Ok(())
            }
            Err(here) => Err(too_few(here, least, error)),
        }
    }

    /// A producer is in a hook that nobody waits for any more. If too few others are left, what makes the
    /// run's error of that of the hook, if it has one.
    pub(crate) fn abandon(
        &self,
        loss: Loss,
    ) -> Result<(), impl FnOnce(Option<Error>) -> Error + use<R>> {
        let least = self.least_producers();
        let left = self.exchange.leave(loss.producer);
        self.note_loss(loss);
        if left >= least.max(1) {
            return Ok(());
        }
        // An item that would have been left out is not what ends the run.
        let goes_on = self.policy().on_error == OnError::Skip;
        Err(move |error: Option<Error>| match error {
            Some(error) if !goes_on => too_few(left, least, error),
            source => Error::TooFewProducers { here: left, least, source: source.map(Box::new) },
        })
    }

    pub(crate) fn least_producers(&self) -> usize {
        self.policy().min_producers.unwrap_or(1)
    }

    fn note_loss(&self, loss: Loss) {
        let Loss { producer, reason, .. } = &loss;
        tracing::warn!(producer = producer, %reason, "a producer takes no more items");
        let (producer, reason) = (*producer, reason.clone());
        self.chronicle.tell(match loss.abandoned {
            Abandoned::Yes => Event::ProducerAbandoned { producer },
            Abandoned::No => Event::ProducerQuarantined { producer, reason },
        });
        lock(&self.losses).push(loss);
    }

    /// What counts of what an item came to, where two producers may have been at it. `None` when nothing does:
    /// the other was done first, or may still be. `since`: from when the call lasted until now, if others are to be
    /// measured by it.
    #[inline]
    pub(crate) fn leave_race(
        &self,
        seq: u64,
        producer: usize,
        came: Result<R::Output, Box<Error>>,
        copy: Option<R::Input>,
        since: Option<Instant>,
    ) -> Option<Raced<R>> {
        if !self.exchange.has_races() {
            since.into_iter().for_each(|since| self.exchange.note_call(now() - since));
            return Some((came, copy));
        }
        match self.exchange.finish(seq, producer, came, copy, since) {
            Finish::Counts(came, copy) => Some((came, copy)),
            Finish::Nothing(came, copy) => {
                drop_quietly(came);
                drop_quietly(copy);
                None
            }
        }
    }

    /// As [`leave_race`](Run::leave_race), for an item that another producer was done with first.
    pub(crate) fn leave_won_race(&self, seq: u64, producer: usize, input: R::Input) {
        if let Some((_, input)) = self.leave_race(seq, producer, Err(in_vain()), Some(input), None)
        {
            drop_quietly(input);
        }
    }

    /// Those of some items, with their copies, of which it counts that they failed together on the producer `producer`:
    /// another may be at them too.
    pub(crate) fn leave_races(
        &self,
        items: Vec<u64>,
        producer: usize,
        copies: Vec<Option<R::Input>>,
    ) -> (Vec<u64>, Vec<Option<R::Input>>) {
        if !self.exchange.has_races() {
            return (items, copies);
        }
        let each = items.into_iter().zip(copies);
        // Nobody sees the error that one of two has failed with unless it is the last, which is the one that all of
        // them share.
        let counting = each.filter_map(|(item, copy)| {
            let (_, copy) = self.leave_race(item, producer, Err(in_vain()), copy, None)?;
            Some((item, copy))
        });
        counting.unzip()
    }

    /// The producers that take part no more.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        lock(&self.losses).clone()
    }

    /// Where the producer `producer` says which call it is in, if somebody asks.
    pub(crate) fn post(&self, producer: usize) -> Option<&Post<R::Input>> {
        self.exchange.posts.as_ref().map(|posts| &posts[producer])
    }

    /// Calls a hook of the producer `producer`, under its limit on time if there is one. `describe` makes of
    /// `held` what is needed should the hook not return, and `unpack` the same again of that. `Err` when
    /// nobody waits any more for what came of it, which is the caller's to drop: each of the user's values by itself.
    pub(crate) fn in_time<H, T>(
        &self,
        producer: usize,
        held: H,
        describe: impl FnOnce(H) -> Call<R::Input>,
        unpack: impl FnOnce(Call<R::Input>) -> H,
        hook: impl FnOnce() -> T,
    ) -> Result<(T, H), T> {
        let Some(post) = self.post(producer) else { return Ok((hook(), held)) };
        let call = describe(held);
        post.begin(self.ticks_for(&call), call);
        if self.exchange.copies_stragglers() {
            self.exchange.wake_helpers_if_still();
        }
        let came = hook();
        match post.end() {
            Some(call) => Ok((came, unpack(call))),
            None => Err(came),
        }
    }

    /// The producer `producer` is still in a call of an earlier run, in which it has lost a race. It has as long for
    /// that as for an item.
    pub(crate) fn expect_back(&self, producer: usize) {
        let Some(post) = self.post(producer) else { return };
        self.exchange.note_away(producer);
        let call = Call::new(Hook::ProducerWork, vec![], vec![]);
        post.begin(self.ticks_for(&call), call);
    }

    /// The producer `producer` is in no call of an earlier run. Whether it takes part: one that took too long for that is
    /// written off.
    pub(crate) fn come_back(&self, producer: usize) -> bool {
        let Some(post) = self.post(producer) else { return true };
        self.exchange.note_back(producer);
        post.come_back()
    }

    /// Whether the producer `producer` is in a call for an item that another was done with first.
    pub(crate) fn has_lost(&self, producer: usize) -> bool {
        self.post(producer).is_some_and(Post::is_left)
    }

    fn ticks_for(&self, call: &Call<R::Input>) -> u64 {
        let limits = self.terms.limits;
        let limit = match call.hook {
            Hook::ProducerInit => limits.init,
            _ => limits.item,
        };
        let Some(tick) = limits.tick() else { return u64::MAX };
        let each = limit.map_or(u64::MAX, |limit| ticks_in(limit, tick));
        each.saturating_mul(call.items.len().max(1) as u64)
    }
}

/// What comes of an item that another producer is done with: nobody sees it.
pub(super) fn in_vain() -> Box<Error> {
    Box::new(Error::Cancelled {})
}

/// What a run fails with that has lost a producer to `error`. Where nobody is left the error says enough.
fn too_few(here: usize, least: usize, error: Error) -> Error {
    match here {
        0 if least <= 1 => error,
        _ => Error::TooFewProducers { here, least, source: Some(Box::new(error)) },
    }
}
