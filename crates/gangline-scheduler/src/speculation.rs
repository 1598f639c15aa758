//! When an idle producer starts a copy of a slow item.

use std::time::Duration;

use super::batches::Batches;
use super::flow::{Activity, Input};
use super::health::ProducerHealth;
use super::items::{ItemRecord, ItemState, Items};
use super::lease::{Chosen, Copies, Held, LeaseId, Leases, Phase, ProducerId, priority_of};
use super::priority::Priority;
use super::producers::Producers;
use super::time::RunTime;
use super::workload::Workload;
use crate::batch::More;

/// The minimum duration of an item that is worth a second copy. The clock of a model stands still.
pub const LEAST_COPY_AFTER: Duration = Duration::from_millis(if cfg!(shuttle) { 0 } else { 10 });

/// When slow items are copied.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The minimum time before a copy. `None`: items are not copied.
    least: Option<Duration>,
    /// The number of calls whose results counted, and their total time.
    calls: u32,
    took: Duration,
}

/// When a producer that asks for work is offered a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Before the new items of this priority.
    BeforeNew(Priority),
    /// After all other items.
    AfterAll,
}

/// What an idle producer may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chance {
    Now(LeaseId),
    At(RunTime),
    None,
}

impl Speculation {
    pub(super) fn new(least: Option<Duration>) -> Self {
        Speculation { least, calls: 0, took: Duration::ZERO }
    }

    pub(super) fn is_on(&self) -> bool {
        self.least.is_some()
    }

    /// Adds the duration of a call whose result counted. The time of a call that lost says nothing about
    /// others.
    pub(super) fn note(&mut self, took: Duration) {
        self.calls = self.calls.saturating_add(1);
        self.took = self.took.saturating_add(took);
    }

    /// The time after which a call is copied: twice the mean. A call may well finish just after that, and a
    /// copy takes about the mean.
    fn after(&self) -> Option<Duration> {
        let least = self.least?;
        let mean = self.took.checked_div(self.calls);
        Some(mean.map_or(least, |mean| mean.saturating_mul(2)).max(least))
    }

    /// Takes a copy of a slow item for `helper`. A copy comes after everything else, when everything waits.
    pub(super) fn take(
        &self,
        turn: Turn,
        helper: ProducerId,
        workload: &mut Workload,
        producers: &Producers,
        now: RunTime,
    ) -> Option<Chosen> {
        match turn {
            Turn::BeforeNew(Priority::Normal) => None,
            // All normal items are in hooks, and background items wait.
            Turn::BeforeNew(Priority::Background) => {
                self.take_slow(Priority::Normal, helper, workload, producers, now)
            }
            Turn::AfterAll => {
                self.take_slow(Priority::Background, helper, workload, producers, now)
            }
        }
    }

    /// Takes a copy of a slow item of this priority, or of a higher one.
    fn take_slow(
        &self,
        last: Priority,
        helper: ProducerId,
        workload: &mut Workload,
        producers: &Producers,
        now: RunTime,
    ) -> Option<Chosen> {
        match self.chance(last, helper, workload, &producers.health, now) {
            Chance::Now(slow) => workload.take_copy(slow),
            Chance::At(_) | Chance::None => None,
        }
    }

    /// The time at which `helper` has to look for an item to copy.
    pub(super) fn next_look(
        &self,
        helper: ProducerId,
        workload: &Workload,
        producers: &Producers,
        now: RunTime,
    ) -> Option<RunTime> {
        match self.chance(Priority::Background, helper, workload, &producers.health, now) {
            Chance::At(due) => Some(due),
            Chance::Now(_) | Chance::None => None,
        }
    }

    /// Wakes the producers that could copy slow items and would not look by themselves.
    #[inline]
    pub(super) fn wake_helpers(&self, batches: &Batches, producers: &mut Producers) {
        if self.is_on() && stands_still(Priority::Background, batches) {
            producers.wake_those_without_time();
        }
    }

    /// Finds the earliest slow item of another producer for `helper` to copy, of this priority or a higher one.
    fn chance(
        &self,
        last: Priority,
        helper: ProducerId,
        Workload { items, leases, batches, .. }: &Workload,
        health: &ProducerHealth,
        now: RunTime,
    ) -> Chance {
        if !(self.is_on() && stands_still(last, batches)) {
            return Chance::None;
        }
        let Some(after) = self.after() else { return Chance::None };
        let others = leases.iter().filter(|(_, held)| {
            let is_wanted = held.producer != helper && priority_of(&held.items) <= last;
            is_wanted && is_copyable(held) && is_alone(held, items)
        });
        let due = others.filter_map(|(id, held)| {
            let due = due(helper, held, leases, health)?.after(after);
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
}

/// Whether all items of this priority and higher ones wait for items that are in hooks.
fn stands_still(last: Priority, batches: &Batches) -> bool {
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

/// Whether no other producer works on any of the items, or has failed one. Without this, copies could go on
/// for ever.
fn is_alone(held: &Held, items: &Items) -> bool {
    let is_copied = |it: &ItemRecord| it.carriers > 1 || it.state == ItemState::Deferred;
    !held.items.iter().any(|item| items.get(item.index).is_some_and(is_copied))
}

/// The time from which `helper` counts the duration of a slow call.
///
/// The slow part may be a GPU. So producers on other GPUs help first: `helper` must wait while one of them is
/// idle, and otherwise until all their calls are slow too.
fn due(
    helper: ProducerId,
    slow: &Held,
    leases: &Leases,
    health: &ProducerHealth,
) -> Option<RunTime> {
    let mut better = health.better_helpers(helper, slow.producer);
    better.try_fold(slow.since, |last, other| {
        let busy_since = leases.of(other).map(|(_, held)| held.since).min()?;
        Some(last.max(busy_since))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_twice_the_time_of_others() {
        let ms = Duration::from_millis;
        let mut speculation = Speculation::new(Some(ms(10)));
        assert_eq!(speculation.after(), Some(ms(10)));
        speculation.note(ms(1));
        assert_eq!(speculation.after(), Some(ms(10)));
        speculation.note(ms(59));
        assert_eq!(speculation.after(), Some(ms(60)));
        assert_eq!(Speculation::new(None).after(), None);
    }
}
