//! The laws of a part, under random events in any order.
//!
//! - At most `capacity` items are begun at a time, and as many for any worker are begun, held or asked for.
//! - No item begins once the part ends. One that was delivered before begins only if the coordinator grants it.
//! - A message is acknowledged or handed back once for each delivery, and not while a hook has its item, unless the item was
//!   given up. After an answer, that comes once its result is stored.
//! - Each item that begins is announced once. No item up to a drained publication is held.
//! - A part that ends does end, and holds nothing then.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::part::PartPhase;
use crate::part::items::ItemStep;

/// What may happen next to what the part has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    Seat,
    Claim(u64),
    Input(u64),
    Begin(u64),
    Answer(u64),
    Over(u64),
    BegunSent,
    Output(u64),
    Results(u64),
}

/// The message of an item.
#[derive(Debug, Default)]
struct Message {
    has_object: bool,
    deliveries: u64,
    is_held: bool,
    is_granted: bool,
    /// The coordinator does not want it.
    is_unwanted: bool,
    is_begun: bool,
    is_given_up: bool,
    /// No producer of the worker will answer for it.
    is_lost: bool,
    is_stored: bool,
}

struct World {
    script: Script,
    capacity: usize,
    /// The requests for items, with the number of those that have not come.
    requests: BTreeMap<u64, (Address, usize)>,
    messages: BTreeMap<u64, Message>,
    last: u64,
    pending: Vec<Pending>,
    groups: BTreeMap<u64, Vec<u64>>,
    /// The items that have begun and are not announced.
    unannounced: Vec<u64>,
    /// The last publication up to which an order gives items up.
    floor: u64,
    is_closed: bool,
    leaves: u32,
}

impl World {
    fn new(capacity: usize) -> Self {
        World {
            script: Script::joining(capacity, Some(Duration::from_secs(1))),
            capacity,
            requests: BTreeMap::new(),
            messages: BTreeMap::new(),
            last: 0,
            pending: vec![Pending::Seat],
            groups: BTreeMap::new(),
            unannounced: vec![],
            floor: 0,
            is_closed: false,
            leaves: 0,
        }
    }

    /// One event, or some time. `pick` says which of several it is about.
    fn step(&mut self, kind: u8, pick: usize) -> Result<(), TestCaseError> {
        match kind {
            0..=39 => self.deliver(pick),
            40..=84 => self.answer(pick),
            85..=88 => self.end_request(pick),
            89..=94 => {
                let millis = [0, 1, 300, 2500, 6000, 11_000][pick % 6];
                self.script.now += Duration::from_millis(millis);
                Ok(())
            }
            95..=98 => self.order(pick),
            _ => match pick % 20 {
                0 => self.close(PartEnding::Drain),
                1 => self.close(PartEnding::Over),
                _ => self.event(PartEvent::Restored),
            },
        }
    }

    fn close(&mut self, ending: PartEnding) -> Result<(), TestCaseError> {
        self.is_closed = true;
        self.event(PartEvent::End(ending))
    }

    fn event(&mut self, event: PartEvent) -> Result<(), TestCaseError> {
        self.script.part.handle(event, self.script.now);
        let actions = std::mem::take(&mut self.script.part.actions);
        actions.into_iter().try_for_each(|action| self.perform(action))
    }

    /// The step of an item, as the part has it.
    fn step_of(&self, publication: u64) -> Option<&ItemStep> {
        self.script.part.items.held.get(&publication).map(|item| &item.step)
    }

    /// A new item, or one that is delivered again.
    fn deliver(&mut self, pick: usize) -> Result<(), TestCaseError> {
        let requests: Vec<_> = self.requests.keys().copied().collect();
        let Some(&request) = requests.get(pick % requests.len().max(1)) else { return Ok(()) };
        let publication = if pick.is_multiple_of(4) && self.last > 0 {
            (pick / 4) as u64 % self.last + 1
        } else {
            self.last += 1;
            let has_object = pick.is_multiple_of(3);
            self.messages.insert(self.last, Message { has_object, ..Message::default() });
            self.last
        };
        let message = self.messages.get_mut(&publication).unwrap();
        message.deliveries += 1;
        if !message.is_held {
            message.is_held = true;
            (message.is_granted, message.is_unwanted) = (false, false);
        }
        let object = Object { name: "in".to_owned(), bytes: 900, chunk: 100 };
        let object = message.has_object.then_some(object);
        let left = &mut self.requests.get_mut(&request).unwrap().1;
        *left -= 1;
        if *left == 0 {
            self.requests.remove(&request);
        }
        let item = item(publication, message.deliveries, object);
        self.event(PartEvent::Delivered { request, item })
    }

    fn end_request(&mut self, pick: usize) -> Result<(), TestCaseError> {
        let requests: Vec<_> = self.requests.keys().copied().collect();
        let Some(&request) = requests.get(pick % requests.len().max(1)) else { return Ok(()) };
        self.requests.remove(&request);
        let end = if pick.is_multiple_of(2) { RequestEnd::Ended } else { RequestEnd::Refused };
        self.event(PartEvent::RequestOver { request, end })
    }

    fn order(&mut self, pick: usize) -> Result<(), TestCaseError> {
        let publication = (pick / 8) as u64 % (self.last + 1);
        let command = match pick % 8 {
            0 => {
                self.is_closed |= self.script.part.phase == PartPhase::Seated;
                Command::Leave
            }
            1 | 2 => {
                self.floor = self.floor.max(publication);
                Command::Drain(publication)
            }
            3 => Command::Rejoin,
            4 => Command::Stay,
            _ => {
                let message = self.messages.get_mut(&publication);
                message.into_iter().for_each(|it| it.is_unwanted = it.is_held);
                Command::Cancel(publication)
            }
        };
        self.event(PartEvent::Order(command))
    }

    fn answer(&mut self, pick: usize) -> Result<(), TestCaseError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = self.pending.swap_remove(pick % self.pending.len());
        let variant = pick / 16;
        let said = || "full".to_owned();
        let event = match pending {
            Pending::Seat => PartEvent::SeatAnswered(match variant % 4 {
                0 => Some(JoinReply::Full),
                1 => None,
                _ => Some(JoinReply::Seated),
            }),
            Pending::Claim(publication) => {
                let reply = [
                    Some(ClaimReply::Begin),
                    Some(ClaimReply::Begin),
                    Some(ClaimReply::Later),
                    Some(ClaimReply::Never),
                    Some(ClaimReply::Unknown),
                    None,
                ][variant % 6];
                if matches!(self.step_of(publication), Some(ItemStep::Claiming)) {
                    let message = self.messages.get_mut(&publication).unwrap();
                    message.is_granted |= reply == Some(ClaimReply::Begin);
                    message.is_unwanted |= reply == Some(ClaimReply::Never);
                }
                PartEvent::ClaimAnswered(publication, reply)
            }
            Pending::Input(publication) => {
                let read = [Ok(Some(vec![1])), Ok(Some(vec![2])), Ok(None), Err(said())];
                let read = read[variant % 4].clone();
                let message = self.messages.get_mut(&publication).unwrap();
                message.is_begun &= matches!(read, Ok(Some(_)));
                PartEvent::InputRead(publication, read)
            }
            Pending::Begin(publication) => {
                self.unannounced.push(publication);
                PartEvent::HookBegins(publication)
            }
            Pending::Answer(publication) => {
                self.pending.retain(|it| *it != Pending::Begin(publication));
                PartEvent::HookAnswered(publication, self.answer_of(publication, variant))
            }
            Pending::Over(publication) => {
                self.pending.retain(|it| *it != Pending::Begin(publication));
                self.messages.get_mut(&publication).unwrap().is_begun = false;
                PartEvent::HookOver(publication)
            }
            Pending::BegunSent => PartEvent::BegunSent,
            Pending::Output(publication) => {
                let object = Object { name: "out".to_owned(), bytes: 900, chunk: 100 };
                let stored = if variant.is_multiple_of(5) { Err(said()) } else { Ok(()) };
                PartEvent::OutputStored(publication, object, stored)
            }
            Pending::Results(group) => {
                for publication in &self.groups[&group] {
                    self.messages.get_mut(publication).unwrap().is_stored = true;
                }
                let stored = [Ok(Some(group)), Ok(Some(group)), Ok(None), Err(said())];
                PartEvent::ResultsStored(group, stored[variant % 4].clone())
            }
        };
        self.event(event)
    }

    fn answer_of(&mut self, publication: u64, variant: usize) -> TaskAnswer {
        match variant % 64 {
            0 if matches!(self.step_of(publication), Some(ItemStep::Submitted { .. })) => {
                self.is_closed = true;
                self.messages.get_mut(&publication).unwrap().is_lost = true;
                TaskAnswer::Ended { reason: "gone".to_owned(), timeout: None }
            }
            1..=12 => TaskAnswer::Output(vec![0; MOST_INLINE + 1]),
            _ => TaskAnswer::Output(vec![0; 10]),
        }
    }

    /// Ends a batch of events, and does what the part asks for.
    fn flush(&mut self) -> Result<(), TestCaseError> {
        for action in self.script.take([]) {
            self.perform(action)?;
        }
        let begun = self.messages.values().filter(|it| it.is_begun).count();
        prop_assert!(begun <= self.capacity, "{begun} items are begun");
        let part = &self.script.part;
        let taken = part.items.taken(Address::Any) + part.requests.asked(Address::Any);
        prop_assert!(taken <= self.capacity, "{taken} items are there or asked for");
        let is_announced = self.pending.contains(&Pending::BegunSent);
        prop_assert!(is_announced || self.unannounced.is_empty(), "{:?}", self.unannounced);
        if part.is_over() {
            let held = self.messages.values().filter(|it| it.is_held).count();
            prop_assert_eq!(held, 0, "the part is over");
        }
        Ok(())
    }

    fn perform(&mut self, action: PartAction) -> Result<(), TestCaseError> {
        match action {
            PartAction::AskForSeat { .. } => self.pending.push(Pending::Seat),
            PartAction::Claim { publication, .. } => self.pending.push(Pending::Claim(publication)),
            PartAction::Pull { request, from, count } => {
                prop_assert!(!self.is_closed && count > 0);
                self.requests.insert(request, (from, count));
            }
            PartAction::Acknowledge { reply, kind } => self.acknowledge(&reply, kind)?,
            PartAction::Notify(WorkerNews::Drained(upto, _)) => {
                let held = self.messages.range(..=upto).filter(|it| it.1.is_held).count();
                prop_assert_eq!(held, 0, "drained up to {}", upto);
            }
            PartAction::Notify(WorkerNews::Leaving { .. }) => self.leaves += 1,
            PartAction::Notify(_) | PartAction::EndProcess(_) => {}
            PartAction::AnnounceBegun(publications) => {
                for publication in publications {
                    let begun = self.unannounced.iter().position(|it| *it == publication);
                    prop_assert!(begun.is_some(), "{publication} has not begun");
                    begun.into_iter().for_each(|n| _ = self.unannounced.remove(n));
                }
                self.pending.push(Pending::BegunSent);
            }
            PartAction::ReadInput { publication, .. } => {
                self.begin(publication)?;
                self.pending.push(Pending::Input(publication));
            }
            PartAction::Submit { header, .. } => {
                let publication = header.publication;
                if header.object.is_none() {
                    self.begin(publication)?;
                }
                let each = [Pending::Begin, Pending::Answer, Pending::Over];
                self.pending.extend(each.map(|it| it(publication)));
            }
            PartAction::GiveUp(publication) => {
                let message = self.messages.get_mut(&publication).unwrap();
                message.is_given_up = true;
                let input = Pending::Input(publication);
                if self.pending.contains(&input) {
                    // The answer may be on its way.
                    message.is_begun = false;
                }
            }
            PartAction::StoreOutput { publication, .. } => {
                self.pending.push(Pending::Output(publication));
            }
            PartAction::PublishResults { group, payload, .. } => {
                let (header, _) = wire::split::<ResultsHeader>(&payload).unwrap();
                let publications = header.results.iter().map(|it| it.publication).collect();
                self.groups.insert(group, publications);
                self.pending.push(Pending::Results(group));
            }
        }
        Ok(())
    }

    fn begin(&mut self, publication: u64) -> Result<(), TestCaseError> {
        prop_assert!(!self.is_closed, "{publication} begins although the part ends");
        let of_earlier =
            [Pending::Input, Pending::Begin, Pending::Answer].map(|it| it(publication));
        self.pending.retain(|it| !of_earlier.contains(it));
        let message = self.messages.get_mut(&publication).unwrap();
        prop_assert!(message.is_held && !message.is_begun && !message.is_unwanted);
        prop_assert!(message.deliveries == 1 || message.is_granted, "{publication}: {message:?}");
        message.is_begun = true;
        (message.is_given_up, message.is_stored, message.is_lost) = (false, false, false);
        Ok(())
    }

    fn acknowledge(&mut self, reply: &str, kind: Acknowledgement) -> Result<(), TestCaseError> {
        let (publication, delivery) = reply.split_once('/').unwrap();
        let publication: u64 = publication.parse().unwrap();
        let message = self.messages.get_mut(&publication).unwrap();
        prop_assert_eq!(delivery.parse(), Ok(message.deliveries));
        prop_assert!(message.is_held, "{publication}: {message:?}");
        if kind == Acknowledgement::Extend {
            return Ok(());
        }
        message.is_held = false;
        message.is_granted = false;
        let is_unwanted = message.is_unwanted || publication <= self.floor;
        let is_free = !message.is_begun || message.is_given_up || message.is_lost;
        prop_assert!(message.is_stored || is_free, "{publication}: {message:?}");
        if kind == Acknowledgement::Done {
            prop_assert!(message.is_stored || is_unwanted, "{publication}: {message:?}");
        }
        Ok(())
    }

    /// Has the part end, answers all that it asks for, and lets time pass.
    fn end(&mut self, ending: PartEnding) -> Result<(), TestCaseError> {
        self.close(ending)?;
        self.flush()?;
        for _ in 0..200 {
            while !self.pending.is_empty() && !self.script.part.is_over() {
                self.answer(61 * 16)?;
                self.flush()?;
            }
            if self.script.part.is_over() {
                break;
            }
            self.script.now = self.script.part.next_time().expect("it waits for something");
            self.flush()?;
        }
        prop_assert!(self.script.part.is_over(), "it does not end: {:?}", self.script.part);
        prop_assert!(self.leaves <= 1);
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_part_keeps_its_laws(
        capacity in 1_usize..5,
        batches in proptest::collection::vec(
            proptest::collection::vec((0_u8..100, any::<u16>()), 1..4),
            0..80,
        ),
        drains: bool,
    ) {
        let mut world = World::new(capacity);
        for batch in batches {
            if world.script.part.is_over() {
                break;
            }
            batch.into_iter().try_for_each(|(kind, pick)| world.step(kind, pick.into()))?;
            world.flush()?;
        }
        if !world.script.part.is_over() {
            world.end(if drains { PartEnding::Drain } else { PartEnding::Over })?;
        }
    }
}
