//! A message that a simulated process publishes until the broker has stored it, as `publisher` does.

use std::time::{Duration, Instant};

use super::jetstream::{Answer, Message};
use crate::health::{BrokerHealth, StoreLimits, StorePatience};

/// A message for a stream, and how long the broker has not stored it.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) message: Message,
    /// How long one try waits for the answer.
    pub(super) within: Duration,
    patience: StorePatience,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum PublishStep {
    /// The broker has stored the message at this place.
    Stored(u64),
    Again,
    /// The broker has not stored it for too long, and says this; `None` if it gives no answer.
    Failed(Option<String>),
}

impl Publishing {
    /// A message that is published `now`.
    pub(super) fn new(message: Message, limits: StoreLimits, now: Instant) -> Self {
        let within = limits.of_one_try();
        Publishing { message, within, patience: StorePatience::new(limits, now) }
    }

    /// Takes the answer, `None` without one.
    pub(super) fn take(
        &mut self,
        answer: Option<Answer>,
        now: Instant,
        broker: &BrokerHealth,
    ) -> PublishStep {
        let said = match answer {
            Some(Answer::Stored { sequence, .. }) => return PublishStep::Stored(sequence),
            answer => answer.map(|it| format!("{it:?}")),
        };
        match self.patience.is_over(said.is_some(), now, broker) {
            true => PublishStep::Failed(said),
            false => PublishStep::Again,
        }
    }
}
