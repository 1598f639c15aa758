//! Whether more items can come, and whether the consumer waits.

use crate::batch::{Batch, More};

/// Whether more items may be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// By the feeder.
    MayCome,
    /// By callers, each of which may wait for the result of its last item. So no batch can count on more.
    Calls,
    /// No more items are offered.
    Ended,
}

/// What the feeder or the consumer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    #[default]
    /// It waits for nothing that the scheduler knows of.
    Working,
    /// The feeder waits for permits; the consumer waits for results.
    Waiting,
}

/// What happens before the scheduler and behind it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) input: Input,
    pub(super) feeder: Activity,
    pub(super) consumer: Activity,
}

impl Flow {
    pub(super) fn new(input: Input) -> Self {
        Flow { input, feeder: Activity::Working, consumer: Activity::Working }
    }

    /// Whether more items can come before one that waits is taken by this rule.
    pub(super) fn more(&self, rule: &Batch) -> More {
        match (self.input, self.feeder) {
            (Input::Ended, _) | (Input::MayCome, Activity::Waiting) => More::Never,
            (Input::MayCome, Activity::Working) => More::MayCome,
            (Input::Calls, _) => {
                if rule.is_timed() {
                    More::MayCome
                } else {
                    More::Never
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_can_come_while_the_feeder_waits_and_from_calls_only_in_time() {
        let (rule, timed) = (Batch::of(4), Batch::of(4).within(Duration::from_secs(1)));
        let mut flow = Flow::new(Input::MayCome);
        assert_eq!(flow.more(&rule), More::MayCome);
        flow.feeder = Activity::Waiting;
        assert_eq!(flow.more(&rule), More::Never);
        let calls = Flow::new(Input::Calls);
        assert_eq!([rule, timed].map(|rule| calls.more(&rule)), [More::Never, More::MayCome]);
        assert_eq!(Flow::new(Input::Ended).more(&timed), More::Never);
    }
}
