//! A producer that calls its hooks on its own thread.

use std::sync::Arc;

use gangline_scheduler::{Bypass, Lease, LeaseId};

use crate::backends::threads::item_observer::{ItemObserver, NoObserver};
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::concurrency::time_aside::{TimeAside, has_aside, take_aside};
use crate::error::{Error, Hook, Site, costs_state};
use crate::observe::event_log::EventWriter;
use crate::producers::backend::{Backend, NextStep};
use crate::producers::lifetime::Lifetime;
use crate::producers::producer_factory::{MakeBackend, ProducerFactory};
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::call::call;
use crate::run::failures::withdrawn;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::handover::item_queue::NextItem;
use crate::run::handover::signals::Tracking;
use crate::run::output_memory::measured;
use crate::run::run_settings::Overdue;
use crate::run::spans::TraceSpans;
use crate::runner::{AbandonFlag, ProducerContext, ProducerSetup, Runner, Wanted};

/// A producer that calls its hooks on its own thread, between its `producer_init` and its `producer_end`.
pub(crate) struct Producer<R: Runner> {
    pub(super) runner: Arc<R>,
    pub(super) setup: ProducerSetup,
    /// `None` until it is built, and after a panic until it is rebuilt.
    pub(super) state: Option<R::ProducerState>,
    pub(super) lifetime: Lifetime,
    pub(super) shared: Shared,
}

/// Makes the producers of a pool, which call the hooks on their own threads.
pub(crate) fn factory<R: Runner + 'static>(runner: Arc<R>) -> ProducerFactory<R::Input, R::Output> {
    let own = runner.clone();
    let make: Arc<MakeBackend<R::Input, R::Output>> =
        Arc::new(move |setup, shared| Box::new(Producer::new(own.clone(), setup, shared)));
    ProducerFactory::new(runner, make, Bypass::Allowed, Overdue::Abandoned)
}

impl<R: Runner> Producer<R> {
    /// Without a state.
    pub(crate) fn new(runner: Arc<R>, setup: ProducerSetup, shared: Shared) -> Self {
        Producer { runner, setup, state: None, lifetime: Lifetime::new(), shared }
    }

    /// `flag` tells the hook whether its result is still wanted.
    fn init(&mut self, wanted: &Wanted, flag: Option<AbandonFlag<'_>>) -> Result<(), Error> {
        let cx = ProducerContext::new(&self.setup, wanted, &[]).with_abandon_flag(flag);
        let since = now();
        let state = call(Hook::ProducerInit, || self.site(&[]), || self.runner.producer_init(&cx));
        // All of it is loading.
        take_aside();
        self.shared.note_init(now() - since);
        self.state = Some(state.map_err(|error| *error)?);
        self.lifetime.worked = 0;
        self.shared.note_ready();
        Ok(())
    }

    /// Works on untracked items, starting with this one. Returns the first lease, or `None` if there are no
    /// more items.
    ///
    /// The index and the item are separate variables, not one `Option`. An `Option` would be written in parts
    /// and read as a whole, and that store-forwarding stall costs more than the rest of the loop.
    fn work_on_plain_items<W: ItemObserver>(
        &mut self,
        run: &Run<R::Input, R::Output>,
        mut seq: u64,
        mut input: R::Input,
        item_queue: &mut ItemQueue<'_, R::Input, R::Output>,
        observer: &mut W,
    ) -> Option<NextItem<R::Input>> {
        let (producer, lifespan) = (self.setup.producer, self.lifetime.span(run, &self.setup));
        let is_unbounded = run.handover.permits.memory().is_none();
        observer.pause(|| item_queue.waited);
        loop {
            // First: a state is not recycled for a run that is over, so an item returned here would come back.
            if run.wanted.gave_up_on(Some(seq)) || run.is_withdrawn(seq) {
                return pass_over(run, seq, input, item_queue);
            }
            if self.lifetime.worked >= lifespan {
                return Some(NextItem::Untracked(seq, input));
            }
            let copy = run.run_settings.copy_of(&input);
            observer.started(run, seq);
            let worked = self.work(run, seq, input, None);
            self.finished(run, seq, observer);
            let outcome = match worked {
                Ok(output) if is_unbounded => {
                    observer.done();
                    copy.into_iter().for_each(drop_quietly);
                    Ok(output)
                }
                Ok(output) => {
                    copy.into_iter().for_each(drop_quietly);
                    match measured(run, producer, seq, output) {
                        Some(outcome) => outcome.inspect(|_| observer.done()),
                        None => return item_queue.next(),
                    }
                }
                Err(error) => {
                    item_queue.be_careful();
                    item_queue.set_readiness(self.readiness());
                    match run.fail_untracked(seq, *error, producer, copy) {
                        Some(fault) => Err(fault),
                        None => return item_queue.next(),
                    }
                }
            };
            if item_queue.must_ask() {
                return item_queue.deliver_and_next(seq, outcome);
            }
            match item_queue.deliver_and_pop(seq, outcome) {
                Some(item) => (seq, input) = item,
                None => match item_queue.refill() {
                    Some(NextItem::Untracked(next, item)) => {
                        observer.pause(|| item_queue.waited);
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
        run: &Run<R::Input, R::Output>,
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
        run: &Run<R::Input, R::Output>,
        seq: u64,
        input: R::Input,
        lease: Option<&Lease>,
    ) -> Result<R::Output, Box<Error>> {
        let items = [seq];
        let attempt = lease.map_or(1, |lease| lease.attempt);
        let flag = lease.map(|lease| self.shared.revocations.flag(Some(lease.id)));
        let cx = ProducerContext::new(&self.setup, &run.wanted, &items)
            .with_attempt(attempt)
            .with_abandon_flag(flag)
            .with_revocations(&run.handover.dispatch.signals.bells)
            // Only leases belong to calls.
            .with_open_items(match (flag, run.parts.get()) {
                (None, None) => None,
                _ => run.open_items(),
            });
        self.lifetime.worked += 1;
        let device = self.setup.place.devices().first();
        let state = self.state.as_mut().expect("a producer has a state when it takes an item");
        let outcome = {
            // Ends with the block: `drop` would move it, and the move of a value just written stalls.
            let span = run.spans.attempt(&items, attempt, device, || run.name_of(seq));
            let outcome = call(
                Hook::ProducerWork,
                || self.setup.site(&items, Some(attempt)),
                || self.runner.producer_work(&cx, state, input),
            );
            TraceSpans::end_attempt(span.as_ref(), outcome.as_ref().map_err(|error| &**error));
            outcome
        };
        if outcome.as_ref().is_err_and(|error| costs_state(error)) {
            self.lose_state_in(run);
        }
        outcome
    }

    /// Tells the observer that the hook has returned.
    #[inline]
    fn finished(&self, run: &Run<R::Input, R::Output>, seq: u64, observer: &mut impl ItemObserver) {
        if has_aside() {
            observer.set_aside(&self.settle_aside(run));
        }
        observer.finished(seq);
    }

    /// Notes the times that the hook has counted as no work, and returns them.
    #[cold]
    pub(super) fn settle_aside(&self, run: &Run<R::Input, R::Output>) -> Vec<TimeAside> {
        let times = take_aside();
        times.iter().for_each(|it| run.handover.stats.set_aside(self.setup.producer, it));
        times
    }

    /// Whether the state is to be recycled before the next item.
    pub(super) fn is_due(&self, run: &Run<R::Input, R::Output>) -> bool {
        self.state.is_some() && self.lifetime.is_over(run, &self.setup)
    }

    pub(super) fn lose_state_in(&mut self, run: &Run<R::Input, R::Output>) {
        run.handover.stats.state_lost(self.setup.producer);
        self.lose_state();
    }

    pub(crate) fn lose_state(&mut self) {
        if let Some(state) = self.state.take() {
            drop_quietly(state);
        }
        self.shared.note_loss();
    }

    fn site(&self, items: &[u64]) -> Site {
        self.setup.site(items, None)
    }
}

impl<R: Runner> Backend<R::Input, R::Output> for Producer<R> {
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let shared = self.shared.clone();
        self.init(wanted, Some(AbandonFlag::Outside { is_left: shared.left() }))
    }

    fn is_ready(&self) -> bool {
        self.state.is_some()
    }

    fn prepare(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: Option<LeaseId>,
    ) -> Result<(), Error> {
        if self.state.is_some() {
            return Ok(());
        }
        let (shared, producer) = (self.shared.clone(), self.setup.producer);
        self.lifetime.init_begins(run, &shared, producer);
        let outcome = self.init(&run.wanted, Some(shared.revocations.flag(lease)));
        self.lifetime.init_ends(run, &shared, producer, &outcome);
        outcome
    }

    fn work_on(&mut self, run: &Run<R::Input, R::Output>) -> NextStep {
        match run.handover.dispatch.tracking() {
            Tracking::All => self.work_on_leases(run),
            Tracking::Failed => self.work_on_items(run),
        }
    }

    fn end_in(&mut self, run: &Run<R::Input, R::Output>) -> Result<(), Error> {
        self.lifetime.recycle(run, self.setup.producer);
        let revocations = self.shared.revocations.clone();
        self.end_state(Some(revocations.flag(None)))
    }

    fn end(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        self.end_state(Some(AbandonFlag::Outside { is_left: shared.left() }))
    }
}

impl<R: Runner> Producer<R> {
    fn end_state(&mut self, flag: Option<AbandonFlag<'_>>) -> Result<(), Error> {
        let Some(state) = self.state.take() else { return Ok(()) };
        self.shared.note_end();
        let wanted = Wanted::all();
        let cx = ProducerContext::new(&self.setup, &wanted, &[]).with_abandon_flag(flag);
        call(Hook::ProducerEnd, || self.site(&[]), || self.runner.producer_end(&cx, state))
            .map_err(|error| *error)
    }
}

/// Drops an item that is not wanted. A withdrawn part still has a result.
#[cold]
fn pass_over<I, T>(
    run: &Run<I, T>,
    seq: u64,
    input: I,
    item_queue: &mut ItemQueue<'_, I, T>,
) -> Option<NextItem<I>> {
    drop_quietly(input);
    match run.wanted.gave_up_on(Some(seq)) {
        true => item_queue.next(),
        false => item_queue.deliver_and_next(seq, Err(withdrawn())),
    }
}
