//! The options of a cluster.

use std::path::{self, PathBuf};
use std::time::Duration;

use super::address::{BrokerAddress, Login};
use super::names;
use crate::ClusterError;

/// How a pool reaches its workers through NATS JetStream: see [`ClusterBuilder::cluster`](crate::ClusterBuilder::cluster).
///
/// ```
/// use std::time::Duration;
///
/// use gangline_nats::Nats;
///
/// let nats = Nats::connect("nats://127.0.0.1:4222").min_workers(2).wait_for(Duration::from_secs(120));
/// ```
#[derive(Debug, Clone)]
#[must_use = "they have no effect until they are given to a builder"]
pub struct Nats {
    pub(super) access: Access,
    pub(super) namespace: String,
    pub(super) run: Option<String>,
    pub(super) min_workers: usize,
    pub(super) max_workers: usize,
    pub(super) wait_for: Duration,
    pub(super) lease_time: Duration,
    pub(super) largest_output: u64,
}

/// How to reach a broker.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) address: BrokerAddress,
    pub(super) credentials: Option<PathBuf>,
    pub(super) certificates: Option<PathBuf>,
    pub(super) security: Security,
}

/// Whether a connection to another machine may lack encryption or credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    Required,
    Waived,
}

/// The namespace of coordinators and workers that name none.
pub(super) const NAMESPACE: &str = "gangline";

/// Shorter leases end while a busy machine does not get to renew them.
const LEAST_LEASE: Duration = Duration::from_millis(500);

impl Nats {
    /// Reaches the broker at `url`: `nats://host:4222`, or `tls://host:4222` with encryption. Several addresses of
    /// one cluster of brokers are separated by commas.
    ///
    /// A user and a password, or a token, precede the host: `tls://user:password@host:4222`. In them, `%40` stands for
    /// `@`, and other characters are encoded alike. No text of this library shows them.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://a.example:4222,tls://b.example:4222");
    /// ```
    pub fn connect(url: impl Into<String>) -> Self {
        let (credentials, certificates, security) = (None, None, Security::Required);
        Nats {
            access: Access {
                address: BrokerAddress::new(url),
                credentials,
                certificates,
                security,
            },
            namespace: NAMESPACE.to_owned(),
            run: None,
            min_workers: 1,
            max_workers: 64,
            wait_for: Duration::from_secs(60),
            lease_time: Duration::from_secs(10),
            largest_output: 1 << 30,
        }
    }

    /// Sets the file with the credentials, as `nsc` writes it.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").credentials("coordinator.creds");
    /// ```
    pub fn credentials(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.credentials = Some(path.into());
        self
    }

    /// Sets the file with the certificates to trust, in PEM. The default are those of the operating system.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").root_certificates("ca.pem");
    /// ```
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.certificates = Some(path.into());
        self
    }

    /// Allows a connection to another machine without encryption or credentials. It is logged as a warning.
    ///
    /// Inputs, results and the configuration can then be read and changed on the network.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("nats://10.0.0.1:4222").insecure();
    /// ```
    pub fn insecure(mut self) -> Self {
        self.access.security = Security::Waived;
        self
    }

    /// Sets the prefix of all names at the broker. The default is `gangline`.
    ///
    /// Coordinators and workers of one namespace work together. A name has letters, digits, `-` and `_`.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").namespace("staging"); // GANGLINE_NATS_NAMESPACE=staging for its workers
    /// ```
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Names the run. A coordinator that starts with the name of a live one takes over: the older one fails with
    /// [`Superseded`](crate::ClusterError::Superseded). By default each pool has a name of its own.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").run_name("nightly"); // one at a time
    /// ```
    pub fn run_name(mut self, name: impl Into<String>) -> Self {
        self.run = Some(name.into());
        self
    }

    /// Sets the number of workers that [`build`](gangline::Builder::build) waits for. The default is 1.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").min_workers(4);
    /// ```
    pub fn min_workers(mut self, workers: usize) -> Self {
        self.min_workers = workers;
        self
    }

    /// Sets the largest number of workers that take part at the same time; others wait. The default is 64.
    ///
    /// Each has a thread in this process, which mostly sleeps.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").max_workers(1000);
    /// ```
    pub fn max_workers(mut self, workers: usize) -> Self {
        self.max_workers = workers;
        self
    }

    /// Sets how long to wait for workers, when the pool is built and whenever a run has none; and for a broker
    /// that is gone, or has no room for an item or a result. Then the run fails. The default is 60 s.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").wait_for(Duration::from_secs(600));
    /// ```
    pub fn wait_for(mut self, time: Duration) -> Self {
        self.wait_for = time;
        self
    }

    /// Sets the time without a sign of life after which a worker is lost. The default is 10 s, the least 0.5 s.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").lease_time(Duration::from_secs(30));
    /// ```
    pub fn lease_time(mut self, time: Duration) -> Self {
        self.lease_time = time;
        self
    }

    /// Sets the largest number of bytes of an output. An item with a larger one fails, and its output is not read. The
    /// default is 1 GiB.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://broker.example:4222").largest_output(64 << 20); // 64 MiB
    /// ```
    pub fn largest_output(mut self, bytes: u64) -> Self {
        self.largest_output = bytes;
        self
    }

    /// The address of the broker, without a user, a password or a token: for messages.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://alice:secret@broker.example:4222");
    /// assert_eq!(nats.address(), "tls://broker.example:4222");
    /// ```
    pub fn address(&self) -> String {
        self.access.address.shown()
    }

    /// The name of the user in the address, if it has one. A token is a secret, and no name.
    ///
    /// ```
    /// use gangline_nats::Nats;
    ///
    /// let nats = Nats::connect("tls://alice:secret@broker.example:4222");
    /// assert_eq!(nats.user().as_deref(), Some("alice"));
    /// assert_eq!(Nats::connect("tls://token@broker.example:4222").user(), None);
    /// ```
    pub fn user(&self) -> Option<String> {
        match self.access.address.parse().ok()?.login? {
            Login::User { name, .. } => Some(name),
            Login::Token(_) => None,
        }
    }

    /// Checks the options that can be checked without a connection.
    pub(crate) fn check(&self) -> Result<(), ClusterError> {
        names::check(&self.namespace)?;
        self.run.as_deref().map_or(Ok(()), names::check)
    }

    /// Keeps naming the same files when the current directory changes: they are read again at each connection.
    pub(crate) fn anchored(mut self) -> Self {
        let Access { credentials, certificates, .. } = &mut self.access;
        for file in [credentials, certificates] {
            *file = file.take().map(|file| path::absolute(&file).unwrap_or(file));
        }
        self
    }

    /// The options that are out of their bounds: the name, what is allowed, and what was given.
    pub(crate) fn out_of_bounds(&self) -> Option<(&'static str, String, String)> {
        let Nats { min_workers, max_workers, lease_time, .. } = self;
        if !(1..=4096).contains(max_workers) {
            return Some(("max_workers", "1 to 4096".to_owned(), max_workers.to_string()));
        }
        if !(1..=*max_workers).contains(min_workers) {
            let allowed = format!("1 to {max_workers} (`max_workers`)");
            return Some(("min_workers", allowed, min_workers.to_string()));
        }
        let is_short = *lease_time < LEAST_LEASE;
        is_short.then(|| ("lease_time", "0.5 s or more".to_owned(), format!("{lease_time:?}")))
    }

    pub(crate) fn seats(&self) -> usize {
        self.max_workers
    }
}
