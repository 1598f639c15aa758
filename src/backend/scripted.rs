//! A backend in memory, for tests: it works on several leases at a time, and delays, repeats, hands back and
//! drops answers as a script says.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::BoxError;
use crate::error::{Error, Hook, Site};
use crate::producers::backend::{Backend, NextStep};
use crate::producers::leasing;
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::call::call;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::settle::{self, FailedBatch};
use crate::runner::{ProducerContext, ProducerSetup, Runner, Wanted};
use crate::scheduler::{Begin, Copies, Inputs, Lease, LeaseId, Next, Readiness};

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
                settle::each(run, self.setup.producer, &again, self.failures(&again), desk);
            }
            ScriptStep::AnswerTooLate(n) => {
                let one = nth(n, held).expect("there is one");
                let late = one.lease.clone();
                hand_back(run, one);
                settle::each(run, self.setup.producer, &late, self.failures(&late), desk);
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
        settle::each(run, self.setup.producer, lease, vec![worked], desk);
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
                settle::each(run, self.setup.producer, lease, each.collect(), desk);
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
                true => desk.sleep_for_lease(until),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::api::builder::MakeOfTest;
    use crate::testing::conformance::{Law, Laws, Probe};
    use crate::{AnyOrderRunner, Batch, Builder, ConsumerContext, OnError, Order, Result};

    /// Squares numbers; some it fails whenever they are tried. Counts calls of hooks.
    #[derive(Default)]
    struct Squares {
        bad: Vec<u64>,
        begun: AtomicU64,
        ended: Arc<AtomicU64>,
    }

    impl Runner for Squares {
        type Input = u64;
        type Output = u64;
        type ProducerState = ();
        type ConsumerState = Vec<u64>;
        type Summary = Vec<u64>;

        fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
            self.begun.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
            if self.bad.contains(&x) { Err("a bad item".into()) } else { Ok(x * x) }
        }
        fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> Result<()> {
            self.ended.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
            Ok(vec![])
        }
        fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u64>, y: u64) -> Result<()> {
            all.push(y);
            Ok(())
        }
        fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
            Ok(all)
        }
    }

    /// A pool with one producer for each script.
    fn pool(
        squares: Squares,
        scripts: &[ProducerScript],
        set: impl FnOnce(
            Builder<Squares, crate::order::RuntimeOrder>,
        ) -> Builder<Squares, crate::order::RuntimeOrder>,
    ) -> AnyOrderRunner<Squares> {
        let builder = set(AnyOrderRunner::builder(squares).devices(scripts.len()));
        builder.backend(backend(scripts)).build().unwrap()
    }

    fn backend<R: Runner + 'static>(scripts: &[ProducerScript]) -> Arc<MakeOfTest<R>> {
        let scripts = scripts.to_vec();
        Arc::new(move |runner, setup, shared| {
            let script = scripts[setup.producer].clone();
            Box::new(Scripted::new(runner, setup, shared, script))
        })
    }

    fn script(ahead: usize, steps: impl Into<Vec<ScriptStep>>) -> ProducerScript {
        ProducerScript { ahead, steps: steps.into() }
    }

    fn squares_of(numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
        numbers.into_iter().map(|x| x * x).collect()
    }

    #[test]
    fn answers_out_of_order_are_consumed_in_order() {
        let scripts = [
            script(4, [ScriptStep::Answer(3), ScriptStep::Answer(1)]),
            script(3, [ScriptStep::Answer(2)]),
        ];
        let mut pool = pool(Squares::default(), &scripts, |builder| builder.window(10));
        for _ in 0..2 {
            assert_eq!(pool.run(0..100).unwrap(), squares_of(0..100));
            assert_eq!(pool.account().ok, 100);
        }
    }

    #[test]
    fn a_crash_costs_one_attempt_of_one_item() {
        let steps = [
            ScriptStep::Answer(0),
            ScriptStep::Crash,
            ScriptStep::Answer(0),
            ScriptStep::Answer(0),
        ];
        let scripts = [script(3, steps), script(1, [ScriptStep::Answer(0)])];
        let mut pool = pool(Squares::default(), &scripts, |builder| {
            builder.retries(1).backoff(Duration::ZERO, Duration::ZERO)
        });
        assert_eq!(pool.run(0..100).unwrap(), squares_of(0..100));
    }

    /// Its lease expires, and the other producer has the item tried again.
    #[test]
    fn a_dropped_answer_is_a_timeout() {
        let ended = Arc::new(AtomicU64::new(0));
        let squares = Squares { ended: ended.clone(), ..Squares::default() };
        let scripts = [script(1, [ScriptStep::Drop(0)]), script(1, [ScriptStep::Answer(0)])];
        let mut pool = pool(squares, &scripts, |builder| {
            builder.retries(1).item_timeout(Duration::from_millis(20)).window(4)
        });
        assert_eq!(pool.run(0..20).unwrap(), squares_of(0..20));
        pool.close().unwrap();
        drop(pool);
    }

    fn laws(scripts: Vec<ProducerScript>) -> Laws<Probe> {
        Laws::new(move |probe| {
            AnyOrderRunner::builder(probe).devices(scripts.len()).backend(backend(&scripts))
        })
    }

    #[test]
    fn answers_that_do_not_count_break_no_law() {
        let steps = [
            ScriptStep::Answer(0),
            ScriptStep::AnswerTwice(0),
            ScriptStep::HandBack(0),
            ScriptStep::AnswerTooLate(0),
        ];
        let scripts = vec![script(1, steps), script(1, [ScriptStep::Answer(0)]), script(1, steps)];
        laws(scripts).check_all().unwrap();
    }

    /// All laws but that a slow item keeps none back: the script hands nothing back while a hook runs.
    #[test]
    fn several_leases_at_a_time_break_no_law() {
        let steps = [
            ScriptStep::Answer(2),
            ScriptStep::AnswerTwice(1),
            ScriptStep::HandBack(0),
            ScriptStep::Answer(3),
        ];
        let laws = laws(vec![script(4, steps), script(2, [ScriptStep::Answer(1)])]);
        laws.no_hang().unwrap();
        laws.accounted().unwrap();
        laws.named().unwrap();
        laws.bounded().unwrap();
        laws.ordered().unwrap();
        laws.paired().unwrap();
        laws.clean().unwrap();
        laws.panics().unwrap();
        laws.batched().unwrap();
    }

    #[test]
    fn a_backend_that_keeps_items_back_breaks_a_law() {
        // Now and then the other one is so quick that the one with the slow item gets no second.
        let broken = (0..10).find_map(|_| {
            let laws =
                laws(vec![script(4, [ScriptStep::Answer(0)]), script(4, [ScriptStep::Answer(0)])]);
            laws.limit(Duration::from_secs(1)).prompt().err()
        });
        assert_eq!(broken.map(|error| error.law), Some(Law::Prompt));
    }

    fn steps() -> impl Strategy<Value = ScriptStep> {
        prop_oneof![
            6 => (0usize..4).prop_map(ScriptStep::Answer),
            1 => (0usize..4).prop_map(ScriptStep::AnswerTwice),
            1 => (0usize..4).prop_map(ScriptStep::AnswerTooLate),
            1 => (0usize..4).prop_map(ScriptStep::HandBack),
            1 => Just(ScriptStep::Crash),
        ]
    }

    /// A script that answers at last: one that only hands back would go on for ever.
    fn scripts() -> impl Strategy<Value = ProducerScript> {
        (1usize..5, proptest::collection::vec(steps(), 0..12)).prop_map(|(ahead, mut steps)| {
            steps.push(ScriptStep::Answer(0));
            ProducerScript { ahead, steps }
        })
    }

    proptest! {
        /// Items are consumed once, in order, or fail once; the account says the same; states are paired.
        #[test]
        fn a_run_keeps_the_laws(
            scripts in proptest::collection::vec(scripts(), 1..4),
            items in 0u64..60,
            bad in proptest::collection::vec(0u64..60, 0..4),
            window in 4usize..12,
            batch in 1usize..4,
            order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
            retries in 0u32..3,
        ) {
            let ended = Arc::new(AtomicU64::new(0));
            let squares = Squares { bad: bad.clone(), ended: ended.clone(), ..Squares::default() };
            let mut pool = pool(squares, &scripts, |builder| {
                let builder = builder.order(order).window(window).on_error(OnError::Skip);
                let builder = builder.retries(retries).backoff(Duration::ZERO, Duration::ZERO);
                if batch > 1 { builder.batch(Batch::up_to(batch)) } else { builder }
            });
            for _ in 0..2 {
                let consumed = pool.run(0..items).unwrap();
                let failed: Vec<u64> = pool.failures().iter().filter_map(Error::item).collect();
                let account = pool.account();
                prop_assert_eq!((account.ok, account.failed), (consumed.len() as u64, failed.len() as u64));
                prop_assert_eq!(account.ok + account.failed, items);
                let mut all: Vec<u64> = consumed.iter().map(|y| y.isqrt()).chain(failed.clone()).collect();
                all.sort_unstable();
                prop_assert_eq!(all, (0..items).collect::<Vec<_>>(), "each is done once");
                if order == Order::Input {
                    prop_assert!(consumed.is_sorted());
                }
                prop_assert!(bad.iter().all(|&item| item >= items || failed.contains(&item)));
            }
            let begun = pool.runner().begun.load(Ordering::Relaxed);
            pool.close().unwrap();
            prop_assert_eq!(ended.load(Ordering::Relaxed), begun);
        }
    }
}
