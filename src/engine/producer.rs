//! One producer's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendError, Sender};

use super::attendance::Attendance;
use super::call::{call, drop_quietly};
use super::chronicle::Pen;
use super::exchange::Taker;
use super::losses::in_vain;
use super::post::{Call, Leave, Post};
use super::run::{Run, RunOutcome};
use super::witness::{Nobody, Witness};
use crate::batch::Ceiling;
use crate::error::{Error, Hook, Site};
use crate::event::Event;
use crate::policy::Trial;
use crate::runner::{ProducerContext, Runner, Station, Wanted};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::now;

/// What a producer is asked to do. A closed channel asks it to end.
pub(crate) struct Join<R: Runner> {
    pub(crate) run: Arc<Run<R>>,
    /// Where a producer that makes its state anew says how that went, before it takes an item.
    pub(crate) ready: Option<Sender<Result<(), Error>>>,
    pub(crate) attendance: Arc<Attendance>,
}

/// What is kept of an item while a hook has it: a copy, and what is known of it.
type Held<R> = (Option<<R as Runner>::Input>, Option<Box<Trial>>);

/// What came of an item, and what was kept of it.
type Worked<R> = (Result<<R as Runner>::Output, Box<Error>>, Held<R>);

/// What came of an item that was worked on with care.
enum Cared<R: Runner> {
    Deliver(RunOutcome<R>),
    /// Nothing that is this producer's to deliver.
    Nothing,
    Leave(Goes),
}

/// What a producer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    On,
    /// It takes part in no run any more.
    Away,
    /// It was abandoned, and has come back: it ends.
    Left,
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
    /// Which have a state.
    pub(crate) ready: Arc<[AtomicBool]>,
    /// How long each `producer_init` took, in nanoseconds.
    pub(crate) inits: Arc<[AtomicU64]>,
    /// The extents of all producers' ceilings; [`NO_CEILING`] for none.
    pub(crate) ceilings: Arc<[AtomicU64]>,
    /// Which of them nobody waits for any more.
    pub(crate) left: Arc<[AtomicBool]>,
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
        let left = shared.left.clone();
        let is_left = &left[station.producer];
        let mut producer = Producer { runner, station, state: None, ceiling, shared };
        producer.init(wanted, Some(Leave::Building { is_left }))?;
        Ok(producer)
    }

    /// Takes part in runs until the channel is closed, then calls `producer_end`.
    pub(crate) fn serve(mut self, runs: &Receiver<Join<R>>) -> Result<(), Error> {
        for Join { run, ready, attendance } in runs {
            let producer = self.station.producer;
            let Some(present) = attendance.enter(producer) else { continue };
            if !run.come_back(producer) {
                break;
            }
            let bug = AbortOnUnwind(&*run);
            let Some(outcome) = self.prepare_in_time(&run) else {
                std::mem::forget(bug);
                break;
            };
            let is_ready = outcome.is_ok();
            if let Err(error) = self.report(&run, ready, unless_over(&run, outcome)) {
                run.lose(producer, error).unwrap_or_else(|error| run.end_as(error));
            }
            let goes = if is_ready { self.work_on(&run) } else { Goes::On };
            std::mem::forget(bug);
            // Whoever waits for this producer to leave wants to be the last that holds the run.
            drop(run);
            drop(present);
            if let Goes::Left = goes {
                break;
            }
        }
        self.end()
    }

    /// Says whether it is ready. The error that it is not for, if nobody listens: where another was not ready in
    /// time, or where it lost its state after everybody was asked, the run has begun.
    fn report(
        &self,
        run: &Run<R>,
        ready: Option<Sender<Result<(), Error>>>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(ready) = ready else { return outcome };
        let outcome = match outcome {
            Err(error) if run.policy().min_producers.is_some() => {
                run.lose(self.station.producer, error)
            }
            outcome => outcome,
        };
        ready.send(outcome).or_else(|SendError(outcome)| outcome)
    }

    /// `leave`: whether nobody waits for it any more.
    fn init(&mut self, wanted: &Wanted, leave: Option<Leave<'_>>) -> Result<(), Error> {
        let cx = ProducerContext::new(&self.station, wanted, &[]).with_leave(leave);
        let since = now();
        let state = call(Hook::ProducerInit, || self.site(&[]), || self.runner.producer_init(&cx));
        let took = u64::try_from((now() - since).as_nanos()).unwrap_or(u64::MAX);
        self.shared.inits[self.station.producer].store(took, Ordering::Relaxed);
        self.state = Some(state.map_err(|error| *error)?);
        self.shared.ready[self.station.producer].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the state anew if it was lost.
    pub(super) fn prepare(&mut self, run: &Run<R>) -> Result<(), Error> {
        if self.state.is_some() {
            return Ok(());
        }
        let outcome = self.init(&run.wanted, run.post(self.station.producer).map(Post::leave));
        if outcome.is_err() {
            self.shared.stateless.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// As [`prepare`](Producer::prepare), within the limit on that. `None` when the producer was abandoned.
    fn prepare_in_time(&mut self, run: &Run<R>) -> Option<Result<(), Error>> {
        if self.state.is_some() {
            return Some(Ok(()));
        }
        let producer = self.station.producer;
        let describe = |()| Call::new(Hook::ProducerInit, vec![], vec![]);
        let prepared = run.in_time(producer, (), describe, |_| (), || self.prepare(run));
        let (outcome, ()) = prepared.map_err(drop_quietly).ok()?;
        self.tell_if_ready(run);
        Some(outcome)
    }

    pub(super) fn tell_if_ready(&self, run: &Run<R>) {
        if self.state.is_some() {
            let producer = self.station.producer;
            let took = Duration::from_nanos(self.shared.inits[producer].load(Ordering::Relaxed));
            run.chronicle.tell(Event::ProducerReady { producer, took });
        }
    }

    fn work_on(&mut self, run: &Run<R>) -> Goes {
        match run.exchange.batching() {
            Some(batching) => self.work_on_batches(run, batching),
            None => self.work_on_items(run),
        }
    }

    fn work_on_items(&mut self, run: &Run<R>) -> Goes {
        let producer = self.station.producer;
        let mut taker = Taker::new(&run.exchange, producer);
        let mut pen = run.chronicle.pen(producer);
        // Nobody keeps the time of an item, or wants a copy: all that costs as much again as handing one over,
        // even if only to see each time that nobody does.
        let is_plain = run.terms.copy.is_none() && run.exchange.posts.is_none();
        let mut next = taker.next();
        while let Some((seq, input)) = next {
            if is_plain && !taker.has_trial() && self.state.is_some() {
                next = match &mut pen {
                    None => self.work_on_plain_items(run, seq, input, &mut taker, &mut Nobody),
                    Some(pen) => self.work_on_plain_items(run, seq, input, &mut taker, pen),
                };
                continue;
            }
            let trial = taker.trial();
            if run.wanted.gave_up_on(Some(seq)) {
                drop_quietly(input);
                next = taker.next();
                continue;
            }
            match self.work_with_care(run, seq, input, trial, &mut taker, &mut pen) {
                Cared::Deliver(outcome) => next = taker.deliver_and_next(seq, outcome),
                Cared::Nothing => next = taker.next(),
                Cared::Leave(goes) => return goes,
            }
        }
        Goes::On
    }

    /// Works on items that are nothing special, from this one on. The next may be, and there may be none.
    ///
    /// The item is in variables of its own, never in one with whether there is one: that would be written in
    /// parts and read as a whole, for which a processor waits longer than for all else here.
    fn work_on_plain_items<W: Witness>(
        &mut self,
        run: &Run<R>,
        mut seq: u64,
        mut input: R::Input,
        taker: &mut Taker<'_, R::Input, R::Output>,
        witness: &mut W,
    ) -> Option<(u64, R::Input)> {
        let producer = self.station.producer;
        witness.pause();
        loop {
            if run.wanted.gave_up_on(Some(seq)) {
                drop_quietly(input);
                return taker.next();
            }
            witness.started(run, seq);
            let worked = self.work(run, seq, input, 1, None);
            witness.finished(seq);
            let outcome = match worked {
                Ok(output) => Ok(output),
                Err(error) => {
                    taker.be_careful();
                    let Some(fault) = run.judge(seq, *error, producer, None, None) else {
                        return taker.next();
                    };
                    Err(fault)
                }
            };
            if taker.must_ask() {
                return taker.deliver_and_next(seq, outcome);
            }
            match taker.deliver_and_pop(seq, outcome) {
                Some(item) => (seq, input) = item,
                None => match taker.refill() {
                    Some(item) if taker.has_trial() => return Some(item),
                    Some(item) => {
                        witness.pause();
                        (seq, input) = item;
                    }
                    None => return None,
                },
            }
        }
    }

    /// Works on an item that somebody keeps the time of, watches, or may want to have tried again.
    #[inline(never)]
    fn work_with_care(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        trial: Option<Box<Trial>>,
        taker: &mut Taker<'_, R::Input, R::Output>,
        pen: &mut Option<Pen>,
    ) -> Cared<R> {
        let producer = self.station.producer;
        if trial.is_some() && run.exchange.is_won(seq) {
            run.leave_won_race(seq, producer, input);
            return Cared::Nothing;
        }
        let input = match self.state {
            Some(_) => input,
            None => match self.prepare_for(run, seq, input, &trial, taker) {
                Ok(input) => input,
                Err(Goes::On) => return Cared::Nothing,
                Err(goes) => return Cared::Leave(goes),
            },
        };
        let copy = run.terms.copy_of(&input);
        if let Some(pen) = pen {
            pen.pause();
            let attempt = trial.as_ref().map_or(1, |trial| trial.attempt);
            pen.started(seq, run.name_of(seq), attempt);
        }
        let since = run.exchange.copies_stragglers().then(now);
        let Some((outcome, (copy, trial))) =
            self.work_in_time(run, seq, input, (copy, trial), since)
        else {
            return Cared::Leave(Goes::Left);
        };
        if let Some(pen) = pen {
            pen.finished(seq);
        }
        let Some((outcome, copy)) = run.leave_race(seq, producer, outcome, copy, since) else {
            taker.be_careful();
            return Cared::Nothing;
        };
        match outcome {
            Ok(output) => {
                copy.into_iter().for_each(drop_quietly);
                if trial.is_some() || taker.is_careful() {
                    taker.be_careful();
                    run.succeeded(seq, producer);
                }
                Cared::Deliver(Ok(output))
            }
            Err(error) => {
                taker.be_careful();
                let fault = run.judge(seq, *error, producer, trial, copy);
                fault.map_or(Cared::Nothing, |fault| Cared::Deliver(Err(fault)))
            }
        }
    }

    /// Makes the state anew that an item needs, and gives that back if there is one now. Else the item has
    /// gone elsewhere, or failed with what `producer_init` did, if nobody else is left.
    #[cold]
    fn prepare_for(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        trial: &Option<Box<Trial>>,
        taker: &mut Taker<'_, R::Input, R::Output>,
    ) -> Result<R::Input, Goes> {
        let producer = self.station.producer;
        let describe = |input| {
            let call = Call::new(Hook::ProducerInit, vec![seq], vec![Some(input)]);
            Call { trial: trial.clone(), ..call }
        };
        let unpack = |mut call: Call<R::Input>| {
            call.copies
                .pop()
                .flatten()
                .expect("it was put there, and whoever takes it takes the call")
        };
        let prepare = || self.prepare(run);
        let prepared = run.in_time(producer, input, describe, unpack, prepare);
        let (outcome, input) = prepared.map_err(drop_quietly).map_err(|()| Goes::Left)?;
        let Err(error) = outcome else {
            self.tell_if_ready(run);
            return Ok(input);
        };
        if run.wanted.gave_up_on(Some(seq)) {
            // It may have given up because it saw that.
            drop_quietly(error);
            drop_quietly(input);
            return Err(Goes::On);
        }
        if let Err(error) = run.lose(producer, error) {
            drop_quietly(input);
            // The item may have been delivered by another.
            if run.exchange.is_raced(seq) {
                run.end_as(error);
                return Err(Goes::On);
            }
            let fault = run.end_with(seq, error);
            fault.into_iter().for_each(|fault| taker.deliver(seq, Err(fault)));
            // What comes before and waits to be tried again is wanted, and nobody else may be there to have
            // it fail.
            return Err(Goes::On);
        }
        run.hand_on(seq, input, trial.clone());
        Err(Goes::Away)
    }

    /// Calls the hook for an item, of which `held` is kept. `None` when the producer was abandoned.
    #[inline]
    fn work_in_time(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        held: Held<R>,
        since: Option<Instant>,
    ) -> Option<Worked<R>> {
        let attempt = held.1.as_ref().map_or(1, |trial| trial.attempt);
        let describe = |(copy, trial)| Call {
            trial,
            since,
            ..Call::new(Hook::ProducerWork, vec![seq], vec![copy])
        };
        let unpack = |mut call: Call<R::Input>| (call.copies.pop().flatten(), call.trial.take());
        let producer = self.station.producer;
        let leave = run.post(producer);
        let work = || match run.exchange.is_won(seq) {
            // Who won before the call had begun could not tell it so.
            true => {
                drop_quietly(input);
                Err(in_vain())
            }
            false => self.work(run, seq, input, attempt, leave.map(Post::leave)),
        };
        run.in_time(producer, held, describe, unpack, work).map_err(drop_quietly).ok()
    }

    fn work(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        attempt: u32,
        leave: Option<Leave<'_>>,
    ) -> Result<R::Output, Box<Error>> {
        let items = [seq];
        let cx = ProducerContext::new(&self.station, &run.wanted, &items)
            .with_attempt(attempt)
            .with_leave(leave);
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
        self.shared.ready[self.station.producer].store(false, Ordering::Relaxed);
        self.shared.stateless.fetch_add(1, Ordering::Relaxed);
    }

    /// Learns how large a batch may be, and tells.
    pub(super) fn learn(&mut self, from: impl FnOnce(&mut Ceiling)) {
        from(&mut self.ceiling);
        let extent = self.ceiling.extent().unwrap_or(NO_CEILING);
        self.shared.ceilings[self.station.producer].store(extent, Ordering::Relaxed);
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

/// An error of a `producer_init` that may have given up since nobody waits for the run is none: the next run has
/// the state made anew.
fn unless_over<R: Runner>(run: &Run<R>, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if run.wanted.gave_up_on(None) => {
            drop_quietly(error);
            Ok(())
        }
        outcome => outcome,
    }
}

pub(super) fn site(station: &Station, items: &[u64], attempt: Option<u32>) -> Site {
    Site {
        items: items.to_vec(),
        device: station.place.devices().first().copied(),
        producer: Some(station.producer),
        attempt,
        key: None,
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

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::cfg::CfgNode;
    use crate::closures::map;
    use crate::device::Devices;
    use crate::engine::chronicle::{Chronicle, Detail};
    use crate::engine::run::Shape;
    use crate::engine::terms::Terms;
    use crate::order::Order;

    fn station(devices: &Devices) -> Station {
        let place = devices.place(0).expect("there is one").clone();
        Station {
            producer: 0,
            cfg: Arc::new(CfgNode::default()),
            said_one_by_one: Arc::default(),
            #[cfg(feature = "candle")]
            candle: crate::device::CandleDevices::new(&place, devices.meaning()),
            #[cfg(feature = "rayon")]
            cpu_threads: None,
            place,
            gpus: None,
        }
    }

    fn shared() -> Shared {
        let ceilings = [AtomicU64::new(NO_CEILING)].into();
        let (inits, left) = ([AtomicU64::new(0)].into(), [AtomicBool::new(false)].into());
        let ready = [AtomicBool::new(false)].into();
        Shared { stateless: Arc::default(), ready, inits, ceilings, left }
    }

    #[test]
    fn a_run_does_not_begin_without_a_producer_that_lost_its_state_after_it_was_asked() {
        let inits = AtomicU64::new(0);
        let init = move |_: &ProducerContext<'_>| match inits.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err("no state".into()),
        };
        let runner = Arc::new(map(init, |_, (), x: u64| Ok(x)));
        let station = station(&"cpu".parse().expect("it is a device"));
        let mut producer = Producer::new(runner, station, shared(), &Wanted::all()).unwrap();
        producer.lose_state();
        let shape = Shape { order: Order::Input, producers: 1, window: 4, batching: None };
        let chronicle = Arc::new(Chronicle::new(1, None, Detail::Run));
        let run = Run::new(shape, Arc::new(Terms::default()), [], None, chronicle, None);
        let run = Arc::new(run);
        let attendance = Attendance::new([AtomicBool::new(false)].into());
        let (sender, runs) = crossbeam_channel::bounded(1);
        sender.send(Join { run: run.clone(), ready: None, attendance }).unwrap();
        drop(sender);
        producer.serve(&runs).unwrap();
        assert!(run.take_doom().is_some(), "nobody else is there");
    }
}
