//! The connection of a simulated process, with its requests that the broker has not answered, and its timers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::jetstream::{Answer, ConnectionId, JetStream, Operation, Request};
use super::publishing::{PublishStep, Publishing};
use crate::health::BrokerHealth;

/// How long a request waits for its answer, as the real client has it.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// The wait before something is tried again, as the real client has it.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// The broker at a time.
pub(super) struct Moment<'a> {
    pub(super) broker: &'a mut JetStream,
    /// Since the start of the simulation.
    pub(super) now: Duration,
    /// The same time, for the values under test.
    pub(super) instant: Instant,
}

/// A connection with what waits for answers, `W`, and what is to happen later, `T`.
#[derive(Debug)]
pub(super) struct SimulatedClient<W, T> {
    pub(super) connection: ConnectionId,
    /// What the client knows of the broker.
    pub(super) health: BrokerHealth,
    last: u64,
    waiting: BTreeMap<u64, W>,
    timers: BTreeMap<(Duration, u64), ClientTimer<T>>,
}

/// What is to happen at a time.
#[derive(Debug)]
pub(super) enum ClientTimer<T> {
    /// The request with this number has no answer.
    Unanswered(u64),
    Other(T),
}

impl<W, T> SimulatedClient<W, T> {
    pub(super) fn new(connection: ConnectionId) -> Self {
        let (waiting, timers) = (BTreeMap::new(), BTreeMap::new());
        let health = BrokerHealth { is_connected: true, ..BrokerHealth::default() };
        SimulatedClient { connection, health, last: 0, waiting, timers }
    }

    pub(super) fn call(&self, at: &mut Moment<'_>, operation: Operation) {
        at.broker.call(at.now, self.connection, operation);
    }

    /// Makes a request on whose answer nothing depends.
    pub(super) fn tell(&mut self, at: &mut Moment<'_>, request: Request) {
        self.last += 1;
        let token = self.last;
        self.call(at, Operation::Request { token, request });
    }

    /// Makes a request. After `within`, it counts as unanswered.
    pub(super) fn ask(
        &mut self,
        at: &mut Moment<'_>,
        request: Request,
        waits: W,
        within: Duration,
    ) {
        self.last += 1;
        let token = self.last;
        self.waiting.insert(token, waits);
        self.timers.insert((at.now + within, token), ClientTimer::Unanswered(token));
        self.call(at, Operation::Request { token, request });
    }

    /// What waits for the answer with this number; nothing does for one that comes twice or too late.
    pub(super) fn take(&mut self, token: u64) -> Option<W> {
        self.waiting.remove(&token)
    }

    /// What waits and is wanted, in the order of the requests.
    pub(super) fn take_all(&mut self, is_wanted: impl Fn(&W) -> bool) -> Vec<W> {
        let wanted = self.waiting.iter().filter(|it| is_wanted(it.1));
        let tokens: Vec<_> = wanted.map(|it| *it.0).collect();
        tokens.into_iter().filter_map(|token| self.waiting.remove(&token)).collect()
    }

    /// Takes the answer to a message that is published, and notes what the broker refuses.
    pub(super) fn take_published(
        &mut self,
        publishing: &mut Publishing,
        answer: Option<Answer>,
        at: &Moment<'_>,
    ) -> PublishStep {
        if let Some(answer) = answer.as_ref().filter(|it| !matches!(it, Answer::Stored { .. })) {
            self.health.refusal = Some((at.instant, format!("{answer:?}")));
            // No stream has the subject.
            self.health.is_incomplete |= matches!(answer, Answer::NoResponders);
        }
        publishing.take(answer, at.instant, &self.health)
    }

    /// The connection is gone.
    pub(super) fn disconnect(&mut self) {
        self.health.is_connected = false;
    }

    /// The connection was restored. What the broker has denied before says nothing.
    pub(super) fn connect(&mut self) {
        self.health.is_connected = true;
        (self.health.denied, self.health.locked_out) = (None, None);
    }

    /// The broker denies a right. The first says what is wrong.
    pub(super) fn note_denied(&mut self, said: String) {
        self.health.denied.get_or_insert(said);
    }

    /// The broker refuses the credentials.
    pub(super) fn note_locked_out(&mut self, said: String, at: Instant) {
        self.health.locked_out.get_or_insert((at, said));
    }

    pub(super) fn later(&mut self, at: Duration, timer: T) {
        self.last += 1;
        self.timers.insert((at, self.last), ClientTimer::Other(timer));
    }

    /// Takes the first timer that is due.
    pub(super) fn due(&mut self, now: Duration) -> Option<ClientTimer<T>> {
        let entry = self.timers.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    pub(super) fn next_time(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|it| it.0.0)
    }
}
