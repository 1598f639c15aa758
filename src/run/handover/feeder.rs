//! The feeder's end of the hand-over: permits in, items out.

use std::time::Duration;

use gangline_scheduler::Activity;
use gangline_scheduler::batch::Size;
use gangline_scheduler::budget::Room;
use gangline_scheduler::window::Window;

use super::Handover;
use super::intake::{FeederEnds, Gap};
use crate::concurrency::atomic::Ordering;
use crate::concurrency::{lock, now};
use crate::run::handover::permits::Want;
use crate::run::handover::signals::Tracking;
use crate::run::measures::Measured;
use crate::run::outbox::Outcome;

/// The feeder's end.
#[derive(Debug)]
pub(crate) struct Feeder<I, T> {
    /// Permits that it has taken and not yet used.
    permits: usize,
    ends: FeederEnds<I, T>,
    /// An item that was pulled and waits for room in memory.
    held: Option<(I, Measured)>,
    /// Gaps since the last item, merged into one, so that a million bad items in a row are not a million
    /// messages.
    gap: Option<Gap>,
    /// The index of the next item.
    next: u64,
    /// Where the next item comes from.
    from: PulledFrom,
    /// How many permits it takes together where it waits elsewhere.
    lot: usize,
    waited: Duration,
}

/// Where a feeder's next item comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PulledFrom {
    /// The stage before, where it counts already.
    Stage,
    /// An iterator or a stream that is to be pulled.
    Source,
    /// It has left its stream, and so is given out although the feeder is to stop, or memory has no room.
    Polled,
}

impl<I, T> Feeder<I, T> {
    /// Takes the feeder's end of `handover`; a run has one feeder.
    pub(crate) fn new(handover: &Handover<I, T>) -> Self {
        let ends = lock(&handover.feeding).take().expect("a run has one feeder");
        let (from, waited) = (PulledFrom::Stage, Duration::ZERO);
        Feeder { permits: 0, ends, held: None, gap: None, next: 0, from, lot: 1, waited }
    }

    /// Has it wait for room in memory before an item is pulled, as far as the size of the item can be known.
    pub(crate) fn before_pulls(mut self) -> Self {
        self.wait_before_pulls();
        self
    }

    /// See [`before_pulls`](Feeder::before_pulls).
    pub(crate) fn wait_before_pulls(&mut self) {
        self.from = PulledFrom::Source;
    }

    /// Has it take permits in lots also where it waits elsewhere.
    #[cfg(feature = "futures")]
    pub(crate) fn in_lots(self, handover: &Handover<I, T>) -> Self {
        Feeder { lot: handover.lot(), ..self }
    }

    /// Waits for a permit, and for room for the held item. Returns `false` if the feeder is to stop.
    pub(crate) fn wait_for_permit(&mut self, handover: &Handover<I, T>) -> bool {
        if !self.wait_for_room(handover) || !self.wait_for_next_room(handover) {
            return false;
        }
        if self.permits == 0 {
            self.permits = handover.permits.take_lots(handover.lot());
        }
        if self.permits == 0 {
            let since = now();
            self.permits = handover.wait_for_permits();
            self.waited += now() - since;
        }
        self.permits > 0
    }

    /// Waits until memory has room for the next item, if that is to be pulled.
    fn wait_for_next_room(&mut self, handover: &Handover<I, T>) -> bool {
        if self.has_next_room(handover) {
            return true;
        }
        let since = now();
        let has_room = handover.wait_for(Want::Room(Room::Next));
        self.waited += now() - since;
        has_room
    }

    #[inline]
    fn has_next_room(&self, handover: &Handover<I, T>) -> bool {
        let is_bounded = self.from == PulledFrom::Source && handover.permits.memory().is_some();
        !is_bounded || handover.permits.has(Want::Room(Room::Next))
    }

    /// Waits until the held item, if any, is given out. Returns `false` if the feeder is to stop.
    pub(crate) fn wait_for_room(&mut self, handover: &Handover<I, T>) -> bool {
        // Another stage may take the room between the wake-up and the look.
        while !self.give_out_held(handover) {
            let Some(want) = self.wanted_room() else { return true };
            let since = now();
            let has_room = handover.wait_for(want);
            self.waited += now() - since;
            if !has_room {
                return false;
            }
        }
        true
    }

    pub(crate) fn holds_item(&self) -> bool {
        self.held.is_some()
    }

    /// The total time that it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Takes a permit if there is one, and room for the held item. Returns `false` where
    /// [`wait_for_permit`](Feeder::wait_for_permit) would wait.
    pub(crate) fn has_permit(&mut self, handover: &Handover<I, T>) -> bool {
        if !self.give_out_held(handover) || !self.has_next_room(handover) {
            return false;
        }
        if self.permits == 0 {
            self.permits = handover.permits.take_lots(self.lot);
        }
        self.permits > 0
    }

    /// Whether the next item has left its stream. Then a permit for it is [spent](Feeder::spend) although the feeder is
    /// to stop: the item would be lost.
    pub(crate) fn set_source(&mut self, from: PulledFrom) {
        self.from = from;
    }

    /// Uses a permit for the next item. Returns `false` without a permit at hand, while an item is held, or
    /// if the feeder is to stop.
    #[inline]
    pub(crate) fn spend(&mut self, handover: &Handover<I, T>) -> bool {
        if self.permits == 0 || self.held.is_some() {
            return false;
        }
        let may_pull = !handover.is_halted() && self.has_next_room(handover);
        if !may_pull && self.from != PulledFrom::Polled {
            return false;
        }
        self.permits -= 1;
        true
    }

    /// Takes back a permit that was not used.
    #[inline]
    pub(crate) fn keep(&mut self) {
        self.permits += 1;
    }

    /// Gives out the next item. Indices count from 0 in the order of pushing.
    #[inline]
    pub(crate) fn push(&mut self, handover: &Handover<I, T>, item: I) {
        self.push_noted(handover, item, Size::ONE);
    }

    /// Gives out the next item as soon as memory has room for it.
    pub(crate) fn push_measured(&mut self, handover: &Handover<I, T>, item: I, measured: Measured) {
        self.held = Some((item, measured));
        self.give_out_held(handover);
    }

    /// Gives out the held item if there is room. Returns whether it holds no item afterwards.
    fn give_out_held(&mut self, handover: &Handover<I, T>) -> bool {
        if let Some((item, Measured { size, bytes })) = self.held.take() {
            if handover.permits.memory().is_some_and(|memory| !memory.take(self.next, bytes)) {
                self.held = Some((item, Measured { size, bytes }));
                return false;
            }
            self.push_noted(handover, item, size);
        }
        true
    }

    /// The room that the held item needs.
    fn wanted_room(&self) -> Option<Want> {
        let (_, Measured { bytes, .. }) = self.held.as_ref()?;
        Some(Want::Room(Room::For(*bytes)))
    }

    /// Gives out the held item at the end of the input, as soon as there is room. Returns it if the run is
    /// aborted first.
    pub(crate) fn clear(&mut self, handover: &Handover<I, T>) -> Option<I> {
        while !self.give_out_held(handover) {
            let want = self.wanted_room()?;
            let since = now();
            let has_room = handover.permits.sleep_for_room(want);
            self.waited += now() - since;
            if !has_room {
                return self.take_held();
            }
        }
        None
    }

    /// Whether the input may end: no item waits for room, or none is wanted.
    pub(crate) fn may_end(&mut self, handover: &Handover<I, T>) -> bool {
        self.give_out_held(handover) || handover.is_aborted()
    }

    /// States what the feeder waits for before the driver of the run waits elsewhere.
    pub(crate) fn begin_to_wait_elsewhere(&self, handover: &Handover<I, T>) {
        let want = self.wanted_room().unwrap_or_else(|| match self.has_next_room(handover) {
            true => Want::Permits { least: self.lot },
            false => Want::Room(Room::Next),
        });
        handover.permits.await_elsewhere(Some(want));
        handover.starve_for_permits();
    }

    /// Takes back the held item, which will not be given out.
    pub(crate) fn take_held(&mut self) -> Option<I> {
        self.held.take().map(|(item, _)| item)
    }

    #[inline]
    fn push_noted(&mut self, handover: &Handover<I, T>, item: I, size: Size) {
        let index = self.next;
        self.next += 1;
        if handover.dispatch.signals.tracking == Tracking::All {
            handover.dispatch.offer(index, item, size);
            return;
        }
        if let Some(gap) = self.gap.take() {
            self.tell_of(handover, gap);
        }
        self.ends.inlet.push(item);
        handover.dispatch.signals.idle.notify();
    }

    /// Leaves the index of the next item as a gap and delivers its result, which no producer sees.
    pub(crate) fn leave_gap(&mut self, handover: &Handover<I, T>, seq: u64, result: Outcome<T>) {
        debug_assert!(self.held.is_none(), "the held item would get an index behind the gap");
        match &mut self.gap {
            Some(gap) => gap.count += 1,
            none => *none = Some(Gap { first: seq, count: 1 }),
        }
        self.next = seq + 1;
        self.deliver(handover, seq, result);
    }

    /// Announces the gap before the next item. A gap that no item follows is never announced.
    #[cold]
    fn tell_of(&mut self, handover: &Handover<I, T>, gap: Gap) {
        self.ends.gaps.push(gap);
        // Only the feeder writes. The items behind the gap are pushed after this store.
        let gaps = handover.gaps.load(Ordering::Relaxed);
        handover.gaps.store(gaps + 1, Ordering::Release);
    }

    /// Delivers the result of the item after all pushed ones, which no producer sees.
    pub(crate) fn deliver(&mut self, handover: &Handover<I, T>, seq: u64, result: Outcome<T>) {
        self.ends.aside.push(seq, result);
        handover.waiting.notify();
    }
}

impl<I, T> Handover<I, T> {
    /// Waits for permits and takes whole lots of them. Returns 0 if the feeder is to stop.
    fn wait_for_permits(&self) -> usize {
        let least = self.lot();
        if !self.wait_for(Want::Permits { least }) {
            return 0;
        }
        // Only the feeder takes permits, so they are still there.
        self.permits.take_lots(least)
    }

    /// Waits until `want` is available. Returns `false` if the feeder is to stop.
    fn wait_for(&self, want: Want) -> bool {
        if self.permits.has(want) {
            return true;
        }
        match want {
            Want::Permits { .. } => self.starve_for_permits(),
            Want::Room(_) => self.starve(),
        }
        if !self.yields.until(|| self.is_halted() || self.permits.has(want)) {
            self.permits.sleep_for(want);
        }
        self.feed_again();
        !self.is_halted()
    }

    /// Notes that the feeder has items but no room for them. The scheduler then no longer waits for batches
    /// to fill.
    fn starve(&self) {
        self.window_hints.starve();
        self.dispatch.note_feeder(Activity::Waiting);
    }

    /// Notes producers that already sleep while the feeder waits for permits. They do not look again, so they
    /// cannot note it themselves.
    fn note_idleness(&self) {
        let is_idle = match self.dispatch.signals.tracking {
            Tracking::All => self.dispatch.signals.has_sleeper(),
            Tracking::Failed => {
                self.dispatch.signals.idle.has_sleeper() && lock(&self.intake).is_empty()
            }
        };
        if is_idle {
            self.window_hints.note_idle_producer();
        }
    }

    /// Notes that the feeder waits for permits, here or elsewhere. The collector may sleep meanwhile: that of an earlier
    /// stage, or that of a run which a task feeds.
    pub(crate) fn starve_for_permits(&self) {
        self.starve();
        self.note_idleness();
        self.waiting.published();
        if self.window_hints.is_full_awaited() {
            self.waiting.wake_one();
        }
    }

    /// Wakes the collector, if it sleeps.
    pub(crate) fn wake_collector(&self) {
        self.waiting.notify_all();
    }

    /// Ends a wait of the feeder elsewhere.
    pub(crate) fn end_to_wait_elsewhere(&self) {
        self.permits.await_elsewhere(None);
        self.feed_again();
    }

    fn feed_again(&self) {
        self.window_hints.feed_again();
        self.dispatch.note_feeder(Activity::Working);
    }

    /// The number of permits that the feeder waits for and takes at once: those of one full batch. If it took single permits
    /// as they come back, a narrow window would lead to small batches. This cannot wait for ever: all permits come back, and
    /// the window has room for a batch. If the size is chosen, the window has room for several.
    fn lot(&self) -> usize {
        match self.dispatch.batching.map(|batching| batching.rule) {
            Some(rule) if rule.is_chosen() => 1,
            _ => self.dispatch.largest_batch(),
        }
    }

    /// Has a window follow the batches whose size is chosen. Returns by how many items it grows.
    pub(crate) fn let_follow(
        &self,
        window: &mut Window,
        has_memory: impl FnOnce() -> bool,
    ) -> usize {
        match self.dispatch.has_chosen_sizes() {
            true => window.follow(self.dispatch.largest_batch(), self.lanes(), has_memory),
            false => 0,
        }
    }
}
