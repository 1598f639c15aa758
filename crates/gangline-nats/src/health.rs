//! What a client knows of its broker at one time, how long it waits for the broker, and why no run can go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{ClientError, ConnectError, ConnectErrorKind, Event, ServerError};

use crate::ClusterError;

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
    /// A stream, a bucket or a consumer was not there when it was last used.
    pub(super) is_incomplete: bool,
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

/// The longest time between two looks at a message that counts: a process that was stopped has not waited.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// How long the broker may not store a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreLimits {
    /// How long it may refuse the message, as without room or without the stream.
    pub(super) refused: Duration,
    /// How long it may leave the message unanswered, with a connection or without.
    pub(super) unanswered: Duration,
}

impl StoreLimits {
    /// How long one try waits for the answer: four tries fit into the time.
    pub(super) fn of_one_try(&self) -> Duration {
        (self.unanswered / 4).min(LONGEST_TRY)
    }
}

/// The longest time that one try waits for the answer.
const LONGEST_TRY: Duration = Duration::from_secs(5);

/// How long the broker has not stored a message. Connections come and go meanwhile.
#[derive(Debug)]
pub(super) struct StorePatience {
    limits: StoreLimits,
    /// How long the broker has refused the message, without the times in which it did not answer; `None` before it did.
    refused: Option<Duration>,
    /// The time since the last answer, or since the message was first sent.
    unanswered: Duration,
    /// The last look.
    looked: Instant,
}

impl StorePatience {
    /// That of a message which is sent `now`.
    pub(super) fn new(limits: StoreLimits, now: Instant) -> Self {
        StorePatience { limits, refused: None, unanswered: Duration::ZERO, looked: now }
    }

    /// Notes that the broker has not stored the message, with an answer or without. Returns whether that has taken too long.
    pub(super) fn is_over(
        &mut self,
        has_answer: bool,
        now: Instant,
        broker: &BrokerHealth,
    ) -> bool {
        let since = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        let step = since.min(LONGEST_STEP);
        // The broker does not answer a message that the user may not publish.
        let is_refused = has_answer || broker.check_access(now, Duration::ZERO).is_err();
        if is_refused {
            self.refused = Some(self.refused.map_or(Duration::ZERO, |refused| refused + step));
        }
        self.unanswered = if has_answer { Duration::ZERO } else { self.unanswered + step };
        is_refused && self.refused.is_some_and(|it| it > self.limits.refused)
            || self.unanswered > self.limits.unanswered
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
    use gangline_scheduler::causes::WithCauses;

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
    fn patience_counts_from_the_last_answer() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let gone = BrokerHealth::default();
        let connected = BrokerHealth { is_connected: true, ..BrokerHealth::default() };
        let limits = StoreLimits { refused: second * 100, unanswered: second * 10 };
        let mut patience = StorePatience::new(limits, begin);
        // Connections that live for seconds.
        for n in 1..=10 {
            let broker = if n % 2 == 0 { &connected } else { &gone };
            assert!(!patience.is_over(false, begin + second * n, broker), "{n}");
        }
        assert!(patience.is_over(false, begin + second * 11, &gone));
        assert!(!patience.is_over(true, begin + second * 12, &connected));
        assert!(!patience.is_over(false, begin + second * 22, &connected));
        assert!(patience.is_over(false, begin + second * 23, &connected));
    }

    #[test]
    fn refusals_count_together_although_some_tries_have_no_answer() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let broker = BrokerHealth { is_connected: true, ..BrokerHealth::default() };
        let limits = StoreLimits { refused: second * 10, unanswered: second * 10 };
        let mut patience = StorePatience::new(limits, begin);
        let mut is_over = |n| patience.is_over(n % 2 == 1, begin + second * n, &broker);
        assert_eq!((1..100).find(|&n| is_over(n)), Some(23));
    }

    #[test]
    fn a_pause_of_the_process_is_no_wait() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let broker = BrokerHealth::default();
        let limits = StoreLimits { refused: second, unanswered: second * 60 };
        let mut patience = StorePatience::new(limits, begin);
        assert!(!patience.is_over(false, begin + second * 3_600, &broker));
        assert!(!patience.is_over(true, begin + second * 3_601, &broker));
        assert!(patience.is_over(true, begin + second * 7_200, &broker));
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
