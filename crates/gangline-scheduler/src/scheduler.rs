//! The scheduler of one run: its calls. What they decide is in the files of the parts.

use super::answers::{Begin, EndedInPart, Memory, Next, Together, TooFewProducers, Until};
use super::batch::DeviceBatches;
use super::config::{Config, Meta, Order};
use super::deadlines::{Absence, RunTimeout};
use super::events::{Expired, SchedulerEvent};
use super::flow::{Activity, Input};
use super::health::ProducerHealth;
use super::items::{Items, Outcome, Standing};
use super::lease::{
    Chosen, Copies, Lease, LeaseId, Leases, Phase, Piece, ProducerId, Readiness, Sized, priority_of,
};
use super::priority::{Priority, Share};
use super::producers::RunProducers;
use super::retry::{Decision, FailureFacts, Inputs, RetryPolicy};
use super::speculation::{CopyTurn, Speculation};
use super::time::RunTime;
use super::waiters::Takes;
use super::workload::Workload;

/// The scheduler of one run.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) workload: Workload,
    pub(super) producers: RunProducers,
    retry: RetryPolicy,
    pub(super) speculation: Speculation,
    order: Order,
}

impl Scheduler {
    /// Creates the scheduler of a run that starts now. `learned`: what earlier runs have learned about batches, for
    /// each place.
    pub fn new(config: Config, learned: Vec<DeviceBatches>, now: RunTime) -> Self {
        let Config { retries, backoff, on_error, .. } = config;
        Scheduler {
            workload: Workload::new(&config, learned),
            producers: RunProducers::new(&config, now),
            retry: RetryPolicy { retries, backoff, on_error },
            speculation: Speculation::new(config.copy_after),
            order: config.order,
        }
    }

    /// Adds an item that was pulled, to be leased. Indices rise.
    pub fn offer(&mut self, index: u64, meta: Meta, now: RunTime) {
        if index >= self.workload.bound {
            return;
        }
        self.workload.batches.push(index, meta);
        if meta.priority == Priority::Normal && self.workload.batches.has_background {
            self.producers.recall(Priority::Background, &self.workload.leases);
        }
        self.workload.wake_for_pending(&mut self.producers, now);
    }

    /// Sets the share of the background while normal items wait.
    pub fn set_share(&mut self, share: Share) {
        self.workload.batches.set_share(share);
    }

    /// Tracks an untracked item that has failed on this producer. The backend then calls
    /// [`decide`](Scheduler::decide).
    pub fn adopt(&mut self, index: u64, producer: ProducerId) {
        self.workload.items.settle(Sized::plain(index), Outcome::Failed, producer);
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
        let chosen = Chosen::first(vec![Sized::plain(index)]);
        self.grant(chosen, producer, readiness.into(), now)
    }

    /// Gives up these items: their results are no longer wanted. Hooks that have no other items are revoked.
    pub fn withdraw(&mut self, indices: &[u64], now: RunTime) {
        let Scheduler { workload, producers, .. } = self;
        indices.iter().for_each(|&index| workload.withdraw(index, producers, now));
    }

    /// Leases items to a producer without work. A producer that has to wait asks again when it is woken.
    pub fn lease(&mut self, producer: ProducerId, readiness: Readiness, now: RunTime) -> Next {
        self.producers.waiters.remove(producer);
        if self.producers.is_aborted || !self.producers.health.is_live(producer) {
            self.workload.wake_for_work(&mut self.producers, now);
            return Next::Leave;
        }
        if let Some(chosen) = self.choose(producer, now) {
            if priority_of(&chosen.items) == Priority::Background {
                // Normal items that were leased ahead to a busy producer go before this one, so they come back.
                self.producers.recall(Priority::Normal, &self.workload.leases);
            }
            let lease = self.grant(chosen, producer, readiness.into(), now);
            self.workload.wake_for_work(&mut self.producers, now);
            self.speculation.wake_helpers(&self.workload, &mut self.producers);
            return Next::Work(lease);
        }
        let Scheduler { workload, producers, speculation, .. } = self;
        let takes = producers.takes(producer);
        let look = workload.next_look(producer, producers, takes, now);
        let copy = speculation.next_look(producer, workload, producers, now);
        let until = look.into_iter().chain(copy).min();
        producers.waiters.add(producer, until, takes);
        producers.recall_for(producer, &workload.leases);
        // This producer may have been the one woken for work that it may not take.
        workload.wake_for_work(producers, now);
        until.map_or(Next::Wait, Next::WaitUntil)
    }

    /// Chooses what the producer works on next.
    fn choose(&mut self, producer: ProducerId, now: RunTime) -> Option<Chosen> {
        let Scheduler { workload, producers, speculation, .. } = self;
        let overdue = speculation.take(CopyTurn::BeforeAll, producer, workload, producers, now);
        if overdue.is_some() {
            return overdue;
        }
        for &priority in workload.turns() {
            if let Some(part) = workload.take_own_part(producer, priority) {
                return Some(part);
            }
            // Before new items, since the consumer may wait for it.
            if let Some(retry) = workload.take_retry(producer, priority, &producers.health, now) {
                return Some(retry);
            }
            let turn = CopyTurn::BeforeNew(priority);
            if let Some(copy) = speculation.take(turn, producer, workload, producers, now) {
                return Some(copy);
            }
            if producers.takes(producer) == Takes::All
                && let Some(new) = workload.take_new(producer, priority, now)
            {
                return Some(new);
            }
        }
        speculation.take(CopyTurn::AfterAll, producer, workload, producers, now)
    }

    /// Notes that the producer has found work by itself.
    pub fn stop_waiting(&mut self, producer: ProducerId, now: RunTime) {
        self.producers.waiters.remove(producer);
        self.workload.wake_for_work(&mut self.producers, now);
    }

    pub(super) fn grant(
        &mut self,
        chosen: Chosen,
        producer: ProducerId,
        phase: Phase,
        now: RunTime,
    ) -> Lease {
        self.workload.note_share(&chosen.items);
        let deadline = self.producers.deadlines.of_lease(phase, chosen.items.len(), now);
        self.workload.grant(chosen, producer, phase, deadline, now)
    }

    /// Notes what the feeder does. While it waits, no batch can grow.
    pub fn feeder(&mut self, activity: Activity, now: RunTime) {
        self.workload.batches.flow.feeder = activity;
        self.flow_changed(now);
    }

    /// Notes what the consumer does.
    pub fn consumer(&mut self, activity: Activity, now: RunTime) {
        self.workload.batches.flow.consumer = activity;
        self.flow_changed(now);
    }

    /// Notes that no more input is pulled. An item that was pulled before may still be offered.
    pub fn input_ended(&mut self, now: RunTime) {
        self.workload.batches.flow.input = Input::Ended;
        self.flow_changed(now);
    }

    pub(super) fn flow_changed(&mut self, now: RunTime) {
        self.workload.wake_for_pending(&mut self.producers, now);
        self.speculation.wake_helpers(&self.workload, &mut self.producers);
    }

    /// From here on, no retry waits for its backoff.
    pub fn end_backoff(&mut self, now: RunTime) {
        self.retry.end_backoff();
        self.workload.retries.promote_all();
        self.workload.wake_for_work(&mut self.producers, now);
    }

    /// Gives up all items from this index on. Their leases are stale when the hooks return.
    pub fn give_up_from(&mut self, index: u64) {
        if self.workload.give_up_from(index) {
            // Suspended producers are needed for the earlier items.
            self.producers.health.forgive_all();
            self.producers.wake_all();
        }
    }

    /// Gives up everything: every producer that asks for a lease leaves.
    pub fn abort(&mut self) {
        self.producers.is_aborted = true;
        self.give_up_from(0);
        self.producers.wake_all();
    }

    /// Notes that the producer is in a hook without a lease.
    pub fn expect(&mut self, producer: ProducerId, absence: Absence, now: RunTime) {
        self.producers.expect(producer, absence, now);
    }

    /// Notes that the producer joins, or that this hook has returned. Returns whether it takes part: it may be lost.
    pub fn producer_joined(&mut self, producer: ProducerId) -> bool {
        self.producers.deadlines.clear(producer);
        self.producers.rejoin(producer, &self.workload.leases);
        self.producers.health.is_live(producer)
    }

    /// Removes the producer and puts its items back, unless too few producers would be left.
    pub fn producer_lost(
        &mut self,
        producer: ProducerId,
        now: RunTime,
    ) -> Result<(), TooFewProducers> {
        self.producers.can_lose(producer)?;
        self.workload.lose(producer, &mut self.producers, now);
        Ok(())
    }

    /// Excludes the producer from this run; an absent one until it [joins](Scheduler::producer_joined).
    pub fn exclude(&mut self, producer: ProducerId, until: Until) {
        let health = &mut self.producers.health;
        match until {
            Until::Joined => health.leave(producer),
            Until::Ready => health.detach(producer),
            Until::RunEnds => health.lose(producer),
        }
    }

    /// Begins the hook of a lease, and with it a new deadline. If the backend has copies of all its items,
    /// other producers can start them too.
    ///
    /// A background lease for which its producer first had to get ready is stale if a normal item waits: the producer
    /// releases it, and takes the normal item.
    pub fn begin(&mut self, id: LeaseId, copies: Copies, now: RunTime) -> Begin {
        let is_overtaken = self.workload.batches.pending.has(Priority::Normal);
        match self.workload.leases.get(id) {
            Some(it) if it.phase == Phase::Preparing && it.is_background() && is_overtaken => {
                Begin::Stale
            }
            _ => self.begin_now(id, copies, now),
        }
    }

    pub(super) fn begin_now(&mut self, id: LeaseId, copies: Copies, now: RunTime) -> Begin {
        let Some(held) = self.workload.leases.get_wanted(id) else { return Begin::Stale };
        held.phase = Phase::Working;
        held.since = now;
        held.copies = copies;
        held.deadline = self.producers.deadlines.of_lease(Phase::Working, held.items.len(), now);
        self.speculation.wake_helpers(&self.workload, &mut self.producers);
        Begin::Work
    }

    /// Notes that the hook has cost the producer its state, which it rebuilds before it reports the outcomes.
    pub fn rebuild(&mut self, id: LeaseId, now: RunTime) {
        if let Some(held) = self.workload.leases.get_wanted(id) {
            held.phase = Phase::Preparing;
            held.deadline = self.producers.deadlines.of_lease(Phase::Preparing, 1, now);
        }
    }

    /// Ends a lease with an outcome for each of its items.
    pub fn finish(&mut self, id: LeaseId, outcomes: &[Outcome], now: RunTime) -> Vec<Standing> {
        let Scheduler { workload, producers, speculation, .. } = self;
        let Some(held) = workload.end(id, producers) else {
            return vec![Standing::Stale; outcomes.len()];
        };
        debug_assert_eq!(held.items.len(), outcomes.len(), "each item has an outcome");
        let has_worked = held.phase == Phase::Working && !outcomes.contains(&Outcome::Failed);
        let took = held.returned.unwrap_or(now).since(held.since);
        workload.batches.went_well(&held, has_worked.then_some(took));
        let is_copied = speculation.is_on() && workload.items.are_shared(&held.items);
        let each = held.items.iter().zip(outcomes);
        let standings: Vec<_> = each
            .map(|(&item, &outcome)| workload.settle(item, outcome, held.producer, producers, now))
            .collect();
        if speculation.is_on() && standings.contains(&Standing::Counts) {
            speculation.note(took, is_copied);
            speculation.counts.won += u64::from(held.piece == Piece::Copy);
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
        let Scheduler { workload, producers, .. } = self;
        let Some(mut held) = workload.end(id, producers) else { return Together::Failed(vec![]) };
        let producer = held.producer;
        if memory == Memory::Short {
            workload.batches.fell_short(producer, &held.items);
        }
        // Even if only one item is left, it is tried alone: the others may have been to blame.
        let is_split = inputs == Inputs::Kept && held.items.len() > 1;
        workload.drop_settled(&mut held.items);
        if is_split && !held.items.is_empty() {
            return Together::Split(workload.split(held, memory, producers));
        }
        let failed = held.items.into_iter().filter(|&item| {
            let standing = workload.settle(item, Outcome::Failed, producer, producers, now);
            standing == Standing::Counts
        });
        Together::Failed(failed.map(|item| item.index).collect())
    }

    /// Ends a lease of several items whose hook has not tried some of them. These come again in smaller batches, also a
    /// single one, and have spent no attempt. The others have outcomes.
    pub fn finish_in_part(
        &mut self,
        id: LeaseId,
        outcomes: &[Outcome],
        untried: &[u64],
        memory: Memory,
        now: RunTime,
    ) -> EndedInPart {
        let Scheduler { workload, producers, speculation, .. } = self;
        let Some(mut held) = workload.end(id, producers) else {
            return EndedInPart { standings: vec![Standing::Stale; outcomes.len()], again: vec![] };
        };
        let producer = held.producer;
        if memory == Memory::Short {
            workload.batches.fell_short(producer, &held.items);
        }
        let is_tried = |item: &Sized| !untried.contains(&item.index);
        let each = held.items.iter().zip(outcomes).map(|(item, &outcome)| match is_tried(item) {
            true => workload.settle(*item, outcome, producer, producers, now),
            false => Standing::Deferred,
        });
        let standings: Vec<_> = each.collect();
        if held.piece == Piece::Copy && standings.contains(&Standing::Counts) {
            speculation.counts.won += 1;
        }
        held.items.retain(|item| !is_tried(item));
        workload.drop_settled(&mut held.items);
        let again = match held.items.is_empty() {
            true => vec![],
            false => workload.split(held, memory, producers),
        };
        EndedInPart { standings, again }
    }

    /// Decides about items with a failure that counts. Several items failed together.
    pub fn decide(&mut self, items: &[u64], failure: FailureFacts, now: RunTime) -> Decision {
        let Scheduler { workload, producers, retry, .. } = self;
        if items[0] >= workload.bound {
            items.iter().for_each(|&index| workload.forget(index, producers));
            return Decision::Discard;
        }
        // Some may have been withdrawn since they failed.
        let undecided: Vec<_> =
            items.iter().copied().filter(|&index| workload.items.is_undecided(index)).collect();
        let Some((&first, others)) = undecided.split_first() else { return Decision::Discard };
        let (records, health) = (&mut workload.items, &mut producers.health);
        let decision = retry.judge(first, records, failure, health, now);
        workload.apply(decision, first, producers, now);
        for &index in others {
            // All share the first one's decision, but each is blamed by itself.
            let (records, health) = (&mut workload.items, &mut producers.health);
            let own = match decision {
                Decision::Retry(_) => retry.judge(index, records, failure, health, now),
                decision => decision,
            };
            let is_same = matches!((own, decision), (Decision::Retry(_), Decision::Retry(_)));
            workload.apply(if is_same { own } else { decision }, index, producers, now);
        }
        if decision == Decision::Fail {
            self.give_up_from(match self.order {
                Order::Input => first,
                Order::Completion => 0,
            });
        }
        self.workload.wake_for_work(&mut self.producers, now);
        decision
    }

    /// Releases a lease without an outcome: no hook has seen its items, or the results do not count. No
    /// attempt is spent.
    pub fn release(&mut self, id: LeaseId, now: RunTime) {
        if let Some(held) = self.workload.end(id, &mut self.producers) {
            self.workload.put_back(held, now);
            self.workload.wake_for_work(&mut self.producers, now);
        }
    }

    /// Expires leases, absent producers and the run, if they are past their deadlines.
    pub fn handle_timeout(&mut self, now: RunTime) {
        let Scheduler { workload, producers, .. } = self;
        match producers.deadlines.run_timeout(now) {
            RunTimeout::NotYet => {}
            RunTimeout::Now => producers.events.push(SchedulerEvent::RunTimedOut),
            RunTimeout::GraceOver => {
                for producer in producers.in_hooks(&workload.leases) {
                    producers.events.push(SchedulerEvent::Abandon(producer));
                    workload.lose(producer, producers, now);
                }
            }
        }
        let overdue = workload.leases.overdue(now);
        overdue.into_iter().for_each(|id| workload.expire(id, producers, now));
        for (producer, absence) in producers.deadlines.late_producers(now) {
            workload.leave(Expired::of_absence(producer, absence), producers, now);
        }
    }

    /// The time at which [`handle_timeout`](Scheduler::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<RunTime> {
        self.producers.deadlines.next(self.workload.leases.iter().map(|(_, held)| held))
    }

    /// Returns the next event for the backend. `None` if there are no more.
    #[inline]
    pub fn poll_event(&mut self) -> Option<SchedulerEvent> {
        self.producers.events.pop()
    }

    /// The leases that are held.
    pub fn leases(&self) -> &Leases {
        &self.workload.leases
    }

    /// The records of items that failed, or that several producers work on.
    pub fn items(&self) -> &Items {
        &self.workload.items
    }

    /// Which producers are live and suspected.
    pub fn health(&self) -> &ProducerHealth {
        &self.producers.health
    }

    /// Whether another producer works on an item of this lease, or has settled it.
    pub fn is_shared(&self, id: LeaseId) -> bool {
        let Workload { items, leases, .. } = &self.workload;
        leases.get(id).is_none_or(|held| items.are_shared(&held.items))
    }

    /// Whether the result of the hook that a producer is in no longer counts.
    pub fn is_detached(&self, producer: ProducerId) -> bool {
        self.workload.leases.is_detached(producer)
    }

    /// Whether items wait for another attempt.
    pub fn has_retries(&self) -> bool {
        !self.workload.retries.is_empty()
    }

    /// Whether items wait for a lease, now or later.
    pub fn has_waiting_items(&self) -> bool {
        self.workload.is_waiting()
    }

    /// What is learned about the batches of each producer's device.
    pub fn learned(&self) -> &[DeviceBatches] {
        self.workload.batches.learned()
    }
}
