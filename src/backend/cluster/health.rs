//! What a client knows of its broker at one time.

use std::time::{Duration, Instant};

use super::no_access::NoAccess;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
