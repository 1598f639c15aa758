//! What a pool has at the broker, from its build to its close: the thread with the coordinator, and the way to it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use gangline::Error;
use gangline::backend::{Mutex, Terms, lock, spawn};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::board::LaneBoard;
use super::client::CoordinatorClient;
use super::connection::BrokerConnection;
use super::event::{CoordinatorEvent, StoredInput};
use super::health::Fatal;
use super::names::{Role, SubjectNames};
use super::nats::Nats;
use super::publication::Stored;
use super::wire::{self, RunKey, RunnerLoad};
use crate::ClusterError;

/// The connection of a pool to its workers. It has to be closed: that removes the run from the broker and joins the thread.
#[derive(Debug)]
pub(super) struct ClusterSession {
    pub(super) board: Arc<LaneBoard>,
    pub(super) nats: Nats,
    pub(super) run: String,
    /// The largest number of bytes of an input that is sent in a message.
    pub(super) most_inline: usize,
    events: UnboundedSender<CoordinatorEvent>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the coordinator's thread says once it is connected.
struct OpenedSession {
    most_inline: usize,
}

impl ClusterSession {
    /// A session whose events something else than a thread handles.
    #[cfg(test)]
    pub(super) fn new(
        board: Arc<LaneBoard>,
        nats: Nats,
        run: String,
        most_inline: usize,
        events: UnboundedSender<CoordinatorEvent>,
    ) -> Self {
        ClusterSession { board, nats, run, most_inline, events, thread: Mutex::new(None) }
    }

    /// Starts the coordinator's thread, and waits until it is connected and has asked workers to join.
    pub(super) fn open(
        nats: &Nats,
        (recipe, terms): (&str, Terms),
        load: RunnerLoad,
    ) -> Result<Self, Error> {
        let run = nats.run.clone().unwrap_or_else(|| format!("{:016x}", random("run")));
        let names = SubjectNames::new(&nats.namespace).map_err(cluster)?;
        let key = RunKey {
            run: run.clone(),
            epoch: random("epoch"),
            lease_millis: millis(nats.lease_time),
            wait_millis: millis(nats.wait_for),
            recipe: recipe.to_owned(),
            terms,
            load,
        };
        let board = LaneBoard::new(nats.max_workers);
        let (events, receiver) = unbounded_channel();
        let (opened, outcome) = bounded(1);
        let thread = {
            let (board, nats, events) = (board.clone(), nats.clone(), events.clone());
            let work = move || {
                let _closes = CloseOnDrop(board.clone());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => {
                        let start = SessionStart { board, nats, names, key, events, receiver };
                        runtime.block_on(start.serve(&opened));
                        runtime.shutdown_timeout(Duration::ZERO);
                    }
                    Err(error) => _ = opened.send(Err(refused_by_system(error))),
                }
            };
            spawn("gangline-n".to_owned(), None, work)
        };
        let thread = thread.map_err(|error| cluster(refused_by_system(error.source)))?;
        let session = |most_inline| ClusterSession {
            board,
            nats: nats.clone(),
            run,
            most_inline,
            events,
            thread: Mutex::new(Some(thread)),
        };
        match outcome.recv().expect("the thread answers before it ends") {
            Ok(OpenedSession { most_inline }) => Ok(session(most_inline)),
            Err(error) => {
                session(0).close();
                Err(cluster(error))
            }
        }
    }

    /// A value that removes the input of a publication from the object store when it is dropped. `None` if an input of this
    /// size is in the message.
    pub(super) fn stored_input(&self, bytes: usize, publication: u64) -> Option<Stored> {
        let events = self.events.clone();
        (bytes > self.most_inline).then(|| Box::new(StoredInput { publication, events }) as Stored)
    }

    /// Hands an event to the coordinator's thread. Never blocks.
    pub(super) fn send(&self, event: CoordinatorEvent) {
        // The thread ends only when the session is closed.
        _ = self.events.send(event);
    }

    /// Removes the run from the broker, and joins the thread. The broker has `REQUEST_TIMEOUT` for that.
    pub(super) fn close(&self) {
        self.send(CoordinatorEvent::Close);
        if let Some(thread) = lock(&self.thread).take()
            && let Err(payload) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(payload);
        }
    }

    /// The error of a run that cannot go on.
    pub(super) fn error(&self, fatal: Fatal) -> Error {
        let Nats { access, wait_for, .. } = &self.nats;
        cluster(match fatal {
            Fatal::NoWorkers => self.too_few(0, 1),
            Fatal::Superseded => ClusterError::Superseded { run: self.run.clone() },
            Fatal::BrokerGone => {
                ClusterError::BrokerGone { url: access.address.shown(), waited: *wait_for }
            }
            Fatal::NoAnswer => ClusterError::NoAnswer { url: access.address.shown() },
            Fatal::NoAccess(lost) => lost.error(access.address.shown()),
            Fatal::Refused(request, said) => {
                ClusterError::Refused { request, source: (*said).into() }
            }
        })
    }

    /// The error of a pool with `here` workers that needs `least`.
    pub(super) fn too_few(&self, here: usize, least: usize) -> ClusterError {
        let (waited, refusals) = (self.nats.wait_for, self.board.refusals());
        ClusterError::NoWorkers { here, least, waited, refusals }
    }
}

/// Closes the board if the coordinator's thread dies of a bug of ours, so that no lane waits for it. `close` passes the
/// panic on.
struct CloseOnDrop(Arc<LaneBoard>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What the coordinator's thread begins with.
struct SessionStart {
    board: Arc<LaneBoard>,
    nats: Nats,
    names: SubjectNames,
    key: RunKey,
    events: UnboundedSender<CoordinatorEvent>,
    receiver: UnboundedReceiver<CoordinatorEvent>,
}

impl SessionStart {
    async fn serve(self, opened: &Sender<Result<OpenedSession, ClusterError>>) {
        let SessionStart { board, nats, names, key, events, receiver } = self;
        let connection = match BrokerConnection::open(&nats.access, names, Role::Coordinator).await
        {
            Ok(connection) => connection,
            Err(error) => {
                _ = opened.send(Err(error));
                return;
            }
        };
        let key_bytes = wire::encode(&key).len();
        if let Err(error) = connection.check_payload("the configuration", key_bytes) {
            _ = opened.send(Err(error));
            return;
        }
        let most_inline = connection.most_inline();
        let begun = CoordinatorClient::begin(connection.clone(), board, nats, key, events);
        match connection.unless_denied(begun).await {
            Ok((client, coordinator)) => {
                _ = opened.send(Ok(OpenedSession { most_inline }));
                client.serve(coordinator, receiver).await;
            }
            Err(error) => _ = opened.send(Err(error)),
        }
    }
}

pub(super) fn cluster(source: ClusterError) -> Error {
    Error::of_backend(source)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn refused_by_system(error: std::io::Error) -> ClusterError {
    super::connection::refused("the start of the client's thread", error)
}

/// A number that no other process draws.
pub(super) fn random(purpose: &str) -> u64 {
    RandomState::new().hash_one((purpose, std::process::id()))
}
