//! Publishes the items of a simulated coordinator, and looks for lost ones.

use super::{CoordinatorHost, CoordinatorTimer, CoordinatorWait, PublishTries};
use crate::backend::cluster::event::{CoordinatorEvent, ToPublish};
use crate::backend::cluster::simulation::client::{AGAIN, ANSWER, Moment};
use crate::backend::cluster::simulation::jetstream::{Answer, Message, Request};
use crate::backend::cluster::wire::{self, ItemHeader, RunKey};

impl CoordinatorHost<'_> {
    pub(super) fn publish_item(&mut self, item: ToPublish, to: Option<&str>, at: &mut Moment<'_>) {
        let RunKey { run, epoch, .. } = &self.key;
        let ToPublish { publication, item, attempt, size, input, .. } = item;
        let subject = match to {
            Some(worker) => self.names.to(run, *epoch, worker),
            None => self.names.any(run, *epoch),
        };
        let (epoch, size) = (*epoch, (size.cost, size.padded));
        let header = ItemHeader { epoch, publication, item, attempt, size, object: None };
        let id = format!("{run}/{epoch:x}/{item}/{publication}");
        let message = Message::new(&subject, wire::with_body(&header, &input)).with_id(&id);
        self.publish(publication, message, PublishTries::default(), at);
    }

    pub(super) fn publish(
        &mut self,
        publication: u64,
        message: Message,
        tries: PublishTries,
        at: &mut Moment<'_>,
    ) {
        if self.pool.as_ref().is_some_and(|pool| pool.board.has(publication)) {
            let request = Request::Send(message.clone());
            let wait = CoordinatorWait::Item { publication, message, tries };
            self.client.ask(at, request, wait, ANSWER);
        }
    }

    /// Whether the broker has stored an item. If not, the item is published again, until that has taken too long.
    pub(super) fn judge(
        &mut self,
        publication: u64,
        message: Message,
        mut tries: PublishTries,
        answer: Option<Answer>,
        at: &mut Moment<'_>,
    ) -> Option<CoordinatorEvent> {
        let said = match answer {
            Some(Answer::Stored { sequence, .. }) => {
                return Some(CoordinatorEvent::Confirmed { publication, sequence });
            }
            Some(answer) => {
                let said = format!("{answer:?}");
                self.refusal = Some((at.instant, said.clone()));
                tries.unanswered = None;
                tries.refused.get_or_insert(at.now);
                Some(said)
            }
            None => {
                tries.refused = None;
                tries.unanswered =
                    self.client.is_connected.then(|| tries.unanswered.unwrap_or(at.now));
                None
            }
        };
        let since = tries.refused.or(tries.unanswered);
        if since.is_some_and(|since| at.now > since + self.wait_for) {
            return Some(CoordinatorEvent::NotStored { said });
        }
        let again = CoordinatorTimer::Publish { publication, message, tries };
        self.client.later(at.now + AGAIN, again);
        None
    }

    pub(super) fn look_for(
        &mut self,
        mut left: Vec<(u64, u64)>,
        missing: Vec<u64>,
        at: &mut Moment<'_>,
    ) {
        if let Some((looked, sequence)) = left.pop() {
            let request = Request::GetMessage { stream: self.names.items.clone(), sequence };
            let wait = CoordinatorWait::LookFor { left, looked, missing };
            return self.client.ask(at, request, wait, ANSWER);
        }
        if !missing.is_empty() {
            let consumer = self.names.consumer_of_results(&self.key.run);
            let request = Request::ConsumerInfo { stream: self.names.results.clone(), consumer };
            self.client.ask(at, request, CoordinatorWait::AllRead(missing), ANSWER);
        }
    }
}
