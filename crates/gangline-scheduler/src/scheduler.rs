//! The scheduler of one run: its state, and its calls but those in `assign`, `ahead`, `expansion` and `hand_over`.

use super::answers::{Begin, Memory, Together, TooFewProducers, Until};
use super::batch::{Batch, Batching, Ceiling, Size};
use super::config::{Activity, Config, Input, Meta, Order};
use super::deadlines::{Absence, Deadlines, RunTimeout};
use super::events::{Event, Events, Expired};
use super::health::{Blame, ProducerHealth};
use super::items::{Items, Outcome, Standing, State};
use super::lease::{Copies, Generation, Lease, LeaseId, Leases, Phase, ProducerId, Readiness};
use super::pending::PendingItems;
use super::retry::{Decision, Failure, Inputs, RetryPolicy, Verdict};
use super::retry_queue::RetryQueue;
use super::speculation::Speculation;
use super::split::{Cut, Part, Parts, extent, fitting};
use super::time::RunTime;
use super::waiters::Waiters;

/// The scheduler of one run.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    pub(super) batching: Batching,
    pub(super) retry: RetryPolicy,
    pub(super) health: ProducerHealth,
    /// The batch limits learned from out-of-memory failures, for each producer.
    pub(super) learned: Vec<Ceiling>,
    pub(super) deadlines: Deadlines,
    pub(super) speculation: Speculation,
    pub(super) items: Items,
    pub(super) pending: PendingItems,
    pub(super) retries: RetryQueue,
    pub(super) parts: Parts,
    pub(super) leases: Leases,
    pub(super) waiters: Waiters,
    pub(super) events: Events,
    pub(super) feeder: Activity,
    pub(super) consumer: Activity,
    pub(super) input: Input,
    /// Items from this index on are not wanted.
    pub(super) bound: u64,
    pub(super) is_aborted: bool,
}

impl Scheduler {
    /// Creates the scheduler of a run that starts now. `learned`: the batch limits from earlier runs, for
    /// each place.
    pub fn new(config: Config, learned: Vec<Ceiling>, now: RunTime) -> Self {
        debug_assert_eq!(learned.len(), config.producers, "each producer has a device");
        let batching = config.batching.unwrap_or_else(|| Batching::new(Batch::up_to(1)));
        let Config { producers, spares, retries, backoff, on_error, quarantine_after, .. } = config;
        Scheduler {
            batching,
            retry: RetryPolicy { retries, backoff, on_error },
            health: ProducerHealth::new(
                (producers, spares),
                quarantine_after,
                config.places.clone(),
            ),
            learned,
            deadlines: Deadlines::new(config.timeouts, producers, now),
            speculation: Speculation::new(config.copy_after),
            items: Items::default(),
            pending: PendingItems::new(batching.grouping, config.window),
            retries: RetryQueue::default(),
            parts: Parts::default(),
            leases: Leases::default(),
            waiters: Waiters::new(producers),
            events: Events::default(),
            feeder: Activity::Working,
            consumer: Activity::Working,
            input: config.input,
            bound: u64::MAX,
            is_aborted: false,
            config,
        }
    }

    /// Adds an item that was pulled, to be leased. Indices rise.
    pub fn offer(&mut self, index: u64, meta: Meta, now: RunTime) {
        if index >= self.bound {
            return;
        }
        self.pending.push(index, meta);
        self.wake_for_pending(now);
    }

    /// Tracks an untracked item that has failed on this producer. The backend then calls
    /// [`decide`](Scheduler::decide).
    pub fn adopt(&mut self, index: u64, producer: ProducerId) {
        self.items.settle(index, Size::ONE, Outcome::Failed, producer);
    }

    /// Tracks an untracked item that a suspected producer, or one without a state, is about to work on.
    pub fn track(
        &mut self,
        index: u64,
        producer: ProducerId,
        readiness: Readiness,
        now: RunTime,
    ) -> Lease {
        self.stop_waiting(producer, now);
        self.grant_untracked(index, producer, readiness, now)
    }

    /// Gives up these items: their results are no longer wanted. Hooks that have no other items are revoked.
    pub fn withdraw(&mut self, indices: &[u64], now: RunTime) {
        for &index in indices {
            if self.pending.withdraw(index).is_some() {
                continue;
            }
            if self.retries.remove(index) {
                self.items.remove(index);
                continue;
            }
            let carriers = self.leases.covering(index).len() as u32;
            self.parts.retain(|it| it != index);
            if carriers == 0 {
                self.items.remove(index);
                continue;
            }
            let record = self.items.open(index, Size::ONE, carriers);
            record.carriers = carriers;
            if std::mem::replace(&mut record.state, State::Settled) != State::Settled {
                self.revoke(index, now);
            }
        }
    }

    /// Notes what the feeder does. While it waits, no batch can grow.
    pub fn feeder(&mut self, activity: Activity, now: RunTime) {
        self.feeder = activity;
        self.conditions_changed(now);
    }

    /// Notes what the consumer does.
    pub fn consumer(&mut self, activity: Activity, now: RunTime) {
        self.consumer = activity;
        self.conditions_changed(now);
    }

    /// Notes that no more input is pulled. An item that was pulled before may still be offered.
    pub fn input_ended(&mut self, now: RunTime) {
        self.input = Input::Ended;
        self.conditions_changed(now);
    }

    /// From here on, no retry waits for its backoff.
    pub fn end_backoff(&mut self, now: RunTime) {
        self.retry.end_backoff();
        self.retries.promote_all();
        self.wake_for_work(now);
    }

    pub(super) fn conditions_changed(&mut self, now: RunTime) {
        self.wake_for_pending(now);
        self.wake_helpers();
    }

    /// Gives up all items from this index on. Their leases are stale when the hooks return.
    pub fn give_up_from(&mut self, index: u64) {
        if index >= self.bound {
            return;
        }
        self.bound = index;
        self.pending.give_up_from(index);
        self.retries.give_up_from(index);
        for item in self.parts.retain(|it| it < index) {
            self.items.uncover(item.index);
        }
        self.items.give_up_from(index);
        // Suspended producers are needed for the earlier items.
        self.health.forgive_all();
        self.wake_all();
    }

    /// Gives up everything: every producer that asks for a lease leaves.
    pub fn abort(&mut self) {
        self.is_aborted = true;
        self.give_up_from(0);
        self.wake_all();
    }

    /// Notes that the producer is in a hook without a lease.
    pub fn expect(&mut self, producer: ProducerId, absence: Absence, now: RunTime) {
        // The one that replaces a lost producer has no hook yet.
        if !self.health.awaits_successor(producer) {
            self.deadlines.expect(producer, absence, now);
            self.health.detach(producer);
            self.wake_all();
        }
    }

    /// Notes that the producer joins, or that this hook has returned. Returns whether it takes part: it may be lost.
    pub fn producer_joined(&mut self, producer: ProducerId) -> bool {
        self.deadlines.clear(producer);
        self.health.join(producer);
        self.rejoin(producer);
        self.health.is_live(producer)
    }

    /// Removes the producer and puts its items back, unless too few producers would be left.
    pub fn producer_lost(
        &mut self,
        producer: ProducerId,
        now: RunTime,
    ) -> Result<(), TooFewProducers> {
        let live = self.health.live() - usize::from(self.health.is_live(producer));
        if live < self.config.min_producers.max(1) && !self.health.can_replace() {
            return Err(TooFewProducers { live });
        }
        self.lose(producer, now);
        Ok(())
    }

    /// The generation of the producer to start in the place of this lost one, once; `None` if none is needed.
    pub fn take_replacement(&mut self, producer: ProducerId) -> Option<Generation> {
        if self.is_aborted { None } else { self.health.take_replacement(producer) }
    }

    /// Excludes the producer from this run; an absent one until it [joins](Scheduler::producer_joined).
    pub fn exclude(&mut self, producer: ProducerId, until: Until) {
        match until {
            Until::Joined => self.health.leave(producer),
            Until::Ready => self.health.detach(producer),
            Until::RunEnds => self.health.lose(producer),
        }
    }

    /// Begins the hook of a lease, and with it a new deadline. If the backend has copies of all its items,
    /// other producers can start them too.
    pub fn begin(&mut self, id: LeaseId, copies: Copies, now: RunTime) -> Begin {
        let Some(held) = self.leases.get_mut(id).filter(|held| !held.is_stale()) else {
            return Begin::Stale;
        };
        held.phase = Phase::Working;
        held.since = now;
        held.copies = copies;
        held.deadline = self.deadlines.of_lease(Phase::Working, held.items.len(), now);
        self.wake_helpers();
        Begin::Work
    }

    /// Notes that the hook has cost the producer its state, which it rebuilds before it reports the outcomes.
    pub fn rebuild(&mut self, id: LeaseId, now: RunTime) {
        if let Some(held) = self.leases.get_mut(id).filter(|held| !held.is_stale()) {
            held.phase = Phase::Preparing;
            held.deadline = self.deadlines.of_lease(Phase::Preparing, 1, now);
        }
    }

    /// Ends a lease with an outcome for each of its items.
    pub fn finish(&mut self, id: LeaseId, outcomes: &[Outcome], now: RunTime) -> Vec<Standing> {
        let Some(held) = self.end_lease(id) else { return vec![Standing::Stale; outcomes.len()] };
        debug_assert_eq!(held.items.len(), outcomes.len(), "each item has an outcome");
        if self.config.batching.is_some() {
            let extent = extent(self.batching.limits, &held.items);
            self.learned[held.producer].went_well(extent);
        }
        let each = held.items.iter().zip(outcomes);
        let standings: Vec<_> =
            each.map(|(item, &outcome)| self.settle(*item, outcome, held.producer, now)).collect();
        if self.speculation.is_on() && standings.contains(&Standing::Counts) {
            self.speculation.note(now.since(held.since));
        }
        standings
    }

    /// Ends a lease that failed as a whole batch.
    pub fn fail_together(
        &mut self,
        id: LeaseId,
        inputs: Inputs,
        memory: Memory,
        now: RunTime,
    ) -> Together {
        let Some(mut held) = self.end_lease(id) else { return Together::Failed(vec![]) };
        let (producer, limits) = (held.producer, self.batching.limits);
        if memory == Memory::Short {
            self.learned[producer].fell_short(extent(limits, &held.items));
        }
        // Even if only one item is left, it is tried alone: the others may have been to blame.
        let is_split = inputs == Inputs::Kept && held.items.len() > 1;
        self.drop_settled(&mut held.items);
        if is_split && !held.items.is_empty() {
            let is_too_much =
                fitting(limits, &self.learned[producer], &held.items) < held.items.len();
            let cut = match memory == Memory::Short && is_too_much {
                true => Cut::Memory,
                false => Cut::Blame,
            };
            let items = held.items.iter().map(|item| item.index).collect();
            let owner = Some(producer).filter(|&owner| self.health.is_present(owner));
            self.parts.split(Part { owner, items: held.items, attempt: held.attempt, cut });
            // The owner takes a part next; the others are for other producers.
            self.wake_for_parts();
            return Together::Split(items);
        }
        let failed = held
            .items
            .iter()
            .filter(|item| self.settle(**item, Outcome::Failed, producer, now) == Standing::Counts);
        Together::Failed(failed.map(|item| item.index).collect())
    }

    /// Decides about items with a failure that counts. Several items failed together.
    pub fn decide(&mut self, items: &[u64], failure: Failure, now: RunTime) -> Decision {
        if items[0] >= self.bound {
            items.iter().for_each(|&index| self.forget(index));
            return Decision::Discard;
        }
        // Some may have been withdrawn since they failed.
        let undecided: Vec<_> =
            items.iter().copied().filter(|&index| self.items.is_undecided(index)).collect();
        let Some((&first, others)) = undecided.split_first() else { return Decision::Discard };
        let decision = self.judge(first, failure, now);
        self.apply(first, decision, now);
        for &index in others {
            // All share the first one's decision, but each is blamed by itself.
            let own = match decision {
                Decision::Retry(_) => self.judge(index, failure, now),
                decision => decision,
            };
            let is_same = matches!((own, decision), (Decision::Retry(_), Decision::Retry(_)));
            self.apply(index, if is_same { own } else { decision }, now);
        }
        if decision == Decision::Fail {
            self.give_up_from(match self.config.order {
                Order::Input => first,
                Order::Completion => 0,
            });
        }
        self.wake_for_work(now);
        decision
    }

    fn judge(
        &mut self,
        index: u64,
        Failure { verdict, inputs }: Failure,
        now: RunTime,
    ) -> Decision {
        let Some(record) = self.items.get_mut(index) else { return Decision::Discard };
        debug_assert_eq!(record.state, State::Undecided, "its failure counts");
        let (history, is_kept) = (&mut record.history, verdict == Verdict::RetryHere);
        if inputs == Inputs::Gone || !(is_kept || verdict == Verdict::Retry) {
            return self.retry.without_retry(verdict);
        }
        history.claims.keeper = history.claims.tried.last().copied().filter(|_| is_kept);
        let may_be_open = !is_kept && history.blame == Blame::Open;
        if may_be_open && self.health.failed(index, &history.claims.tried) == Blame::Open {
            return Decision::Retry(now);
        }
        history.blame = Blame::Item;
        self.retry.decide(history.attempt, verdict, now)
    }

    fn apply(&mut self, index: u64, decision: Decision, now: RunTime) {
        let Decision::Retry(due) = decision else { return self.forget(index) };
        let record = self.items.get_mut(index).expect("an item that is tried again has failed");
        let last = record.history.claims.tried.last().copied();
        record.history.advance(last.expect("a producer has failed it"));
        record.state = State::Open;
        self.retries.insert(index, record.history.claims.clone(), due, now);
        self.wake_unsuspended();
    }

    /// Forgets a finished item. No further attempt can show whether a producer was to blame for it.
    fn forget(&mut self, index: u64) {
        self.items.remove(index);
        self.health.blame_item(index);
        self.wake_unsuspended();
    }

    /// Releases a lease without an outcome: no hook has seen its items, or the results do not count. No
    /// attempt is spent.
    pub fn release(&mut self, id: LeaseId, now: RunTime) {
        if let Some(held) = self.end_lease(id) {
            self.put_back(held, now);
            self.wake_for_work(now);
        }
    }

    /// Expires leases, absent producers and the run, if they are past their deadlines.
    pub fn handle_timeout(&mut self, now: RunTime) {
        match self.deadlines.run_timeout(now) {
            RunTimeout::NotYet => {}
            RunTimeout::Now => self.events.push(Event::RunTimedOut),
            RunTimeout::GraceOver => self.abandon_all(now),
        }
        self.leases.overdue(now).into_iter().for_each(|id| self.expire(id, now));
        for (producer, absence) in self.deadlines.late_producers(now) {
            self.expired(Expired::of_absence(producer, absence), now);
        }
    }

    /// The time at which [`handle_timeout`](Scheduler::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<RunTime> {
        self.deadlines.next(self.leases.iter().map(|(_, held)| held))
    }

    /// Returns the next event for the backend. `None` if there are no more.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Which producers are live, suspected and replaced.
    pub fn health(&self) -> &ProducerHealth {
        &self.health
    }

    /// Whether the result of the hook that a producer is in no longer counts.
    pub fn is_detached(&self, producer: ProducerId) -> bool {
        self.leases.of(producer).any(|(_, held)| held.is_detached())
    }

    /// Whether items wait for another attempt.
    pub fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }

    /// Whether items wait for a lease, now or later.
    pub fn has_waiting_items(&self) -> bool {
        !self.retries.is_empty() || !self.pending.is_empty() || !self.parts.is_empty()
    }

    /// The batch limits learned from out-of-memory failures, for each producer.
    pub fn learned(&self) -> &[Ceiling] {
        &self.learned
    }
}
