//! The reasons why the broker refuses a user that it had accepted.

use async_nats::{ClientError, ConnectError, ConnectErrorKind, Event, ServerError};

use crate::error::ClusterError;

/// The reason why the broker refuses a user that it had accepted.
#[derive(Debug, Clone)]
pub(super) enum NoAccess {
    /// The broker denies it a right, and says which.
    Right(String),
    /// The broker refuses its credentials, and says why.
    Credentials(String),
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
