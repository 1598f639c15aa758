//! A worker's part in one run, from its join to its end, as a value: it takes events with their times, and gives actions.
//!
//! [`WorkerPart`] has no client, task or clock. `serving` performs its actions, and hands it what they lead to.
//!
//! # Calls
//!
//! [`WorkerPart::handle`] takes one event. [`WorkerPart::flush`] ends a batch of events and returns the actions. So items
//! that begin in one batch go in one notice, and hooks that end in one batch make room for one request. `flush` is to be called
//! at [`WorkerPart::next_time`] too.
//!
//! # The way of an item
//!
//! `New` → (`Claiming` → `Granted`) → (`Reading`) → `Submitted` → (`GivenUp` or `Storing`) → `Answered`. An item is claimed if
//! another worker may have had it. `part/work` has these steps; this file has what concerns the part as a whole.

mod answer;
mod event;
mod groups;
mod items;
mod requests;
mod results;
mod work;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub(super) use self::event::{LoadedService, PartAction, PartEnding, PartEvent, PartSettings};
use self::groups::MessageGroups;
use self::items::{HeldItems, ItemStep};
use self::requests::ItemRequests;
pub(super) use self::requests::{PULL, RequestEnd};
use self::results::ResultGroups;
use super::connection::REQUEST_TIMEOUT;
use super::delivery::Acknowledgement;
use super::hook_times::{HookMeter, HookTimes};
use super::publication::Address;
use super::wire::{Command, JoinReply, Joining, WorkerNews};

/// A bound for the number of a publication in a message.
const BEGUN_BYTES: usize = 10;
/// The longest time before a seat is asked for again, and the least before consumers are.
const SEAT_AGAIN: Duration = Duration::from_secs(1);

/// A worker's part in one run.
#[derive(Debug)]
pub(super) struct WorkerPart {
    settings: PartSettings,
    /// `None` while it is being made.
    service: Option<LoadedService>,
    phase: PartPhase,
    /// Nothing waits for the items of this part.
    is_run_over: bool,
    /// Why this worker has no producers any more.
    lost: Option<String>,
    items: HeldItems,
    /// Publications up to this one are given up; `u64::MAX` if all are.
    floor: u64,
    /// The coordinator wants to know when no item up to these is held.
    drains: BTreeSet<u64>,
    requests: ItemRequests,
    /// The items of which the coordinator is to hear that a hook begins them.
    begun: MessageGroups<u64>,
    results: ResultGroups,
    meter: HookMeter,
    renewal: LeaseRenewal,
    /// When the coordinator was last asked for the consumers of this worker, which has a seat.
    repaired: Option<Instant>,
    actions: Vec<PartAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartPhase {
    /// The service is being made, or cannot be made.
    Loading,
    /// A seat was asked for, or is asked for again at this time.
    Joining {
        again: Option<Instant>,
    },
    Seated,
    /// No more items begin. The part leaves once it holds none.
    Closing,
    /// The coordinator knows that this part ends. Items on their way are handed back, until this time.
    Left {
        until: Instant,
    },
    Over,
}

/// When the broker is told that this worker still has its items, and whether that came too late.
#[derive(Debug, Default)]
struct LeaseRenewal {
    last: Option<Instant>,
    /// This process was stopped for so long that its lease may have ended. Until the coordinator grants a claim, each item
    /// is claimed before it is begun.
    is_doubtful: bool,
}

impl WorkerPart {
    pub(super) fn new(settings: PartSettings) -> Self {
        let most = settings.most_inline;
        WorkerPart {
            settings,
            service: None,
            phase: PartPhase::Loading,
            is_run_over: false,
            lost: None,
            items: HeldItems::default(),
            floor: 0,
            drains: BTreeSet::new(),
            requests: ItemRequests::default(),
            begun: MessageGroups::new((most / BEGUN_BYTES).max(1)),
            results: ResultGroups::new(most),
            meter: HookMeter::default(),
            renewal: LeaseRenewal::default(),
            repaired: None,
            actions: vec![],
        }
    }

    /// Takes an event that happened at a time.
    pub(super) fn handle(&mut self, event: PartEvent, at: Instant) {
        match event {
            PartEvent::Loaded(loaded) => self.load(loaded),
            PartEvent::SeatAnswered(reply) => self.take_seat(reply, at),
            PartEvent::Delivered { request, item } => self.deliver(request, item, at),
            PartEvent::RequestOver { request, end } => {
                self.requests.close(request, end, at);
                if end == RequestEnd::Refused {
                    self.ask_for_consumers(at);
                }
            }
            PartEvent::Restored => self.requests.lose_all(at),
            PartEvent::ClaimAnswered(publication, reply) => self.take_claim(publication, reply),
            PartEvent::InputRead(publication, input) => self.take_input(publication, input, at),
            PartEvent::HookBegins(publication) => self.note_begin(publication, at),
            PartEvent::HookAnswered(publication, answer) => {
                self.take_answer(publication, answer, at);
            }
            PartEvent::HookOver(publication) => self.end_hook(publication, at),
            PartEvent::BegunSent => self.begun.arrived(at),
            PartEvent::OutputStored(publication, object, stored) => {
                self.take_stored_output(publication, (object, stored), at);
            }
            PartEvent::ResultsStored(group, stored) => self.take_stored_results(group, stored, at),
            PartEvent::Order(command) => self.obey(command, at),
            PartEvent::End(ending) => self.end(ending, at),
        }
    }

    /// Ends a batch of events, and returns what is to be done. `reading` has the times of the service's hooks.
    pub(super) fn flush(&mut self, now: Instant, reading: HookTimes) -> Vec<PartAction> {
        self.requests.advance(now);
        self.ask_for_seat(now);
        self.renew_lease(now);
        self.abandon_hooks(now);
        self.begin_items();
        self.meter.note(self.items.are_worked_on(), reading);
        while let Some(publications) = self.begun.next(now) {
            self.actions.push(PartAction::AnnounceBegun(publications));
        }
        self.publish_results(now, self.meter.times(reading));
        self.report_drains(self.meter.times(reading));
        self.ask_for_items(now);
        self.leave(now, self.meter.times(reading));
        std::mem::take(&mut self.actions)
    }

    /// When `flush` is to be called, also without an event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let phase = match self.phase {
            PartPhase::Over => return None,
            PartPhase::Joining { again } => again,
            PartPhase::Left { until } => Some(until),
            PartPhase::Loading | PartPhase::Seated | PartPhase::Closing => None,
        };
        let renewal = self.renewal.last.map(|last| last + self.settings.key.lease() / 4);
        let given_up = self.items.held.values().filter_map(|item| match item.step {
            ItemStep::GivenUp { until } => until,
            _ => None,
        });
        let messages = [self.begun.next_time(), self.results.next_time()];
        let times = [phase, renewal, self.requests.next_time()].into_iter().chain(messages);
        times.flatten().chain(given_up).min()
    }

    /// Publications up to this one are given up: neither their outputs nor their results are wanted.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Whether the part has ended.
    pub(super) fn is_over(&self) -> bool {
        self.phase == PartPhase::Over
    }

    fn load(&mut self, loaded: Result<LoadedService, String>) {
        if self.phase != PartPhase::Loading {
            return;
        }
        match loaded {
            Ok(service) => {
                self.service = Some(service);
                self.phase = PartPhase::Joining { again: None };
                self.request_seat();
            }
            Err(reason) => {
                let host = self.settings.host.clone();
                // Another try would fail too, until the coordinator has another configuration, and so another key.
                self.notify(WorkerNews::Unable { host, reason });
            }
        }
    }

    fn take_seat(&mut self, reply: Option<JoinReply>, at: Instant) {
        if !matches!(self.phase, PartPhase::Joining { .. }) {
            return tracing::debug!("joined again: {reply:?}");
        }
        self.phase = match reply {
            Some(JoinReply::Seated) => PartPhase::Seated,
            Some(JoinReply::Banned) => PartPhase::Over,
            Some(JoinReply::Full) | None => PartPhase::Joining {
                again: Some(at + (self.settings.key.lease() / 4).min(SEAT_AGAIN)),
            },
        };
    }

    fn ask_for_seat(&mut self, now: Instant) {
        if let PartPhase::Joining { again: Some(again) } = self.phase
            && again <= now
        {
            self.phase = PartPhase::Joining { again: None };
            self.request_seat();
        }
    }

    /// Asks for its seat once more, for which the coordinator makes the consumers that are missing: the broker or a person
    /// may have removed them.
    fn ask_for_consumers(&mut self, now: Instant) {
        let is_due = self.repaired.is_none_or(|last| now.duration_since(last) >= SEAT_AGAIN);
        if self.phase == PartPhase::Seated && is_due {
            self.repaired = Some(now);
            self.request_seat();
        }
    }

    fn request_seat(&mut self) {
        let Some(service) = self.service else { return };
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let join = WorkerNews::Join(Box::new(Joining {
            part: self.settings.part,
            host: self.settings.host.clone(),
            pid: self.settings.pid,
            capacity: number(service.capacity),
            producers: number(service.producers),
            init: service.init,
        }));
        let within = REQUEST_TIMEOUT.min(self.settings.key.lease());
        self.actions.push(PartAction::AskForSeat { join, within });
    }

    fn obey(&mut self, command: Command, at: Instant) {
        match command {
            Command::Stay => {}
            Command::Cancel(publication) => self.give_up(publication, at),
            Command::Drain(upto) => {
                self.drains.insert(upto);
                self.give_up_to(upto, at);
            }
            Command::Leave => {
                if self.phase == PartPhase::Seated {
                    self.close();
                    self.give_up_to(u64::MAX, at);
                }
            }
            // The coordinator has forgotten this worker. A part that ends has left its seat.
            Command::Rejoin => {
                if self.phase == PartPhase::Seated {
                    self.request_seat();
                }
            }
        }
    }

    fn end(&mut self, ending: PartEnding, at: Instant) {
        self.is_run_over |= ending == PartEnding::Over;
        match self.phase {
            PartPhase::Loading | PartPhase::Joining { .. } => self.phase = PartPhase::Over,
            PartPhase::Seated => {
                self.close();
                if ending == PartEnding::Over {
                    self.give_up_to(u64::MAX, at);
                }
            }
            PartPhase::Closing | PartPhase::Left { .. } | PartPhase::Over => {}
        }
    }

    /// From now on, no items are begun or asked for. Those that have not begun are handed back.
    fn close(&mut self) {
        if self.phase != PartPhase::Seated {
            return;
        }
        self.phase = PartPhase::Closing;
        for publication in self.items.list(u64::MAX, ItemStep::is_before_begin) {
            self.let_go(publication, Acknowledgement::Return(Duration::ZERO));
        }
    }

    /// Gives up all items up to a publication.
    fn give_up_to(&mut self, upto: u64, at: Instant) {
        self.floor = self.floor.max(upto);
        for publication in self.items.list(upto, |_| true) {
            self.give_up(publication, at);
        }
    }

    /// Tells the coordinator up to which publications no hook has an item any more.
    fn report_drains(&mut self, times: HookTimes) {
        let first = self.items.held.keys().next().copied();
        while let Some(&upto) = self.drains.first()
            && first.is_none_or(|first| first > upto)
        {
            self.drains.remove(&upto);
            self.notify(WorkerNews::Drained(upto, times));
        }
    }

    /// Tells the broker that this worker still has its items, so that others do not get them.
    fn renew_lease(&mut self, now: Instant) {
        if let PartPhase::Loading | PartPhase::Joining { .. } | PartPhase::Over = self.phase {
            return;
        }
        let most = self.settings.key.lease() / 2;
        let since = self.renewal.last.map(|last| now.saturating_duration_since(last));
        self.renewal.is_doubtful |= since.is_some_and(|since| since > most);
        if since.is_none_or(|since| since >= self.settings.key.lease() / 4) {
            self.renewal.last = Some(now);
            for item in self.items.held.values() {
                let (reply, kind) = (item.delivered.reply.clone(), Acknowledgement::Extend);
                self.actions.push(PartAction::Acknowledge { reply, kind });
            }
        }
    }

    /// Asks for as many items for any worker as there are idle producers, and for one item for this worker.
    fn ask_for_items(&mut self, now: Instant) {
        if self.phase != PartPhase::Seated {
            return;
        }
        let any = self.room();
        // A hook may never return, so the next item waits for the beginning of the last alone.
        let own = self.items.waiting(Address::Own) + self.requests.asked(Address::Own);
        for (from, count) in [(Address::Own, 1_usize.saturating_sub(own)), (Address::Any, any)] {
            if let Some(request) = self.requests.open(from, count, now) {
                self.actions.push(PartAction::Pull { request, from, count });
            }
        }
    }

    /// The number of items for any worker that this one can have beside those that it has, and has asked for.
    fn room(&self) -> usize {
        let capacity = self.service.map_or(0, |service| service.capacity);
        let asked = self.requests.asked(Address::Any);
        capacity.saturating_sub(self.items.taken(Address::Any) + asked)
    }

    /// Says that this part ends, once it holds no items. Then waits for items on their way: the coordinator does not know
    /// which worker gets an item for any.
    fn leave(&mut self, now: Instant, times: HookTimes) {
        if self.phase == PartPhase::Closing && self.items.held.is_empty() {
            let lost = self.lost.take().map(|reason| format!("its producers are gone: {reason}"));
            let last_result = self.results.last_place();
            self.notify(WorkerNews::Leaving { times, lost: lost.clone(), last_result });
            self.phase = PartPhase::Left { until: now + PULL };
            if let Some(reason) = lost {
                self.actions.push(PartAction::EndProcess(reason));
                self.phase = PartPhase::Over;
            }
        }
        if let PartPhase::Left { until } = self.phase
            && (self.is_run_over || until <= now || self.requests.asked(Address::Any) == 0)
        {
            self.phase = PartPhase::Over;
        }
    }

    fn notify(&mut self, news: WorkerNews) {
        self.actions.push(PartAction::Notify(news));
    }
}
