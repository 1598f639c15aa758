//! The state of one producer, derived from events.

use std::sync::Arc;
use std::time::Duration;

use super::text::{clipped, duration, printable};

/// The current work of one producer, and its busy time.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    /// Its place, as displayed.
    pub(super) place: String,
    /// How many items it finished.
    pub(super) items: u64,
    doing: Doing,
    /// Why it was lost.
    out_of_use: Option<String>,
    /// Its working time, within the known time.
    busy: Duration,
    known: Duration,
    /// The time up to which `busy` and `known` count.
    counted: Duration,
    /// Whether events of this producer may be missing since then.
    misses: Misses,
}

#[derive(Debug, Clone)]
enum Doing {
    Starting,
    Waiting,
    Working(Call),
}

/// A call of a hook of the producer, with one item or a batch.
#[derive(Debug, Clone)]
struct Call {
    first: u64,
    key: Option<Arc<str>>,
    attempt: u32,
    items: u64,
    done: u64,
    since: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misses {
    Nothing,
    Events,
}

const LONGEST_PLACE: usize = 24;
const LONGEST_NAME: usize = 40;

impl Watch {
    pub(super) fn new(place: &str) -> Self {
        Watch {
            place: clipped(&printable(place), LONGEST_PLACE).into_owned(),
            items: 0,
            doing: Doing::Starting,
            out_of_use: None,
            busy: Duration::ZERO,
            known: Duration::ZERO,
            counted: Duration::ZERO,
            misses: Misses::Nothing,
        }
    }

    pub(super) fn is_ready(&mut self, at: Duration) {
        self.count_up_to(at);
        if matches!(self.doing, Doing::Starting) {
            self.doing = Doing::Waiting;
        }
    }

    pub(super) fn starts(&mut self, at: Duration, item: u64, key: Option<&Arc<str>>, attempt: u32) {
        let lacks = self.misses == Misses::Events;
        self.count_up_to(at);
        match &mut self.doing {
            // A batch: its items begin and end together. An item begun before events were lost has very
            // likely ended, and must not be shown with an ever longer time.
            Doing::Working(call) if call.done == 0 && !lacks => call.items += 1,
            _ => {
                let key = key.cloned();
                let call = Call { first: item, key, attempt, items: 1, done: 0, since: at };
                self.doing = Doing::Working(call);
            }
        }
    }

    pub(super) fn finishes(&mut self, at: Duration) {
        self.count_up_to(at);
        self.items += 1;
        match &mut self.doing {
            Doing::Working(call) if call.done + 1 < call.items => call.done += 1,
            _ => self.doing = Doing::Waiting,
        }
    }

    /// Events were lost, possibly of this producer: its work is unknown until its next event.
    pub(super) fn may_miss_events(&mut self) {
        self.misses = Misses::Events;
    }

    pub(super) fn is_out_of_use(&mut self, why: &str) {
        self.out_of_use = Some(printable(why).into_owned());
    }

    pub(super) fn is_lost(&self) -> bool {
        self.out_of_use.is_some()
    }

    /// Returns its working time, and the known time that it is part of.
    pub(super) fn busy(&self, at: Duration) -> (Duration, Duration) {
        let open = match self.misses {
            Misses::Nothing => at.saturating_sub(self.counted),
            Misses::Events => Duration::ZERO,
        };
        let working = matches!(self.doing, Doing::Working(_));
        (self.busy + if working { open } else { Duration::ZERO }, self.known + open)
    }

    /// Describes its current work.
    pub(super) fn doing(&self, at: Duration) -> String {
        match (&self.out_of_use, &self.doing) {
            (Some(why), _) => why.clone(),
            (None, _) if self.misses == Misses::Events => "many items".to_owned(),
            (None, Doing::Starting) => "starting".to_owned(),
            (None, Doing::Waiting) => "waiting".to_owned(),
            (None, Doing::Working(call)) => call.text(at),
        }
    }

    fn count_up_to(&mut self, at: Duration) {
        (self.busy, self.known) = self.busy(at);
        self.counted = self.counted.max(at);
        self.misses = Misses::Nothing;
    }
}

impl Call {
    fn text(&self, at: Duration) -> String {
        let mut text = match &self.key {
            Some(key) => clipped(&printable(key), LONGEST_NAME).into_owned(),
            None => format!("item {}", self.first),
        };
        if self.items > 1 {
            text += &format!(" and {} more", self.items - 1);
        }
        if self.attempt > 1 {
            text += &format!(", attempt {}", self.attempt);
        }
        text + ", " + &duration(at.saturating_sub(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_item_is_named_while_it_is_worked_on() {
        let mut watch = Watch::new("cuda:0");
        assert_eq!(watch.doing(s(0)), "starting");
        watch.is_ready(s(1));
        assert_eq!(watch.doing(s(1)), "waiting");
        watch.starts(s(2), 7, None, 1);
        assert_eq!(watch.doing(s(5)), "item 7, 3.0 s");
        watch.finishes(s(6));
        watch.starts(s(6), 7, Some(&"a\n.tif".into()), 2);
        assert_eq!(watch.doing(s(70)), "a\\n.tif, attempt 2, 1 min 04 s");
        assert_eq!(watch.busy(s(8)), (s(6), s(8)));
        assert_eq!(watch.items, 1);
    }

    #[test]
    fn a_batch_is_named_by_its_first_item_until_all_are_done() {
        let mut watch = Watch::new("cpu");
        for item in 4..8 {
            watch.starts(s(1), item, None, 1);
        }
        assert_eq!(watch.doing(s(3)), "item 4 and 3 more, 2.0 s");
        for _ in 4..8 {
            assert_ne!(watch.doing(s(3)), "waiting");
            watch.finishes(s(3));
        }
        assert_eq!(watch.doing(s(3)), "waiting");
        assert_eq!((watch.items, watch.busy(s(4))), (4, (s(2), s(4))));
    }

    #[test]
    fn unknown_time_counts_neither_as_work_nor_as_waiting() {
        let mut watch = Watch::new("cpu");
        watch.starts(s(0), 0, None, 1);
        watch.finishes(s(1));
        watch.starts(s(1), 1, None, 1);
        watch.may_miss_events();
        assert_eq!(watch.doing(s(50)), "many items");
        assert_eq!(watch.busy(s(50)), (s(1), s(1)));
        watch.starts(s(100), 90, None, 1);
        assert_eq!(watch.doing(s(102)), "item 90, 2.0 s", "and not item 1, for 101 s");
        watch.finishes(s(103));
        assert_eq!(watch.busy(s(104)), (s(4), s(5)));
    }

    #[test]
    fn an_end_whose_beginning_was_lost_is_an_end() {
        let mut watch = Watch::new("cpu");
        watch.may_miss_events();
        watch.finishes(s(5));
        assert_eq!((watch.doing(s(6)).as_str(), watch.items), ("waiting", 1));
    }

    #[test]
    fn times_out_of_order_are_harmless() {
        let mut watch = Watch::new("cpu");
        watch.starts(s(5), 0, None, 1);
        assert_eq!(watch.doing(s(4)), "item 0, 0.0 s");
        watch.finishes(s(4));
        assert_eq!(watch.busy(s(3)), (s(0), s(5)));
    }
}
