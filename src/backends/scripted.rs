//! A backend in memory, for tests: it works on several leases at a time, and delays, repeats, hands back and
//! drops answers as a script says.

mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use gangline_scheduler::{Begin, Copies, Inputs, Lease, LeaseId, Next, Readiness};

use crate::base::BoxError;
use crate::device::IntoDevices;
use crate::error::{Error, Hook, Site};
use crate::producers::backend::{Backend, NextStep};
use crate::producers::leasing;
use crate::producers::pool_backend::{GivenSettings, PlacedProducers, PoolBackend};
use crate::producers::producer_factory::MakeBackend;
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::call::call;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::run_settings::Overdue;
use crate::run::settle::{self, FailedBatch};
use crate::runner::{ProducerContext, ProducerSetup, Runner, Wanted};

/// What the backend does with the leases that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptStep {
    /// Answers the n-th, counted from the oldest and from its end on from the front again.
    Answer(usize),
    /// Answers the n-th twice.
    AnswerTwice(usize),
    /// Hands the n-th back, and answers it nevertheless.
    AnswerTooLate(usize),
    /// Hands the n-th back before a hook has seen it.
    HandBack(usize),
    /// The process of the hook dies: the oldest lease has failed, and the others were not begun.
    Crash,
    /// Never answers the n-th.
    Drop(usize),
}

/// The behaviour of one producer.
#[derive(Debug, Clone)]
struct ProducerScript {
    /// The number of leases that it holds at most.
    ahead: usize,
    /// Repeated from the start.
    steps: Vec<ScriptStep>,
}

/// A producer that follows a script.
struct Scripted<R: Runner> {
    runner: Arc<R>,
    setup: ProducerSetup,
    state: Option<R::ProducerState>,
    shared: Shared,
    script: ProducerScript,
    /// The number of steps taken.
    taken: usize,
}

/// A producer for each script.
struct InScripts<R: Runner> {
    runner: Arc<R>,
    scripts: Vec<ProducerScript>,
}

impl<R: Runner + 'static> PoolBackend<R::Input, R::Output> for InScripts<R> {
    fn name(&self) -> &'static str {
        "backend"
    }

    fn place(
        self: Box<Self>,
        _: GivenSettings,
    ) -> Result<PlacedProducers<R::Input, R::Output>, Error> {
        let devices = self.scripts.len().into_devices()?;
        let make: Arc<MakeBackend<R::Input, R::Output>> = Arc::new(move |setup, shared| {
            let script = self.scripts[setup.producer].clone();
            Box::new(Scripted::new(&self.runner, setup, shared, script))
        });
        // Their hooks run on the threads of the producers.
        Ok(PlacedProducers { overdue: Overdue::Abandoned, ..PlacedProducers::new(devices, make) })
    }
}

/// A lease whose answer is still to come.
struct HeldCall<I> {
    lease: Lease,
    inputs: Vec<I>,
}

impl<R: Runner> Scripted<R> {
    fn new(runner: &Arc<R>, setup: ProducerSetup, shared: Shared, script: ProducerScript) -> Self {
        let runner = runner.clone();
        Scripted { runner, setup, state: None, shared, script, taken: 0 }
    }

    fn init(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let cx = ProducerContext::new(&self.setup, wanted, &[]);
        let made = self.runner.producer_init(&cx);
        self.state = Some(made.map_err(|source| Error::HookFailed {
            hook: Hook::ProducerInit,
            site: Box::default(),
            source,
        })?);
        self.shared.note_ready();
        Ok(())
    }

    fn step(&mut self) -> ScriptStep {
        let step = self.script.steps[self.taken % self.script.steps.len()];
        self.taken += 1;
        step
    }

    fn take(&self, run: &Run<R::Input, R::Output>, lease: Lease) -> Option<HeldCall<R::Input>> {
        let dispatch = &run.handover.dispatch;
        let Some(inputs) = dispatch.take_inputs(&lease) else {
            dispatch.release(lease.id);
            return None;
        };
        let each = lease.items.iter().zip(&inputs);
        let copies = each.filter_map(|(&item, it)| Some((item, run.run_settings.copy_of(it)?)));
        dispatch.keep_inputs(copies.collect());
        Some(HeldCall { lease, inputs })
    }

    fn follow(
        &mut self,
        run: &Run<R::Input, R::Output>,
        held: &mut VecDeque<HeldCall<R::Input>>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let nth = |n: usize, held: &mut VecDeque<_>| held.remove(n % held.len());
        match self.step() {
            ScriptStep::Answer(n) => self.answer(run, nth(n, held), desk),
            ScriptStep::AnswerTwice(n) => {
                let one = nth(n, held).expect("there is one");
                let again = one.lease.clone();
                self.answer(run, Some(one), desk);
                // Its inputs are gone, so the second answer is a failure; it must be of no effect.
                settle::each(
                    run,
                    self.setup.producer,
                    (&again, self.failures(&again)),
                    vec![],
                    desk,
                );
            }
            ScriptStep::AnswerTooLate(n) => {
                let one = nth(n, held).expect("there is one");
                let late = one.lease.clone();
                hand_back(run, one);
                settle::each(run, self.setup.producer, (&late, self.failures(&late)), vec![], desk);
            }
            ScriptStep::HandBack(n) => hand_back(run, nth(n, held).expect("there is one")),
            ScriptStep::Crash => {
                let died = held.pop_front().expect("there is one");
                held.drain(..).for_each(|one| hand_back(run, one));
                self.crash(run, died, desk);
            }
            ScriptStep::Drop(n) => drop(nth(n, held)),
        }
    }

    fn answer(
        &mut self,
        run: &Run<R::Input, R::Output>,
        held: Option<HeldCall<R::Input>>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let HeldCall { lease, inputs } = held.expect("there is one");
        let (begin, events) = run
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.begin(lease.id, Copies::Missing, now));
        run.heed(events);
        if begin == Begin::Stale {
            return run.handover.dispatch.release(lease.id);
        }
        if self.state.is_none() {
            let shared = self.shared.clone();
            let (runner, lane) = (run, self.setup.producer);
            if leasing::prepare_for(self, lane, &shared, runner, &lease, desk).is_err() {
                return;
            }
        }
        match run.handover.batching() {
            None => self.answer_one(run, &lease, inputs, desk),
            Some(_) => self.answer_batch(run, &lease, inputs, desk),
        }
    }

    fn answer_one(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        mut inputs: Vec<R::Input>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let input = inputs.pop().expect("without batches, a lease has one item");
        let worked = self.call(run, lease, Hook::ProducerWork, |runner, cx, state| {
            runner.producer_work(cx, state, input)
        });
        settle::each(run, self.setup.producer, (lease, vec![worked]), vec![], desk);
    }

    fn answer_batch(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        mut inputs: Vec<R::Input>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let worked = self.call(run, lease, Hook::ProducerWorkBatch, |runner, cx, state| {
            runner.producer_work_batch(cx, state, &mut inputs)
        });
        match worked {
            Ok(outputs) => {
                let each = lease.items.iter().zip(outputs);
                let each = each.map(|(&item, it)| it.map_err(|source| self.failure(item, source)));
                settle::each(run, self.setup.producer, (lease, each.collect()), vec![], desk);
            }
            Err(error) => {
                let failed = FailedBatch { error, kept: Inputs::Gone, inputs: vec![] };
                for (item, fault) in settle::together(run, self.setup.producer, lease, failed) {
                    desk.deliver_tracked(item, Err(fault));
                }
            }
        }
    }

    /// Calls a hook. A state that sees a panic is dropped.
    fn call<T>(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        hook: Hook,
        work: impl FnOnce(&R, &ProducerContext<'_>, &mut R::ProducerState) -> Result<T, BoxError>,
    ) -> Result<T, Error> {
        let cx = ProducerContext::new(&self.setup, &run.wanted, &lease.items);
        let cx = cx.with_attempt(lease.attempt);
        let state = self.state.as_mut().expect("it is built before the first lease");
        let site = || self.setup.site(&lease.items, Some(lease.attempt));
        call(hook, site, || work(&self.runner, &cx, state)).map_err(|error| {
            if error.is_panic() {
                self.state = None;
                self.shared.note_loss();
            }
            *error
        })
    }

    /// The oldest lease failed as a whole, with its inputs still here.
    fn crash(
        &self,
        run: &Run<R::Input, R::Output>,
        HeldCall { lease, inputs }: HeldCall<R::Input>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let error = self.failure(lease.items[0], "the process died".into());
        let inputs = lease.items.iter().copied().zip(inputs).collect();
        let failed = FailedBatch { error, kept: Inputs::Kept, inputs };
        for (item, fault) in settle::together(run, self.setup.producer, &lease, failed) {
            desk.deliver_tracked(item, Err(fault));
        }
    }

    fn failures(&self, lease: &Lease) -> Vec<Result<R::Output, Error>> {
        let failure = |&item: &u64| Err(self.failure(item, "an answer that does not count".into()));
        lease.items.iter().map(failure).collect()
    }

    fn failure(&self, item: u64, source: crate::BoxError) -> Error {
        let producer = Some(self.setup.producer);
        let site = Box::new(Site { items: vec![item], producer, ..Site::default() });
        Error::HookFailed { hook: Hook::ProducerWork, site, source }
    }
}

impl<R: Runner> Backend<R::Input, R::Output> for Scripted<R> {
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error> {
        self.init(wanted)
    }

    fn is_ready(&self) -> bool {
        self.state.is_some()
    }

    fn prepare(&mut self, run: &Run<R::Input, R::Output>, _: Option<LeaseId>) -> Result<(), Error> {
        if self.state.is_some() { Ok(()) } else { self.init(&run.wanted) }
    }

    fn work_on(&mut self, run: &Run<R::Input, R::Output>) -> NextStep {
        let mut desk = ItemQueue::new(&run.handover, self.setup.producer);
        desk.set_readiness(Readiness::Ready);
        let mut held = VecDeque::new();
        loop {
            let until = match desk.try_lease() {
                Next::Work(lease) => {
                    held.extend(self.take(run, lease));
                    if held.len() < self.script.ahead {
                        continue;
                    }
                    None
                }
                Next::Leave => break,
                Next::Wait => None,
                Next::WaitUntil(time) => Some(time),
            };
            match held.is_empty() {
                true => desk.sleep_for_lease(until, None),
                false => self.follow(run, &mut held, &mut desk),
            }
        }
        held.into_iter().for_each(|one| hand_back(run, one));
        desk.leave();
        leasing::leave(&self.shared)
    }

    fn end_in(&mut self, _: &Run<R::Input, R::Output>) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(state) = self.state.take() else { return Ok(()) };
        let wanted = Wanted::all();
        let cx = ProducerContext::new(&self.setup, &wanted, &[]);
        let ended = self.runner.producer_end(&cx, state);
        ended.map_err(|source| Error::HookFailed {
            hook: Hook::ProducerEnd,
            site: Box::default(),
            source,
        })
    }
}

/// Gives the items of a lease back: no hook has seen them.
fn hand_back<I, T>(run: &Run<I, T>, HeldCall { lease, inputs }: HeldCall<I>) {
    let inputs = lease.items.iter().copied().zip(inputs).collect();
    drop(run.handover.dispatch.keep_inputs(inputs));
    run.handover.dispatch.release(lease.id);
}
