//! Errors of a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gangline::BoxError;
use gangline_scheduler::HumanDuration;
use gangline_scheduler::causes::debug_with_causes;

/// What is wrong with a cluster: the cause of [`WorkerError::Backend`](gangline::error::WorkerError::Backend), and of the
/// failure of an item that has lost its worker.
#[non_exhaustive]
pub enum ClusterError {
    /// A setting of the builder that a cluster has not, or not yet.
    #[non_exhaustive]
    Setting {
        /// The method of the builder.
        setting: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// An option of [`Nats`](crate::Nats) is out of its bounds.
    #[non_exhaustive]
    Option {
        /// The method of `Nats`.
        option: &'static str,
        /// What is allowed.
        allowed: String,
        /// What was given.
        given: String,
    },
    /// A name of the namespace or of the run has other characters than letters, digits, `-` and `_`.
    #[non_exhaustive]
    Name {
        /// The given name.
        name: String,
    },
    /// The address is neither on this machine nor encrypted, or there are no credentials for it.
    #[non_exhaustive]
    Insecure {
        /// The given address.
        url: String,
    },
    /// The broker cannot be reached, or refuses the connection.
    #[non_exhaustive]
    Connect {
        /// The given address.
        url: String,
        /// What the client says.
        source: BoxError,
    },
    /// The broker is too old.
    #[non_exhaustive]
    Version {
        /// Its version.
        version: String,
    },
    /// The broker takes messages of too few bytes.
    #[non_exhaustive]
    SmallMessages {
        /// The largest number of bytes that it takes: its `max_payload`.
        most: usize,
        /// The number that is needed.
        least: usize,
        /// What needs it.
        content: &'static str,
    },
    /// The broker refuses a request: it has no JetStream, no room, or the account may not do it. Or it gave no answer.
    #[non_exhaustive]
    Refused {
        /// What was asked for.
        request: &'static str,
        /// What the broker says.
        source: BoxError,
    },
    /// The broker does not allow this user to use a subject.
    #[non_exhaustive]
    Denied {
        /// What the broker says; it names the subject.
        violation: String,
    },
    /// After [`wait_for`](crate::Nats::wait_for) there are too few workers: the others have not joined, or are
    /// gone.
    #[non_exhaustive]
    NoWorkers {
        /// The number of workers that take part.
        here: usize,
        /// The [minimum](crate::Nats::min_workers).
        least: usize,
        /// The time that was waited.
        waited: Duration,
        /// Why workers that are there do not serve, and how others were lost.
        refusals: Vec<String>,
    },
    /// The worker that had the item is gone: its lease has ended without a sign of life.
    #[non_exhaustive]
    WorkerLost {
        /// The host of the worker.
        host: Arc<str>,
    },
    /// An input has more bytes than are sent in a message, and the broker's object store does not take it.
    #[non_exhaustive]
    TooLarge {
        /// The number of bytes.
        bytes: usize,
        /// The largest number of bytes in a message.
        most: usize,
        /// What the broker says.
        source: BoxError,
    },
    /// Another coordinator has taken over the run of this name.
    #[non_exhaustive]
    Superseded {
        /// The name of the run.
        run: String,
    },
    /// The broker is connected, and has answered no request for longer than
    /// [`wait_for`](crate::Nats::wait_for).
    #[non_exhaustive]
    NoAnswer {
        /// The given address.
        url: String,
    },
    /// The broker was gone for longer than [`wait_for`](crate::Nats::wait_for).
    #[non_exhaustive]
    BrokerGone {
        /// The given address.
        url: String,
        /// The time that was waited.
        waited: Duration,
    },
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::Setting { setting, instead } => {
                write!(f, "{setting} is not available with `cluster`; {instead}")
            }
            ClusterError::Option { option, allowed, given } => {
                write!(f, "{option} must be {allowed}, got {given}")
            }
            ClusterError::Name { name } => write!(
                f,
                "{name:?} cannot be a name; write letters, digits, `-` and `_`, such as \"gangline\""
            ),
            ClusterError::Insecure { url } => write!(
                f,
                "{url} is on another machine, and lacks encryption or credentials; use `tls://` with \
                 a password or `credentials`, or allow it by `insecure()`, in a worker by \
                 GANGLINE_NATS_INSECURE=1"
            ),
            ClusterError::Connect { url, .. } => write!(f, "no connection to the broker at {url}"),
            ClusterError::Version { version } => {
                write!(f, "the broker has version {version}; nats-server 2.9 or later is needed")
            }
            ClusterError::SmallMessages { most, least, content } => write!(
                f,
                "the broker takes messages of at most {most} bytes, and {content} needs {least}; set \
                 `max_payload` in its configuration"
            ),
            ClusterError::Refused { request, source } => {
                write!(f, "the broker {} {request}", answer(&**source))
            }
            ClusterError::Denied { violation } => write!(
                f,
                "the broker denies this user a right: {violation}; docs/cluster.md lists those that are needed"
            ),
            ClusterError::NoWorkers { here, least, waited, refusals } => {
                write_too_few(f, (*here, *least), *waited, refusals)
            }
            ClusterError::WorkerLost { host } => {
                write!(f, "the worker on {host} is gone: its lease has ended")
            }
            ClusterError::TooLarge { bytes, most, .. } => write!(
                f,
                "the input has {bytes} bytes, a message at most {most}, and the broker's object store refuses \
                 it; send a path or an address instead"
            ),
            ClusterError::Superseded { run } => {
                write!(f, "another coordinator has taken over the run {run:?}")
            }
            ClusterError::NoAnswer { url } => {
                write!(f, "the broker at {url} is connected, and does not answer")
            }
            ClusterError::BrokerGone { url, waited } => {
                let waited = HumanDuration(*waited);
                write!(f, "the broker at {url} has been gone for {waited:#}")
            }
        }
    }
}

debug_with_causes!(ClusterError);

impl std::error::Error for ClusterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClusterError::Connect { source, .. }
            | ClusterError::Refused { source, .. }
            | ClusterError::TooLarge { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// Writes that `here` workers take part of at least `least`.
fn write_too_few(
    f: &mut fmt::Formatter<'_>,
    (here, least): (usize, usize),
    waited: Duration,
    refusals: &[String],
) -> fmt::Result {
    let waited = HumanDuration(waited);
    let why = match refusals {
        [] => "start them with `GANGLINE_NATS` set to the broker's address".to_owned(),
        refusals => refusals.join("; "),
    };
    write!(f, "{here} of at least {least} workers take part after a wait of {waited:#}; {why}")
}

/// What the broker did with a request that failed. Each kind of request has an error of its own for an answer that did not
/// come, with the same text.
fn answer(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    match causes.any(|error| error.to_string().starts_with("timed out")) {
        true => "gave no answer when it was asked for",
        false => "refuses",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_gives_no_answer_refuses_nothing() {
        let error = |said: &str| {
            let error = ClusterError::Refused { request: "the run's key", source: said.into() };
            error.to_string()
        };
        assert_eq!(error("no room"), "the broker refuses the run's key");
        let silent = "the broker gave no answer when it was asked for the run's key";
        assert_eq!(error("timed out"), silent);
    }

    #[test]
    fn too_few_workers_are_explained() {
        let error = |refusals| ClusterError::NoWorkers {
            here: 0,
            least: 1,
            waited: Duration::from_secs(60),
            refusals,
        };
        let text =
            error(vec!["host a: no recipe".to_owned(), "host b: full".to_owned()]).to_string();
        assert!(text.ends_with("; host a: no recipe; host b: full"), "{text}");
        assert!(error(vec![]).to_string().contains("GANGLINE_NATS"));
    }
}
