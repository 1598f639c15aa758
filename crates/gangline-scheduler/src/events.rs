//! The scheduler's requests to its backend.

use std::collections::VecDeque;

use super::deadlines::Absence;
use super::lease::{LeaseId, Phase, ProducerId};

/// A request that the backend handles after a call, outside its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// A producer that was told to wait has to ask for a lease again.
    Wake(ProducerId),
    /// No result of this lease counts any more. The hook that works on it may give up.
    Revoke {
        /// The lease.
        lease: LeaseId,
        /// The producer that holds it.
        producer: ProducerId,
    },
    /// Another producer has nothing to do: this one gives back the leases that it has not begun.
    Recall(ProducerId),
    /// A full batch waits. This producer, which works on another, could not lease one ahead before.
    Ahead(ProducerId),
    /// A hook took too long. Its producer is lost.
    Expired(Expired),
    /// The producer failed consecutive items that others succeeded with, and is lost.
    Quarantined(ProducerId),
    /// The producer is still in a hook although its run is over, and is lost.
    Abandon(ProducerId),
    /// Fewer producers are live than the run needs.
    TooFewProducers {
        /// The number of live producers.
        live: usize,
    },
    /// The time of the run is over.
    RunTimedOut,
}

/// A hook that took too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// The producer in the hook.
    pub producer: ProducerId,
    /// `None` if the producer had not joined the run.
    pub lease: Option<LeaseId>,
    /// Which hook it was in.
    pub phase: Phase,
    /// The number of the attempt; the first is 1.
    pub attempt: u32,
    /// The number of items of the call.
    pub leased: usize,
    /// The items that have failed by it, since no other copy is left. The backend creates their error and
    /// calls [`decide`](super::Scheduler::decide).
    pub items: Vec<u64>,
}

impl Expired {
    /// For a producer that holds no lease.
    pub(super) fn of_absence(producer: ProducerId, absence: Absence) -> Self {
        let (phase, items) = (Phase::from(absence), vec![]);
        Expired { producer, lease: None, phase, attempt: 1, leased: 0, items }
    }
}

/// The events that the backend has not seen yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Events(VecDeque<SchedulerEvent>);

impl Events {
    pub(super) fn push(&mut self, event: SchedulerEvent) {
        self.0.push_back(event);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<SchedulerEvent> {
        self.0.pop_front()
    }
}
