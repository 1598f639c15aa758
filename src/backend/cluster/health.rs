//! What a client knows of its broker at one time, how long it waits for the broker, and why no run can go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{ClientError, ConnectError, ConnectErrorKind, Event, ServerError};

use crate::error::ClusterError;

/// The state of a connection to a broker, as plain data.
#[derive(Debug, Clone, Default)]
pub(super) struct BrokerHealth {
    pub(super) is_connected: bool,
    /// What the broker first said about a right that this user lacks.
    pub(super) denied: Option<String>,
    /// Since when and why the broker does not let this user connect again.
    pub(super) locked_out: Option<(Instant, String)>,
    /// What the broker last said about a message that it did not store, and when.
    pub(super) refusal: Option<(Instant, String)>,
}

impl BrokerHealth {
    /// Fails if the broker has denied this user a right, or has refused its credentials for `patience`.
    pub(super) fn check_access(&self, now: Instant, patience: Duration) -> Result<(), NoAccess> {
        if let Some(violation) = &self.denied {
            return Err(NoAccess::Right(violation.clone()));
        }
        match &self.locked_out {
            Some((since, said)) if now.duration_since(*since) >= patience => {
                Err(NoAccess::Credentials(said.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The broker's last reason for not storing a message, if it came within this time.
    pub(super) fn refusal_within(&self, now: Instant, time: Duration) -> Option<String> {
        let recent = self.refusal.as_ref().filter(|it| now.duration_since(it.0) <= time);
        recent.map(|it| it.1.clone())
    }
}

/// How long the broker has not stored a message, and how long it may.
#[derive(Debug)]
pub(super) struct StorePatience {
    most_refused: Duration,
    most_unanswered: Option<Duration>,
    /// Since when the broker refuses the message.
    refused: Option<Instant>,
    unanswered: Option<Instant>,
}

impl StorePatience {
    /// The broker may refuse the message for a time, and a connected one may leave it unanswered for another; `None` if
    /// something else ends that wait.
    pub(super) fn new(most_refused: Duration, most_unanswered: Option<Duration>) -> Self {
        StorePatience { most_refused, most_unanswered, refused: None, unanswered: None }
    }

    /// Forgets what an earlier connection has lost.
    pub(super) fn begin_again(&mut self) {
        (self.refused, self.unanswered) = (None, None);
    }

    /// Notes that the broker has not stored the message, with an answer or without. Returns whether that has taken too long.
    pub(super) fn is_over(
        &mut self,
        has_answer: bool,
        now: Instant,
        broker: &BrokerHealth,
    ) -> bool {
        // The broker does not answer a message that the user may not publish.
        let is_refused = has_answer || broker.check_access(now, Duration::ZERO).is_err();
        self.refused = is_refused.then(|| self.refused.unwrap_or(now));
        let is_mute = !has_answer && broker.is_connected;
        self.unanswered = is_mute.then(|| self.unanswered.unwrap_or(now));
        let has_passed =
            |since: Option<Instant>, most| since.is_some_and(|it| now.duration_since(it) > most);
        has_passed(self.refused, self.most_refused)
            || self.most_unanswered.is_some_and(|most| has_passed(self.unanswered, most))
    }
}

/// Why no run can go on.
#[derive(Debug, Clone)]
pub(super) enum Fatal {
    NoWorkers,
    Superseded,
    BrokerGone,
    /// The broker is connected, and does not answer.
    NoAnswer,
    /// The broker does not let this user connect, or denies it a right.
    NoAccess(NoAccess),
    /// The broker does not do what was asked for, and says why.
    Refused(&'static str, Arc<str>),
}

/// The reason why the broker refuses a user that it had accepted.
#[derive(Debug, Clone)]
pub(super) enum NoAccess {
    /// The broker denies it a right, and says which.
    Right(String),
    /// The broker refuses its credentials, and says why.
    Credentials(String),
}

impl Fatal {
    /// Whether the error ends one run only, and not the pool.
    pub(super) fn is_of_one_run(&self) -> bool {
        matches!(self, Fatal::NoWorkers | Fatal::NoAnswer | Fatal::Refused(..))
    }

    /// Whether a restored connection ends the problem.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self, Fatal::BrokerGone | Fatal::NoAnswer | Fatal::NoAccess(_))
    }
}

impl NoAccess {
    /// Returns the text of an event that says that the broker refuses the credentials.
    pub(super) fn credentials_in(event: &Event) -> Option<String> {
        let (text, is_refusal) = match event {
            Event::ServerError(ServerError::AuthorizationViolation) => {
                (ConnectErrorKind::AuthorizationViolation.to_string(), true)
            }
            // Texts such as "User Authentication Expired" and "Account Authentication Expired".
            Event::ServerError(ServerError::Other(text)) => {
                (text.clone(), text.to_ascii_lowercase().contains("authentication"))
            }
            // The client passes on the kind of a connection error as text only.
            Event::ClientError(ClientError::Other(text)) => {
                use ConnectErrorKind::{Authentication, AuthorizationViolation};
                let kinds = [Authentication, AuthorizationViolation];
                (text.clone(), kinds.iter().any(|kind| *text == kind.to_string()))
            }
            _ => return None,
        };
        is_refusal.then_some(text)
    }

    /// Returns the text of an event that says that this user lacks a right.
    pub(super) fn right_in(event: &Event) -> Option<&str> {
        match event {
            Event::ServerError(ServerError::Other(text))
                if text.to_ascii_lowercase().contains("permissions violation") =>
            {
                Some(text)
            }
            _ => None,
        }
    }

    /// The error of a client of the broker at `url`.
    pub(super) fn error(self, url: String) -> ClusterError {
        match self {
            NoAccess::Right(violation) => ClusterError::Denied { violation },
            NoAccess::Credentials(said) => {
                let kind = ConnectErrorKind::AuthorizationViolation;
                let source = match said == kind.to_string() {
                    true => ConnectError::new(kind),
                    false => ConnectError::with_source(kind, said),
                };
                ClusterError::Connect { url, source: source.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::causes::WithCauses;

    #[test]
    fn credentials_that_are_refused_for_a_moment_are_no_reason() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let locked_out = Some((now, "expired".to_owned()));
        let health = BrokerHealth { locked_out, ..BrokerHealth::default() };
        assert!(health.check_access(now + second, second * 2).is_ok());
        assert!(health.check_access(now + second * 2, second * 2).is_err());
        assert!(health.check_access(now, Duration::ZERO).is_err());
    }

    #[test]
    fn an_old_refusal_says_nothing() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let refusal = Some((now, "full".to_owned()));
        let health = BrokerHealth { refusal, ..BrokerHealth::default() };
        assert_eq!(health.refusal_within(now + second, second).as_deref(), Some("full"));
        assert_eq!(health.refusal_within(now + second * 2, second), None);
    }

    #[test]
    fn what_the_broker_says_about_credentials_is_kept() {
        let said = |event| NoAccess::credentials_in(&event);
        let server = |text: &str| Event::ServerError(ServerError::Other(text.to_owned()));
        for text in ["User Authentication Expired", "User Authentication Revoked"] {
            assert_eq!(said(server(text)).as_deref(), Some(text));
            let error = NoAccess::Credentials(text.to_owned()).error("nats://a".to_owned());
            let expected =
                format!("no connection to the broker at nats://a: authorization violation: {text}");
            assert_eq!(WithCauses(&error).to_string(), expected);
        }
        let client = |text: &str| Event::ClientError(ClientError::Other(text.to_owned()));
        assert!(said(client("authorization violation")).is_some());
        for event in [server("maximum connections exceeded"), client("IO error"), Event::Closed] {
            assert_eq!(said(event), None);
        }
        let violation = server("Permissions Violation for Publish to \"a\"");
        assert!(NoAccess::right_in(&violation).is_some() && said(violation).is_none());
    }
}
