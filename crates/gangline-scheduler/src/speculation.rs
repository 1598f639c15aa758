//! When a copy of a slow item is started, and which producer starts it.
//!
//! A call is *overdue* after three times the 95th percentile of the run's calls. If the head of the line is overdue, it is
//! copied before any other item begins. While the run stands still, idle producers copy earlier, which delays no item.
//!
//! Copies are at most 2 % of the calls. Only idle producers exceed that, and only while the run stands still. Otherwise
//! hooks that never return would in the end hold all producers.

use std::time::Duration;

use super::attempt_times::{Aging, AttemptTimes};
use super::batches::RunBatches;
use super::flow::{Activity, Input};
use super::health::ProducerHealth;
use super::items::{ItemState, Items};
use super::lease::{Chosen, Copies, Held, LeaseId, Leases, Phase, ProducerId, priority_of};
use super::priority::Priority;
use super::producers::RunProducers;
use super::time::RunTime;
use super::waiters::Takes;
use super::workload::Workload;
use crate::batch::More;

/// The minimum duration of a call that is worth a copy. It is 0 in models: their clock stands still.
pub const LEAST_COPY_AFTER: Duration = Duration::from_millis(if cfg!(shuttle) { 0 } else { 10 });

/// The number of calls per copy.
const CALLS_A_COPY: u32 = 50;
/// The number of copies that a short run may have.
const FREE_COPIES: u32 = 8;
/// The number of calls after which their percentile decides which call is overdue.
const ENOUGH_CALLS: u32 = 20;
/// The number of useless copies that a short run may have. More are a sign that items are slow rather than calls.
const FREE_USELESS: u32 = 2;
/// The number of calls per useless copy in a longer run.
const CALLS_A_USELESS: u32 = 1_000;

/// When slow items are copied.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The minimum time before a copy. `None`: items are not copied.
    least: Option<Duration>,
    /// The times of calls, without those that lost to another call for the item.
    times: AttemptTimes,
    /// The number of copies beside these calls.
    copies: u32,
    /// The number of copied items with a first result from a call in time, mostly the copy.
    won: u32,
    /// The number of copied items with a first result from an overdue call.
    useless: u32,
    pub(super) counts: CopyCounts,
}

/// The copies of slow calls in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// How many were made.
    pub made: u64,
    /// How many gave the result that counts.
    pub won: u64,
}

/// The point at which a producer that asks for work is offered a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyTurn {
    /// Before all other items.
    BeforeAll,
    /// Before the new items of this priority.
    BeforeNew(Priority),
    /// After all other items.
    AfterAll,
}

/// A rule for the calls that are copied.
#[derive(Debug, Clone, Copy)]
struct CopyRule {
    after: Duration,
    /// The lowest priority.
    last: Priority,
    /// Only the calls for this item.
    head: Option<u64>,
    /// The maximum number of calls that the item may have when the copy starts.
    most: u32,
}

/// What a producer may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chance {
    Now(LeaseId),
    At(RunTime),
    None,
}

impl Speculation {
    pub(super) fn new(least: Option<Duration>) -> Self {
        Speculation {
            least,
            times: AttemptTimes::default(),
            copies: 0,
            won: 0,
            useless: 0,
            counts: CopyCounts::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.least.is_some()
    }

    /// Notes a call with a result that counts. The time of a call that lost says nothing about others.
    pub(super) fn note(&mut self, took: Duration, is_copied: bool) {
        if is_copied {
            if took < self.overdue_after() { self.won += 1 } else { self.useless += 1 }
        }
        if self.times.note(took) == Aging::Halved {
            let counts = [&mut self.copies, &mut self.won, &mut self.useless];
            counts.into_iter().for_each(|count| *count /= 2);
        }
    }

    fn overdue_after(&self) -> Duration {
        self.after(|p95| p95.saturating_mul(3))
    }

    /// The time after which a call is copied while the run stands still: 1.25 times the percentile. Less than for an
    /// overdue call, since the copy delays no item; more than the percentile, since 5 % of usual calls exceed that.
    fn idle_after(&self) -> Duration {
        self.after(|p95| p95.saturating_add(p95 / 4))
    }

    fn after(&self, of: impl FnOnce(Duration) -> Duration) -> Duration {
        let least = self.least.unwrap_or_default();
        self.times.p95().map_or(least, of).max(least)
    }

    /// Whether one more copy is within 2 % of the calls.
    fn has_copies_left(&self) -> bool {
        self.copies < (self.times.count() / CALLS_A_COPY).max(FREE_COPIES)
    }

    /// The rule for overdue calls.
    ///
    /// In a run it applies to the head of the line only. If the item itself is slow, the copy is useless and keeps a
    /// producer from other items. After some useless copies, only idle producers make copies.
    fn overdue(&self, Workload { leases, batches, .. }: &Workload) -> Option<CopyRule> {
        let is_known = self.times.count() >= ENOUGH_CALLS;
        let free = FREE_USELESS.max(self.times.count() / CALLS_A_USELESS);
        let is_of_use = self.useless < free.max(self.won / 4);
        if !(self.is_on() && is_known && is_of_use && self.has_copies_left()) {
            return None;
        }
        let head = match batches.flow.input {
            Input::Calls => None,
            Input::MayCome | Input::Ended => Some(head(leases)?),
        };
        // A second copy is worth a try only if copies mostly win: otherwise the items themselves are slow.
        let most = if self.won > self.useless { 2 } else { 1 };
        Some(CopyRule { after: self.overdue_after(), last: Priority::Normal, head, most })
    }

    /// The rule while all items of this priority and of higher ones are in hooks, or wait for items there.
    fn standing_still(&self, last: Priority, batches: &RunBatches) -> Option<CopyRule> {
        if !(self.is_on() && stands_still(last, batches)) {
            return None;
        }
        let after = match (batches.flow.input, self.has_copies_left()) {
            (Input::Calls, true) => self.overdue_after(),
            // Each call goes on by itself.
            (Input::Calls, false) => return None,
            (Input::MayCome | Input::Ended, true) => self.idle_after(),
            (Input::MayCome | Input::Ended, false) => self.overdue_after(),
        };
        Some(CopyRule { after, last, head: None, most: 1 })
    }

    /// Takes a copy of a slow item for `helper`.
    pub(super) fn take(
        &mut self,
        turn: CopyTurn,
        helper: ProducerId,
        workload: &mut Workload,
        producers: &RunProducers,
        now: RunTime,
    ) -> Option<Chosen> {
        let rule = match turn {
            // A suspended producer would probably fail it, and the call that has failed keeps others from copying.
            CopyTurn::BeforeAll if producers.takes(helper) == Takes::TriedBefore => None,
            CopyTurn::BeforeAll => self.overdue(workload),
            CopyTurn::BeforeNew(Priority::Normal) => None,
            // All normal items are in hooks, and background items wait.
            CopyTurn::BeforeNew(Priority::Background) => {
                self.standing_still(Priority::Normal, &workload.batches)
            }
            CopyTurn::AfterAll => self.standing_still(Priority::Background, &workload.batches),
        };
        match rule?.chance(helper, workload, &producers.health, now) {
            Chance::Now(slow) => {
                let copy = workload.take_copy(slow)?;
                self.copies = self.copies.saturating_add(1);
                self.counts.made += 1;
                Some(copy)
            }
            Chance::At(_) | Chance::None => None,
        }
    }

    /// Whether `helper` would be given a copy before all other items.
    pub(super) fn has_overdue(
        &self,
        helper: ProducerId,
        workload: &Workload,
        producers: &RunProducers,
        now: RunTime,
    ) -> bool {
        let rule = self.overdue(workload);
        let chance = rule.map(|rule| rule.chance(helper, workload, &producers.health, now));
        matches!(chance, Some(Chance::Now(_)))
    }

    /// The time at which `helper` has to look for an item to copy.
    pub(super) fn next_look(
        &self,
        helper: ProducerId,
        workload: &Workload,
        producers: &RunProducers,
        now: RunTime,
    ) -> Option<RunTime> {
        let overdue = self.overdue(workload).filter(|_| producers.takes(helper) == Takes::All);
        let still = self.standing_still(Priority::Background, &workload.batches);
        let rules = overdue.into_iter().chain(still);
        let chances = rules.map(|rule| rule.chance(helper, workload, &producers.health, now));
        let looks = chances.filter_map(|chance| match chance {
            Chance::At(due) => Some(due),
            Chance::Now(_) | Chance::None => None,
        });
        looks.min()
    }

    /// Wakes the producers that could copy slow items and have no time set for a look of their own.
    #[inline]
    pub(super) fn wake_helpers(&self, workload: &Workload, producers: &mut RunProducers) {
        if !self.is_on() || producers.waiters.is_empty() {
            return;
        }
        if stands_still(Priority::Background, &workload.batches) || self.overdue(workload).is_some()
        {
            producers.wake_those_without_time();
        }
    }
}

impl CopyRule {
    /// Finds the earliest slow call of another producer for `helper` to copy.
    fn chance(
        self,
        helper: ProducerId,
        Workload { items, leases, .. }: &Workload,
        health: &ProducerHealth,
        now: RunTime,
    ) -> Chance {
        let those = leases.iter().filter(|(_, held)| {
            let is_head = self.head.is_none_or(|head| held.first_item() == Some(head));
            is_head && priority_of(&held.items) <= self.last && is_copyable(held)
        });
        let due = those.filter_map(|(id, held)| {
            let since = self.since(helper, held, items, leases)?;
            let due = due(helper, held.producer, since, leases, health)?.after(self.after);
            let is_due = due <= now;
            // Calls that are due come first, by the index of their first item.
            Some(((!is_due).then_some(due), held.first_item()?, id))
        });
        match due.min() {
            Some((None, _, id)) => Chance::Now(id),
            Some((Some(due), ..)) => Chance::At(due),
            None => Chance::None,
        }
    }

    /// The start of the latest call for the items of `held`. `None` if `helper` may not copy it: it has a call for one of
    /// them, they have enough calls, or one has failed. Without this limit, copies could go on for ever.
    fn since(
        self,
        helper: ProducerId,
        held: &Held,
        items: &Items,
        leases: &Leases,
    ) -> Option<RunTime> {
        let records = || held.items.iter().filter_map(|item| items.get(item.index));
        let calls = records().map(|record| record.carriers).max().unwrap_or(1);
        let has_failed = records().any(|record| record.state == ItemState::Deferred);
        if calls > self.most || has_failed {
            return None;
        }
        let all = match calls {
            0 | 1 => vec![held],
            _ => leases
                .covering(held.first_item()?)
                .into_iter()
                .filter_map(|it| leases.get(it))
                .collect(),
        };
        let is_own = all.iter().any(|call| call.producer == helper);
        if is_own { None } else { all.iter().map(|call| call.since).max() }
    }
}

/// The first item that is in a hook.
fn head(leases: &Leases) -> Option<u64> {
    let wanted = leases.iter().filter(|(_, held)| !held.is_stale());
    wanted.filter_map(|(_, held)| held.first_item()).min()
}

/// Whether all items of this priority and of higher ones are in hooks, or wait for items there.
fn stands_still(last: Priority, batches: &RunBatches) -> bool {
    match batches.flow.input {
        Input::Calls => match last {
            Priority::Normal => !batches.pending.has(Priority::Normal),
            Priority::Background => batches.pending.is_empty(),
        },
        Input::MayCome | Input::Ended => {
            batches.more() == More::Never && batches.flow.consumer == Activity::Waiting
        }
    }
}

fn is_copyable(held: &Held) -> bool {
    held.phase == Phase::Working && held.copies == Copies::Kept && !held.is_stale()
}

/// The time from which `helper` counts the duration of a call of `slow`, which began at `since`.
///
/// The slow part may be a GPU. So producers on other GPUs help first: `helper` must wait while one of them is
/// idle, and otherwise until all their calls are slow too.
fn due(
    helper: ProducerId,
    slow: ProducerId,
    since: RunTime,
    leases: &Leases,
    health: &ProducerHealth,
) -> Option<RunTime> {
    let mut better = health.better_helpers(helper, slow);
    better.try_fold(since, |last, other| {
        let busy_since = leases.of(other).map(|(_, held)| held.since).min()?;
        Some(last.max(busy_since))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(calls: u32, took: Duration) -> Speculation {
        let mut speculation = Speculation::new(Some(10 * MS));
        (0..calls).for_each(|_| speculation.note(took, false));
        speculation
    }

    #[test]
    fn a_call_has_three_times_the_95th_percentile() {
        let limits = |it: &Speculation| [it.idle_after(), it.overdue_after()];
        assert_eq!(limits(&after(0, MS)), [10 * MS; 2]);
        assert_eq!(limits(&after(1, MS)), [10 * MS; 2], "shorter calls are not worth it");
        let mut speculation = after(95, 64 * MS);
        (0..5).for_each(|_| speculation.note(1_000 * MS, false));
        let [idle, overdue] = limits(&speculation);
        assert!((80 * MS..84 * MS).contains(&idle), "{idle:?}");
        assert!((192 * MS..200 * MS).contains(&overdue), "{overdue:?}");
    }

    #[test]
    fn there_is_one_copy_for_fifty_calls() {
        for (calls, most) in [(0, 8), (400, 8), (1_000, 20), (8_000, 160)] {
            let with = |copies| Speculation { copies, ..after(calls, MS) }.has_copies_left();
            assert!(with(most - 1) && !with(most), "{calls}");
        }
    }
}
