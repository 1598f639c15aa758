//! Which workers there are, for those that ask from outside a run.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::kv;
use futures_util::TryStreamExt;
use gangline::Error;
use gangline::backend::{Terms, spawn};

use super::connection::{BrokerConnection, refused};
use super::names::{Role, SubjectNames};
use super::nats::Nats;
use super::session::cluster;
use super::wire::{self, Card};
use crate::ClusterError;

/// A worker of a cluster, as it describes itself: see [`workers`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The name by which coordinators know it.
    pub id: String,
    /// The name of its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Its devices: `cuda:0+cuda:1`.
    pub devices: String,
    /// The recipes that it was compiled with.
    pub recipes: Vec<RecipeInfo>,
    /// When it was started, by its own clock.
    pub started: SystemTime,
    /// When it last showed that it lives, by the broker's clock: every 3 s or more often.
    pub last_seen: SystemTime,
    /// The number of pools that it takes part in.
    pub runs: usize,
}

/// A recipe of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecipeInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Asks the broker which workers are there, in the order of their hosts.
///
/// A worker that was killed is listed for up to a minute; its [`last_seen`](WorkerInfo::last_seen) tells.
///
/// # Errors
///
/// If the broker cannot be reached or does not answer.
///
/// ```no_run
/// use gangline_nats::{Nats, workers};
///
/// for worker in workers(&Nats::connect("nats://127.0.0.1:4222"))? {
///     println!("{} on {}", worker.devices, worker.host);
/// }
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub fn workers(nats: &Nats) -> Result<Vec<WorkerInfo>, Error> {
    nats.check().map_err(cluster)?;
    let nats = nats.clone();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| refused("the start of the client", error))?;
        let listed = runtime.block_on(list(&nats));
        runtime.shutdown_timeout(Duration::ZERO);
        listed
    };
    // A caller's thread may belong to a runtime, which allows no other on it.
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let thread = spawn("gangline-n".to_owned(), None, move || _ = sender.send(work()));
    let thread = thread.map_err(|error| cluster(refused("the start of a thread", error.source)))?;
    let listed = receiver.recv();
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
    listed.expect("the thread answers before it ends").map_err(cluster)
}

async fn list(nats: &Nats) -> Result<Vec<WorkerInfo>, ClusterError> {
    let names = SubjectNames::new(&nats.namespace)?;
    let connection = BrokerConnection::open(&nats.access, names, Role::Coordinator).await?;
    connection.unless_denied(read(&connection)).await
}

async fn read(connection: &BrokerConnection) -> Result<Vec<WorkerInfo>, ClusterError> {
    const REQUEST: &str = "the list of workers";
    let bucket = connection.names.workers();
    let stream = match connection.context.get_stream(format!("KV_{bucket}")).await {
        Ok(stream) => stream,
        // No worker has ever been there.
        Err(error) if is_missing(&error.kind()) => return Ok(vec![]),
        Err(error) => return Err(refused(REQUEST, error)),
    };
    // `Store::keys` reads messages until the broker says that none is left. It never says so if a worker renews its card
    // meanwhile.
    let subjects = stream.info_with_subjects(">").await.map_err(|error| refused(REQUEST, error))?;
    let subjects: Vec<_> = subjects.try_collect().await.map_err(|error| refused(REQUEST, error))?;
    let cards = connection.context.get_key_value(&bucket).await;
    let cards = cards.map_err(|error| refused(REQUEST, error))?;
    let mut workers = vec![];
    for (subject, _) in subjects {
        let key = subject.strip_prefix(&*cards.prefix).expect("a bucket has no other subjects");
        let entry = cards.entry(key).await.map_err(|error| refused(REQUEST, error))?;
        workers.extend(entry.and_then(|entry| described(&entry)));
    }
    workers.sort_by(|a, b| (&a.host, a.pid).cmp(&(&b.host, b.pid)));
    Ok(workers)
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    use async_nats::jetstream::ErrorCode;
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// `None` if the worker has gone, or speaks another version of the protocol.
fn described(entry: &kv::Entry) -> Option<WorkerInfo> {
    if entry.operation != kv::Operation::Put {
        return None;
    }
    let card = wire::decode::<Card>(&entry.value);
    let card = card.inspect_err(|error| tracing::warn!("worker {}: {error}", entry.key)).ok()?;
    let recipe = |(name, terms): (String, Terms)| RecipeInfo { version: terms.version, name };
    Some(WorkerInfo {
        id: card.worker,
        host: card.host,
        pid: card.pid,
        devices: card.devices,
        recipes: card.recipes.into_iter().map(recipe).collect(),
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(card.started),
        last_seen: entry.created.into(),
        runs: card.runs.len(),
    })
}
