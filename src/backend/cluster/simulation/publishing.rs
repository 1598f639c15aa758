//! A message that a simulated process publishes until the broker has stored it, as `publisher` does.

use std::time::{Duration, Instant};

use super::jetstream::{Answer, Message};
use crate::backend::cluster::health::{BrokerHealth, StorePatience};

/// A message for a stream, and how long the broker has not stored it.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) message: Message,
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
    pub(super) fn new(
        message: Message,
        patience: Duration,
        answered_within: Option<Duration>,
    ) -> Self {
        Publishing { message, patience: StorePatience::new(patience, answered_within) }
    }

    /// Forgets what an earlier connection has lost.
    pub(super) fn begin_again(&mut self) {
        self.patience.begin_again();
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
