//! A message that a simulated process publishes until the broker has stored it, as `publisher` does.

use std::time::Duration;

use super::jetstream::{Answer, Message};

/// A message for a stream, and since when the broker does not store it.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) message: Message,
    /// How long the broker may refuse the message.
    patience: Duration,
    /// How long a connected broker may leave the message unanswered; `None` if something else ends the wait.
    answered_within: Option<Duration>,
    refused: Option<Duration>,
    unanswered: Option<Duration>,
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
        Publishing { message, patience, answered_within, refused: None, unanswered: None }
    }

    /// Forgets what an earlier connection has lost.
    pub(super) fn begin_again(&mut self) {
        (self.refused, self.unanswered) = (None, None);
    }

    /// Takes the answer, `None` without one. `is_mute` says that the client is connected, and `is_denied` that the user may
    /// lack the right: the broker does not answer such a message.
    pub(super) fn take(
        &mut self,
        answer: Option<Answer>,
        now: Duration,
        (is_mute, is_denied): (bool, bool),
    ) -> PublishStep {
        let said = match answer {
            Some(Answer::Stored { sequence, .. }) => return PublishStep::Stored(sequence),
            answer => answer.map(|it| format!("{it:?}")),
        };
        let is_refusal = said.is_some() || is_denied;
        self.refused = is_refusal.then(|| self.refused.unwrap_or(now));
        let is_unanswered = said.is_none() && is_mute;
        self.unanswered = is_unanswered.then(|| self.unanswered.unwrap_or(now));
        let has_passed = |since: Option<Duration>, most| since.is_some_and(|it| now - it > most);
        let is_over = has_passed(self.refused, self.patience)
            || self.answered_within.is_some_and(|most| has_passed(self.unanswered, most));
        if is_over { PublishStep::Failed(said) } else { PublishStep::Again }
    }
}
