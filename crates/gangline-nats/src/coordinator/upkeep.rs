//! What a coordinator does beside its runs: it admits workers, watches them and the broker, and keeps its key.

use std::time::Duration;

use gangline_scheduler::HumanDuration;

use super::{Clock, Coordinator, Purge};
use crate::board::{SeatedWorker, WorkerLoss};
use crate::coordinator::departures::LeavingWorker;
use crate::coordinator::search::SearchStep;
use crate::event::{CoordinatorAction, Emptied, KeyPurpose, KeyState};
use crate::health::Fatal;
use crate::nats::Nats;
use crate::publication::News;
use crate::wire::{self, Card, ClaimReply, Command, JoinReply, RunKey};

/// The largest number of publications that are looked for at a time.
const MOST_LOOKS: usize = 16;
/// How long it may take until a broker that is back says of the results that there are none.
const FIRST_SIGN: Duration = Duration::from_millis(4_500);

/// The longest time between two ticks.
const LONGEST_PERIOD: Duration = Duration::from_secs(1);

/// The time between two ticks.
pub(crate) fn period(lease: Duration) -> Duration {
    (lease / 4).min(LONGEST_PERIOD)
}

/// The workers of the run.
impl Coordinator {
    /// Has the consumer of a worker made. Then `seat` gives the worker a seat.
    pub(super) fn join(&mut self, worker: SeatedWorker, reply: String) {
        if self.departures.banned.contains(&worker.id) {
            return self.answer_join(reply, &JoinReply::Banned);
        }
        *self.joining.entry(worker.id.clone()).or_default() += 1;
        self.act(CoordinatorAction::MakeConsumer(worker, reply));
    }

    /// The broker has made the consumer of a worker, or has not.
    fn end_join(&mut self, worker: &str) {
        if let Some(count) = self.joining.get_mut(worker) {
            *count -= 1;
            if *count == 0 {
                self.joining.remove(worker);
            }
        }
    }

    pub(super) fn seat(&mut self, worker: SeatedWorker, reply: String) {
        let (id, host) = (worker.id.clone(), worker.host.clone());
        self.end_join(&id);
        self.refusals.is_mute = false;
        if let Some(earlier) = self.board.part_of(&id)
            && earlier != worker.part
        {
            // The part in the seat has ended, and the notice of that was lost. The consumer stays: it is the worker's, and
            // `join` has made it for this part.
            self.unseat(&id, None);
        }
        let seated = self.board.seat(worker);
        if seated == JoinReply::Seated {
            tracing::info!(worker = %id, %host, "a worker takes part");
        }
        self.answer_join(reply, &seated);
    }

    /// The worker asks for its seat again.
    pub(super) fn refuse_seat(&mut self, worker: &SeatedWorker, said: Option<String>) {
        self.end_join(&worker.id);
        self.refusals.is_mute = said.is_none();
        let Some(said) = said else { return };
        let reason = format!("{}: the broker refuses its consumer: {said}", worker.host);
        tracing::debug!("{reason}");
        self.board.refuse(&worker.id, reason);
    }

    /// Answers the claim of a worker to a publication that another one may have.
    pub(super) fn judge(&mut self, publication: u64, worker: &str, reply: Option<String>) {
        let is_seated = self.board.part_of(worker).is_some();
        let is_own = || self.board.worker_with(publication).is_some_and(|it| it.id == worker);
        let answer = match self.board.is_begun(publication) {
            Some(_) if !is_seated => ClaimReply::Unknown,
            Some(false) => ClaimReply::Begin,
            // The worker has answered, and does not know the item any more: the broker is back with an older copy of its store,
            // with the item and without the result.
            Some(true) if is_own() => {
                self.board.tell(publication, News::Vanished(publication));
                ClaimReply::Never
            }
            Some(true) => ClaimReply::Later,
            None => ClaimReply::Never,
        };
        let payload = wire::encode(&answer);
        self.actions.extend(reply.map(|reply| CoordinatorAction::Answer { reply, payload }));
    }

    /// Notes that a worker lives, and compares the part in its card with the part in its seat.
    pub(super) fn take_card(&mut self, worker: String, card: Result<Card, String>) {
        self.seen.insert(worker.clone(), self.clock.now);
        match card.and_then(|card| check(&card, &self.key).map(|()| card)) {
            Ok(card) => {
                let part = card.runs.iter().find(|it| it.0 == self.key.run).map(|it| it.1);
                match (part, self.board.part_of(&worker)) {
                    // The worker takes part and has lost its seat, as after a pause of its process.
                    (Some(_), None) if !self.departures.banned.contains(&worker) => {
                        self.order(Some(worker), Command::Rejoin);
                    }
                    // The part in the seat has ended, and the notice of that was lost.
                    (Some(part), Some(seated)) if part > seated => self.lose(&worker, None),
                    (None, Some(seated))
                        if card.parts >= seated && !self.departures.has(&worker) =>
                    {
                        self.lose(&worker, None);
                    }
                    _ => {}
                }
            }
            Err(reason) => {
                tracing::debug!("worker {worker} does not serve: {reason}");
                self.board.refuse(&worker, reason);
            }
        }
    }

    /// Takes the seats from the workers that have left, and whose results are read.
    pub(super) fn lose_departed(&mut self) {
        let due = self.departures.take_due(self.clock.now, self.nats.lease_time);
        for LeavingWorker { worker, part, lost, .. } in due {
            if self.board.part_of(&worker) == Some(part) {
                // It has said so, or its last results were awaited: nothing was silent.
                let lost = lost.map(|why| WorkerLoss { why, silent: Duration::ZERO });
                self.lose(&worker, lost);
            }
        }
    }

    /// Takes the seat from a worker, and removes its consumer and the items that are addressed to it.
    pub(super) fn lose(&mut self, worker: &str, lost: Option<WorkerLoss>) {
        // A consumer that is being made is that of the next part of this worker, which waits for its seat.
        if self.unseat(worker, lost) && !self.joining.contains_key(worker) {
            self.act(CoordinatorAction::RemoveConsumer(worker.to_owned()));
        }
    }

    /// Takes the seat from a worker: the items that it had begun have failed, and the rest goes to others. `lost` says why,
    /// unless the worker leaves in order. Returns whether it had a seat.
    fn unseat(&mut self, worker: &str, lost: Option<WorkerLoss>) -> bool {
        let Some((lane, sequences)) = self.board.unseat(worker, lost) else { return false };
        tracing::info!("worker {worker} takes part no more");
        self.clock.staffed = self.clock.now;
        self.draining.remove(&lane);
        self.actions.extend(sequences.into_iter().map(CoordinatorAction::DeleteItem));
        true
    }

    /// Gives up the workers that were silent for a lease.
    fn lose_silent(&mut self, seated: &[String]) {
        let lease = self.nats.lease_time;
        for worker in seated {
            let seen = *self.seen.entry(worker.clone()).or_insert(self.clock.now);
            let silent = self.clock.now.duration_since(seen);
            if silent > lease {
                tracing::warn!("worker {worker} gave no sign of life for {lease:?}");
                let lease = HumanDuration(lease);
                let why = format!("it gave no sign of life for {lease:#}").into();
                self.lose(worker, Some(WorkerLoss { why, silent }));
            }
        }
        let now = self.clock.now;
        self.seen.retain(|_, seen| now.duration_since(*seen) < lease * 10);
        self.board.retain_refusals(|worker| self.seen.contains_key(worker));
    }
}

/// What follows from the time without a worker.
enum WorkerWait {
    GoOn,
    /// Their cards and the key may be what the broker does not keep, although it confirms them: the buckets are emptied.
    Empty,
    End,
}

/// The workers, the broker and the key.
impl Clock {
    /// Looks at the time that the run has had no worker. The last tick was so long ago.
    fn wait_for_workers(
        &mut self,
        are_here: bool,
        since_tick: Duration,
        nats: &Nats,
    ) -> WorkerWait {
        if are_here {
            self.staffed = self.now;
        }
        let waited = self.now.duration_since(self.staffed);
        let patience = (nats.lease_time * 2).min(nats.wait_for / 2);
        match waited {
            _ if waited > nats.wait_for => WorkerWait::End,
            // Once.
            _ if waited > patience && waited <= patience + since_tick => WorkerWait::Empty,
            _ => WorkerWait::GoOn,
        }
    }

    /// Whether the key is to be refreshed now: four times within a lease.
    fn is_refresh_due(&mut self, lease: Duration) -> bool {
        let Clock { now, refresh, .. } = *self;
        let is_due = now >= refresh;
        if is_due {
            // Ticks are not exact.
            let next = refresh + lease / 4;
            self.refresh = if next > now { next } else { now + lease / 4 };
        }
        is_due
    }
}

impl Coordinator {
    /// Gives up what was silent for too long: workers after a lease, then the run.
    pub(super) fn tick(&mut self) {
        let (now, lease) = (self.clock.now, self.nats.lease_time);
        // A process that was stopped has heard nothing, and its workers may be well.
        let pause = now.duration_since(std::mem::replace(&mut self.clock.ticked, now));
        let was_stopped = pause > lease / 2;
        if was_stopped {
            self.clock.skip(pause);
            self.search.skip(pause, now);
        }
        if self.broker.is_incomplete && self.broker.is_connected {
            self.act(CoordinatorAction::Furnish);
        }
        let run = self.board.run();
        let is_new = std::mem::replace(&mut self.clock.run, run) != run;
        if run.is_none() || is_new {
            (self.clock.staffed, self.clock.heard) = (now, now);
        }
        // The broker may answer for other streams than that of results, with each of many connections.
        if !was_stopped && now.duration_since(self.clock.heard) > self.nats.wait_for + FIRST_SIGN {
            self.board.fail(self.cause().unwrap_or(Fatal::NoAnswer));
        }
        // A broker that does not keep the key keeps no card either.
        let is_well = now.duration_since(self.clock.answered) <= lease / 2
            && self.refusals.key.is_none()
            && self.broker.is_connected;
        if !is_well || was_stopped {
            return self.wait_for_broker(was_stopped);
        }
        // An answer says that the broker was well until it was due to be asked again.
        self.clock.connected = now.min(self.clock.answered + lease / 4);
        self.lose_departed();
        let seated = self.board.seated();
        self.lose_silent(&seated);
        match self.clock.wait_for_workers(!seated.is_empty(), pause, &self.nats) {
            WorkerWait::GoOn => {}
            WorkerWait::Empty => {
                self.act(CoordinatorAction::Empty(Emptied::Buckets));
                self.put_key(KeyPurpose::Refresh);
            }
            WorkerWait::End => self.board.fail(self.cause().unwrap_or(Fatal::NoWorkers)),
        }
        if run.is_some() && now.duration_since(self.clock.result) > self.nats.wait_for {
            // Without the right to read results, none come.
            let denied = self.broker.check_access(now, self.nats.wait_for).err();
            denied.into_iter().for_each(|it| self.board.fail(Fatal::NoAccess(it)));
        }
        if self.clock.is_refresh_due(self.nats.lease_time) {
            self.put_key(KeyPurpose::Refresh);
        }
        self.order_drains();
        self.look_for_lost();
    }

    /// Looks for publications that are old, unless the last search is under way.
    pub(super) fn look_for_lost(&mut self) {
        let (now, most) = (self.clock.now, self.nats.wait_for);
        // Early enough to know within `wait_for` that the broker says nothing of them.
        let age = (self.nats.lease_time * 2).min(most / 2);
        let (old, seen) = match self.search.step(now, most, |it| self.board.has(it)) {
            SearchStep::Idle => self.board.unseen(age, MOST_LOOKS, now),
            SearchStep::Wait => return,
            SearchStep::Again(publications) => {
                return self.act(CoordinatorAction::LookFor(publications));
            }
            SearchStep::Unanswered => {
                return self.board.fail(self.cause().unwrap_or(Fatal::NoAnswer));
            }
        };
        if !old.is_empty() {
            self.search.begin(old.clone(), seen, now);
            self.act(CoordinatorAction::LookFor(old));
        }
    }

    /// Blames no worker while the broker is away or does not answer, and gives the run up after `wait_for`.
    fn wait_for_broker(&mut self, was_stopped: bool) {
        let now = self.clock.now;
        self.seen.values_mut().for_each(|seen| *seen = now);
        let gone = now.duration_since(self.clock.connected);
        if gone > self.nats.lease_time {
            self.end_drains();
        }
        if !was_stopped && gone > self.nats.wait_for {
            self.board.fail(self.cause().unwrap_or(Fatal::BrokerGone));
        }
        // Requests of a client that is not connected would pile up.
        if self.broker.is_connected && self.clock.is_refresh_due(self.nats.lease_time) {
            self.put_key(KeyPurpose::Refresh);
            // Orders need no room at the broker.
            self.order(None, Command::Stay);
        }
    }

    /// Ends the waits for workers of a run that is over. Without a broker, their workers have given up all items too.
    fn end_drains(&mut self) {
        let mut lanes: Vec<_> = self.draining.keys().copied().collect();
        lanes.sort_unstable();
        for lane in lanes {
            match self.board.worker_of(lane) {
                Some(worker) => _ = self.unseat(&worker.id, None),
                None => _ = self.draining.remove(&lane),
            }
        }
    }

    /// Returns what is wrong with the broker, if anything is.
    fn cause(&self) -> Option<Fatal> {
        let now = self.clock.now;
        if let Err(lost) = self.broker.check_access(now, Duration::ZERO) {
            return Some(Fatal::NoAccess(lost));
        }
        if !self.broker.is_connected {
            return Some(Fatal::BrokerGone);
        }
        let is_mute = now.duration_since(self.clock.answered) > self.nats.lease_time / 2
            || self.refusals.is_mute;
        match (self.recent_refusal(), &self.refusals.key) {
            (Some(said), _) => Some(Fatal::Refused("an item or a result", said.into())),
            (None, Some(said)) => Some(Fatal::Refused("the run's key", said.clone())),
            (None, None) => is_mute.then_some(Fatal::NoAnswer),
        }
    }

    /// Why the broker has not stored an item. `said` is its answer, if there was one.
    pub(super) fn cause_of_loss(&self, said: Option<String>) -> Fatal {
        if let Err(lost) = self.broker.check_access(self.clock.now, Duration::ZERO) {
            return Fatal::NoAccess(lost);
        }
        let said = said.or_else(|| self.recent_refusal());
        let silence = if self.broker.is_connected { Fatal::NoAnswer } else { Fatal::BrokerGone };
        said.map_or(silence, |said| Fatal::Refused("an item or a result", said.into()))
    }

    /// What the broker last refused, to this process or to a worker. A broker with a full disk may report that once, and then
    /// answer no more.
    fn recent_refusal(&self) -> Option<String> {
        let within = self.nats.wait_for * 2;
        let told = self.refusals.told.as_ref();
        let told = told.filter(|it| self.clock.now.duration_since(it.0) <= within);
        let own = self.broker.refusal_within(self.clock.now, within);
        own.or_else(|| told.map(|it| it.1.clone()))
    }

    /// Refreshes the key, so that it is known whether the broker answers. Then decides why too few workers have come.
    pub(super) fn look_for_cause(&mut self) {
        self.put_key(KeyPurpose::FindCause);
    }

    /// Shows workers that this coordinator lives, unless another has taken the run.
    fn put_key(&mut self, purpose: KeyPurpose) {
        self.act(CoordinatorAction::PutKey { revision: self.revision, purpose });
    }

    /// Notes whether this coordinator still has its key, and whether the broker answers.
    pub(super) fn take_key_state(&mut self, state: KeyState, purpose: KeyPurpose) {
        if state != KeyState::Unanswered {
            self.clock.answered = self.clock.now;
            self.refusals.key = None;
        }
        match state {
            KeyState::Own { revision } => self.revision = revision,
            // Another coordinator has the run: this one takes none of its results.
            KeyState::OfAnother => {
                self.act(CoordinatorAction::StopReading);
                self.board.fail(Fatal::Superseded);
            }
            KeyState::Refused(said) => self.refusals.key = Some(said),
            KeyState::Unanswered => {}
        }
        if purpose == KeyPurpose::FindCause {
            self.board.fail(self.cause().unwrap_or(Fatal::NoWorkers));
        }
    }

    /// The broker is back, perhaps without what it had.
    pub(super) fn restore(&mut self) {
        let now = self.clock.now;
        self.seen.values_mut().for_each(|seen| *seen = now);
        // The request may be lost. Lanes ask once more.
        self.purge = Purge::default();
        self.search.lose();
        self.board.revive();
        self.act(CoordinatorAction::Furnish);
    }
}

/// Whether a worker can serve a run.
fn check(card: &Card, key: &RunKey) -> Result<(), String> {
    let Card { host, recipes, .. } = card;
    let wanted = &key.recipe;
    let Some((_, terms)) = recipes.iter().find(|(name, _)| name == wanted) else {
        let names: Vec<_> = recipes.iter().map(|(name, _)| name).collect();
        return Err(format!("{host} has the recipes {names:?}, and not {wanted:?}"));
    };
    let difference = terms.difference(&key.terms);
    difference.map_or(Ok(()), |it| Err(format!("{host}, recipe {wanted:?}: {it}")))
}
