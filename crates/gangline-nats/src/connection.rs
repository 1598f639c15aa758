//! The connection to the broker, and the streams, buckets and consumers that there have to be.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, kv};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use gangline::BoxError;
use gangline::backend::{Mutex, lock};
use tokio::sync::watch;

use super::address::{BrokerServer, Login, ParsedAddress};
use super::health::BrokerHealth;
use super::health::NoAccess;
use super::names::{Role, SubjectNames};
use super::nats::{Access, Security};
use crate::ClusterError;

/// How long one request to the broker may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before something at the broker is tried again.
pub(super) const AGAIN: Duration = Duration::from_millis(200);
/// How often the broker is asked to make a stream.
const MOST_TRIES: u32 = 4;
/// Items, results and large values that a dead coordinator has left are removed after this time.
pub(super) const ITEM_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The card of a dead worker is removed after this time.
const CARD_AGE: Duration = Duration::from_secs(60);
/// The key of a dead coordinator is removed after this time.
const KEY_AGE: Duration = Duration::from_secs(60 * 60);
/// The most bytes in the stream of results. If it is full, workers wait for room.
const RESULT_BYTES: i64 = 256 << 20;
/// A consumer that no worker has used for this time is removed.
const CONSUMER_AGE: Duration = Duration::from_secs(10 * 60);
/// A longer value goes through the object store, also where the broker takes longer messages: they would hold up others.
const MOST_INLINE: usize = 512 << 10;
/// A bound for what precedes a value in its message.
const HEADERS: usize = 1024;
/// The smallest `max_payload` that is accepted: twice the bound for what precedes a value, or for a request that makes a
/// stream.
const LEAST_PAYLOAD: usize = 2 * HEADERS;
/// More workers than any broker holds can wait for an item. The default of 512 turns others away.
const MOST_WAITING: i64 = 100_000;

/// A connection that is restored by itself.
#[derive(Debug, Clone)]
pub(super) struct BrokerConnection {
    pub(super) client: Client,
    pub(super) context: jetstream::Context,
    /// Counts the connections, so that requests that an earlier one has lost can be repeated.
    pub(super) restored: watch::Receiver<u64>,
    pub(super) names: SubjectNames,
    /// What the broker first said about a right that this user lacks.
    denied: watch::Receiver<Option<String>>,
    /// Since when and why the broker does not let this user connect again.
    locked_out: watch::Receiver<Option<(Instant, String)>>,
    /// What the broker last said about a message that it did not store, and when.
    refusal: Arc<Mutex<Option<(Instant, String)>>>,
    /// Whether a stream, a bucket or a consumer was not there when it was last used.
    has_gap: Arc<AtomicBool>,
}

/// Tells the rest of a client what its connection has met.
struct ConnectionStates {
    restored: watch::Sender<u64>,
    denied: watch::Sender<Option<String>>,
    locked_out: watch::Sender<Option<(Instant, String)>>,
}

impl ConnectionStates {
    fn note(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.locked_out.send_replace(None);
                // The broker denies a right again after each connection, so an old denial says nothing.
                self.denied.send_replace(None);
                self.restored.send_modify(|count| *count += 1);
            }
            event => tracing::debug!("NATS: {event}"),
        }
        if let Some(text) = NoAccess::right_in(event) {
            tracing::warn!("NATS: {text}");
            // Later denials may follow from the first, which names the cause.
            self.denied.send_modify(|denied| {
                denied.get_or_insert_with(|| text.to_owned());
            });
        }
        if let Some(said) = NoAccess::credentials_in(event) {
            self.locked_out.send_modify(|locked_out| {
                locked_out.get_or_insert_with(|| (Instant::now(), said));
            });
        }
    }
}

impl BrokerConnection {
    pub(super) async fn open(
        access: &Access,
        names: SubjectNames,
        role: Role,
    ) -> Result<Self, ClusterError> {
        let (servers, login) = servers(access)?;
        let (sender, restored) = watch::channel(0);
        let (deny, denied) = watch::channel(None);
        let (lock_out, locked_out) = watch::channel(None);
        let states = ConnectionStates { restored: sender, denied: deny, locked_out: lock_out };
        let options = ConnectOptions::new()
            .name("gangline")
            .custom_inbox_prefix(names.inbox(role))
            .connection_timeout(REQUEST_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|tries| {
                Duration::from_millis(100).saturating_mul(tries.min(10) as u32)
            })
            .event_callback(move |event| {
                states.note(&event);
                std::future::ready(())
            });
        let options = authenticated(options, access, login).await?;
        let failed =
            |source: BoxError| ClusterError::Connect { url: access.address.shown(), source };
        let client = options.connect(servers).await.map_err(|it| failed(it.into()))?;
        if !client.is_server_compatible(2, 9, 0) {
            return Err(ClusterError::Version { version: client.server_info().version });
        }
        let context = jetstream::new(client.clone());
        let (refusal, has_gap) = (Arc::default(), Arc::default());
        Ok(BrokerConnection {
            client,
            context,
            restored,
            names,
            denied,
            locked_out,
            refusal,
            has_gap,
        })
    }

    /// What is known of the broker now.
    pub(super) fn health(&self) -> BrokerHealth {
        BrokerHealth {
            is_connected: self.is_connected(),
            denied: self.denied.borrow().clone(),
            locked_out: self.locked_out.borrow().clone(),
            refusal: lock(&self.refusal).clone(),
            is_incomplete: self.has_gap.load(Ordering::Relaxed),
        }
    }

    /// Records the broker's reason for not storing a message.
    pub(super) fn note_refusal(&self, said: String) {
        *lock(&self.refusal) = Some((Instant::now(), said));
    }

    /// Notes that a stream, a bucket or a consumer is not there.
    pub(super) fn note_gap(&self) {
        self.has_gap.store(true, Ordering::Relaxed);
    }

    /// All that is missing is being made.
    pub(super) fn forget_gap(&self) {
        self.has_gap.store(false, Ordering::Relaxed);
    }

    /// Makes requests, and fails if the broker says that this user lacks the right to one of them: such a request has no
    /// answer.
    pub(super) async fn unless_denied<T, E: From<ClusterError>>(
        &self,
        requests: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut denied = self.denied.clone();
        let requests = std::pin::pin!(requests);
        let said = std::pin::pin!(denied.wait_for(Option::is_some));
        match select(requests, said).await {
            Either::Right((Ok(text), _)) => {
                let violation = text.clone().unwrap_or_default();
                Err(ClusterError::Denied { violation }.into())
            }
            // The client, which has the sender, has ended.
            Either::Right((Err(_), requests)) => requests.await,
            Either::Left((outcome, _)) => outcome,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Fails if the broker takes no messages that are as large as needed: `bytes` for the `content`, beside headers.
    pub(super) fn check_payload(
        &self,
        content: &'static str,
        bytes: usize,
    ) -> Result<(), ClusterError> {
        check_payload(self.client.max_payload(), content, bytes)
    }

    /// The largest number of bytes of a value that is sent in a message.
    pub(super) fn most_inline(&self) -> usize {
        self.client.max_payload().saturating_sub(HEADERS).clamp(1, MOST_INLINE)
    }

    /// Makes the streams and buckets that are not there.
    pub(super) async fn furnish(&self) -> Result<(), ClusterError> {
        let names = &self.names;
        let queue = |name: String, kind: &str| stream::Config {
            name,
            subjects: vec![names.all(kind)],
            retention: RetentionPolicy::WorkQueue,
            max_age: ITEM_AGE,
            discard: DiscardPolicy::New,
            ..stream::Config::default()
        };
        let items = queue(names.items(), "items");
        let results =
            stream::Config { max_bytes: RESULT_BYTES, ..queue(names.results(), "results") };
        let runs = stream::Config {
            retention: RetentionPolicy::Limits,
            max_messages_per_subject: 1,
            ..queue(names.runs(), "runs")
        };
        let runs = stream::Config { discard: DiscardPolicy::Old, ..runs };
        for (config, request) in [
            (items, "the stream of items"),
            (results, "the stream of results, which reserves 256 MiB"),
            (runs, "the stream of runs"),
        ] {
            self.stream(config, request).await?;
        }
        let waiting = pull::Config {
            durable_name: Some("waiting".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ..pull::Config::default()
        };
        let runs = self.context.get_stream(names.runs()).await;
        let runs = runs.map_err(|source| refused("the stream of runs", source))?;
        let made = runs.get_or_create_consumer("waiting", waiting).await;
        made.map_err(|source| refused("the consumer of the stream of runs", source))?;
        self.bucket(names.workers(), CARD_AGE).await?;
        self.bucket(names.keys(), KEY_AGE).await?;
        Ok(())
    }

    /// Makes a stream if it is not there. If two processes do so at the same time, the broker refuses one of them, which
    /// finds the stream when it tries again.
    pub(super) async fn stream(
        &self,
        config: stream::Config,
        request: &'static str,
    ) -> Result<(), ClusterError> {
        let mut tries = 0;
        while let Err(error) = self.context.get_or_create_stream(config.clone()).await {
            tries += 1;
            if tries == MOST_TRIES {
                return Err(refused(request, error));
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// Opens a bucket, and makes it before that if it is not there.
    async fn bucket(&self, bucket: String, max_age: Duration) -> Result<kv::Store, ClusterError> {
        if let Ok(store) = self.context.get_key_value(&bucket).await {
            return Ok(store);
        }
        // The client's own way of making one asks first what a server before 2.10 does not answer.
        let config = stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            max_age,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            discard: DiscardPolicy::New,
            ..stream::Config::default()
        };
        self.stream(config, "a bucket, one of six streams").await?;
        let store = self.context.get_key_value(&bucket).await;
        store.map_err(|source| refused("a bucket", source))
    }

    /// Calls `take` for each entry of a bucket and whenever one changes, until the connection is restored or fails. A
    /// broker that has lost its streams counts their messages anew, so an earlier watch would miss them.
    pub(super) async fn watch(&self, bucket: &kv::Store, take: &impl Fn(kv::Entry)) {
        let mut restored = self.restored.clone();
        restored.mark_unchanged();
        let Ok(mut entries) = bucket.watch_with_history(">").await else { return };
        loop {
            let changed = std::pin::pin!(restored.changed());
            match select(entries.next(), changed).await {
                Either::Left((Some(Ok(entry)), _)) => take(entry),
                Either::Left((Some(Err(_)) | None, _)) | Either::Right(_) => return,
            }
        }
    }

    pub(super) async fn workers(&self) -> Result<kv::Store, ClusterError> {
        self.bucket(self.names.workers(), CARD_AGE).await
    }

    pub(super) async fn keys(&self) -> Result<kv::Store, ClusterError> {
        self.bucket(self.names.keys(), KEY_AGE).await
    }
}

/// The consumer of items with a subject. A message that no worker keeps alive for `lease` goes to another.
pub(super) fn item_consumer(name: String, subject: String, lease: Duration) -> pull::Config {
    pull::Config {
        durable_name: Some(name),
        filter_subject: subject,
        ack_policy: AckPolicy::Explicit,
        ack_wait: lease,
        max_deliver: -1,
        max_ack_pending: -1,
        max_waiting: MOST_WAITING,
        inactive_threshold: CONSUMER_AGE.max(lease * 4),
        ..pull::Config::default()
    }
}

/// Fails if messages of at most `most` bytes are too small for `bytes` of the `content`, beside headers.
pub(super) fn check_payload(
    most: usize,
    content: &'static str,
    bytes: usize,
) -> Result<(), ClusterError> {
    let needed = bytes.saturating_add(HEADERS);
    let (content, least) = match needed > LEAST_PAYLOAD {
        true => (content, needed),
        false => ("a cluster", LEAST_PAYLOAD),
    };
    match most < least {
        true => Err(ClusterError::SmallMessages { most, least, content }),
        false => Ok(()),
    }
}

pub(super) fn refused(request: &'static str, source: impl Into<BoxError>) -> ClusterError {
    ClusterError::Refused { request, source: source.into() }
}

/// The options of a connection with the credentials of the user and the certificates to trust.
async fn authenticated(
    options: ConnectOptions,
    access: &Access,
    login: Option<Login>,
) -> Result<ConnectOptions, ClusterError> {
    let failed = |source: BoxError| ClusterError::Connect { url: access.address.shown(), source };
    let options = match &access.credentials {
        Some(path) => options.credentials_file(path).await.map_err(|it| failed(it.into()))?,
        None => options,
    };
    let options = match &access.certificates {
        Some(path) => {
            check_certificates(path).map_err(|it| failed(it.into()))?;
            options.add_root_certificates(path.clone())
        }
        None => options,
    };
    Ok(match login {
        Some(Login::User { name, password }) => options.user_and_password(name, password),
        Some(Login::Token(token)) => options.token(token),
        None => options,
    })
}

/// The client neither names a file that it cannot read nor refuses one without a certificate.
fn check_certificates(path: &Path) -> io::Result<()> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let read = std::fs::read(path).and_then(|text| {
        let has_one = text.windows(BEGIN.len()).any(|part| part == BEGIN);
        has_one.then_some(()).ok_or_else(|| io::Error::other("no certificate in PEM is in it"))
    });
    read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The servers, if a connection to each is secure, and the user or the token.
fn servers(access: &Access) -> Result<(Vec<ServerAddr>, Option<Login>), ClusterError> {
    let parsed = access.address.parse();
    let ParsedAddress { servers, login } =
        parsed.map_err(|source| ClusterError::Connect { url: access.address.shown(), source })?;
    let is_secure = |BrokerServer { address, has_login }: &BrokerServer| {
        is_loopback(address.host())
            || address.tls_required() && (access.credentials.is_some() || *has_login)
    };
    match access.security {
        _ if servers.iter().all(is_secure) => {}
        Security::Required => return Err(ClusterError::Insecure { url: access.address.shown() }),
        Security::Waived => {
            tracing::warn!(
                "the connection to {} lacks encryption or credentials",
                access.address.shown()
            );
        }
    }
    Ok((servers.into_iter().map(|it| it.address).collect(), login))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BrokerAddress;

    fn checked(url: &str, security: Security, credentials: bool) -> Result<usize, String> {
        let credentials = credentials.then(|| "a.creds".into());
        let address = BrokerAddress::new(url);
        let access = Access { address, credentials, certificates: None, security };
        servers(&access).map(|it| it.0.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_connection_to_another_machine_needs_encryption_and_credentials() {
        let required = Security::Required;
        for url in ["nats://127.0.0.1:4222", "localhost", "nats://[::1]:4222"] {
            assert_eq!(checked(url, required, false), Ok(1), "{url}");
        }
        assert!(checked("nats://broker:4222", required, true).unwrap_err().contains("insecure()"));
        assert!(checked("tls://broker:4222", required, false).is_err());
        assert_eq!(checked("tls://a:4222,tls://b:4222", required, true), Ok(2));
        assert!(checked("tls://a:4222,nats://b:4222", required, true).is_err());
        assert_eq!(checked("nats://broker:4222", Security::Waived, false), Ok(1));
    }
}
