//! Observes the untracked items of a producer.

use crate::observe::event_log::EventWriter;
use crate::run::Run;

/// Observes the untracked items of a producer.
pub(super) trait ItemObserver {
    fn started<I, T>(&mut self, run: &Run<I, T>, item: u64);
    fn finished(&mut self, item: u64);
    /// Counts an item that the producer succeeded at, before its result is delivered.
    fn done(&self);
    /// Notes that the producer has waited or done other work since its last item.
    fn pause(&mut self);
}

/// Ignores everything, at no cost.
pub(super) struct NoObserver;

impl ItemObserver for NoObserver {
    #[inline]
    fn started<I, T>(&mut self, _: &Run<I, T>, _: u64) {}

    #[inline]
    fn finished(&mut self, _: u64) {}

    #[inline]
    fn done(&self) {}

    #[inline]
    fn pause(&mut self) {}
}

impl ItemObserver for EventWriter {
    #[inline]
    fn started<I, T>(&mut self, run: &Run<I, T>, item: u64) {
        EventWriter::started(self, item, run.name_of(item), 1);
    }

    #[inline]
    fn finished(&mut self, item: u64) {
        EventWriter::finished(self, item);
    }

    #[inline]
    fn done(&self) {
        EventWriter::done(self);
    }

    #[inline]
    fn pause(&mut self) {
        EventWriter::pause(self);
    }
}
