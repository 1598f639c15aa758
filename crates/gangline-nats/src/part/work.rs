//! The items of a part: from their delivery to their result.

use std::time::{Duration, Instant};

use super::answer::{AnswerEffect, fitting};
use super::event::PartAction;
use super::items::{HeldItem, ItemStep};
use super::results::FinishedItem;
use super::{PartPhase, WorkerPart};
use crate::delivery::{Acknowledgement, Delivered};
use crate::hook_times::HookTimes;
use crate::hosting::TaskAnswer;
use crate::publication::Address;
use crate::wire;
use crate::wire::{
    ClaimReply, ItemHeader, ItemResult, Object, ResultsHeader, WorkerNews, WorkerOutcome,
};

impl WorkerPart {
    /// Holds an item, or has the broker drop it or keep it for later.
    pub(super) fn deliver(&mut self, request: u64, delivered: Delivered, at: Instant) {
        let from = self.requests.take(request, at);
        let header = match wire::split::<ItemHeader>(&delivered.payload) {
            Ok((header, _)) if header.epoch == self.settings.key.epoch => header,
            // The item is of a coordinator that is gone, or damaged. No other worker can do more with it.
            _ => return self.acknowledge(delivered.reply, Acknowledgement::Done),
        };
        let publication = header.publication;
        if let Some(item) = self.items.held.get_mut(&publication) {
            if item.delivered.place != delivered.place {
                // The broker has stored the item twice.
                return self.acknowledge(delivered.reply, Acknowledgement::Done);
            }
            // The lease of the message has ended, and no other worker was given it.
            let Delivered { reply, deliveries, .. } = delivered;
            (item.delivered.reply, item.delivered.deliveries) = (reply, deliveries);
            return;
        }
        let refusal = if self.phase != PartPhase::Seated || from.is_none() && self.room() == 0 {
            Acknowledgement::Return(Duration::ZERO)
        } else if publication <= self.floor {
            Acknowledgement::Done
        } else if self.items.is_begun(publication) {
            // A hook that was abandoned has it.
            Acknowledgement::Return(self.settings.key.lease())
        } else {
            let from = from.unwrap_or(Address::Any);
            let item = HeldItem { header, from, delivered, step: ItemStep::New };
            self.items.held.insert(publication, item);
            return;
        };
        self.acknowledge(delivered.reply, refusal);
    }

    /// Claims the items that another worker may have had, and begins others for which a producer is idle.
    pub(super) fn begin_items(&mut self) {
        let (PartPhase::Seated, Some(service)) = (self.phase, self.service) else { return };
        for publication in self.items.list(u64::MAX, ItemStep::is_before_begin) {
            let has_room = self.items.begun() < service.capacity;
            let Some(item) = self.items.held.get_mut(&publication) else { continue };
            let is_doubtful = self.renewal.is_doubtful || item.delivered.deliveries > 1;
            match item.step {
                ItemStep::New if is_doubtful => {
                    item.step = ItemStep::Claiming;
                    let within = self.settings.key.lease();
                    self.actions.push(PartAction::Claim { publication, within });
                }
                ItemStep::New | ItemStep::Granted if has_room => self.begin(publication),
                _ => {}
            }
        }
    }

    fn begin(&mut self, publication: u64) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        let from = item.from;
        match item.header.object.clone() {
            Some(object) => {
                item.step = ItemStep::Reading;
                self.actions.push(PartAction::ReadInput { publication, object });
            }
            None => {
                let payload = std::mem::take(&mut item.delivered.payload);
                let (_, input) = wire::split::<ItemHeader>(&payload)
                    .expect("an item is held only if its header decodes");
                self.submit(publication, input.to_vec());
            }
        }
        self.items.begin(publication, from);
    }

    fn submit(&mut self, publication: u64, input: Vec<u8>) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        item.step = ItemStep::Submitted { begun: None };
        let header = item.header.clone();
        self.actions.push(PartAction::Submit { header, input });
    }

    /// Without an answer, this worker may not begin the item.
    pub(super) fn take_claim(&mut self, publication: u64, reply: Option<ClaimReply>) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        if !matches!(item.step, ItemStep::Claiming) {
            return;
        }
        let lease = self.settings.key.lease();
        let refusal = match reply {
            Some(ClaimReply::Begin) => {
                item.step = ItemStep::Granted;
                self.renewal.is_doubtful = false;
                return;
            }
            Some(ClaimReply::Never) => Acknowledgement::Done,
            // This worker has to join again. Without the delay, it would get the item again at once.
            Some(ClaimReply::Unknown) => Acknowledgement::Return(lease / 4),
            Some(ClaimReply::Later) | None => Acknowledgement::Return(lease),
        };
        self.let_go(publication, refusal);
    }

    pub(super) fn take_input(
        &mut self,
        publication: u64,
        input: Result<Option<Vec<u8>>, String>,
        at: Instant,
    ) {
        let Some(item) = self.items.held.get(&publication) else { return };
        if !matches!(item.step, ItemStep::Reading) {
            return;
        }
        let outcome = match input {
            Ok(Some(input)) => return self.submit(publication, input),
            Ok(None) => WorkerOutcome::Dropped,
            Err(error) => {
                let text = format!("the input cannot be read from the object store: {error}");
                WorkerOutcome::error(text)
            }
        };
        self.items.end(publication);
        self.finish(publication, (outcome, vec![]), Duration::ZERO, at);
    }

    pub(super) fn note_begin(&mut self, publication: u64, at: Instant) {
        if let Some(item) = self.items.held.get_mut(&publication)
            && let ItemStep::Submitted { begun: begun @ None } = &mut item.step
        {
            *begun = Some(at);
        }
        self.begun.add(publication, 1, at);
    }

    pub(super) fn take_answer(&mut self, publication: u64, answer: TaskAnswer, at: Instant) {
        let Some(item) = self.items.held.get(&publication) else { return };
        let ItemStep::Submitted { begun } = item.step else { return };
        let busy = begun.map_or(Duration::ZERO, |begun| at.saturating_duration_since(begun));
        let AnswerEffect { outcome, output, lost } = AnswerEffect::of(answer, begun.is_some());
        if let Some(reason) = lost {
            self.lost.get_or_insert(reason);
            self.close();
        }
        match outcome {
            Some(outcome) => self.finish(publication, (outcome, output), busy, at),
            None => self.let_go(publication, Acknowledgement::Return(Duration::ZERO)),
        }
    }

    /// Makes room for another item.
    pub(super) fn end_hook(&mut self, publication: u64, at: Instant) {
        self.items.end(publication);
        let step = self.items.held.get(&publication).map(|item| &item.step);
        if matches!(step, Some(ItemStep::GivenUp { .. })) {
            self.drop_item(publication, at);
        }
    }

    /// Gives up one item.
    pub(super) fn give_up(&mut self, publication: u64, at: Instant) {
        let longest = self.settings.key.load.longest_hook();
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        match item.step {
            // The coordinator does not want it.
            ItemStep::New | ItemStep::Claiming | ItemStep::Granted => {
                self.let_go(publication, Acknowledgement::Done);
            }
            ItemStep::Reading => {
                self.actions.push(PartAction::GiveUp(publication));
                self.items.end(publication);
                self.drop_item(publication, at);
            }
            ItemStep::Submitted { .. } => {
                item.step = ItemStep::GivenUp { until: longest.and_then(|it| at.checked_add(it)) };
                self.actions.push(PartAction::GiveUp(publication));
                if !self.items.is_begun(publication) {
                    self.drop_item(publication, at);
                }
            }
            ItemStep::GivenUp { .. } | ItemStep::Storing { .. } | ItemStep::Answered => {}
        }
    }

    /// Drops the items that were given up, and whose hooks take too long. Their producers stay occupied.
    pub(super) fn abandon_hooks(&mut self, now: Instant) {
        let is_due = |step: &ItemStep| matches!(step, ItemStep::GivenUp { until: Some(until) } if *until <= now);
        for publication in self.items.list(u64::MAX, is_due) {
            self.drop_item(publication, now);
        }
    }

    fn drop_item(&mut self, publication: u64, at: Instant) {
        self.finish(publication, (WorkerOutcome::Dropped, vec![]), Duration::ZERO, at);
    }

    /// Has the outcome of an item published. Its large output is stored before.
    fn finish(
        &mut self,
        publication: u64,
        (outcome, output): (WorkerOutcome, Vec<u8>),
        busy: Duration,
        at: Instant,
    ) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        if output.len() <= self.settings.most_inline {
            return self.add_result(publication, (outcome, output, None), busy, at);
        }
        let (epoch, worker) = (self.settings.key.epoch, &self.settings.worker);
        let name = format!("{epoch:x}-{publication}-{worker}-{}", item.delivered.deliveries);
        item.step = ItemStep::Storing { outcome, busy };
        self.actions.push(PartAction::StoreOutput { publication, name, output });
    }

    pub(super) fn take_stored_output(
        &mut self,
        publication: u64,
        (object, stored): (Object, Result<(), String>),
        at: Instant,
    ) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        let step = std::mem::replace(&mut item.step, ItemStep::Answered);
        let ItemStep::Storing { outcome, busy } = step else {
            item.step = step;
            return;
        };
        let outcome = match stored {
            Ok(()) => outcome,
            Err(error) => WorkerOutcome::error(format!(
                "the output has {} bytes, and the broker's object store refuses it: {error}",
                object.bytes
            )),
        };
        self.add_result(publication, (outcome, vec![], Some(object)), busy, at);
    }

    fn add_result(
        &mut self,
        publication: u64,
        (outcome, output, object): (WorkerOutcome, Vec<u8>, Option<Object>),
        busy: Duration,
        at: Instant,
    ) {
        let Some(item) = self.items.held.get_mut(&publication) else { return };
        item.step = ItemStep::Answered;
        let result = ItemResult {
            publication,
            outcome: fitting(outcome, self.settings.most_inline),
            busy_nanos: u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX),
            deliveries: item.delivered.deliveries,
            bytes: output.len() as u64,
            object,
        };
        self.results.add(FinishedItem { result, output }, busy, at);
    }

    pub(super) fn publish_results(&mut self, now: Instant, times: HookTimes) {
        while let Some((group, finished)) = self.results.next(now, self.items.begun()) {
            let mut ended = finished.iter().map(|it| it.result.publication);
            // The coordinator would take a result without a notice for one of the worker that was given the item first.
            if ended.any(|ended| self.begun.has(|it| *it == ended)) {
                while let Some(publications) = self.begun.take() {
                    self.actions.push(PartAction::AnnounceBegun(publications));
                }
            }
            let (run, epoch) = (&self.settings.key.run, self.settings.key.epoch);
            let (worker, part) = (self.settings.worker.clone(), self.settings.part);
            // A group is published with the same id until the broker has confirmed it.
            let id = format!("{run}/{epoch:x}/{worker}/{part}-{group}");
            let last = finished.iter().map(|it| it.result.publication).max().unwrap_or_default();
            let (mut results, mut outputs) = (vec![], vec![]);
            for FinishedItem { result, output } in finished {
                outputs.extend(output);
                results.push(result);
            }
            let header = ResultsHeader { epoch, worker, times, results };
            let payload = wire::with_body(&header, &outputs);
            self.actions.push(PartAction::PublishResults { group, id, payload, last });
        }
    }

    /// Acknowledges the items of a group.
    pub(super) fn take_stored_results(
        &mut self,
        group: u64,
        stored: Result<Option<u64>, String>,
        at: Instant,
    ) {
        let place = stored.as_ref().ok().copied().flatten();
        // If an acknowledgement is lost, the item comes again, and the claim of it is refused. If this worker gives up all its
        // items, as at the end of its part, they may still be wanted, so they are handed back.
        let kind = match self.floor {
            u64::MAX => Acknowledgement::Return(Duration::ZERO),
            _ => Acknowledgement::Done,
        };
        for publication in self.results.stored(group, place, at) {
            if let Err(said) = &stored {
                self.notify(WorkerNews::GivenUp(publication, said.clone()));
            }
            self.let_go(publication, kind);
        }
    }

    /// Holds an item no more.
    pub(super) fn let_go(&mut self, publication: u64, kind: Acknowledgement) {
        if let Some(item) = self.items.held.remove(&publication) {
            self.acknowledge(item.delivered.reply, kind);
        }
    }

    fn acknowledge(&mut self, reply: String, kind: Acknowledgement) {
        self.actions.push(PartAction::Acknowledge { reply, kind });
    }
}
