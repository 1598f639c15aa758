//! When an idle producer starts a copy of what another is slow at.

use std::time::Duration;

use super::health::ProducerHealth;
use super::items::{Items, Record, State};
use super::lease::{Copies, Held, LeaseId, Leases, Phase, ProducerId};
use super::time::RunTime;

/// When slow items are copied.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The least time after which an item is copied. `None`: none ever is.
    least: Option<Duration>,
    /// How many calls there were, and their time together.
    calls: u32,
    took: Duration,
}

/// What an idle producer may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chance {
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

    /// Adds the duration of a call with a result that counted. A call that lost says nothing about the others.
    pub(super) fn note(&mut self, took: Duration) {
        self.calls = self.calls.saturating_add(1);
        self.took = self.took.saturating_add(took);
    }

    /// How long a call lasts before it is copied. What takes twice the mean may well be done next, and a
    /// copy takes as long as the mean.
    fn after(&self) -> Option<Duration> {
        let mean = self.took.checked_div(self.calls);
        let least = self.least?;
        Some(mean.map_or(least, |mean| mean.saturating_mul(2)).max(least))
    }

    /// The earliest item that another producer is too slow at, for `helper` to copy.
    pub(super) fn chance(
        &self,
        helper: ProducerId,
        leases: &Leases,
        items: &Items,
        health: &ProducerHealth,
        now: RunTime,
    ) -> Chance {
        let Some(after) = self.after() else { return Chance::None };
        let others = leases.iter().filter(|(_, held)| {
            held.producer != helper && is_copyable(held) && is_alone(held, items)
        });
        let due = others.filter_map(|(id, held)| {
            let due = due(helper, held, leases, health)?.after(after);
            let is_due = due <= now;
            // What is due goes by its index, and before all that is not.
            Some(((!is_due).then_some(due), held.first_item()?, id))
        });
        match due.min() {
            Some((None, _, id)) => Chance::Now(id),
            Some((Some(due), ..)) => Chance::At(due),
            None => Chance::None,
        }
    }
}

fn is_copyable(held: &Held) -> bool {
    held.phase == Phase::Working && held.copies == Copies::Kept && !held.is_stale()
}

/// Whether no other producer works on any of it, nor has failed any: a third start would never end.
fn is_alone(held: &Held, items: &Items) -> bool {
    let is_copied = |it: &Record| it.carriers > 1 || it.state == State::Deferred;
    !held.items.iter().any(|item| items.get(item.index).is_some_and(is_copied))
}

/// From when on `helper` counts the time of a slow call.
///
/// What is slow may be a GPU. So those that do not share one with the slow producer go first: always
/// while one of them is idle, and else once all of their calls are slow too.
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
