//! One producer's thread.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, SendError, Sender};

use crate::backend::threads::call::call;
use crate::backend::threads::handover::item_queue::ItemQueue;
use crate::backend::threads::handover::item_queue::NextItem;
use crate::backend::threads::item_observer::{ItemObserver, NoObserver};
use crate::backend::threads::participants::Participants;
use crate::backend::threads::run::Run;
use crate::base::panic::drop_quietly;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::concurrency::now;
use crate::error::{Error, Hook, Site};
use crate::observe::event::Event;
use crate::observe::event_log::EventWriter;
use crate::runner::{AbandonFlag, ProducerContext, ProducerSetup, Runner, Wanted};
use crate::scheduler::{Absence, LeaseId};

/// Asks a producer to take part in a run. A closed channel asks it to end.
pub(crate) struct Join<R: Runner> {
    pub(crate) run: Arc<Run<R>>,
    /// Where the producer reports whether it rebuilt its state, before it takes an item. `None` if it is not
    /// asked.
    pub(crate) ready: Option<Sender<Result<(), Error>>>,
    pub(crate) participants: Arc<Participants>,
}

/// What a producer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    On,
    /// It is lost, and takes part in no further run.
    Away,
    /// It was abandoned, and its hook has returned: the thread ends.
    Left,
}

/// A producer between its `producer_init` and its `producer_end`.
pub(crate) struct Producer<R: Runner> {
    pub(super) runner: Arc<R>,
    pub(super) setup: ProducerSetup,
    /// `None` after a panic, until the state is rebuilt.
    pub(super) state: Option<R::ProducerState>,
    /// State that the other threads of the pool read.
    shared: Shared,
}

/// State of the producers that other threads read.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// The number of producers without a state.
    pub(crate) stateless: Arc<AtomicUsize>,
    /// Which producers have a state.
    pub(crate) ready: Arc<[AtomicBool]>,
    /// The duration of each `producer_init`, in nanoseconds.
    pub(crate) inits: Arc<[AtomicU64]>,
    /// Which producers were abandoned. A `producer_init` reads it while the pool is built.
    pub(crate) left: Arc<[AtomicBool]>,
}

impl<R: Runner> Producer<R> {
    /// Calls `producer_init`, which learns from `wanted` that it may give up.
    pub(crate) fn new(
        runner: Arc<R>,
        setup: ProducerSetup,
        shared: Shared,
        wanted: &Wanted,
    ) -> Result<Self, Error> {
        let left = shared.left.clone();
        let is_left = &left[setup.producer];
        let mut producer = Producer { runner, setup, state: None, shared };
        producer.init(wanted, Some(AbandonFlag::Building { is_left }))?;
        Ok(producer)
    }

    /// Takes part in runs until the channel is closed, then calls `producer_end`.
    pub(crate) fn serve(mut self, runs: &Receiver<Join<R>>) -> Result<(), Error> {
        for Join { run, ready, participants } in runs {
            let producer = self.setup.producer;
            let Some(present) = participants.enter(producer) else { continue };
            if !run.has_joined(producer) {
                break;
            }
            let bug = AbortOnUnwind(&*run);
            let Some(outcome) = self.prepare_in_time(&run) else {
                std::mem::forget(bug);
                break;
            };
            let is_ready = outcome.is_ok();
            if let Err(error) = self.report(&run, ready, unless_over(&run, outcome)) {
                run.lose(producer, error).unwrap_or_else(|error| run.abort_with(error));
            }
            let next_step = if is_ready { self.work_on(&run) } else { NextStep::On };
            std::mem::forget(bug);
            // The run goes first: the thread that waits for this producer to leave expects to hold the last
            // reference.
            drop(run);
            drop(present);
            if let NextStep::Left = next_step {
                break;
            }
        }
        self.end()
    }

    /// Reports whether the producer is ready. Returns the error if the receiver is gone. The run has begun
    /// without this producer then: another was not ready in time, or this one lost its state after all were
    /// asked.
    fn report(
        &self,
        run: &Run<R>,
        ready: Option<Sender<Result<(), Error>>>,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(ready) = ready else { return outcome };
        let outcome = match outcome {
            Err(error) if run.policy().min_producers.is_some() => {
                run.lose(self.setup.producer, error)
            }
            outcome => outcome,
        };
        ready.send(outcome).or_else(|SendError(outcome)| outcome)
    }

    /// `flag` tells the hook whether its result is still wanted.
    fn init(&mut self, wanted: &Wanted, flag: Option<AbandonFlag<'_>>) -> Result<(), Error> {
        let cx = ProducerContext::new(&self.setup, wanted, &[]).with_abandon_flag(flag);
        let since = now();
        let state = call(Hook::ProducerInit, || self.site(&[]), || self.runner.producer_init(&cx));
        let took = u64::try_from((now() - since).as_nanos()).unwrap_or(u64::MAX);
        self.shared.inits[self.setup.producer].store(took, Ordering::Relaxed);
        self.state = Some(state.map_err(|error| *error)?);
        self.shared.ready[self.setup.producer].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Rebuilds a lost state. `lease` is the one that needs it, if any.
    pub(super) fn prepare(&mut self, run: &Run<R>, lease: Option<LeaseId>) -> Result<(), Error> {
        if self.state.is_some() {
            return Ok(());
        }
        let flag = run.handover.dispatch.flag(self.setup.producer, lease);
        let outcome = self.init(&run.wanted, Some(flag));
        if outcome.is_err() {
            self.shared.stateless.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Like [`prepare`](Self::prepare), at the start of a run and under the init timeout. `None` if the
    /// producer was abandoned.
    fn prepare_in_time(&mut self, run: &Run<R>) -> Option<Result<(), Error>> {
        if self.state.is_some() {
            return Some(Ok(()));
        }
        let producer = self.setup.producer;
        run.expect(producer, Absence::Init);
        let outcome = self.prepare(run, None);
        if !run.has_joined(producer) || run.handover.dispatch.is_abandoned(producer) {
            drop_quietly(outcome);
            return None;
        }
        self.tell_if_ready(run);
        Some(outcome)
    }

    pub(super) fn tell_if_ready(&self, run: &Run<R>) {
        if self.state.is_some() {
            let producer = self.setup.producer;
            let took = Duration::from_nanos(self.shared.inits[producer].load(Ordering::Relaxed));
            run.event_log.tell(Event::ProducerReady { producer, took });
        }
    }

    /// Works on untracked items, starting with this one. Returns the first lease, or `None` if there are no
    /// more items.
    ///
    /// The index and the item are separate variables, not one `Option`. An `Option` would be written in parts
    /// and read as a whole, and that store-forwarding stall costs more than the rest of the loop.
    fn work_on_plain_items<W: ItemObserver>(
        &mut self,
        run: &Run<R>,
        mut seq: u64,
        mut input: R::Input,
        item_queue: &mut ItemQueue<'_, R::Input, R::Output>,
        observer: &mut W,
    ) -> Option<NextItem<R::Input>> {
        let producer = self.setup.producer;
        observer.pause();
        loop {
            if run.wanted.gave_up_on(Some(seq)) {
                drop_quietly(input);
                return item_queue.next();
            }
            let copy = run.run_settings.copy_of(&input);
            observer.started(run, seq);
            let worked = self.work(run, seq, input, 1, None);
            observer.finished(seq);
            let outcome = match worked {
                Ok(output) => {
                    copy.into_iter().for_each(drop_quietly);
                    Ok(output)
                }
                Err(error) => {
                    item_queue.be_careful();
                    item_queue.set_readiness(self.readiness());
                    let Some(fault) = run.fail_untracked(seq, *error, producer, copy) else {
                        return item_queue.next();
                    };
                    Err(fault)
                }
            };
            if item_queue.must_ask() {
                return item_queue.deliver_and_next(seq, outcome);
            }
            match item_queue.deliver_and_pop(seq, outcome) {
                Some(item) => (seq, input) = item,
                None => match item_queue.refill() {
                    Some(NextItem::Untracked(next, item)) => {
                        observer.pause();
                        (seq, input) = (next, item);
                    }
                    leased => return leased,
                },
            }
        }
    }

    /// Works on untracked items, starting with this one.
    pub(super) fn work_on_untracked(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        item_queue: &mut ItemQueue<'_, R::Input, R::Output>,
        event_writer: &mut Option<EventWriter>,
    ) -> Option<NextItem<R::Input>> {
        match event_writer {
            None => self.work_on_plain_items(run, seq, input, item_queue, &mut NoObserver),
            Some(event_writer) => {
                self.work_on_plain_items(run, seq, input, item_queue, event_writer)
            }
        }
    }

    pub(super) fn work(
        &mut self,
        run: &Run<R>,
        seq: u64,
        input: R::Input,
        attempt: u32,
        flag: Option<AbandonFlag<'_>>,
    ) -> Result<R::Output, Box<Error>> {
        let items = [seq];
        let cx = ProducerContext::new(&self.setup, &run.wanted, &items)
            .with_attempt(attempt)
            .with_abandon_flag(flag);
        let state = self.state.as_mut().expect("a producer has a state when it takes an item");
        let outcome = call(
            Hook::ProducerWork,
            || site(&self.setup, &items, Some(attempt)),
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
        self.shared.ready[self.setup.producer].store(false, Ordering::Relaxed);
        self.shared.stateless.fetch_add(1, Ordering::Relaxed);
    }

    fn end(mut self) -> Result<(), Error> {
        let Some(state) = self.state.take() else { return Ok(()) };
        let wanted = Wanted::all();
        let cx = ProducerContext::new(&self.setup, &wanted, &[]);
        call(Hook::ProducerEnd, || self.site(&[]), || self.runner.producer_end(&cx, state))
            .map_err(|error| *error)
    }

    fn site(&self, items: &[u64]) -> Site {
        site(&self.setup, items, None)
    }
}

/// Ignores an init error once the run is over: the hook may have given up for that reason. The next run
/// rebuilds the state.
fn unless_over<R: Runner>(run: &Run<R>, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if run.wanted.gave_up_on(None) => {
            drop_quietly(error);
            Ok(())
        }
        outcome => outcome,
    }
}

pub(super) fn site(setup: &ProducerSetup, items: &[u64], attempt: Option<u32>) -> Site {
    Site {
        items: items.to_vec(),
        device: setup.place.devices().first().copied(),
        producer: Some(setup.producer),
        attempt,
        key: None,
    }
}

/// Aborts the run if a producer's thread dies of a bug of ours. Its item would never be delivered, and the
/// run would wait for it.
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
    use crate::api::map::map;
    use crate::backend::threads::run_settings::RunSettings;
    use crate::backend::threads::run_shape::CarriedOver;
    use crate::backend::threads::run_shape::Shape;
    use crate::base::Order;
    use crate::cfg::CfgNode;
    use crate::device::Devices;
    use crate::observe::event_log::{Detail, EventLog};

    fn setup(devices: &Devices) -> ProducerSetup {
        let place = devices.place(0).expect("there is one").clone();
        ProducerSetup {
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
        let (inits, left) = ([AtomicU64::new(0)].into(), [AtomicBool::new(false)].into());
        let ready = [AtomicBool::new(false)].into();
        Shared { stateless: Arc::default(), ready, inits, left }
    }

    #[test]
    fn a_run_does_not_begin_without_a_producer_that_lost_its_state_after_it_was_asked() {
        let inits = AtomicU64::new(0);
        let init = move |_: &ProducerContext<'_>| match inits.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err("no state".into()),
        };
        let runner = Arc::new(map(init, |_, (), x: u64| Ok(x)));
        let setup = setup(&"cpu".parse().expect("it is a device"));
        let mut producer = Producer::new(runner, setup, shared(), &Wanted::all()).unwrap();
        producer.lose_state();
        let shape = Shape { order: Order::Input, producers: 1, window: 4, batching: None };
        let event_log = Arc::new(EventLog::new(1, None, Detail::Run));
        let run_settings = Arc::new(RunSettings::default());
        let run = Run::new(shape, run_settings, CarriedOver::nothing(1), None, event_log, None);
        let run = Arc::new(run);
        let participants = Participants::new([AtomicBool::new(false)].into());
        let (sender, runs) = crossbeam_channel::bounded(1);
        sender.send(Join { run: run.clone(), ready: None, participants }).unwrap();
        drop(sender);
        producer.serve(&runs).unwrap();
        assert!(run.take_fatal_error().is_some(), "nobody else is there");
    }
}
