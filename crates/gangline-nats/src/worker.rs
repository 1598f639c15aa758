//! A worker of a cluster, as a value: it shows that it lives, and takes part in the runs that want it.
//!
//! [`Worker`] has no client, task or clock. It takes events with their times and what is known of the broker, and gives
//! actions. `worker_client` performs them.
//!
//! A part in a run begins when the run's key comes. It ends when the key goes, when the coordinator is silent for a lease, and
//! when the worker ends.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::health::BrokerHealth;
use super::health::NoAccess;
use super::part::PartEnding;
use super::wire::{Card, Notice, RunKey, WorkerNews};

/// How often a worker shows that it lives, if no run asks for more.
const SLOWEST_BEAT: Duration = Duration::from_secs(3);
/// How long the broker may refuse the credentials of a worker before the worker ends. While a broker reads another
/// configuration, it may do so for a moment.
const LOCKED_OUT: Duration = Duration::from_secs(5);

/// What a worker reacts to.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    Key(Box<RunKey>),
    /// The run of this name is over.
    Gone(String),
    /// The part with this number has ended.
    Left(u64),
    /// The coordinator of the part with this number has given an order.
    Ordered(u64),
    /// The broker has stored the card.
    CardStored,
    /// The connection was restored.
    Restored,
    /// Begun items are to be finished. Then the worker ends.
    Terminate,
    /// Nothing has happened until [`Worker::next_time`].
    Tick,
}

/// What a worker asks its process to do.
#[derive(Debug)]
pub(super) enum WorkerAction {
    /// Puts the card: `CardStored`.
    PutCard(Card),
    DeleteCard,
    /// Begins the part with this number: `Left` when it has ended.
    StartPart(Box<RunKey>, u64),
    EndPart(u64, PartEnding),
    /// Tells the coordinator of a run.
    Notify(String, Notice),
    /// Ends the process. Hooks that still run are waited for, for this time at most.
    End(Duration),
    /// Ends the process, which the broker does not accept.
    EndWithoutAccess(NoAccess),
}

/// A worker of a cluster.
#[derive(Debug)]
pub(super) struct Worker {
    card: Card,
    /// The parts of this worker, by the names of their runs.
    runs: BTreeMap<String, RunPart>,
    phase: WorkerPhase,
    /// The time between two signs of life: a third of the shortest lease.
    period: Duration,
    next_beat: Instant,
    /// When this worker last showed that it lives.
    beaten: Instant,
    /// When the broker last stored the card.
    answered: Instant,
    /// Whether the connection was restored since the last sign of life.
    is_restored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerPhase {
    Serving,
    /// All parts end. The broker was last connected at this time.
    Draining(Instant),
    Over,
}

/// The part in one run.
#[derive(Debug)]
struct RunPart {
    number: u64,
    key: RunKey,
    /// When the coordinator was last heard of.
    seen: Instant,
    /// How the part was told to end.
    ending: Option<PartEnding>,
}

impl Worker {
    /// A worker with this card, which it puts at its first `Tick`.
    pub(super) fn new(card: Card, now: Instant) -> Self {
        Worker {
            card,
            runs: BTreeMap::new(),
            phase: WorkerPhase::Serving,
            period: SLOWEST_BEAT,
            next_beat: now,
            beaten: now,
            answered: now,
            is_restored: false,
        }
    }

    /// Takes an event, and returns what is to be done.
    pub(super) fn handle(
        &mut self,
        event: WorkerEvent,
        now: Instant,
        broker: &BrokerHealth,
    ) -> Vec<WorkerAction> {
        let mut actions = vec![];
        match event {
            WorkerEvent::Key(key) => self.take_key(*key, now, &mut actions),
            WorkerEvent::Gone(run) => {
                // Also while the worker drains: nothing is on its way to it any more.
                if self.phase != WorkerPhase::Over
                    && let Some(part) = self.runs.get_mut(&run)
                {
                    part.end(PartEnding::Over, &mut actions);
                }
            }
            // Another coordinator of the run may have replaced the part.
            WorkerEvent::Left(part) => self.runs.retain(|_, it| it.number != part),
            WorkerEvent::Ordered(part) => {
                let part = self.runs.values_mut().find(|it| it.number == part);
                part.into_iter().for_each(|part| part.seen = now);
            }
            WorkerEvent::CardStored => self.answered = now,
            WorkerEvent::Restored => self.is_restored = true,
            WorkerEvent::Terminate => {
                if self.phase == WorkerPhase::Serving {
                    self.phase = WorkerPhase::Draining(now);
                    for part in self.runs.values_mut() {
                        part.end(PartEnding::Drain, &mut actions);
                    }
                }
            }
            WorkerEvent::Tick => {}
        }
        if matches!(self.phase, WorkerPhase::Draining(_)) && self.runs.is_empty() {
            self.leave(broker, &mut actions);
        }
        self.adapt_period(now);
        if self.next_beat <= now {
            self.tick(now, broker, &mut actions);
        }
        actions
    }

    /// When a `Tick` is to come, if nothing else does.
    pub(super) fn next_time(&self) -> Instant {
        self.next_beat
    }

    /// Begins a part in a run that is new, or notes that its coordinator lives.
    fn take_key(&mut self, key: RunKey, now: Instant, actions: &mut Vec<WorkerAction>) {
        if self.phase != WorkerPhase::Serving {
            return;
        }
        if let Some(part) = self.runs.get_mut(&key.run) {
            if part.key.epoch == key.epoch {
                part.seen = now;
                return;
            }
            // Another coordinator has taken over the run.
            part.end(PartEnding::Over, actions);
        }
        if !self.card.recipes.iter().any(|(name, terms)| *name == key.recipe && *terms == key.terms)
        {
            return;
        }
        self.card.parts += 1;
        let number = self.card.parts;
        actions.push(WorkerAction::StartPart(Box::new(key.clone()), number));
        self.runs.insert(key.run.clone(), RunPart { number, key, seen: now, ending: None });
    }

    /// The worker shows that it lives three times within the shortest lease.
    fn adapt_period(&mut self, now: Instant) {
        let shortest = self.runs.values().map(|part| part.key.lease() / 3).min();
        let period = shortest.unwrap_or(SLOWEST_BEAT).min(SLOWEST_BEAT);
        if period != self.period {
            (self.period, self.next_beat) = (period, now);
        }
    }

    fn tick(&mut self, now: Instant, broker: &BrokerHealth, actions: &mut Vec<WorkerAction>) {
        self.next_beat = now + self.period;
        match &mut self.phase {
            WorkerPhase::Serving => {
                if let Err(denied) = broker.check_access(now, LOCKED_OUT) {
                    self.phase = WorkerPhase::Over;
                    return actions.push(WorkerAction::EndWithoutAccess(denied));
                }
            }
            WorkerPhase::Draining(connected) if broker.is_connected => *connected = now,
            // By then other workers have the items, or the run is over.
            WorkerPhase::Draining(connected) => {
                let longest = self.runs.values().map(|part| part.key.lease()).max();
                if longest.is_some_and(|longest| now.duration_since(*connected) > longest) {
                    self.leave(broker, actions);
                }
                return;
            }
            WorkerPhase::Over => return,
        }
        self.beat(now, broker, actions);
    }

    /// Shows that this worker lives, and ends the parts with silent coordinators.
    fn beat(&mut self, now: Instant, broker: &BrokerHealth, actions: &mut Vec<WorkerAction>) {
        let pause = now.duration_since(std::mem::replace(&mut self.beaten, now));
        let is_restored = std::mem::take(&mut self.is_restored);
        let unanswered = now.duration_since(self.answered);
        let said = broker.refusal_within(now, SLOWEST_BEAT);
        // Notices need no room at the broker.
        if said.is_some() || self.runs.values().any(|it| unanswered > it.key.lease() / 2) {
            for RunPart { key, .. } in self.runs.values() {
                let (worker, news) = (self.card.worker.clone(), WorkerNews::Alive(said.clone()));
                let notice = Notice { epoch: key.epoch, worker, news };
                actions.push(WorkerAction::Notify(key.run.clone(), notice));
            }
        }
        for part in self.runs.values_mut() {
            let lease = part.key.lease();
            // If this process or the broker was stopped, no order has come, although the coordinators may be alive.
            let is_mute = unanswered > lease / 2;
            if !broker.is_connected || is_mute || is_restored || pause > lease / 2 {
                part.seen = now;
            } else if now.duration_since(part.seen) > lease {
                tracing::warn!("the coordinator of run {} is silent", part.key.run);
                part.end(PartEnding::Over, actions);
            }
        }
        let runs = self.runs.iter().map(|(run, part)| (run.clone(), part.number));
        self.card.runs = runs.collect();
        actions.push(WorkerAction::PutCard(self.card.clone()));
    }

    /// Ends this worker. Nothing waits for a hook in a part that was given up.
    fn leave(&mut self, broker: &BrokerHealth, actions: &mut Vec<WorkerAction>) {
        self.phase = WorkerPhase::Over;
        if broker.is_connected {
            actions.push(WorkerAction::DeleteCard);
        }
        let longest = self.runs.values().map(|part| part.key.lease()).max();
        actions.push(WorkerAction::End(longest.unwrap_or(Duration::MAX)));
    }
}

impl RunPart {
    /// Has the part end. It is removed when it has.
    fn end(&mut self, ending: PartEnding, actions: &mut Vec<WorkerAction>) {
        if self.ending.replace(ending) != Some(ending) {
            actions.push(WorkerAction::EndPart(self.number, ending));
        }
    }
}
