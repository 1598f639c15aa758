//! One producer's thread.

use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use super::call::{call, drop_quietly};
use super::exchange::Taker;
use super::run::Run;
use crate::batch::Ceiling;
use crate::error::{Error, Hook, Site};
use crate::runner::{ProducerContext, Runner, Station, Wanted};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a producer is asked to do. A closed channel asks it to end.
pub(crate) struct Join<R: Runner> {
    pub(crate) run: Arc<Run<R>>,
    /// Where a producer that makes its state anew says how that went, before it takes an item.
    pub(crate) ready: Option<Sender<Result<(), Error>>>,
    /// Dropped when the producer has left the run, also by a panic.
    pub(crate) left: Sender<Infallible>,
}

/// A producer between its `producer_init` and its `producer_end`.
pub(crate) struct Producer<R: Runner> {
    pub(super) runner: Arc<R>,
    pub(super) station: Station,
    /// `None` after a panic, until it is made anew.
    pub(super) state: Option<R::ProducerState>,
    /// What running out of memory has taught about its device.
    pub(super) ceiling: Ceiling,
    /// What it shares with whoever asks.
    shared: Shared,
}

/// What a producer shares with its crew.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// Counts the producers without a state.
    pub(crate) stateless: Arc<AtomicUsize>,
    /// The extents of all producers' ceilings; [`NO_CEILING`] for none.
    pub(crate) ceilings: Arc<[AtomicU64]>,
}

/// Stands for the ceiling of a device that has not run out of memory.
pub(crate) const NO_CEILING: u64 = u64::MAX;

impl<R: Runner> Producer<R> {
    /// Calls `producer_init`; `wanted` says when nobody waits for it any more.
    pub(crate) fn new(
        runner: Arc<R>,
        station: Station,
        shared: Shared,
        wanted: &Wanted,
    ) -> Result<Self, Error> {
        let ceiling = Ceiling::new();
        let mut producer = Producer { runner, station, state: None, ceiling, shared };
        producer.init(wanted)?;
        Ok(producer)
    }

    /// Takes part in runs until the channel is closed, then calls `producer_end`.
    pub(crate) fn serve(mut self, runs: &Receiver<Join<R>>) -> Result<(), Error> {
        for Join { run, ready, left } in runs {
            let bug = AbortOnUnwind(&*run);
            let outcome = self.prepare(&run.wanted);
            let is_ready = outcome.is_ok();
            if let Some(ready) = ready {
                ready.send(outcome).expect("the run listens until this sender is dropped");
            }
            if is_ready {
                self.work_on(&run);
            }
            std::mem::forget(bug);
            // Before `left` is: whoever waits for it wants to be the last that holds the run.
            drop(run);
            drop(left);
        }
        self.end()
    }

    fn init(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let cx = ProducerContext::new(&self.station, wanted, &[]);
        let state = call(Hook::ProducerInit, || self.site(&[]), || self.runner.producer_init(&cx));
        self.state = Some(state.map_err(|error| *error)?);
        Ok(())
    }

    /// Makes the state anew if it was lost.
    pub(super) fn prepare(&mut self, wanted: &Wanted) -> Result<(), Error> {
        if self.state.is_some() {
            return Ok(());
        }
        let outcome = self.init(wanted);
        if outcome.is_err() {
            self.shared.stateless.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn work_on(&mut self, run: &Run<R>) {
        match run.exchange.batching() {
            Some(batching) => self.work_on_batches(run, batching),
            None => self.work_on_items(run),
        }
    }

    fn work_on_items(&mut self, run: &Run<R>) {
        let mut taker = Taker::new(&run.exchange, self.station.worker);
        let copies = run.terms.copy.is_some();
        let mut next = taker.next();
        while let Some((seq, input)) = next {
            if run.wanted.gave_up_on(Some(seq)) {
                drop_quietly(input);
                next = taker.next();
                continue;
            }
            if let Err(error) = self.prepare(&run.wanted) {
                drop_quietly(input);
                if let Some(fault) = run.end_with(seq, error) {
                    taker.deliver(seq, Err(fault));
                }
                return;
            }
            let copy = if copies { run.terms.copy_of(&input) } else { None };
            let copy = copy.map(|copy| (self.station.worker, copy));
            let outcome = match self.work(run, seq, input, taker.attempt()) {
                Ok(output) => {
                    copy.into_iter().for_each(drop_quietly);
                    Ok(output)
                }
                Err(error) => match run.judge(seq, *error, copy) {
                    Some(fault) => Err(fault),
                    None => {
                        next = taker.next();
                        continue;
                    }
                },
            };
            next = taker.deliver_and_next(seq, outcome);
        }
    }

    fn work(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        attempt: u32,
    ) -> Result<R::Output, Box<Error>> {
        let items = [seq];
        let cx = ProducerContext::new(&self.station, &run.wanted, &items).with_attempt(attempt);
        let state = self.state.as_mut().expect("a producer has a state when it takes an item");
        let outcome = call(
            Hook::ProducerWork,
            || site(&self.station, &items, Some(attempt)),
            || self.runner.producer_work(&cx, state, input),
        );
        if outcome.as_ref().is_err_and(|error| error.is_panic()) {
            self.lose_state();
        }
        outcome
    }

    pub(super) fn lose_state(&mut self) {
        if let Some(state) = self.state.take() {
            drop_quietly(state);
        }
        self.shared.stateless.fetch_add(1, Ordering::Relaxed);
    }

    /// Learns how large a batch may be, and tells.
    pub(super) fn learn(&mut self, from: impl FnOnce(&mut Ceiling)) {
        from(&mut self.ceiling);
        let extent = self.ceiling.extent().unwrap_or(NO_CEILING);
        self.shared.ceilings[self.station.worker].store(extent, Ordering::Relaxed);
    }

    fn end(mut self) -> Result<(), Error> {
        let Some(state) = self.state.take() else { return Ok(()) };
        let wanted = Wanted::all();
        let cx = ProducerContext::new(&self.station, &wanted, &[]);
        call(Hook::ProducerEnd, || self.site(&[]), || self.runner.producer_end(&cx, state))
            .map_err(|error| *error)
    }

    fn site(&self, items: &[u64]) -> Site {
        site(&self.station, items, None)
    }
}

pub(super) fn site(station: &Station, items: &[u64], attempt: Option<u32>) -> Site {
    Site {
        items: items.to_vec(),
        device: station.place.devices().first().copied(),
        worker: Some(station.worker),
        attempt,
    }
}

/// Ends the run when a producer's thread dies of a bug of ours: the item that it held would never
/// be delivered, and the run would wait for it.
struct AbortOnUnwind<'a, R: Runner>(&'a Run<R>);

impl<R: Runner> Drop for AbortOnUnwind<'_, R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
