//! Which waiting items and parts go together: by the rules of the user, and by the memory of each device.

use std::time::Duration;

use super::answers::Memory;
use super::config::{Config, Meta};
use super::flow::{Flow, Input};
use super::lease::{Chosen, Held, Leases, Piece, ProducerId, Sized};
use super::pending::Pick;
use super::pending_queues::{Mixture, PendingQueues};
use super::priority::{Priority, Share, ShareBalance};
use super::split::{BatchPart, Cut, Parts, extent, fitting};
use super::time::RunTime;
use super::waiters::{Takes, Waiters};
use crate::batch::{Batch, Batching, Bounds, DeviceBatches, FirstGrowth, Limits, More};

/// At the end of the input, a batch whose size is chosen has at least this part of the size.
const LEAST_OF_REST: u64 = 8;

/// The items that wait to be leased for the first time, or in parts of a batch that failed.
#[derive(Debug)]
pub(super) struct RunBatches {
    rules: Batching,
    mode: BatchMode,
    /// What is learned about the device of each producer.
    learned: Vec<DeviceBatches>,
    pub(super) pending: PendingQueues,
    pub(super) parts: Parts,
    balance: ShareBalance,
    /// Whether a background item was offered in this run.
    pub(super) has_background: bool,
    pub(super) flow: Flow,
}

/// Whether the run has batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchMode {
    Single,
    Batches,
}

impl RunBatches {
    pub(super) fn new(config: &Config, learned: Vec<DeviceBatches>) -> Self {
        debug_assert_eq!(learned.len(), config.producers, "each producer has a device");
        let rules = config.batching.unwrap_or_else(|| Batching::new(Batch::up_to(1)));
        // The window follows sizes that are chosen. None of their batches waits without limit.
        let patience = if rules.rule.is_chosen() { usize::MAX } else { config.window };
        RunBatches {
            rules,
            mode: if config.batching.is_some() { BatchMode::Batches } else { BatchMode::Single },
            learned,
            pending: PendingQueues::new(rules.grouping, patience),
            parts: Parts::default(),
            balance: ShareBalance::new(rules.rule.assumed() as u64),
            has_background: false,
            flow: Flow::new(config.input),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.parts.is_empty()
    }

    /// What is learned about the device of each producer.
    pub(super) fn learned(&self) -> &[DeviceBatches] {
        &self.learned
    }

    /// Whether more items can come before one that waits is taken.
    pub(super) fn more(&self) -> More {
        self.flow.more(&self.rules.rule)
    }

    /// Adds an item to those that wait.
    pub(super) fn push(&mut self, index: u64, meta: Meta) {
        self.has_background |= meta.priority == Priority::Background;
        self.pending.push(index, meta);
    }

    /// The number of background items that go before normal ones.
    pub(super) fn due(&self) -> u64 {
        self.balance.due()
    }

    /// Counts items of a lease for the share of the background.
    pub(super) fn note_share(&mut self, items: &[Sized]) {
        items.iter().for_each(|item| self.balance.note(item.priority));
    }

    pub(super) fn set_share(&mut self, share: Share) {
        self.balance.set(share);
    }

    /// Takes the next batch of new items for a producer, if items of this priority lead it. Returns `None` if they do
    /// not, or if the batch waits for more items.
    pub(super) fn take_new(
        &mut self,
        producer: ProducerId,
        priority: Priority,
        now: RunTime,
    ) -> Option<Chosen> {
        // If normal items wait, they lead each batch, also one with background items that are due.
        let is_led = priority == Priority::Normal || !self.pending.has(Priority::Normal);
        if !is_led || !self.pending.has(priority) {
            return None;
        }
        let Pick::Take(mixture) = self.pick(producer, now) else { return None };
        Some(Chosen::first(self.pending.take(mixture)))
    }

    /// Takes the next item, or the next batch if that is full. It does not wait for more.
    pub(super) fn take_ahead(&mut self, producer: ProducerId, now: RunTime) -> Option<Chosen> {
        let limits = self.limits_of(producer, now);
        let full = self.pending.full(limits)?;
        Some(Chosen::first(self.pending.take(full)))
    }

    /// A busy producer that has room for the full batch that waits.
    pub(super) fn full_for(&self, waiters: &Waiters, now: RunTime) -> Option<ProducerId> {
        waiters.with_room().find(|&producer| {
            let limits = self.limits_of(producer, now);
            // Asked for each item that is offered, so a batch that has too few items is not looked at.
            let may_be_full = self.pending.len() as u64 >= limits.items || limits.has_measures();
            may_be_full && self.pending.full(limits).is_some()
        })
    }

    /// Whether the run has batches.
    pub(super) fn has_batches(&self) -> bool {
        self.mode == BatchMode::Batches
    }

    /// Takes as much of a part as the device has memory for.
    pub(super) fn take_fitting(&mut self, mut part: BatchPart, producer: ProducerId) -> Chosen {
        part.owner = Some(producer);
        if let Some(rest) = part.cut_to(self.rules.limits, &self.learned[producer].memory) {
            self.parts.push(rest);
        }
        Chosen { items: part.items, attempt: part.attempt, piece: Piece::Part }
    }

    /// Puts back the rest of a lease that failed as a whole, to be tried in parts.
    pub(super) fn split(&mut self, held: Held, owner: Option<ProducerId>, memory: Memory) {
        let Held { producer, items, attempt, .. } = held;
        let fits = fitting(self.rules.limits, &self.learned[producer].memory, &items);
        let cut = match memory == Memory::Short && fits < items.len() {
            true => Cut::Memory,
            false => Cut::Blame,
        };
        self.parts.split(BatchPart { owner, items, attempt, cut });
    }

    /// Records that the producer had memory for a lease of these items, and the time that their hook took if all
    /// succeeded.
    pub(super) fn went_well(&mut self, held: &Held, took: Option<Duration>) {
        if self.mode == BatchMode::Single {
            return;
        }
        let (extent, bounds) = (extent(self.rules.limits, &held.items), self.bounds());
        let device = &mut self.learned[held.producer];
        device.memory.went_well(extent);
        if let Some((bounds, took)) = bounds.zip(took) {
            device.took(extent, held.items.len() as u64, took, bounds);
        }
    }

    /// Records that the producer ran out of memory with these items.
    pub(super) fn fell_short(&mut self, producer: ProducerId, items: &[Sized]) {
        let (extent, bounds) = (extent(self.rules.limits, items), self.bounds());
        let device = &mut self.learned[producer];
        match bounds {
            Some(bounds) => device.fell_short(extent, bounds),
            None => device.memory.fell_short(extent),
        }
    }

    /// The number of items in the largest batch that a producer may soon take.
    pub(super) fn most_items(&self) -> u64 {
        let most = self.rules.limits.items;
        let Some(bounds) = self.bounds() else { return most };
        let of_devices = self.learned.iter().map(|device| device.most_items(bounds));
        of_devices.max().map_or(most, |items| items.min(most))
    }

    /// The time at which a producer has to look for new items again, unless another looks then.
    pub(super) fn next_look(
        &self,
        producer: ProducerId,
        waiters: &Waiters,
        now: RunTime,
    ) -> Option<RunTime> {
        if self.pending.is_empty() {
            return None;
        }
        let Pick::WaitUntil(time) = self.pick(producer, now) else { return None };
        waiters.waiting_until(time).next().is_none().then_some(time)
    }

    /// A producer to wake for new items that make a batch, or that need one to watch their time limit.
    pub(super) fn unwatched(&self, waiters: &Waiters, now: RunTime) -> Option<ProducerId> {
        if self.pending.is_empty() {
            return None;
        }
        let coming = waiters.woken().count() as u64;
        let most = self.most_items().max(1);
        if coming > 0 && coming * most >= self.pending.len() as u64 {
            return None;
        }
        waiters.taking(Takes::All).find(|&producer| match self.pick(producer, now) {
            Pick::Take(_) => true,
            Pick::WaitUntil(time) => waiters.waiting_until(time).next().is_none(),
            Pick::Wait => false,
        })
    }

    /// A producer to wake for parts whose owner is busy.
    pub(super) fn unwatched_part(&self, waiters: &Waiters, leases: &Leases) -> Option<ProducerId> {
        if waiters.is_empty() || self.parts.is_empty() {
            return None;
        }
        let here = self.parts.count_for_others(|owner| leases.is_busy(owner));
        let free = waiters.taking(Takes::All).next();
        free.filter(|_| waiters.woken().count() < here)
    }

    fn pick(&self, producer: ProducerId, now: RunTime) -> Pick<Mixture> {
        let (rule, limits) = (self.rules.rule, self.limits_of(producer, now));
        self.pending.pick(self.due(), rule, limits, now, self.more())
    }

    /// The limits of the size to choose; `None` if it is given.
    fn bounds(&self) -> Option<Bounds> {
        let start =
            if self.flow.input == Input::Calls { FirstGrowth::Quick } else { FirstGrowth::Slow };
        self.rules.bounds(start)
    }

    fn limits_of(&self, producer: ProducerId, now: RunTime) -> Limits {
        let (limits, device) = (self.rules.limits, &self.learned[producer]);
        match self.bounds() {
            Some(bounds) => {
                // The items of a run wait for as long as its window is wide.
                let waited = match self.flow.input {
                    Input::Calls => self.pending.waited(now),
                    Input::MayCome | Input::Ended => Duration::ZERO,
                };
                let limits = limits.below(device.next(bounds, waited));
                Limits { items: limits.items.min(self.rest_for(producer, bounds)), ..limits }
            }
            None => device.memory().map_or(limits, |extent| limits.below(extent)),
        }
    }

    /// How many of the last items a producer takes at once, so that all end at about the same time: its part by the
    /// rates of the devices, but not so few that the fixed time is most of a batch.
    fn rest_for(&self, producer: ProducerId, bounds: Bounds) -> u64 {
        if self.flow.input != Input::Ended {
            return u64::MAX;
        }
        let rates: Vec<_> = self.learned.iter().filter_map(DeviceBatches::rate).collect();
        let usual = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let all = usual * self.learned.len() as f64;
        let own = self.learned[producer].rate().unwrap_or(usual);
        let share = if all > 0.0 { own / all } else { 1.0 / self.learned.len() as f64 };
        let least = self.learned[producer].most_items(bounds) / LEAST_OF_REST;
        ((self.pending.len() as f64 * share).ceil() as u64).max(least).max(1)
    }
}
