//! What happens to a producer: it gets a state, waits, is lost or replaced.

use std::sync::Arc;
use std::time::Duration;

use crate::bins::nanos;
use crate::recorder::Recorder;
use crate::span::IncidentKind;
use crate::time_kind::{SpentIn, SpentTime, TimeKind};

impl Recorder {
    /// A worker of a cluster takes part as this producer.
    pub fn worker_joined(&mut self, at: Duration, producer: usize, place: &str) {
        self.pass(at);
        let lane = self.lanes.get_mut(producer);
        lane.into_iter().for_each(|lane| lane.set_worker(place));
    }

    /// A worker of a cluster was lost. It had given no sign of life for `silent`.
    pub fn worker_lost(&mut self, at: Duration, producer: usize, why: &str, silent: Duration) {
        let spent = |place| SpentTime { kind: TimeKind::Dead, took: silent, place };
        let has_items =
            self.lanes.get(producer).is_some_and(|lane| lane.in_hand.busy_from().is_some());
        let place = if has_items { SpentIn::Hook } else { SpentIn::Wait };
        self.time_spent(at, producer, spent(place));
        self.incidents.keep_loss(at, IncidentKind::WorkerLost, producer, why);
    }

    /// A producer's state is ready.
    pub fn ready(&mut self, at: Duration, producer: usize, took: Duration, is_rebuilt: bool) {
        self.pass(at);
        let Some(lane) = self.lanes.get_mut(producer) else { return };
        lane.row.init = took;
        // A state of an earlier run, or one that was made before this run, took no time of it.
        if (is_rebuilt || !lane.has_been_ready) && took <= at {
            self.times.set_aside(producer, TimeKind::Loading, nanos(at - took), nanos(at));
        }
        lane.has_been_ready = true;
        if is_rebuilt {
            lane.row.rebuilds += 1;
            lane.row.rebuilding += took;
            self.incidents.keep_rebuild(at, producer, took);
        }
    }

    /// A producer has spent time up to now on something other than an item: within a call of its hook, or between two.
    pub fn time_spent(&mut self, at: Duration, producer: usize, spent: SpentTime) {
        self.pass(at);
        let SpentTime { kind, took, place } = spent;
        let (from, until) = (nanos(at.saturating_sub(took)), nanos(at));
        let Some(lane) = self.lanes.get_mut(producer) else { return };
        if place == SpentIn::Hook {
            let Some(busy_from) = lane.in_hand.busy_from() else { return };
            let since = lane.in_hand.busy_since(busy_from, from);
            lane.in_hand.set_aside(until, until - from);
            self.times.work(producer, since, from);
        }
        self.times.set_aside(producer, kind, from, until);
    }

    /// A producer exceeded its time limit: the run has given up on the items in hand. The producer may continue, but the
    /// items are over. How they ended is told later.
    pub fn abandoned(&mut self, at: Duration, producer: usize) {
        self.pass(at);
        let lane = self.lanes.get_mut(producer).filter(|lane| !lane.row.abandoned);
        lane.into_iter().for_each(|lane| lane.cut_off_at = Some(nanos(at)));
        let why = Arc::from("it did not return in time");
        self.lost(at, IncidentKind::Abandoned, producer, &why);
    }

    /// A producer takes no more items: its device failed.
    pub fn quarantined(&mut self, at: Duration, producer: usize, why: &Arc<str>) {
        self.pass(at);
        self.lost(at, IncidentKind::Quarantined, producer, why);
    }

    /// A producer has ended its state and built a new one.
    pub fn recycled(&mut self, at: Duration, producer: usize, took: Duration) {
        self.pass(at);
        if let Some(lane) = self.lanes.get_mut(producer) {
            lane.row.recycles += 1;
            lane.row.recycling += took;
            let from = nanos(at.saturating_sub(took));
            self.times.set_aside(producer, TimeKind::Loading, from, nanos(at));
        }
    }

    /// Begins the time of another producer in this place. Events of items that began before may still come.
    pub fn replaced(&mut self, at: Duration, producer: usize) {
        self.pass(at);
        let Some(lane) = self.lanes.get_mut(producer) else { return };
        lane.replace(nanos(at));
        self.incidents.keep_loss(at, IncidentKind::Replaced, producer, "");
    }

    fn lost(&mut self, at: Duration, kind: IncidentKind, producer: usize, why: &Arc<str>) {
        let Some(lane) = self.lanes.get_mut(producer) else { return };
        let is_known = match kind {
            IncidentKind::Quarantined => lane.row.quarantined.replace(why.to_string()).is_some(),
            _ => std::mem::replace(&mut lane.row.abandoned, true),
        };
        if !is_known {
            self.incidents.keep_loss(at, kind, producer, why);
        }
    }

    /// Ends what a producer had in hand when it was replaced, if that was before `until`.
    pub(super) fn end_replaced(&mut self, producer: usize, until: u64) {
        let replaced = self.lanes.get_mut(producer).and_then(|lane| lane.end_replaced(until));
        let Some((in_hand, at, is_measured)) = replaced else { return };
        for work in in_hand {
            let took = work.took(at);
            if !is_measured {
                self.times.measure(producer, &work, took);
            }
            self.times.spans.keep(producer, work, took);
        }
    }
}
