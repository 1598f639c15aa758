//! The state of one producer, derived from events.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use gangline_report::shortened;

use super::display_text::{clipped, duration, printable};

/// The current work of one producer, and its busy time.
#[derive(Debug, Clone)]
pub(super) struct ProducerWatch {
    /// The place of the producer, as displayed. Empty for a seat of a cluster that has no worker.
    pub(super) place: String,
    /// The number of items that the producer finished.
    pub(super) items: u64,
    doing: ShownActivity,
    /// The reason why the producer was lost.
    out_of_use: Option<String>,
    /// The working time of the producer, within the known time.
    busy: Duration,
    known: Duration,
    /// The time up to which `busy` and `known` count.
    counted: Duration,
    /// Whether events of this producer may be missing since then.
    misses: Misses,
    is_worker: bool,
}

#[derive(Debug, Clone)]
enum ShownActivity {
    Starting,
    Waiting,
    Working(ShownCall),
    /// The items in hooks of a worker, each with its own beginning: at least one.
    Serving(Vec<ShownCall>),
}

/// A call of a hook of the producer, with one item or a batch.
#[derive(Debug, Clone)]
struct ShownCall {
    /// The items of the call, of which the first is shown.
    items: Vec<(u64, Option<Arc<str>>)>,
    attempt: u32,
    done: usize,
    since: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misses {
    Nothing,
    Events,
}

const LONGEST_PLACE: usize = 24;
const LONGEST_NAME: usize = 40;
/// A narrow terminal rather cuts off the time than all of the name.
const SHORTEST_NAME: usize = 12;

impl ProducerWatch {
    pub(super) fn new(place: &str) -> Self {
        ProducerWatch {
            place: clipped(&printable(place), LONGEST_PLACE).into_owned(),
            items: 0,
            doing: ShownActivity::Starting,
            out_of_use: None,
            busy: Duration::ZERO,
            known: Duration::ZERO,
            counted: Duration::ZERO,
            misses: Misses::Nothing,
            is_worker: false,
        }
    }

    /// The watch of a worker that takes a seat of a cluster.
    pub(super) fn of_worker(place: &str, at: Duration) -> Self {
        ProducerWatch { counted: at, is_worker: true, ..ProducerWatch::new(place) }
    }

    /// Whether the producer is a seat of a cluster without a worker.
    pub(super) fn is_vacant(&self) -> bool {
        self.place.is_empty()
    }

    pub(super) fn set_ready(&mut self, at: Duration) {
        self.count_up_to(at);
        if matches!(self.doing, ShownActivity::Starting) {
            self.doing = ShownActivity::Waiting;
        }
    }

    pub(super) fn starts(&mut self, at: Duration, item: u64, key: Option<&Arc<str>>, attempt: u32) {
        let lacks = self.misses == Misses::Events;
        self.count_up_to(at);
        let items = || vec![(item, key.cloned())];
        let new_call = || ShownCall { items: items(), attempt, done: 0, since: at };
        match &mut self.doing {
            ShownActivity::Serving(calls) if !lacks => calls.push(new_call()),
            _ if self.is_worker => self.doing = ShownActivity::Serving(vec![new_call()]),
            // A batch: its items begin and end together. An item begun before events were lost has very
            // likely ended, and must not be shown with an ever longer time.
            ShownActivity::Working(call) if call.done == 0 && !lacks => {
                call.items.push((item, key.cloned()));
            }
            _ => self.doing = ShownActivity::Working(new_call()),
        }
    }

    pub(super) fn finishes(&mut self, at: Duration, item: u64) {
        self.count_up_to(at);
        self.items += 1;
        match &mut self.doing {
            ShownActivity::Working(call) if call.done + 1 < call.items.len() => call.done += 1,
            ShownActivity::Serving(calls) if calls.iter().any(|call| !call.is_of(item)) => {
                calls.retain(|call| !call.is_of(item));
            }
            _ => self.doing = ShownActivity::Waiting,
        }
    }

    /// The hook has counted this much of its time up to now as no work.
    pub(super) fn note_pause(&mut self, at: Duration, took: Duration) {
        self.count_up_to(at);
        self.busy = self.busy.saturating_sub(took);
        if let ShownActivity::Working(call) = &mut self.doing {
            call.since += took;
        }
    }

    /// Returns the name of an item that the producer works on, and for how long it has.
    pub(super) fn works_on(&self, item: u64, at: Duration) -> Option<(String, Duration)> {
        let calls = match &self.doing {
            ShownActivity::Working(call) => std::slice::from_ref(call),
            ShownActivity::Serving(calls) => calls,
            ShownActivity::Starting | ShownActivity::Waiting => &[],
        };
        calls.iter().find_map(|call| {
            let (item, key) = call.items.iter().find(|(index, _)| *index == item)?;
            Some((name(*item, key.as_deref(), LONGEST_NAME), at.saturating_sub(call.since)))
        })
    }

    /// Events were lost, possibly of this producer: its work is unknown until its next event.
    pub(super) fn note_missed_events(&mut self) {
        self.misses = Misses::Events;
    }

    pub(super) fn set_out_of_use(&mut self, why: &str) {
        self.out_of_use = Some(printable(why).into_owned());
    }

    pub(super) fn is_lost(&self) -> bool {
        self.out_of_use.is_some()
    }

    /// Returns the working time of the producer, and the known time that it is part of.
    pub(super) fn busy(&self, at: Duration) -> (Duration, Duration) {
        let open = match self.misses {
            Misses::Nothing => at.saturating_sub(self.counted),
            Misses::Events => Duration::ZERO,
        };
        let working = matches!(self.doing, ShownActivity::Working(_) | ShownActivity::Serving(_));
        (self.busy + if working { open } else { Duration::ZERO }, self.known + open)
    }

    /// Describes the current work of the producer, in about `room` characters if a key is long.
    pub(super) fn doing(&self, at: Duration, room: usize) -> String {
        match (&self.out_of_use, &self.doing) {
            (Some(why), _) => why.clone(),
            (None, _) if self.misses == Misses::Events => "many items".to_owned(),
            (None, ShownActivity::Starting) => "starting".to_owned(),
            (None, ShownActivity::Waiting) => "waiting".to_owned(),
            (None, ShownActivity::Working(call)) => call.text(at, room),
            (None, ShownActivity::Serving(calls)) => {
                let first = calls.first().expect("it serves an item");
                let items = calls.iter().flat_map(|call| call.items.clone()).collect();
                ShownCall { items, ..first.clone() }.text(at, room)
            }
        }
    }

    fn count_up_to(&mut self, at: Duration) {
        (self.busy, self.known) = self.busy(at);
        self.counted = self.counted.max(at);
        self.misses = Misses::Nothing;
    }
}

impl ShownCall {
    fn is_of(&self, item: u64) -> bool {
        self.items.iter().any(|(index, _)| *index == item)
    }

    fn text(&self, at: Duration, room: usize) -> String {
        let [(item, key), others @ ..] = &*self.items else { unreachable!("a call has an item") };
        let mut text = String::new();
        if !others.is_empty() {
            text += &format!(" and {} more", others.len());
        }
        if self.attempt > 1 {
            text += &format!(", attempt {}", self.attempt);
        }
        text += &format!(", {}", duration(at.saturating_sub(self.since)));
        let room = room.saturating_sub(text.chars().count()).max(SHORTEST_NAME);
        name(*item, key.as_deref(), room) + &text
    }
}

fn name(item: u64, key: Option<&str>, most: usize) -> String {
    match key {
        Some(key) => shortened(&printable(key), most).into_owned(),
        None => format!("item {item}"),
    }
}
