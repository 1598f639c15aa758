//! Reads what workers send to a simulated coordinator: results and cards.

use std::time::Duration;

use super::{CARDS, CoordinatorHost, CoordinatorTimer, CoordinatorWait, HEARTBEAT, RESULTS};
use crate::event::{CoordinatorEvent, KeyState};
use crate::simulation::client::{AGAIN, ANSWER, Moment};
use crate::simulation::jetstream::{ConsumerConfig, Operation, Pull, PullStatus, Request};

/// For how long the broker has said nothing of the run's key, and of its results.
#[derive(Debug, Default)]
pub(in super::super) struct Silences {
    heard: [Duration; 2],
    longest: [Duration; 2],
}

impl CoordinatorHost<'_> {
    pub(super) fn open_results(&mut self, at: &mut Moment<'_>) {
        if self.reading.is_stopped {
            return;
        }
        self.reading.heard = at.now;
        let config = ConsumerConfig {
            inactive_threshold: Some(Duration::from_secs(600)),
            ..ConsumerConfig::new(
                &self.names.consumer_of_results(&self.key.run),
                &self.names.results_of(&self.key.run),
                Duration::from_secs(5),
            )
        };
        let request = Request::CreateConsumer { stream: self.names.results.clone(), config };
        self.client.tell(at, request);
        self.pull_results(at);
    }

    pub(super) fn pull_results(&mut self, at: &mut Moment<'_>) {
        self.reading.left = 256;
        let pull = Pull {
            stream: self.names.results.clone(),
            consumer: self.names.consumer_of_results(&self.key.run),
            subscription: RESULTS,
            batch: 256,
            expires: Some(HEARTBEAT * 2),
            heartbeat: Some(HEARTBEAT),
            no_wait: false,
        };
        self.client.call(at, Operation::Pull(pull));
    }

    pub(super) fn take_status(&mut self, status: PullStatus, at: &mut Moment<'_>) {
        self.reading.heard = at.now;
        match status {
            PullStatus::Heartbeat => self.handle(Some(CoordinatorEvent::NoResult), at),
            PullStatus::NoMessages | PullStatus::Expired | PullStatus::RequestsPending => {
                if !self.reading.is_stopped {
                    self.pull_results(at);
                }
            }
            PullStatus::TooManyWaiting | PullStatus::ConsumerDeleted | PullStatus::NoResponders => {
                // Such as without the stream.
                self.client.health.is_incomplete |= status == PullStatus::NoResponders;
                self.client.later(at.now + AGAIN, CoordinatorTimer::ReadResults);
            }
        }
    }

    pub(super) fn watch_cards(&mut self, at: &mut Moment<'_>) {
        let (stream, subject) = self.names.all_cards();
        let request = Request::Watch { stream, subject, subscription: CARDS };
        self.client.ask(at, request, CoordinatorWait::Cards, ANSWER);
    }
}

impl Silences {
    pub(super) fn note(&mut self, event: &CoordinatorEvent, now: Duration) {
        let about = match event {
            CoordinatorEvent::KeyPut(state, _) if *state != KeyState::Unanswered => 0,
            CoordinatorEvent::Results(_) | CoordinatorEvent::NoResult => 1,
            _ => return,
        };
        self.longest = self.longest(now);
        self.heard[about] = now;
    }

    /// The longest of each until now.
    pub(in super::super) fn longest(&self, now: Duration) -> [Duration; 2] {
        [0, 1].map(|about| self.longest[about].max(now - self.heard[about]))
    }
}
