//! Measures the times of hooks while a worker's part in a run has items.

use crate::backend::cluster::hook_times::HookTimes;

/// Adds up the times of a service's hooks while one part has begun items. The service may serve other runs before, after
/// and beside this part; the hooks of those beside it count too.
#[derive(Debug, Default)]
pub(super) struct Meter {
    so_far: HookTimes,
    /// The reading of the service when the part began an item after a pause.
    resumed: Option<HookTimes>,
}

impl Meter {
    pub(super) fn resume(&mut self, reading: HookTimes) {
        self.resumed = Some(reading);
    }

    pub(super) fn pause(&mut self, reading: HookTimes) {
        self.so_far = self.times(reading);
        self.resumed = None;
    }

    /// The times up to a reading.
    pub(super) fn times(&self, reading: HookTimes) -> HookTimes {
        self.resumed.map_or(self.so_far, |resumed| self.so_far.and(reading.since(resumed)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_count_while_the_part_has_items() {
        let working =
            |seconds| HookTimes { working: Duration::from_secs(seconds), ..HookTimes::default() };
        let mut meter = Meter::default();
        assert_eq!(meter.times(working(7)), working(0), "another run had the service");
        meter.resume(working(7));
        assert_eq!(meter.times(working(9)), working(2));
        meter.pause(working(10));
        assert_eq!(meter.times(working(90)), working(3));
        meter.resume(working(90));
        assert_eq!(meter.times(working(91)), working(4));
    }
}
